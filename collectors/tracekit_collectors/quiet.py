"""What torch itself would print because a profiler runs, and would not without us.

libkineto prints lines of its own at each window. The CPU allocator complains of the first block,
and of every thousandth, that is freed while memory is recorded but was allocated before.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# The lowest severities that are printed: the library of torch's, and the name of the setting.
_ALLOCATOR = "libc10.so", "FLAGS_caffe2_log_level"
_LIBKINETO = "libtorch_cpu.so", "_ZN9libkineto6Logger14severityLevel_E"
_ERROR = 2
NONE = 99  # the highest level that libkineto names is 5
VARIABLE = "KINETO_LOG_LEVEL"  # read by libkineto once, at the first profile of a process


@contextlib.contextmanager
def libkineto() -> Iterator[None]:
    """It prints nothing inside, unless the environment says what it is to print.

    The environment, which the program's children inherit, is not touched.
    """
    if VARIABLE in os.environ:
        yield
    else:
        with _raised(_LIBKINETO, NONE):
            yield


@contextlib.contextmanager
def _raised(setting: tuple[str, str], severity: int) -> Iterator[None]:
    """Print only from that severity on; where torch has no such setting, all as ever."""
    level = _level(*setting)
    if level is None:
        yield
        return
    before = level.value
    level.value = max(before, severity)
    try:
        yield
    finally:
        level.value = before


def _level(library: str, name: str) -> ctypes.c_int | None:
    import torch

    path = Path(torch.__file__).parent / "lib" / library
    try:
        return ctypes.c_int.in_dll(ctypes.CDLL(str(path)), name)
    except (OSError, ValueError):
        return None


def block() -> Any:
    """A block of the CPU allocator, to be given to :func:`complain_unheard` later."""
    import torch

    return torch.empty(1, device="cpu")


def complain_unheard(blocks: list[Any]) -> None:
    """Free the block while memory is recorded, with libc10 set to print errors only for as long as
    that takes: the complaint about it is the first, and the next 999 go without one.

    Where libc10 has no such setting, nothing happens, and torch prints what it prints.
    """
    if _level(*_ALLOCATOR) is not None:
        with _raised(_ALLOCATOR, _ERROR):
            blocks.clear()
