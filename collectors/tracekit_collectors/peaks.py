"""Peak memory of each step on CUDA, from the allocator's own counters, read and reset at its end.

The program may ask for peaks too (``torch.cuda.max_memory_allocated``), or reset them itself. It
reads what it would read without us: what our resets take away is kept, and put back in its answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_READ = ("_cuda_memoryStats", "_accelerator_getDeviceStats")
_RESET = ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")
_SOURCES = {"allocated": "allocated_bytes", "reserved": "reserved_bytes"}
NONE_KEPT = "the allocator in use keeps no peaks"

Stats = dict[str, Any]


class StepPeaks:
    """The peaks of one device; made once in a process, for the program is answered for good.

    Args:
        device: Index of the CUDA device.
    """

    def __init__(self, device: int) -> None:
        import torch

        self._device = device
        self._read: Callable[[int], Stats] = getattr(torch._C, _READ[0])
        self._reset: Callable[[int], None] = getattr(torch._C, _RESET[0])
        self._kept: Stats = {}  # peaks that we have reset, and the program has not
        self._seen: dict[str, int] = {}  # of this step, before the program reset them itself
        for names, wrapped in ((_READ, self._reading), (_RESET, self._resetting)):
            for name in names:
                if (original := getattr(torch._C, name, None)) is not None:
                    setattr(torch._C, name, wrapped(original))

    def begin(self) -> None:
        """A step begins."""
        self._kept = _highest(self._read(self._device), self._kept)
        self._reset(self._device)
        self._seen = {}

    def step_ended(self) -> dict[str, Any]:
        """Bytes at most allocated and reserved in the step; the next one begins."""
        found = self._now()
        self.begin()
        return dict(found) if found["allocated"] else {"missing": NONE_KEPT}

    def _now(self) -> dict[str, int]:
        stats = self._read(self._device)
        return {
            name: max(stats[source]["all"]["peak"], self._seen.get(name, 0))
            for name, source in _SOURCES.items()
        }

    def _reading(self, original: Callable[[int], Stats]) -> Callable[[int], Stats]:
        def stats(device: int) -> Stats:
            found = original(device)
            return _highest(found, self._kept) if device == self._device else found

        return stats

    def _resetting(self, original: Callable[[int], None]) -> Callable[[int], None]:
        def reset(device: int) -> None:
            if device == self._device:
                self._seen, self._kept = self._now(), {}
            original(device)

        return reset


def _highest(stats: Stats, kept: Stats) -> Stats:
    """The same, each ``peak`` at least as high as the one kept: {what: {pool: {peak: n}}}."""
    raised = {}
    for name, value in stats.items():
        other = kept.get(name)
        if isinstance(value, dict):
            value = _highest(value, other if isinstance(other, dict) else {})
        elif name == "peak" and isinstance(other, int):
            value = max(value, other)
        raised[name] = value
    return raised
