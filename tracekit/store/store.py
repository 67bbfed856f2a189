"""Open, create and check the database of a run: the one owner of DuckDB connections.

A new database is built beside its place and moved there when it is whole, so that an interrupted
ingest leaves what existed before. Reading is read-only and cut off from the file system: a name
or a query from outside can reach nothing but the run itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from tracekit import __version__
from tracekit.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1

# Files of DuckDB 2 default to a format that no released 1.x client opens.
_STORAGE_VERSION = "v1.5.0"


# The same for every reader: readers of one file in one process share its instance.
_READ_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "lock_configuration": True,
}


_ROWS_A_STATEMENT = 500


class Reader:
    """A run, read-only. One reader may be used from several threads through :meth:`cursor`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: Path) -> None:
        self._connection = connection
        self.path = path

    def cursor(self) -> Reader:
        """An independent reader of the same database, for another thread or widget."""
        return Reader(self._connection.cursor(), self.path)

    def execute(
        self, sql: str, parameters: Mapping[str, Any] | Sequence[Any] | None = None
    ) -> duckdb.DuckDBPyConnection:
        """Run one statement and return the connection, to fetch from."""
        return self._connection.execute(sql, parameters)

    def rows(
        self, sql: str, parameters: Mapping[str, Any] | Sequence[Any] | None = None
    ) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self._connection.execute(sql, parameters).fetchall()

    def scalar(self, sql: str, parameters: Mapping[str, Any] | Sequence[Any] | None = None) -> Any:
        """The first column of the first row, or None where there is no row."""
        row = self._connection.execute(sql, parameters).fetchone()
        return None if row is None else row[0]

    def interrupt(self) -> None:
        """Stop the query that another thread runs on this reader."""
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Writer(Reader):
    """A database that is being built; see :func:`create`."""

    def append(self, table: str, data: pa.Table) -> None:
        """Append an Arrow table whose columns are named as the columns of ``table``."""
        columns = ", ".join(f'"{name}"' for name in data.column_names)
        self._connection.register("_incoming", data)
        try:
            self._connection.execute(
                f"INSERT INTO {table} ({columns}) SELECT {columns} FROM _incoming"  # noqa: S608
            )
        finally:
            self._connection.unregister("_incoming")

    def insert(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Append a few rows in the order of the table's columns."""
        # Many rows a statement: one a statement takes about a millisecond each.
        for start in range(0, len(rows), _ROWS_A_STATEMENT):
            part = rows[start : start + _ROWS_A_STATEMENT]
            marks = "(" + ", ".join("?" * len(part[0])) + ")"
            self._connection.execute(
                f"INSERT INTO {table} VALUES {', '.join([marks] * len(part))}",  # noqa: S608
                [_storable(value) for row in part for value in row],
            )

    def script(self, sql: str) -> None:
        """Run several statements."""
        self._connection.execute(sql)


def sql_file(package: str, name: str) -> str:
    """The text of an SQL file that ships inside a package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def refuse_to_replace(path: Path) -> None:
    """Only a database may be replaced by a database, whatever the user forces.

    Raises:
        StoreError: there is something else at ``path``.
    """
    if not path.exists():
        return
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(12)
        # DuckDB's files carry these letters after a checksum.
        if not head or head[8:12] == b"DUCK":
            return
    raise StoreError(f"{path}: is no database; not replaced")


@contextlib.contextmanager
def create(path: Path) -> Iterator[Writer]:
    """Build a new database for ``path``: there whole, or not at all.

    Raises:
        StoreError: the folder cannot be written.
    """
    building = path.with_name(f".{path.name}.{os.getpid()}.building")
    leftovers = (building, building.with_name(building.name + ".wal"))
    try:
        connection = duckdb.connect(
            ":memory:", config={"storage_compatibility_version": _STORAGE_VERSION}
        )
        connection.execute(f"ATTACH '{_quoted(building)}' AS run")
        connection.execute("USE run")
    except duckdb.Error as error:
        raise StoreError(f"{path}: cannot be created: {_first_line(error)}") from error
    try:
        writer = Writer(connection, path)
        writer.script(sql_file("tracekit.store", "schema.sql"))
        writer.script(sql_file("tracekit.store", "macros/intervals.sql"))
        writer.script(sql_file("tracekit.store", "views/events.sql"))
        writer.insert(
            "meta",
            [("schema_version", str(SCHEMA_VERSION)), ("tracekit_version", __version__)],
        )
        yield writer
        connection.execute("CHECKPOINT run")
        connection.close()
        building.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        connection.close()
        for file in leftovers:
            file.unlink(missing_ok=True)


def open_run(path: Path) -> Reader:
    """Open an existing run read-only.

    Raises:
        StoreError: there is no such file, it is locked, no run, or of another schema version.
    """
    if not path.is_file():
        what = "is a folder; give the run.db" if path.is_dir() else "no such file"
        raise StoreError(f"{path}: {what}")
    try:
        connection = duckdb.connect(str(path), read_only=True, config=_READ_CONFIG)
        version = connection.execute(
            "SELECT value FROM meta WHERE key = 'schema_version'"
        ).fetchone()
    except duckdb.CatalogException as error:
        raise StoreError(f"{path}: a DuckDB file, but not a tracekit run") from error
    except duckdb.Error as error:
        raise StoreError(f"{path}: cannot be opened: {_first_line(error)}") from error
    if version is None or version[0] != str(SCHEMA_VERSION):
        connection.close()
        found = version[0] if version else "none"
        raise StoreError(
            f"{path}: schema version {found}, this tracekit reads {SCHEMA_VERSION}; "
            "ingest the run directory again"
        )
    return Reader(connection, path)


def _storable(value: Any) -> Any:
    """A file name or a note may hold lone surrogates, which no UTF-8 column takes."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "replace").decode()
    return value


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _first_line(error: duckdb.Error) -> str:
    return str(error).splitlines()[0]
