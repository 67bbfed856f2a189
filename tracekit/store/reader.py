"""A run, to read from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb


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
    ) -> duckdb.DuckDBPyConnection:
        """Run one statement and return the connection, to fetch from."""
        with interruptible():
            return self._connection.execute(sql, parameters)

    def rows(
        self, sql: str, parameters: Mapping[str, Any] | Sequence[Any] | None = None
    ) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with interruptible():
            return self.execute(sql, parameters).fetchall()

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


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """DuckDB makes a plain error of the interrupt that ended a query.

    Raises:
        KeyboardInterrupt: what it was.
    """
    try:
        yield
    except RuntimeError as error:
        if str(error) == "Query interrupted":
            raise KeyboardInterrupt from error
        raise
