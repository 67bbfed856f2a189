"""How many files are read at once, and how much memory each part of an ingest may take."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

from tracekit.errors import UsageError
from tracekit.store.writer import ROW_GROUP

DEFAULT_MEMORY_BYTES = 2 << 30
# Measured: the interpreter with its libraries, batches on their way, tables of strings.
_OWN_BYTES = 200 << 20
# A reader holds its text, a batch of rows and of columns, and its strings.
_READER_BYTES = 110 << 20
_SMALLEST_STORE_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """The shares of the parts."""

    jobs: int
    rows: int
    store_bytes: int
    snapshot_bytes: int  # for one memory snapshot, which is read when the readers are gone

    @classmethod
    def of(
        cls, jobs: int | None, memory_limit: int | None, *, files: int, snapshots: bool = False
    ) -> Self:
        """Share out a limit; ``snapshots``: there are some to be read.

        Raises:
            UsageError: less than the smallest ingest needs.
        """
        total = DEFAULT_MEMORY_BYTES if memory_limit is None else memory_limit
        left = total - _OWN_BYTES - _SMALLEST_STORE_BYTES
        if left < _READER_BYTES:
            least = (_OWN_BYTES + _SMALLEST_STORE_BYTES + _READER_BYTES) >> 20
            raise UsageError(
                f"--memory-limit {total >> 20} MiB: an ingest needs at least {least} MiB"
            )
        wanted = max(1, min(jobs or os.cpu_count() or 1, files))
        readers = max(1, min(wanted, left // _READER_BYTES))
        share = readers * _READER_BYTES
        if snapshots:
            share = max(share, left // 2)
        return cls(readers, ROW_GROUP, total - _OWN_BYTES - share, share)
