"""A run that is being built.

A statement costs milliseconds whatever it holds, and rows are packed a row group at a time: so what
is appended waits until it is worth a statement, or until anything else is asked of the database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from tracekit.store.reader import Reader

if TYPE_CHECKING:
    import pyarrow as pa  # whoever appends has loaded it

ROW_GROUP = 49152  # 24 vectors: measured, see docs/performance.md
_MOST_WAITING_BYTES = 8 << 20  # of a table
_ROWS_A_STATEMENT = 500


class Writer(Reader):
    """A database that is being built; see :func:`tracekit.store.store.create`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: Path) -> None:
        super().__init__(connection, path)
        self._tables: dict[str, list[pa.Table]] = {}
        self._rows: dict[str, list[Sequence[Any]]] = {}

    def append(self, table: str, data: pa.Table) -> None:
        """Append an Arrow table whose columns are named as the columns of ``table``, soon."""
        waiting = self._tables.setdefault(table, [])
        waiting.append(data)
        rows = sum(part.num_rows for part in waiting)
        if rows >= ROW_GROUP or sum(part.nbytes for part in waiting) >= _MOST_WAITING_BYTES:
            self._write(table)

    def add(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Append a few rows in the order of the table's columns, soon."""
        self._rows.setdefault(table, []).extend(rows)

    def insert(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Append a few rows in the order of the table's columns, now.

        Raises:
            duckdb.Error: a value that its column does not take.
        """
        for start in range(0, len(rows), _ROWS_A_STATEMENT):
            part = rows[start : start + _ROWS_A_STATEMENT]
            marks = "(" + ", ".join("?" * len(part[0])) + ")"
            super().execute(
                f"INSERT INTO {table} VALUES {', '.join([marks] * len(part))}",  # noqa: S608
                [storable(value) for row in part for value in row],
            )

    def execute(
        self, sql: str, parameters: Mapping[str, Any] | Sequence[Any] | None = None
    ) -> None:
        """Run one statement, which sees all that was appended."""
        self._flush()
        super().execute(sql, parameters)

    def table(
        self,
        sql: str,
        parameters: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        most: int | None = None,
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Ask, which sees all that was appended."""
        self._flush()
        return super().table(sql, parameters, most=most)

    def script(self, sql: str) -> None:
        """Run several statements."""
        self.execute(sql)

    def _flush(self) -> None:
        while self._rows:
            self.insert(*self._rows.popitem())
        for table in list(self._tables):
            self._write(table)

    def _write(self, table: str) -> None:
        import pyarrow as pa  # whoever appends has loaded it

        data = pa.concat_tables(self._tables.pop(table)).unify_dictionaries()
        columns = ", ".join(f'"{name}"' for name in data.column_names)
        self._connection.register("_incoming", data)
        try:
            super().execute(
                f"INSERT INTO {table} ({columns}) SELECT {columns} FROM _incoming"  # noqa: S608
            )
        finally:
            self._connection.unregister("_incoming")


def as_map(items: Mapping[str, str | int]) -> dict[str, list[Any]]:
    """A value of a column of type MAP."""
    stored = {storable(key): value for key, value in items.items()}  # two keys may become one
    return {"key": list(stored), "value": list(stored.values())}


def storable(value: Any) -> Any:
    """A file name or a note may hold lone surrogates, which no UTF-8 column takes."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "replace").decode()
    return value
