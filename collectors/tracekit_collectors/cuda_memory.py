"""What CUDA's allocator tells of one window: the peaks of its steps, and its memory history."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path

from tracekit_collectors import log, memory_history, records
from tracekit_collectors.memory_history import History
from tracekit_collectors.peaks import StepPeaks

_peaks: dict[int, StepPeaks] = {}  # device -> the one of this process


class CudaMemory:
    """Idle until ``start``; what fails here is missing, and the training and the trace go on."""

    def __init__(self) -> None:
        self._record: records.WindowRecord | None = None
        self._history: History | None = None
        self._counted: StepPeaks | None = None

    def start(
        self, record: records.WindowRecord, collect: Collection[str], manifest: records.RankManifest
    ) -> None:
        """A window opens. Nothing, on another device than CUDA or where memory is not wanted."""
        device = manifest.device_index
        if "memory" not in collect or manifest.device_kind != "cuda" or device is None:
            return
        self._record = record
        self._history = history = History(stacks="stacks" in collect)
        self._tried("memory history", history.start)

        def begin() -> None:
            self._counted = _peaks.get(device) or _peaks.setdefault(device, StepPeaks(device))
            self._counted.begin()

        self._tried("peak memory", begin)

    def step_ended(self, step: int, *, is_recorded: bool) -> None:
        """A step of the window, of its warm-up or recorded, has ended."""
        counted, record = self._counted, self._record
        if counted is None or record is None:
            return

        def read() -> None:
            found = counted.step_ended()
            if is_recorded:
                record.peaks[str(step)] = found

        if not self._tried("peak memory", read):
            self._counted = None

    def stop(self, path: Path | None) -> Callable[[], None] | None:
        """The window is over. Returns what is left to do beside the training.

        Args:
            path: Where the snapshot goes; None: nowhere.
        """
        history, record = self._history, self._record
        self._record = self._history = self._counted = None
        if history is None or record is None:
            return None
        began = time.time_ns()
        found: list[dict[str, object]] = []

        def take() -> None:
            snapshot = history.stop()
            if snapshot is not None:
                found.append(snapshot)

        failed = not self._tried("memory history", take)
        record.cost_ns["snapshot"] = time.time_ns() - began
        if path is None or not found:
            why = "it failed: see tracekit.log" if failed else history.missing
            record.memory = {"missing": why or "the window was not kept"}
            return None
        said = {"file": path.name, "max_entries": memory_history.MAX_ENTRIES}

        def write() -> None:
            memory_history.write(found.pop(), path)
            record.memory = said | {"bytes": path.stat().st_size}

        record.memory = {"missing": "the process ended before it was written"}
        return write

    def _tried(self, what: str, function: Callable[[], None]) -> bool:
        try:
            function()
        except Exception as error:  # noqa: BLE001 - whatever it is, training goes on
            log.write(f"{what}: {type(error).__name__}: {error}")
            return False
        return True
