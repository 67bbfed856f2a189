"""Telemetry of one node's GPUs, sampled by the wrapper beside the ranks, a JSON line a sample.

What a GPU does not support is null, never 0. A driver that is missing, or a GPU that is lost in
mid-run, ends its own samples and nothing else.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from tracekit_collectors import records


class Sampler:
    """Samples every GPU of the node every ``interval`` seconds until :meth:`stop`."""

    def __init__(self, directory: Path, interval: float = 0.1) -> None:
        self._directory = directory
        self._interval = interval
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._nvml: Any = None
        self.problem: str | None = None

    def start(self) -> bool:
        """Begin sampling; False, with ``problem`` set, where there is nothing to sample."""
        try:
            import pynvml

            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except Exception as error:  # noqa: BLE001 - no driver, no library, version mismatch
            self.problem = f"no GPU telemetry: {error}"
            return False
        if not handles:
            self.problem = "no GPU telemetry: no GPU"
            return False
        self._nvml = pynvml
        self._thread = threading.Thread(
            target=self._sample, args=(handles,), name="tracekit-nvml", daemon=True
        )
        self._thread.start()
        return True

    def stop(self) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _sample(self, handles: list[Any]) -> None:
        alive = dict(enumerate(handles))
        host = socket.gethostname()
        try:
            with records.nvml_path(self._directory).open("a", encoding="utf-8") as out:
                while alive and not self._done.wait(self._interval):
                    self._sample_once(alive, host, out)
        except OSError as error:
            self.problem = f"GPU telemetry ended: {error}"
        finally:
            self._nvml.nvmlShutdown()

    def _sample_once(self, alive: dict[int, Any], host: str, out: TextIO) -> None:
        for index, handle in list(alive.items()):
            try:
                sample = read(self._nvml, handle)
            except self._nvml.NVMLError as error:
                del alive[index]
                self.problem = f"GPU {index} lost: {error}"
                sample = {"lost": str(error)}
            out.write(json.dumps({"host": host, "gpu": index, "ts_ns": time.time_ns(), **sample}))
            out.write("\n")
        out.flush()


def read(nvml: Any, handle: Any) -> dict[str, Any]:
    """One sample of one GPU; a field that the GPU does not support is None.

    Raises:
        NVMLError: the GPU is lost.
    """

    def ask(function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(handle, *args)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                raise
            return None

    rates = ask(nvml.nvmlDeviceGetUtilizationRates)
    used = ask(nvml.nvmlDeviceGetMemoryInfo)
    return {
        "uuid": ask(nvml.nvmlDeviceGetUUID),
        "utilization": None if rates is None else rates.gpu,
        "memory_used_bytes": None if used is None else used.used,
        "power_mw": ask(nvml.nvmlDeviceGetPowerUsage),
        "energy_mj": ask(nvml.nvmlDeviceGetTotalEnergyConsumption),
        "sm_clock_mhz": ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
        "temperature_c": ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        "throttle_reasons": ask(nvml.nvmlDeviceGetCurrentClocksEventReasons),
    }
