"""Where the program itself writes traces: they are its own, and are offered to the ingest."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from tracekit_collectors.hooks import quietly

_MOST = 1000
# Exports that are under way: one calls another, and ours are none of the program's.
_depth = [0]


@contextlib.contextmanager
def not_noted() -> Iterator[None]:
    """What is exported inside is not the program's."""
    _depth[0] += 1
    try:
        yield
    finally:
        _depth[0] -= 1


def watch(torch: ModuleType) -> None:
    """From here on, note where a profiler exports to."""
    for cls in (torch.profiler.profile, torch.autograd.profiler.profile):
        _watch(cls)


def _watch(cls: Any) -> None:
    original = cls.export_chrome_trace

    @functools.wraps(original)
    def export_chrome_trace(self: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        is_programs = not _depth[0]
        with not_noted():
            result = original(self, path, *args, **kwargs)
        if is_programs:
            quietly(_written, path)
        return result

    cls.export_chrome_trace = export_chrome_trace


def _written(path: Any) -> None:
    from tracekit_collectors import capture

    capture.current().program_wrote(os.path.realpath(os.fspath(path)))


def add(known: list[str], path: str) -> bool:
    """Whether it is new, and there is room for it."""
    if path in known or len(known) >= _MOST:
        return False
    known.append(path)
    return True
