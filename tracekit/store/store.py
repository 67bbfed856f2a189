"""Open, create and check the database of a run: the one owner of DuckDB connections.

A new database is built beside its place and moved there when it is whole, so that an interrupted
ingest leaves what existed before. Reading is read-only and cut off from the file system: a name
or a query from outside can reach nothing but the run itself.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb

from tracekit import __version__
from tracekit.errors import StoreError
from tracekit.store.apart import apart
from tracekit.store.building import disk_errors, identity_of, only_one, place_for
from tracekit.store.opening import first_line, log_of, open_readable, opening_error
from tracekit.store.reader import Reader
from tracekit.store.writer import ROW_GROUP, Writer

SCHEMA_VERSION = 6

# What a database says of itself. A view and no table, which would take a block for two words.
_META = (
    "CREATE VIEW meta AS SELECT unnest(['schema_version', 'tracekit_version']) AS key, "
    f"unnest(['{SCHEMA_VERSION}', '{__version__}']) AS value"
)

# Files of DuckDB 2 default to a format that no released 1.x client opens.
_STORAGE_VERSION = "v1.5.0"

# Most tables are small, and each column takes a block of its own. What is not whole is thrown
# away, so no log is needed to repair it.
_ATTACH_OPTIONS = f"BLOCK_SIZE 65536, ROW_GROUP_SIZE {ROW_GROUP}, RECOVERY_MODE no_wal_writes"

# The same for every reader: readers of one file in one process share its instance.
_READ_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "lock_configuration": True,
}

# Columns of the source tables that the derivation fills, and their value before it.
_DERIVED_COLUMNS = {
    "rank": {
        "evidence": "'none'",
        "gpu": "NULL",
        **dict.fromkeys(
            (f"clock_{what}" for what in ("domain", "offset_ns", "spread_ns", "samples")), "NULL"
        ),
        "clock_aligned": "NULL",
        "clock_note": "NULL",
    },
    "process_group": {"dim": "NULL"},
    "thread": {"is_main": "false"},
}


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
def create(
    path: Path,
    *,
    memory_limit: int | None = None,
    threads: int | None = None,
    base: Path | None = None,
) -> Iterator[Writer]:
    """Build a new database for ``path``: there whole, or not at all.

    Args:
        path: Where the database will be; what is there now stays until the new one is whole.
        memory_limit: Bytes that DuckDB may hold; the rest goes to a folder beside the database.
        threads: Threads that DuckDB may use.
        base: A database whose source tables the new one begins with; what is derived from them
            is left for the derivation to make anew. It may be ``path`` itself.

    Raises:
        StoreError: the folder cannot be written, the disk is full, the memory limit is too low,
            ``base`` cannot be read, or what is at ``path`` has changed since we began.
    """
    began_with = identity_of(path)
    with place_for(path) as (building, overflow), disk_errors(path):
        connection = _connect_new(path, building, overflow, memory_limit, threads)
        try:
            writer = Writer(connection, path)
            writer.script(sql_file("tracekit.store", "schema.sql"))
            writer.script(sql_file("tracekit.store", "macros/intervals.sql"))
            writer.script(sql_file("tracekit.store", "views.sql"))
            writer.execute(_META)
            if base is not None:
                _begin_with(writer, base)
            yield writer
            writer.execute("CHECKPOINT run")
        finally:
            connection.close()
        try:
            with only_one(path):
                if identity_of(path) != began_with:
                    raise StoreError(
                        f"{path}: was changed by another program in the meantime; nothing was "
                        "written: run the command again"
                    )
                building.replace(path)
                # The log of the database that was replaced says nothing of this one.
                log_of(path).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error


def _connect_new(
    path: Path, building: Path, overflow: Path, memory_limit: int | None, threads: int | None
) -> duckdb.DuckDBPyConnection:
    config: dict[str, str | bool | int | float | list[str]] = {
        "storage_compatibility_version": _STORAGE_VERSION,
        "temp_directory": str(overflow),
    }
    if memory_limit is not None:
        config["memory_limit"] = f"{memory_limit}B"
    if threads is not None:
        config["threads"] = threads
    connection = apart(lambda: duckdb.connect(":memory:", config=config), _nothing)
    statements = (
        f"ATTACH '{_quoted(building)}' AS run ({_ATTACH_OPTIONS})",
        "USE run",
        # What is closed before it is whole is thrown away.
        "PRAGMA disable_checkpoint_on_shutdown",
    )
    try:
        for sql in statements:
            apart(functools.partial(connection.execute, sql), connection.interrupt)
    except duckdb.Error as error:
        connection.close()
        raise StoreError(f"{path}: cannot be created: {first_line(error)}") from error
    return connection


def _nothing() -> None:
    """Opening cannot be stopped, and takes a moment only."""


def _begin_with(writer: Writer, base: Path) -> None:
    """Copy the source tables of another run."""
    if not base.is_file():
        raise StoreError(f"{base}: no such file")
    open_readable(base, lambda at: writer.execute(f"ATTACH '{_quoted(at)}' AS base (READ_ONLY)"))
    try:
        found = writer.scalar("SELECT value FROM base.meta WHERE key = 'schema_version'")
    except duckdb.CatalogException as error:
        raise StoreError(f"{base}: a DuckDB file, but not a tracekit run") from error
    _check_version(base, found)
    for table in _source_tables():
        reset = _DERIVED_COLUMNS.get(table, {})
        values = ", ".join(f"{value} AS {column}" for column, value in reset.items())
        # Damage that no file has is what the derivation found.
        condition = " WHERE file_id IS NOT NULL" if table == "damage" else ""
        writer.execute(
            f"INSERT INTO {table} BY NAME SELECT *"  # noqa: S608
            + (f" REPLACE ({values})" if values else "")
            + f" FROM base.{table}{condition}"
        )
    writer.execute("DETACH base")


def _source_tables() -> list[str]:
    """The tables that hold what the files say."""
    sources = sql_file("tracekit.store", "schema.sql").partition("-- Derived ")[0]
    return re.findall(r"CREATE TABLE (\w+)", sources)


def open_run(path: Path) -> Reader:
    """Open an existing run read-only.

    Raises:
        StoreLockedError: another program writes to it.
        StoreError: there is no such file, it is no run, or of another schema version.
    """
    if not path.is_file():
        what = "is a folder; give the run.db" if path.is_dir() else "no such file"
        raise StoreError(f"{path}: {what}")
    # In the second thread: in the main one DuckDB makes an error of its own of Ctrl-C.
    connection, warning = open_readable(
        path,
        lambda at: apart(
            lambda: duckdb.connect(str(at), read_only=True, config=_READ_CONFIG), _nothing
        ),
    )
    sql = "SELECT value FROM meta WHERE key = 'schema_version'"
    try:
        version = apart(lambda: connection.execute(sql).fetchone(), connection.interrupt)
        _check_version(path, version[0] if version else None)
    except duckdb.CatalogException as error:
        connection.close()
        raise StoreError(f"{path}: a DuckDB file, but not a tracekit run") from error
    except duckdb.Error as error:
        connection.close()
        raise opening_error(path, error) from error
    except StoreError:
        connection.close()
        raise
    return Reader(connection, path, warning)


def _check_version(path: Path, found: Any) -> None:
    if found != str(SCHEMA_VERSION):
        raise StoreError(
            f"{path}: schema version {found or 'none'}, this tracekit reads {SCHEMA_VERSION}; "
            "ingest the run directory again"
        )


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
