"""The capture of one rank: opens and closes its windows, and keeps its manifest.

A process becomes a rank when its first training step ends. Nothing here uses the network, a barrier
or a collective.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from pathlib import Path
from typing import Any

from tracekit_collectors import log, own_traces
from tracekit_collectors.asked import Trigger
from tracekit_collectors.options import Options, Recording, from_environment
from tracekit_collectors.plan import Plan
from tracekit_collectors.rank import manifest_of
from tracekit_collectors.rank_file import RankFile
from tracekit_collectors.recorder import Recorder
from tracekit_collectors.steps import StepCounter
from tracekit_collectors.torch_profiler import another_is_running

_LOST = "another profiler took the session, or the steps change their thread"
_current: Capture | None = None
_forgotten = False


def current() -> Capture:
    """The capture of this process; one that does nothing where none is asked for."""
    global _current
    if _current is None:
        found = None if _forgotten else from_environment()
        _current = Capture(*found) if found else Capture(Options(), None)
    return _current


def begin(options: Options, directory: Path) -> Capture:
    """A capture that the program itself asks for. Where there is one already, it goes on: there is
    one profiler in a process."""
    global _current
    if not current().is_closed:
        return current()
    log.write_to(directory)
    _current = Capture(options, directory)
    return _current


def forget() -> None:
    """In a forked child: what it inherited belongs to its parent."""
    global _current, _forgotten
    _current, _forgotten = None, True


class Capture:
    """States: waiting for the next window -> open -> waiting again, or closed for good.

    With all of its planned windows behind it, it waits for one that somebody asks for.
    """

    def __init__(self, options: Options, directory: Path | None) -> None:
        self._options = options
        self._directory = directory
        self._counter = StepCounter()
        self._plan = Plan(options)
        self._steps = 0
        self._thread: threading.Thread | None = None  # on which the last step ended
        self._recorder = Recorder(options, self._counter, self._end_early, self._recorded)
        self._file: RankFile | None = None  # once this process has turned out to be a rank
        self._trigger: Trigger | None = None
        self._own_traces: list[str] = []
        self.is_closed = directory is None

    def optimizer_stepped(self, optimizer: Any, *, outermost: bool, in_backward: bool) -> None:
        """Called after each optimizer step."""
        if not self.is_closed:
            stepped = self._counter.optimizer_stepped
            self._after(stepped(optimizer, outermost=outermost, in_backward=in_backward))

    def backward_ended(self) -> None:
        """Called after each backward pass."""
        if not self.is_closed:
            self._after(self._counter.backward_ended())

    def step_said(self, source: str) -> None:
        """The program, or its engine, says that a training step has ended."""
        if not self.is_closed:
            self._after(self._counter.said(source))

    def expect(self, source: str) -> None:
        """From the start the steps will be said, and no optimizer ends one."""
        self._counter.expect(source)

    def step_aside(self) -> None:
        """The program starts a profiler: end ours, and keep what it has."""
        if not self.is_closed:
            self._end_early("the program started a profiler of its own")

    def program_wrote(self, trace: str) -> None:
        """The program has exported a trace of its own to this path."""
        if own_traces.add(self._own_traces, trace) and self._file is not None:
            self._file.write()

    def close(self) -> None:
        """No more steps are counted, and nothing of the program is held."""
        self.is_closed = True
        self._counter.forget()

    def end(self) -> None:
        """The program has done what it wanted to be captured: as at the end of the process."""
        self._at_exit()

    def _after(self, step_ended: bool) -> None:
        if step_ended:
            try:
                self._step_ended()
            except Exception as error:  # noqa: BLE001 - a capture that fails must not harm training
                self._fail(f"{type(error).__name__}: {error}")

    def _step_ended(self) -> None:
        file = self._file or self._begin()
        self._steps += 1
        file.manifest.steps_seen = self._steps
        file.manifest.step_source = self._counter.source
        previous, self._thread = self._thread, threading.current_thread()
        if self._recorder.is_lost:
            self._fail(_LOST)
            return
        if self._recorder.is_open:
            self._recorder.step_ended(self._steps - 1)
        if not self._recorder.is_open and not self.is_closed:
            self._wait(file, changes_thread=previous not in (None, self._thread))

    def _wait(self, file: RankFile, *, changes_thread: bool) -> None:
        """Between two windows: open the next one when it is time."""
        assert self._trigger is not None
        asked = self._trigger.look(self._steps, time.monotonic())
        if asked is not None:
            self._plan.ask(asked)
        coming = self._plan.next
        if coming is None or self._steps < coming.start:
            doing = "waits for a trigger" if coming is None else f"waits for step {coming.first}"
            file.tell(doing)
        elif changes_thread:
            self._fail("the steps change their thread, and a profiler is bound to one")
        elif another_is_running():
            self._fail("the program runs a profiler of its own; it is left alone")
        else:
            file.tell(f"records steps {coming.first} to {coming.last}", at_once=True)
            self._recorder.open(coming, file)

    def _begin(self) -> RankFile:
        """The process has turned out to be a rank."""
        assert self._directory is not None
        self._file = RankFile(self._directory, manifest_of(self._counter.optimizers, self._options))
        self._file.manifest.own_traces = self._own_traces
        self._trigger = Trigger(self._directory, self._options, time.monotonic())
        atexit.register(_let_threads_settle)
        atexit.register(self._at_exit)
        self._file.write()
        return self._file

    def _recorded(self, recording: Recording, is_whole: bool) -> None:
        """A window has been kept."""
        file = self._file
        assert file is not None
        if not is_whole:
            self.close()
        else:
            if left_out := self._plan.closed(recording, self._steps):
                steps = ", ".join(map(str, left_out))
                file.problem(f"no window at step {steps}: another one was open")
            if self._plan.is_fulfilled:
                file.manifest.state = "finished"
        file.write()

    def _fail(self, why: str) -> None:
        self._recorder.drop()
        self.close()
        file = self._file
        log.write(f"rank {file.manifest.rank if file else '?'}: capture ended: {why}")
        if file is not None:
            file.manifest.state = f"incomplete: {why}"
            file.manifest.problems.append(why)
            file.write()
            file.tell(file.manifest.state, at_once=True)

    def _at_exit(self) -> None:
        file = self._file
        if file is None or file.manifest.pid != os.getpid():
            return  # no rank, or a fork of one
        manifest, coming = file.manifest, self._plan.next
        if self._recorder.is_open:
            self._end_early("the process ended in the window")
            if self._options.every is not None and manifest.windows and manifest.cut_step is None:
                manifest.state = "finished"  # the windows that it came to are whole
                file.write()
        elif not self.is_closed and coming is not None and self._is_owed:
            self._fail(
                f"the process ended after {self._steps} steps; the next window would have been "
                f"steps {coming.first} to {coming.last} (counted from 0)"
            )
        elif not self.is_closed and not manifest.windows:
            self._fail("no window was asked for")
        elif not self.is_closed:
            manifest.state = "finished"
            self.close()
            file.write()
        if self._recorder.all_packed():
            file.write()  # what packing took
        file.tell("ended", at_once=True)

    @property
    def _is_owed(self) -> bool:
        """Whether a window that was planned has not been: of an endless row the first."""
        assert self._file is not None
        endless = self._options.every is not None and bool(self._file.manifest.windows)
        return not (endless or self._plan.is_fulfilled)

    def _end_early(self, why: str) -> None:
        """Close the window before its plan does, and keep the steps that it has."""
        recorder, file = self._recorder, self._file
        if not recorder.is_open or file is None or recorder.is_busy:
            return
        manifest = file.manifest
        try:
            if recorder.is_lost:
                self._fail(_LOST)
                return
            manifest.state = f"incomplete: {why}"
            if manifest.windows[-1].steps:
                manifest.cut_step = self._steps  # its mark is in the trace, and ends here
            recorder.stop()
            if not self.is_closed:
                recorder.leave()
                self._fail(f"{why} before a step was recorded")
        except Exception as error:  # noqa: BLE001 - the exit status is the program's own
            self._fail(f"{type(error).__name__}: {error}")


def _let_threads_settle() -> None:
    """Give the interpreter to threads that wait for it, before it shuts down.

    A gloo thread drops the last collective's work, and with it a Python object (autograd's saved
    context), some time after the main thread has gone on. If by then the interpreter shuts down,
    torch aborts ("terminate called without an active exception"), seen with and without a capture
    in short runs. Sleeping lets go of the interpreter, so the thread gets its turn.
    """
    time.sleep(0.05)
