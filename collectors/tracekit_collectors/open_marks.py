"""Marks of the program that are still open when a window ends.

torch writes the end of a mark (``record_function``) into the recording in which the mark began. A
mark that outlives its recording, and ends while the next one is on, writes into memory that has
been freed: seen as a crash at the end of the process, in torch 2.13. The optimizer's own mark is
one of them, for a window ends within it. So all of them are ended with the window, in which they
then appear as far as they were recorded; the program ending them again does nothing.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any


class OpenMarks:
    """Sees the marks of one thread begin, from ``watch`` until ``end``."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._number = itertools.count()
        # Weak: a mark that is dropped has ended.
        self._seen: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._enter: Any = None
        self._patched: Any = None

    def watch(self) -> None:
        """From here on."""
        from torch.autograd.profiler import record_function

        original: Any = record_function.__enter__
        marks = self

        def enter(self: Any) -> Any:
            if marks._patched is not None and threading.get_ident() == marks._thread:
                marks._seen[next(marks._number)] = self
            return original(self)

        self._enter, self._patched = original, enter
        record_function.__enter__ = enter  # type: ignore[method-assign]

    def end(self) -> None:
        """End what is open, the last one first, and watch no more. Again: nothing."""
        import torch

        opened = sorted(self._seen.items(), reverse=True)
        self.forget()
        for _, mark in opened:
            if mark.record is not None:  # ending one that has ended does nothing
                torch.ops.profiler._record_function_exit._RecordFunction(mark.record)

    def forget(self) -> None:
        """Watch no more, and end nothing."""
        from torch.autograd.profiler import record_function

        patched, self._patched = self._patched, None
        # Somebody else's patch over ours stays, and calls through ours.
        if patched is not None and record_function.__enter__ is patched:
            record_function.__enter__ = self._enter  # type: ignore[method-assign]
        self._seen.clear()
