"""Which calls of NVML fill which columns of a sample, through the module ``pynvml`` handed in.

A call that fails raises what pynvml raises; a value that NVML marks as not available is None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracekit_collectors.telemetry import PROCESSES

_LARGEST = (1 << 62) - 1
# NVML writes the largest number of a type for what is not available.
_NOT_AVAILABLE = (0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF)
_ALL_LINKS = 0xFFFF_FFFF
_KIB = 1024
_KB = 1000

# From the module and a handle to the values of some columns.
Read = Callable[[Any, Any], tuple[Any, ...]]
Readings = tuple[tuple[tuple[str, ...], Read], ...]


def describe(error: Exception) -> str:
    """One line of an error; NVML's own have no name worth showing."""
    text = " ".join(str(error).split())
    return (
        text if type(error).__name__.startswith("NVMLError") else f"{type(error).__name__}: {text}"
    )


def usable(answer: Any) -> int | None:
    """A whole number that a file can hold; None for what NVML marks as not available."""
    is_number = isinstance(answer, int) and answer not in _NOT_AVAILABLE
    return answer if is_number and 0 <= answer <= _LARGEST else None


def _utilization(nvml: Any, handle: Any) -> tuple[int, int]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return rates.gpu, rates.memory


def _throttle_reasons(nvml: Any, handle: Any) -> tuple[int]:
    try:
        return (nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),)
    except nvml.NVMLError as error:
        if error.value != nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        # The name that older drivers know it by.
        return (nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),)


def _nvlink(nvml: Any, handle: Any, field: int) -> tuple[int | None]:
    """Bytes over all links since the driver was loaded."""
    (answer,) = nvml.nvmlDeviceGetFieldValues(handle, [(field, _ALL_LINKS)])
    if answer.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(answer.nvmlReturn)
    is_long = answer.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
    kib = answer.value.ullVal if is_long else answer.value.uiVal
    return (None if kib in _NOT_AVAILABLE else kib * _KIB,)


def _pcie(nvml: Any, handle: Any, counter: int) -> tuple[int | None]:
    """Bytes per second, over the 20 ms that NVML takes for it."""
    kilobytes = nvml.nvmlDeviceGetPcieThroughput(handle, counter)
    return (None if kilobytes in _NOT_AVAILABLE else kilobytes * _KB,)


def _processes(nvml: Any, handle: Any) -> tuple[list[dict[str, int | None]]]:
    found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return ([{"pid": p.pid, "used_bytes": usable(p.usedGpuMemory)} for p in found],)


READ: Readings = (
    (("utilization", "memory_utilization"), _utilization),
    (("memory_used_bytes",), lambda n, h: (n.nvmlDeviceGetMemoryInfo(h).used,)),
    (("power_mw",), lambda n, h: (n.nvmlDeviceGetPowerUsage(h),)),
    (("power_limit_mw",), lambda n, h: (n.nvmlDeviceGetEnforcedPowerLimit(h),)),
    (("energy_mj",), lambda n, h: (n.nvmlDeviceGetTotalEnergyConsumption(h),)),
    (("sm_clock_mhz",), lambda n, h: (n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM),)),
    (("memory_clock_mhz",), lambda n, h: (n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM),)),
    (("temperature_c",), lambda n, h: (n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU),)),
    (("throttle_reasons",), _throttle_reasons),
    (("nvlink_tx_bytes",), lambda n, h: _nvlink(n, h, n.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX)),
    (("nvlink_rx_bytes",), lambda n, h: _nvlink(n, h, n.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX)),
)
# NVML takes 20 ms for each direction of PCIe: 320 ms for eight GPUs.
READ_SLOWLY: Readings = (
    (("pcie_tx_bytes_s",), lambda n, h: _pcie(n, h, n.NVML_PCIE_UTIL_TX_BYTES)),
    (("pcie_rx_bytes_s",), lambda n, h: _pcie(n, h, n.NVML_PCIE_UTIL_RX_BYTES)),
    ((PROCESSES,), _processes),
)
