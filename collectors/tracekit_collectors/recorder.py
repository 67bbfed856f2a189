"""The window that is open, if one is: what is recorded of its steps, and where it is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tracekit_collectors import memory, records
from tracekit_collectors.cuda_memory import CudaMemory
from tracekit_collectors.guard import Guard
from tracekit_collectors.hooks import quietly
from tracekit_collectors.options import Options, Recording
from tracekit_collectors.patches import observed
from tracekit_collectors.rank_file import RankFile
from tracekit_collectors.steps import StepCounter
from tracekit_collectors.torch_profiler import Window


class Recorder:
    """One window at a time, opened and ended by the capture.

    Args:
        options: Of the capture.
        counter: Knows the optimizers.
        end_early: Called with a reason, where the process ends within a window.
        on_done: Called once for a window that is kept, with whether all of its steps are recorded.
    """

    def __init__(
        self,
        options: Options,
        counter: StepCounter,
        end_early: Callable[[str], None],
        on_done: Callable[[Recording, bool], None],
    ) -> None:
        self._options = options
        self._counter = counter
        self._guard = Guard(end_early)
        self._on_done = on_done
        self._window: Window | None = None
        self._file: RankFile | None = None
        self._memory = CudaMemory()
        self._packing: list[threading.Thread] = []

    @property
    def is_open(self) -> bool:
        return self._window is not None

    @property
    def is_busy(self) -> bool:
        """Whether the profiler is being driven by us right now."""
        return self._window is not None and self._window.busy

    @property
    def is_lost(self) -> bool:
        """Whether the window cannot be ended from here."""
        return self._window is not None and self._window.lost

    def open(self, recording: Recording, file: RankFile) -> None:
        self._file = file
        self._window = Window(recording, self._options.collect, self._done)
        record = records.WindowRecord(cost_ns=self._window.cost_ns)
        file.manifest.windows.append(record)
        self._note_state("start")
        self._memory.start(record, self._options.collect, file.manifest)
        observed.recording = True
        self._guard.install()
        self._window.start()

    def step_ended(self, step: int) -> None:
        """Note what the step holds, while its gradients are still there, and go on to the next."""
        window, file = self._window, self._file
        assert window is not None
        assert file is not None
        plan = window.recording
        if step == plan.first - 1:  # the last warm-up step: the next one is recorded
            self._note_state("start")
        elif step >= plan.first:
            file.manifest.windows[-1].steps.append(step)
            file.manifest.grads[str(step)] = memory.gradient_storage(self._counter.optimizers)
            if step == plan.last:
                self._note_state("end")
        self._memory.step_ended(step, is_recorded=step >= plan.first)
        window.step()

    def _note_state(self, moment: str) -> None:
        """Of the first window, whose model state the manifest holds."""
        assert self._file is not None
        manifest = self._file.manifest
        if len(manifest.windows) == 1:
            found = memory.model_state(self._counter.optimizers, moment)
            manifest.model_state = found if moment == "start" else manifest.model_state + found

    def stop(self) -> None:
        """End before the plan does, and keep the steps that there are."""
        if self._window is not None:
            self._window.stop()

    def _done(self) -> None:
        """The profiler has stopped and holds a trace."""
        window, file = self._window, self._file
        assert window is not None
        assert file is not None
        record, plain = file.manifest.windows[-1], file.trace_path()
        history = self._memory.stop(file.memory_path() if record.steps else None)
        self.leave()
        if record.steps:
            window.export(plain)
            record.trace = plain.name + ".gz"
            self._packing.append(window.pack(plain, history))
        wanted = window.recording.last - window.recording.first + 1
        self._on_done(window.recording, len(record.steps) == wanted)

    def leave(self) -> None:
        """No window is open any more; one that holds nothing has never been."""
        if self._window is not None and self._file and not self._file.manifest.windows[-1].steps:
            self._file.manifest.windows.pop()
        self._window = None
        self._memory.stop(None)
        observed.recording = False
        self._guard.remove()

    def drop(self) -> None:
        """Leave, and end the profiler as far as it can be."""
        window = self._window
        self.leave()
        if window is not None and not window.busy:
            quietly(window.discard)

    def all_packed(self) -> bool:
        """Wait for what is done beside the training; whether there was anything."""
        threads, self._packing = self._packing, []
        for thread in threads:
            thread.join()
        return bool(threads)
