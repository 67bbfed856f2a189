"""Samples the GPUs of this node beside the ranks, from a thread of the wrapper.

Nothing here may touch the training: whatever goes wrong ends in a line of :attr:`Sampler.problem`,
and a GPU that is lost ends its own samples only.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tracekit_collectors import gpus, log, records, telemetry
from tracekit_collectors.gpus import Gpu, LostError
from tracekit_collectors.nvml_calls import describe

_BATCH_S = 1.0  # samples reach the file, and whoever follows it, this often
_SLOW_S = 1.0
_PATIENCE_S = 5.0  # for a driver that does not answer

# NVML's words for what ends telemetry before it begins, put so that they say what to do.
_PLAINLY = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": "no NVIDIA driver: libnvidia-ml.so.1 is not there",
    "NVML_ERROR_DRIVER_NOT_LOADED": "the NVIDIA driver is not loaded",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the NVIDIA driver that is loaded and its library are "
    "of different versions: reboot, or load the driver again",
}


class Sampler:
    """Samples every GPU of the node every ``interval`` seconds until :meth:`stop`."""

    def __init__(
        self, directory: Path, open_sink: telemetry.OpenSink, interval: float = 0.1
    ) -> None:
        self._directory = directory
        self._open_sink = open_sink
        self._interval = interval
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._slow: threading.Thread | None = None
        self._facts = telemetry.NodeFacts(
            socket.gethostname(), time.time_ns(), round(interval * 1e9)
        )
        self._problems: list[str] = []
        self._logged: set[str] = set()

    @property
    def problem(self) -> str | None:
        """What went wrong, in one line."""
        return "; ".join(self._problems) or None

    def start(self) -> None:
        """Begin, in a thread: a driver may take seconds to answer its first question."""
        self._thread = threading.Thread(target=self._run, name="tracekit-nvml", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample of each GPU and end."""
        self._done.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)
            if self._thread.is_alive():
                self._problems.append("GPU telemetry ended: the driver does not answer")

    def _run(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception as error:  # noqa: BLE001 - no driver, no library, version mismatch
            self._problems.append(f"no GPU telemetry: {_plainly(error)}")
            return
        try:
            self._sample_node(pynvml)
        except Exception as error:  # noqa: BLE001 - a full disk, say
            self._problems.append(f"GPU telemetry ended: {describe(error)}")
        # A library that still answers a question of the slow thread is left as it is.
        if self._slow is None or not self._slow.is_alive():
            with contextlib.suppress(Exception):
                pynvml.nvmlShutdown()

    def _sample_node(self, nvml: Any) -> None:
        found = gpus.find(nvml)
        if not found:
            self._problems.append("no GPU telemetry: no GPU")
            return
        self._facts.gpus = [gpu.facts for gpu in found]
        with contextlib.suppress(Exception):
            self._facts.driver = nvml.nvmlSystemGetDriverVersion()
        for gpu in found:
            if gpu.facts.lost_ns is not None:
                self._say_lost(gpu)
        sink = self._open_sink(telemetry.samples_path(self._directory), self._facts.host)
        self._write_facts()
        self._slow = threading.Thread(
            target=self._read_slowly, args=(found,), name="tracekit-nvml-slow", daemon=True
        )
        self._slow.start()
        try:
            self._sample_until_done(found, sink)
        finally:
            self._done.set()
            self._slow.join(_PATIENCE_S)
            sink.close()

    def _sample_until_done(self, found: list[Gpu], sink: telemetry.Sink) -> None:
        waiting: list[dict[str, Any]] = []
        due = written = time.monotonic()
        is_done = False
        while True:
            known = [(gpu.facts.lost_ns, len(gpu.facts.unsupported)) for gpu in found]
            waiting += [sample for gpu in found if (sample := self._sample(gpu)) is not None]
            if known != [(gpu.facts.lost_ns, len(gpu.facts.unsupported)) for gpu in found]:
                self._write_facts()
            now = time.monotonic()
            ends = is_done or all(gpu.facts.lost_ns is not None for gpu in found)
            if waiting and (ends or now - written >= _BATCH_S):
                sink.write(waiting)
                waiting, written = [], now
            if ends:
                return
            due = max(due + self._interval, now)  # what was missed is not made up for
            is_done = self._done.wait(due - now)

    def _sample(self, gpu: Gpu) -> dict[str, Any] | None:
        if gpu.facts.lost_ns is not None:
            return None
        try:
            return gpu.sample()
        except LostError as error:
            gpu.facts.lost_ns, gpu.facts.lost_reason = time.time_ns(), str(error)
            self._say_lost(gpu)
        except Exception as error:  # noqa: BLE001 - the next sample may be better
            self._log_once(gpu, error)
        return None

    def _read_slowly(self, found: list[Gpu]) -> None:
        """In a thread of its own, so that the samples keep their pace."""
        while True:
            for gpu in found:
                if self._done.is_set():
                    return
                try:
                    if gpu.facts.lost_ns is None:
                        gpu.read_slowly()
                except LostError:
                    pass  # the next sample finds it lost too
                except Exception as error:  # noqa: BLE001 - the next reading may be better
                    self._log_once(gpu, error)
            if self._done.wait(_SLOW_S):
                return

    def _say_lost(self, gpu: Gpu) -> None:
        self._problems.append(f"GPU {gpu.facts.gpu} lost: {gpu.facts.lost_reason}")

    def _write_facts(self) -> None:
        try:
            records.write_json(telemetry.facts_path(self._directory), asdict(self._facts))
        except OSError as error:
            log.write(f"GPU telemetry: facts of the GPUs: {error}")

    def _log_once(self, gpu: Gpu, error: Exception) -> None:
        text = f"GPU telemetry: GPU {gpu.facts.gpu}: {describe(error)}"
        if text not in self._logged:
            self._logged.add(text)
            log.write(text)


def _plainly(error: Exception) -> str:
    """Why NVML could not be begun with."""
    if isinstance(error, ImportError):
        return f"the package nvidia-ml-py is not there: {error}"
    import pynvml

    code = getattr(error, "value", None)
    named = {getattr(pynvml, name, None): text for name, text in _PLAINLY.items()}
    return named.get(code, describe(error)) if code is not None else describe(error)
