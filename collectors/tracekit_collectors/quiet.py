"""What torch itself would print because a profiler runs, and would not without us.

libkineto's lines are silenced by the environment (see launch). The other one is of the CPU
allocator: it complains of the first block, and of every thousandth, that is freed while memory is
recorded but was allocated before.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

_LEVEL = "FLAGS_caffe2_log_level"  # the lowest severity that libc10 prints
_ERROR = 2


def block() -> Any:
    """A block of the CPU allocator, to be given to :func:`complain_unheard` later."""
    import torch

    return torch.empty(1, device="cpu")


def complain_unheard(blocks: list[Any]) -> None:
    """Free the block while memory is recorded, with libc10 set to print errors only for as long as
    that takes: the complaint about it is the first, and the next 999 go without one.

    Where libc10 has no such setting, nothing happens, and torch prints what it prints.
    """
    import torch

    path = Path(torch.__file__).parent / "lib" / "libc10.so"
    try:
        level = ctypes.c_int.in_dll(ctypes.CDLL(str(path)), _LEVEL)
    except (OSError, ValueError):
        return
    before = level.value
    level.value = max(before, _ERROR)
    try:
        blocks.clear()
    finally:
        level.value = before
