"""One capture in one rank: counts steps, opens and closes the window, keeps the manifest.

A process becomes a rank when it steps an optimizer for the first time. Nothing here uses the
network, a barrier or a collective.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from tracekit_collectors import log, memory, notes, records
from tracekit_collectors.hooks import quietly
from tracekit_collectors.options import Options, from_environment
from tracekit_collectors.patches import mesh_dims, observed
from tracekit_collectors.torch_profiler import Window, another_is_running

_current: Capture | None = None
_forgotten = False


def current() -> Capture:
    """The capture of this process; one that does nothing where none is asked for."""
    global _current
    if _current is None:
        found = None if _forgotten else from_environment()
        _current = Capture(*found) if found else Capture(Options(), None)
    return _current


def forget() -> None:
    """In a forked child: what it inherited belongs to its parent."""
    global _current, _forgotten
    _current, _forgotten = None, True


class Capture:
    """States: waiting -> open -> closed. Closed for good: finished, or incomplete and why."""

    def __init__(self, options: Options, directory: Path | None) -> None:
        self._options = options
        self._directory = directory
        # Weak: a capture keeps no model alive. The boundary's step ends a training step.
        self._known: list[weakref.ref[Any]] = []
        self._boundary: weakref.ref[Any] | None = None
        self._steps = 0
        self._thread: threading.Thread | None = None  # on which the last step ended
        self._window: Window | None = None
        self._closed = directory is None
        self._manifest: records.RankManifest | None = None
        self._name = ""

    def optimizer_stepped(self, optimizer: Any, *, outermost: bool) -> None:
        """Called after each optimizer step. The outermost of the first optimizer ends a step."""
        if self._closed:
            return
        if not any(known() is optimizer for known in self._known):
            self._known = [known for known in self._known if known() is not None]
            self._known.append(weakref.ref(optimizer))
        if not outermost:
            return
        if self._boundary is None or self._boundary() is None:
            self._boundary = weakref.ref(optimizer)
        if optimizer is self._boundary():
            try:
                self._step_ended()
            except Exception as error:  # noqa: BLE001 - a capture that fails must not harm training
                self._fail(f"{type(error).__name__}: {error}")

    def step_aside(self) -> None:
        """The program starts a profiler: end ours, and keep what it has."""
        window = self._window
        if self._closed or window is None or window.busy:
            return
        self._end_early("the program started a profiler of its own")

    def close(self) -> None:
        """No more steps are counted, and nothing of the program is held."""
        self._closed = True
        self._window = None
        self._known = []
        self._boundary = None

    @property
    def _optimizers(self) -> list[Any]:
        return [found for known in self._known if (found := known()) is not None]

    def _step_ended(self) -> None:
        if self._manifest is None:
            self._begin()
        self._steps += 1
        window, manifest = self._window, self._manifest
        assert manifest is not None
        manifest.steps_seen = self._steps
        previous, self._thread = self._thread, threading.current_thread()
        if window is not None:
            if window.lost:
                self._fail("another profiler took the session, or the steps change their thread")
                return
            self._record_step(self._steps - 1)
            window.step()
        elif self._steps == 1 + self._options.wait:
            if previous is not None and previous is not self._thread:
                self._fail("the steps change their thread, and a profiler is bound to one")
            else:
                self._open()

    def _begin(self) -> None:
        """The process has turned out to be a rank."""
        import torch

        rank, world, local = _where()
        kind = memory.device_kind(self._optimizers)
        self._name = records.stem(rank)
        self._manifest = records.RankManifest(
            rank=rank,
            world_size=world,
            local_rank=local,
            host=socket.gethostname(),
            pid=os.getpid(),
            device_kind=kind,
            torch_version=torch.__version__,
            step_source=f"optimizer {type(self._optimizers[0]).__name__}",
            schedule={
                "wait": self._options.wait,
                "warmup": self._options.warmup,
                "active": self._options.active,
            },
        )
        if kind == "cuda":
            device = torch.cuda.get_device_properties(torch.cuda.current_device())
            self._manifest.device_name = device.name
            self._manifest.device_bytes = device.total_memory
        atexit.register(_let_threads_settle)
        atexit.register(self._at_exit)
        self._write()

    def _open(self) -> None:
        assert self._manifest is not None
        if another_is_running():
            self._fail("the program runs a profiler of its own; it is left alone")
            return
        self._window = Window(
            self._steps, self._options.warmup, self._options.active, self._recorded
        )
        self._start_state()
        observed.recording = True
        self._window.start()

    def _start_state(self) -> None:
        assert self._manifest is not None
        self._manifest.model_state = memory.model_state(self._optimizers, "start")

    def _record_step(self, step: int) -> None:
        """Note what the step that just ended holds, while its gradients are still there."""
        assert self._manifest is not None
        active = step - (1 + self._options.wait + self._options.warmup)
        if active < -1:
            return
        if active == -1:  # the last warm-up step: the next one is recorded
            self._start_state()
            return
        self._manifest.captured_steps.append(step)
        self._manifest.grads[str(step)] = memory.gradient_storage(self._optimizers)
        if active == self._options.active - 1:
            self._manifest.model_state += memory.model_state(self._optimizers, "end")

    def _recorded(self) -> None:
        """The profiler has stopped and holds a trace."""
        window = self._window
        assert self._manifest is not None
        observed.recording = False
        assert window is not None
        self.close()
        assert self._directory is not None
        path = records.trace_path(self._directory, self._name)
        complete = len(self._manifest.captured_steps) == self._options.active
        if self._manifest.captured_steps:
            window.export(path)
            self._manifest.trace = path.name
        if complete:
            self._manifest.state = "finished"
        self._manifest.cost_ns = window.cost_ns
        self._write()

    def _fail(self, why: str) -> None:
        window = self._window
        self.close()
        observed.recording = False
        if window is not None and not window.busy:
            quietly(window.discard)
        log.write(f"rank {self._manifest.rank if self._manifest else '?'}: capture ended: {why}")
        if self._manifest is not None:
            self._manifest.state = f"incomplete: {why}"
            self._manifest.problems.append(why)
            self._write()

    def _write(self) -> None:
        manifest = self._manifest
        if manifest is None or self._directory is None:
            return
        manifest.notes = notes.stated()
        manifest.pipeline = dict(observed.pipeline)
        manifest.gathered = observed.gathered
        try:
            manifest.mesh = mesh_dims(manifest.rank) or manifest.mesh
            records.write_manifest(self._directory, self._name, manifest)
        except Exception as error:  # noqa: BLE001 - a full disk must not end training
            log.write(f"rank {manifest.rank}: manifest: {type(error).__name__}: {error}")

    def _at_exit(self) -> None:
        if self._closed or self._manifest is None or self._manifest.pid != os.getpid():
            return  # closed, or a fork of the rank
        if self._window is None:
            first = 1 + self._options.wait + self._options.warmup
            self._fail(
                f"the process ended after {self._steps} steps; the window would have been "
                f"steps {first} to {first + self._options.active - 1} (counted from 0)"
            )
            return
        self._end_early("the process ended in the window")

    def _end_early(self, why: str) -> None:
        """Close the window before its plan does, and keep the steps that it has."""
        window, manifest = self._window, self._manifest
        assert window is not None
        assert manifest is not None
        try:
            if window.lost:
                self._fail("another profiler took the session, or the steps change their thread")
                return
            manifest.state = f"incomplete: {why}"
            window.stop()
            self._window = None
            if not self._closed:
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


def _where() -> tuple[int, int, int]:
    """Rank, world size and local rank: from torch.distributed, else from the launcher."""
    import torch.distributed as dist

    environment = os.environ
    local = int(environment.get("LOCAL_RANK", environment.get("SLURM_LOCALID", "0")))
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size(), local
    rank = int(environment.get("RANK", environment.get("SLURM_PROCID", "0")))
    world = int(environment.get("WORLD_SIZE", environment.get("SLURM_NTASKS", "1")))
    return rank, world, local
