"""The store: one DuckDB file per run, and the only code that opens one."""

from tracekit.store.opening import StoreLockedError
from tracekit.store.reader import Reader
from tracekit.store.store import SCHEMA_VERSION, open_run
from tracekit.store.writer import Writer

__all__ = ["SCHEMA_VERSION", "Reader", "StoreLockedError", "Writer", "open_run"]
