"""A run, to read from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from tracekit.store.apart import apart

_Result = TypeVar("_Result")


class Reader:
    """A run, read-only. One reader may be used from several threads through :meth:`cursor`.

    Attributes:
        path: The database.
        warning: What of it could not be read, or None: for the user to see.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, path: Path, warning: str | None = None
    ) -> None:
        self._connection = connection
        self.path = path
        self.warning = warning

    def cursor(self) -> Reader:
        """An independent reader of the same database, for another thread or widget."""
        return Reader(self._connection.cursor(), self.path, self.warning)

    def execute(
        self, sql: str, parameters: Mapping[str, Any] | Sequence[Any] | None = None
    ) -> None:
        """Run a statement for what it does."""
        self._apart(lambda: self._connection.execute(sql, parameters))

    def rows(
        self, sql: str, parameters: Mapping[str, Any] | Sequence[Any] | None = None
    ) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self.table(sql, parameters)[1]

    def table(
        self,
        sql: str,
        parameters: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        most: int | None = None,
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names of the columns of a query and its rows, ``most`` at most.

        Raises:
            duckdb.Error: it is no query, or cannot be answered.
            KeyboardInterrupt: while it ran.
        """

        def ask() -> tuple[list[str], list[tuple[Any, ...]]]:
            cursor = self._connection.execute(sql, parameters)
            names = [column[0] for column in cursor.description or ()]
            return names, cursor.fetchall() if most is None else cursor.fetchmany(most)

        return self._apart(ask)

    def scalar(self, sql: str, parameters: Mapping[str, Any] | Sequence[Any] | None = None) -> Any:
        """The first column of the first row, or None where there is no row."""
        # All rows: a result that is not read to its end is in the way of the next statement.
        rows = self.rows(sql, parameters)
        return rows[0][0] if rows else None

    def interrupt(self) -> None:
        """Stop the query that another thread runs on this reader."""
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _apart(self, work: Callable[[], _Result]) -> _Result:
        return apart(work, self.interrupt)
