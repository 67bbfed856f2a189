"""One window of torch.profiler: started, stepped, stopped, exported, packed beside the training."""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from tracekit_collectors import own_traces, quiet
from tracekit_collectors.hooks import quietly
from tracekit_collectors.open_marks import OpenMarks
from tracekit_collectors.options import Recording


class Window:
    """A profiler over the steps of one recording, whose marks carry the run's step numbers.

    ``on_done`` is called once, when the last step is recorded and the profiler has stopped.

    Attributes:
        cost_ns: What the window took of the training's time, by part; ``pack`` is beside it.
        busy: Whether the profiler is being driven by us right now.
    """

    def __init__(
        self, recording: Recording, collect: Collection[str], on_done: Callable[[], None]
    ) -> None:
        import torch
        from torch.profiler import ProfilerAction, ProfilerActivity, profile

        def plan(step: int) -> ProfilerAction:
            step = max(step, recording.start)  # it is asked for step 0 before its number is set
            if step > recording.last:
                return ProfilerAction.NONE
            if step < recording.first:
                return ProfilerAction.WARMUP
            is_last = step == recording.last
            return ProfilerAction.RECORD_AND_SAVE if is_last else ProfilerAction.RECORD

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self.recording = recording
        self.cost_ns: dict[str, int] = {}
        self.busy = False
        self._is_ready = False
        self._on_done: Callable[[], None] | None = on_done
        self._thread: threading.Thread | None = None
        self._profile: Any = profile(
            activities=activities,
            schedule=plan,
            on_trace_ready=self._ready,
            record_shapes="shapes" in collect,
            profile_memory="memory" in collect,
            with_stack="stacks" in collect,
            with_flops="flops" in collect,
        )
        self._profile.step_num = recording.start
        self._blocks = [quiet.block()] if "memory" in collect else []
        self._marks = OpenMarks()

    def start(self) -> None:
        began = time.time_ns()
        self._thread = threading.current_thread()
        self._marks.watch()
        self._inside(self._profile.start)
        self.cost_ns["start"] = time.time_ns() - began

    def step(self) -> None:
        began = time.time_ns()
        if self._profile.step_num == self.recording.last:
            self._marks.end()
        self._inside(self._profile.step)
        # Stopping happens within the step that closes the window, and is its greatest part.
        self.cost_ns["stop"] = max(self.cost_ns.get("stop", 0), time.time_ns() - began)

    def stop(self) -> None:
        """End before the plan does. Calls ``on_done`` if anything was recorded."""
        self._marks.end()
        self._inside(self._profile.stop)

    def discard(self) -> None:
        """End and keep nothing; a session that is lost is not touched."""
        self._on_done = None
        if self.lost:
            self._marks.forget()
        else:
            self.stop()

    def _inside(self, function: Callable[[], None]) -> None:
        self.busy = True
        try:
            with quiet.libkineto():
                function()
            if self._blocks and self._records:
                quietly(quiet.complain_unheard, self._blocks)
        finally:
            self.busy = False
            if self._is_ready:
                self._free()

    def _ready(self, _: Any) -> None:
        self._is_ready = True
        if self._on_done is not None:
            self._on_done()

    def _free(self) -> None:
        """Let go of the recorded events at once: the profiler refers to itself, and would hold them
        until the collector of cycles comes by."""
        began = time.time_ns()
        self._profile.profiler = None
        self.cost_ns["free"] = time.time_ns() - began

    @property
    def lost(self) -> bool:
        """Whether the session cannot be ended from here: stopping or exporting it would crash.

        Another profiler has taken it, or this is another thread (its state is the thread's own).
        """
        return threading.current_thread() is not self._thread or (
            self._records and not another_is_running()
        )

    @property
    def _records(self) -> bool:
        from torch.profiler import ProfilerAction

        recording = ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE
        return self._profile.current_action in recording

    def export(self, plain: Path) -> None:
        """Write the trace; it stands under its name when it is whole."""
        began = time.time_ns()
        partial = plain.with_name(f".{plain.name}.{os.getpid()}.json")
        try:
            with own_traces.not_noted():
                self._profile.export_chrome_trace(str(partial))
            partial.replace(plain)
        finally:
            partial.unlink(missing_ok=True)
        self.cost_ns |= {"export": time.time_ns() - began, "pack": 0}

    def pack(self, plain: Path, beside: Callable[[], None] | None = None) -> threading.Thread:
        """Compress an exported trace in a thread, which the interpreter waits for at its end.

        Killed before that, the process leaves the trace as it was exported. ``beside`` is done
        after it.
        """

        def work() -> None:
            began = time.time_ns()
            quietly(_pack, plain)
            if beside is not None:
                quietly(beside)
            _return_memory()
            self.cost_ns["pack"] = time.time_ns() - began

        thread = threading.Thread(target=work, name="tracekit-pack")
        thread.start()
        return thread


def _pack(plain: Path) -> None:
    packed = plain.with_name(plain.name + ".gz")
    partial = plain.with_name(f".{packed.name}.{os.getpid()}.partial")
    try:
        packer = zlib.compressobj(level=3, wbits=31)
        with plain.open("rb") as reader, partial.open("wb") as writer:
            while chunk := reader.read(1 << 20):
                writer.write(packer.compress(chunk))
            writer.write(packer.flush())
        partial.replace(packed)
        plain.unlink()
    finally:
        partial.unlink(missing_ok=True)


def _return_memory() -> None:
    """The recorded events, freed by now, go back to the system: glibc keeps such small blocks.

    Not while Python is held up: ctypes lets go of the interpreter. 35 ms for 500 MB.
    """
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def another_is_running() -> bool:
    """Whether a profiler runs on this thread: there can be only one in a process."""
    import torch

    return bool(torch._C._autograd._profiler_enabled())
