"""The store: one DuckDB file per run, and the only code that opens one."""

from tracekit.store.store import SCHEMA_VERSION, Reader, Writer, open_run

__all__ = ["SCHEMA_VERSION", "Reader", "Writer", "open_run"]
