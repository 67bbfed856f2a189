"""The GPUs of this node and one sample of one of them, through the module ``pynvml`` handed in.

What NVML does not tell is None with a reason, never 0. Only a lost GPU raises.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tracekit_collectors.nvml_calls import READ, READ_SLOWLY, Readings, describe, usable
from tracekit_collectors.telemetry import PROCESSES, GpuFacts


class LostError(Exception):
    """The GPU is lost; the text says how NVML puts it."""


class Gpu:
    """A GPU or a MIG device: its facts, and samples of it."""

    def __init__(self, nvml: Any, handle: Any, facts: GpuFacts) -> None:
        self._nvml = nvml
        self._handle = handle
        self.facts = facts
        # What the slow readings gave last, until a sample takes it: two threads meet here only.
        self._slow: deque[tuple[dict[str, Any], dict[str, str]]] = deque(maxlen=1)

    def sample(self) -> dict[str, Any]:
        """One sample: with the slow columns if they were read since the last one.

        Its time is the middle of the reading, on the clock of torch.profiler's traces: ns since
        the epoch.

        Raises:
            LostError: the GPU is lost.
        """
        begin_ns = time.time_ns()
        values, reasons = self._ask(READ)
        ts_ns = (begin_ns + time.time_ns()) // 2
        if self._slow:
            slow, why = self._slow.pop()
            values |= slow
            reasons |= why
        for name, reason in reasons.items():
            self.facts.unsupported.setdefault(name, reason)
        return {"gpu": self.facts.gpu, "ts_ns": ts_ns, **values}

    def read_slowly(self) -> None:
        """Read what takes NVML tens of milliseconds, for the next sample; from another thread.

        Raises:
            LostError: the GPU is lost.
        """
        self._slow.append(self._ask(READ_SLOWLY))

    def _ask(self, readings: Readings) -> tuple[dict[str, Any], dict[str, str]]:
        """Values by column, and for those that are None the reason."""
        values: dict[str, Any] = {}
        reasons: dict[str, str] = {}
        for names, read in readings:
            try:
                answers = read(self._nvml, self._handle)
            except Exception as error:
                if _is_lost(self._nvml, error):
                    raise LostError(describe(error)) from error
                answers = (None,) * len(names)
                reasons |= dict.fromkeys(names, describe(error))
            for name, answer in zip(names, answers, strict=True):
                values[name] = answer if name == PROCESSES else usable(answer)
                if values[name] is None:
                    reasons.setdefault(name, "NVML gives no value")
        return values, reasons


def find(nvml: Any) -> list[Gpu]:
    """The GPUs of the node, then its MIG devices.

    Raises:
        NVMLError: NVML cannot even count them.
    """
    count = nvml.nvmlDeviceGetCount()
    gpus = []
    for index in range(count):
        facts = GpuFacts(index)
        handle = _fact(nvml, facts, "handle", nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is not None:
            _describe_gpu(nvml, handle, facts)
        elif facts.lost_ns is None:
            facts.lost_ns, facts.lost_reason = time.time_ns(), facts.unsupported.pop("handle")
        gpus.append(Gpu(nvml, handle, facts))
    for gpu in gpus[:count]:
        if gpu.facts.is_divided and gpu.facts.lost_ns is None:
            gpus += _parts(nvml, gpu, len(gpus))
    return gpus


def _parts(nvml: Any, gpu: Gpu, number: int) -> list[Gpu]:
    """The MIG devices of a GPU, numbered from ``number``."""
    parts: list[Gpu] = []
    handle = gpu._handle
    most = _fact(nvml, gpu.facts, "mig", nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
    for index in range(most):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError:
            continue  # this place is free
        facts = GpuFacts(number + len(parts), parent=gpu.facts.gpu, mig=index, is_divided=False)
        facts.pci_bus_id = gpu.facts.pci_bus_id
        _describe(nvml, part, facts)
        ask = nvml.nvmlDeviceGetGpuInstanceId, nvml.nvmlDeviceGetComputeInstanceId
        facts.gpu_instance = _fact(nvml, facts, "gpu_instance", ask[0], part)
        facts.compute_instance = _fact(nvml, facts, "compute_instance", ask[1], part)
        parts.append(Gpu(nvml, part, facts))
    return parts


def _describe_gpu(nvml: Any, handle: Any, facts: GpuFacts) -> None:
    pci = _fact(nvml, facts, "pci_bus_id", nvml.nvmlDeviceGetPciInfo, handle)
    bus = getattr(pci, "busId", None)
    facts.pci_bus_id = bus.decode("ascii", "replace") if isinstance(bus, bytes) else bus
    mode = _fact(nvml, facts, "is_divided", nvml.nvmlDeviceGetMigMode, handle)
    if mode is None:  # it knows nothing of MIG
        facts.unsupported.pop("is_divided", None)
    facts.is_divided = mode is not None and mode[0] == nvml.NVML_DEVICE_MIG_ENABLE
    _describe(nvml, handle, facts)


def _describe(nvml: Any, handle: Any, facts: GpuFacts) -> None:
    """What a GPU and a MIG device have in common."""
    facts.uuid = _fact(nvml, facts, "uuid", nvml.nvmlDeviceGetUUID, handle)
    facts.name = _fact(nvml, facts, "name", nvml.nvmlDeviceGetName, handle)
    memory = _fact(nvml, facts, "memory_bytes", nvml.nvmlDeviceGetMemoryInfo, handle)
    facts.memory_bytes = usable(getattr(memory, "total", None))
    facts.sm_clock_max_mhz = usable(
        _fact(
            nvml, facts, "sm_clock_max_mhz", nvml.nvmlDeviceGetMaxClockInfo, handle,
            nvml.NVML_CLOCK_SM,
        )
    )  # fmt: skip


def _fact(nvml: Any, facts: GpuFacts, name: str, ask: Callable[..., Any], *arguments: Any) -> Any:
    """An answer of NVML, or None with the reason among the facts."""
    try:
        return ask(*arguments)
    except Exception as error:  # noqa: BLE001 - one fact the less
        if _is_lost(nvml, error) and facts.lost_ns is None:
            facts.lost_ns, facts.lost_reason = time.time_ns(), describe(error)
        facts.unsupported[name] = describe(error)
        return None


def _is_lost(nvml: Any, error: Exception) -> bool:
    return isinstance(error, nvml.NVMLError) and error.value == nvml.NVML_ERROR_GPU_IS_LOST
