"""A stand-in for torch's CUDA allocator, where there is no GPU: as much of torch 2.13's private
functions as the collectors and torch's own `torch.cuda.memory` call, with the same answers.

Counters and history as in c10's CUDACachingAllocator: a reset sets each peak to the current value;
a history that is enabled keeps the latest ``max_entries``; one that is disabled is dropped.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

_SEGMENT = 2 << 20


class FakeCuda:
    """One device with one segment per block."""

    def __init__(self) -> None:
        self.now = {"allocated_bytes": 0, "reserved_bytes": 0}
        self.peak = dict(self.now)
        self.blocks: dict[int, int] = {}
        self.enabled: tuple[Any, ...] | None = None
        self.trace: list[dict[str, Any]] = []
        self.calls: list[tuple[Any, ...]] = []
        self._next = 0x7F00_0000_0000

    def alloc(self, size: int) -> int:
        address, self._next = self._next, self._next + _SEGMENT
        self.blocks[address] = size
        self._count(size, _SEGMENT)
        self._note("segment_alloc", address, _SEGMENT)
        self._note("alloc", address, size)
        return address

    def free(self, address: int) -> None:
        size = self.blocks.pop(address)
        self._count(-size, -_SEGMENT)
        for action in ("free_requested", "free_completed"):
            self._note(action, address, size)
        self._note("segment_free", address, _SEGMENT)

    def _count(self, allocated: int, reserved: int) -> None:
        self.now["allocated_bytes"] += allocated
        self.now["reserved_bytes"] += reserved
        self.peak = {name: max(value, self.now[name]) for name, value in self.peak.items()}

    def _note(self, action: str, address: int, size: int) -> None:
        if self.enabled is not None:
            entry = {"action": action, "addr": address, "size": size, "stream": 0, "frames": []}
            self.trace = [*self.trace, entry][-self.enabled[3] :]

    # The names of torch._C.

    def memory_stats(self, device: int) -> dict[str, Any]:
        return {
            name: {"all": {"current": self.now[name], "peak": self.peak[name]}} for name in self.now
        } | {"num_ooms": 0}

    def reset_peak(self, device: int) -> None:
        self.peak = dict(self.now)

    def record_history(self, *args: Any) -> None:
        self.calls.append(args)
        self.enabled = args if args[0] else None
        if not args[0] or args[4]:
            self.trace = []

    def snapshot(self, pool: Any) -> dict[str, Any]:
        segments = [
            {
                "address": address, "total_size": _SEGMENT, "stream": 0, "segment_type": "small",
                "allocated_size": size, "active_size": size, "device": 0,
                "segment_pool_id": (0, 0),
                "blocks": [
                    {"address": address, "size": size, "requested_size": size, "frames": [],
                     "state": "active_allocated"},
                    {"address": address + size, "size": _SEGMENT - size, "requested_size": 0,
                     "frames": [], "state": "inactive"},
                ],
            }
            for address, size in self.blocks.items()
        ]  # fmt: skip
        return {
            "segments": segments,
            "device_traces": [[dict(entry) for entry in self.trace]],
            "allocator_settings": {},
        }


def names(fake: FakeCuda) -> dict[str, Any]:
    """What stands in for what of ``torch._C``."""
    return {
        "_cuda_memoryStats": fake.memory_stats,
        "_accelerator_getDeviceStats": fake.memory_stats,
        "_cuda_resetPeakMemoryStats": fake.reset_peak,
        "_accelerator_resetPeakStats": fake.reset_peak,
        "_cuda_isHistoryEnabled": lambda: fake.enabled is not None,
        "_cuda_record_memory_history": fake.record_history,
        "_cuda_memorySnapshot": fake.snapshot,
    }


def install() -> FakeCuda:
    """In a process of its own: it has a GPU from here on, as far as its memory goes."""
    from tracekit_collectors import memory

    fake = FakeCuda()
    for name, function in names(fake).items():
        setattr(torch._C, name, function)
    torch.cuda.memory.is_initialized = lambda: True
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_properties = lambda _: SimpleNamespace(
        name="a stand-in", total_memory=80 << 30
    )
    memory.device_kind = lambda _: "cuda"
    return fake
