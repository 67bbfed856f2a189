"""The memory history of CUDA in one window: torch's own snapshot, written as torch writes it.

A program that records a history itself, before the window or within it, keeps it: there is one in a
process, and ours goes.
"""

from __future__ import annotations

import gzip
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Of alloc and free, the latest: some 0.1 KB each, and 0.5 KB more while a snapshot is made of them.
MAX_ENTRIES = 100_000
_STARTS = ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy")


class History:
    """Recorded from ``start`` to ``stop``.

    Args:
        stacks: Which call allocated what was freed since as well, not only what lives at the end.

    Attributes:
        missing: Why there is none.
    """

    def __init__(self, *, stacks: bool) -> None:
        self._context = "alloc" if stacks else "state"
        self._originals: dict[str, Callable[..., Any]] = {}
        self.missing: str | None = None

    def start(self) -> None:
        import torch

        if torch._C._cuda_isHistoryEnabled():
            self._leave("the program records a memory history of its own; it is left alone")
            return
        # C++ frames would take a symbol lookup each.
        torch.cuda.memory._record_memory_history(
            "all", context=self._context, stacks="python", max_entries=MAX_ENTRIES,
            clear_history=True,
        )  # fmt: skip
        for name in _STARTS:
            if (original := getattr(torch._C, name, None)) is not None:
                self._originals[name] = original
                setattr(torch._C, name, self._watched(original))

    def stop(self) -> dict[str, Any] | None:
        """The snapshot at this moment; None where there is none, and ``missing`` says why."""
        import torch

        self._unwatch()
        if self.missing is not None:
            return None
        try:
            snapshot: dict[str, Any] = torch.cuda.memory._snapshot()
            return snapshot
        finally:
            torch.cuda.memory._record_memory_history(None)

    def _watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def started_by_program(*args: Any, **kwargs: Any) -> Any:
            self._leave("the program began a memory history of its own within the window")
            return original(*args, **kwargs)

        return started_by_program

    def _leave(self, why: str) -> None:
        self.missing = why
        self._unwatch()

    def _unwatch(self) -> None:
        import torch

        for name, original in self._originals.items():
            setattr(torch._C, name, original)
        self._originals.clear()


def write(snapshot: dict[str, Any], path: Path) -> None:
    """As torch's own dump, packed; it stands under its name when it is whole.

    The pickler hands on a frame of 64 KiB at a time, and the interpreter is let go while it is
    compressed.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with gzip.open(partial, "wb", compresslevel=3) as file:
            pickle.dump(snapshot, file, protocol=4)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
