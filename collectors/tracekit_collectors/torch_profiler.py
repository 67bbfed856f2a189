"""One window of torch.profiler: started, stepped, stopped and exported as a gzipped trace."""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Window:
    """A profiler over ``warmup`` + ``active`` steps whose marks carry the run's step numbers.

    ``on_done`` is called once, when the last step is recorded and the profiler has stopped.
    """

    def __init__(
        self, first_step: int, warmup: int, active: int, on_done: Callable[[], None]
    ) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile, schedule

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        plan = schedule(wait=0, warmup=warmup, active=active, repeat=1)
        self.cost_ns: dict[str, int] = {}
        self.busy = False  # whether the profiler is being driven by us right now
        self._on_done: Callable[[], None] | None = on_done
        self._thread: threading.Thread | None = None
        self._profile: Any = profile(
            activities=activities,
            schedule=lambda number: plan(max(number - first_step, 0)),
            on_trace_ready=self._ready,
            record_shapes=True,
            profile_memory=True,
        )
        self._profile.step_num = first_step

    def start(self) -> None:
        began = time.time_ns()
        self._thread = threading.current_thread()
        self._inside(self._profile.start)
        self.cost_ns["start"] = time.time_ns() - began

    def step(self) -> None:
        began = time.time_ns()
        self._inside(self._profile.step)
        # Stopping happens within the step that closes the window, and is its greatest part.
        self.cost_ns["stop"] = max(self.cost_ns.get("stop", 0), time.time_ns() - began)

    def stop(self) -> None:
        """End before the plan does. Calls ``on_done`` if anything was recorded."""
        self._inside(self._profile.stop)

    def discard(self) -> None:
        """End and keep nothing; a session that is lost is not touched."""
        self._on_done = None
        if not self.lost:
            self.stop()

    def _inside(self, function: Callable[[], None]) -> None:
        self.busy = True
        try:
            function()
        finally:
            self.busy = False

    def _ready(self, _: Any) -> None:
        if self._on_done is not None:
            self._on_done()

    @property
    def lost(self) -> bool:
        """Whether the session cannot be ended from here: stopping or exporting it would crash.

        Another profiler has taken it, or this is another thread (its state is the thread's own).
        """
        from torch.profiler import ProfilerAction

        recording = self._profile.current_action in (
            ProfilerAction.RECORD,
            ProfilerAction.RECORD_AND_SAVE,
        )
        return threading.current_thread() is not self._thread or (
            recording and not another_is_running()
        )

    def export(self, path: Path) -> None:
        """Write the trace, compressed, under its name when it is whole."""
        began = time.time_ns()
        plain = path.with_name(f".{path.name}.{os.getpid()}.json")
        packed = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            self._profile.export_chrome_trace(str(plain))
            _compress(plain, packed)
            packed.replace(path)
        finally:
            plain.unlink(missing_ok=True)
            packed.unlink(missing_ok=True)
        self.cost_ns["export"] = time.time_ns() - began


def _compress(source: Path, target: Path) -> None:
    packer = zlib.compressobj(level=3, wbits=31)
    with source.open("rb") as reader, target.open("wb") as writer:
        while chunk := reader.read(1 << 20):
            writer.write(packer.compress(chunk))
        writer.write(packer.flush())


def another_is_running() -> bool:
    """Whether a profiler runs on this thread: there can be only one in a process."""
    import torch

    return bool(torch._C._autograd._profiler_enabled())
