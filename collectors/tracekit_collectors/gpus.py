"""The GPUs of this node and one sample of one of them, through the module ``pynvml`` handed in.

What NVML does not tell is None with a reason, never 0. Only a lost GPU raises.
"""

from __future__ import annotations

import time
from collections import deque
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
        handle = _fact(nvml, facts, "handle", "GetHandleByIndex", index)
        if handle is not None:
            _describe_gpu(nvml, handle, facts)
        else:
            facts.lost_ns = facts.lost_ns or time.time_ns()
            facts.lost_reason = facts.unsupported.pop("handle")
        gpus.append(Gpu(nvml, handle, facts))
    for gpu in gpus[:count]:
        if gpu.facts.is_divided and gpu.facts.lost_ns is None:
            gpus += _parts(nvml, gpu, len(gpus))
    return gpus


def _parts(nvml: Any, gpu: Gpu, number: int) -> list[Gpu]:
    """The MIG devices of a GPU, numbered from ``number``."""
    parts: list[Gpu] = []
    handle = gpu._handle
    most = _fact(nvml, gpu.facts, "mig", "GetMaxMigDeviceCount", handle) or 0
    for index in range(most):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError:
            continue  # this place is free
        facts = GpuFacts(number + len(parts), parent=gpu.facts.gpu, mig=index, is_divided=False)
        facts.pci_bus_id = gpu.facts.pci_bus_id
        _describe(nvml, part, facts)
        facts.gpu_instance = _fact(nvml, facts, "gpu_instance", "GetGpuInstanceId", part)
        facts.compute_instance = _fact(
            nvml, facts, "compute_instance", "GetComputeInstanceId", part
        )
        parts.append(Gpu(nvml, part, facts))
    return parts


def _describe_gpu(nvml: Any, handle: Any, facts: GpuFacts) -> None:
    pci = _fact(nvml, facts, "pci_bus_id", "GetPciInfo", handle)
    bus = getattr(pci, "busId", None)
    facts.pci_bus_id = bus.decode("ascii", "replace") if isinstance(bus, bytes) else bus
    mode = _fact(nvml, facts, "is_divided", "GetMigMode", handle)
    if mode is None:  # it knows nothing of MIG
        facts.unsupported.pop("is_divided", None)
    facts.is_divided = mode is not None and mode[0] == nvml.NVML_DEVICE_MIG_ENABLE
    _describe(nvml, handle, facts)


def _describe(nvml: Any, handle: Any, facts: GpuFacts) -> None:
    """What a GPU and a MIG device have in common."""
    facts.uuid = _fact(nvml, facts, "uuid", "GetUUID", handle)
    facts.name = _fact(nvml, facts, "name", "GetName", handle)
    memory = _fact(nvml, facts, "memory_bytes", "GetMemoryInfo", handle)
    facts.memory_bytes = usable(getattr(memory, "total", None))
    facts.sm_clock_max_mhz = usable(
        _fact(nvml, facts, "sm_clock_max_mhz", "GetMaxClockInfo", handle, nvml.NVML_CLOCK_SM)
    )


def _fact(nvml: Any, facts: GpuFacts, name: str, call: str, *arguments: Any) -> Any:
    """An answer of ``nvmlDevice`` + ``call``, or None with the reason among the facts."""
    try:
        return getattr(nvml, f"nvmlDevice{call}")(*arguments)
    except Exception as error:  # noqa: BLE001 - one fact the less
        if _is_lost(nvml, error) and facts.lost_ns is None:
            facts.lost_ns, facts.lost_reason = time.time_ns(), describe(error)
        facts.unsupported[name] = describe(error)
        return None


def _is_lost(nvml: Any, error: Exception) -> bool:
    return isinstance(error, nvml.NVMLError) and error.value == nvml.NVML_ERROR_GPU_IS_LOST
