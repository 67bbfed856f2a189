"""The store: one DuckDB file per run, and the only code that opens one."""

from tracekit.store.opening import StoreLockedError
from tracekit.store.store import SCHEMA_VERSION, Reader, Writer, open_run

__all__ = ["SCHEMA_VERSION", "Reader", "StoreLockedError", "Writer", "open_run"]
