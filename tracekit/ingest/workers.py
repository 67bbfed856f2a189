"""Reader processes: one a core, each reading one file at a time and sending its columns.

What they send comes in the order of each file; a process that ends without being told to is an
error that names the file, and no wait is without an end.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tracekit.errors import InputError


class DeadWorkerError(Exception):
    """A process ended that was reading a file; the text says how.

    Attributes:
        file: The number of the file.
    """

    def __init__(self, file: int, how: str) -> None:
        self.file = file
        super().__init__(how)


@dataclass(slots=True)
class Frame:
    """One message about one file: its kind, its head and the buffers that follow it."""

    file: int
    kind: str
    head: dict[str, Any]
    buffers: list[memoryview] = field(default_factory=list)


class _Worker:
    """A process and the thread that takes its frames from the pipe."""

    def __init__(self, frames: queue.Queue[tuple[_Worker, Frame | None]]) -> None:
        # -P: a json.py in the folder that the user stands in is none of ours. -S: the path has all
        # that a site would add.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-S", "-m", "tracekit.ingest.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self.file: int | None = None
        self._frames = frames
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def task(self, file: int, path: Path, *, keep_args: bool, rows: int) -> None:
        self.file = file
        task = {"path": os.fsencode(path).hex(), "keep_args": keep_args, "rows": rows}
        self._write(json.dumps(task))

    def answer(self, go: bool) -> None:
        self._write("go" if go else "skip")

    def _write(self, line: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its end arrives as the end of its frames
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def _receive(self) -> None:
        try:
            while frame := self._frame():
                self._put(frame)
        finally:  # whatever comes: nobody waits for more
            self._put(None)

    def _frame(self) -> Frame | None:
        """The next frame; None where the process ended, also in the middle of one."""
        pipe = self.process.stdout
        assert pipe is not None
        if len(packed := pipe.read(8)) < 8:
            return None
        (size,) = struct.unpack("<q", packed)
        if len(text := pipe.read(size)) < size:
            return None
        try:
            head = json.loads(text)
        except ValueError:
            return None
        # Each buffer by its own: what is not needed any more is given back at once.
        buffers = [memoryview(pipe.read(size)) for size in head["sizes"]]
        if [len(buffer) for buffer in buffers] != head["sizes"]:
            return None
        assert self.file is not None
        return Frame(self.file, head["frame"], head, buffers)

    def _put(self, frame: Frame | None) -> None:
        while not self.stopping.is_set():
            try:
                self._frames.put((self, frame), timeout=0.5)
            except queue.Full:
                continue
            return

    def stop(self) -> None:
        self.stopping.set()
        self.process.kill()
        self.process.wait()
        self._thread.join(timeout=5)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not sent is not missed
                    pipe.close()


class Workers:
    """Reads files in parallel; iterate for their frames.

    Each file gives a ``begin`` frame; call :meth:`answer` on it to have the file read or passed
    over. A file is done with its ``end`` frame.
    """

    def __init__(self, paths: Sequence[Path], *, jobs: int, keep_args: bool, rows: int) -> None:
        self._paths = paths
        self._keep_args = keep_args
        self._rows = rows
        self._next = 0
        # A frame each is enough to keep a worker busy, and bounds what waits in memory.
        self._frames: queue.Queue[tuple[_Worker, Frame | None]] = queue.Queue(maxsize=1)
        self._workers: list[_Worker] = []
        self._jobs = max(1, min(jobs, len(paths)))
        self._answers: dict[int, _Worker] = {}

    def __enter__(self) -> Self:
        try:
            for _ in range(self._jobs):
                self._workers.append(_Worker(self._frames))
                self._assign(self._workers[-1])
        except BaseException:  # Ctrl-C as well: nobody else knows of those that have started
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the processes: what they hold of memory is needed elsewhere."""
        while self._workers:
            self._workers.pop().stop()

    def answer(self, file: int, *, go: bool) -> None:
        """Let the worker that began a file read it, or pass it over."""
        worker = self._answers.pop(file)
        worker.answer(go)
        if not go:
            self._assign(worker)

    def __iter__(self) -> Iterator[Frame]:
        """All frames of all files.

        Raises:
            InputError: a file that cannot be read.
            DeadWorkerError: a process that reads files ended.
        """
        while any(worker.file is not None for worker in self._workers):
            worker, frame = self._frames.get()
            if frame is None and worker.file is None:
                continue  # it had nothing left to read
            if frame is None:
                assert worker.file is not None
                raise DeadWorkerError(worker.file, _death_of(worker.process))
            if frame.kind == "error":
                error = InputError(frame.head["text"])
                if frame.head["debug"]:
                    error.add_note(frame.head["debug"])
                raise error
            if frame.kind == "begin":
                self._answers[frame.file] = worker
            yield frame
            if frame.kind == "end":
                self._assign(worker)

    def _assign(self, worker: _Worker) -> None:
        worker.file = None
        if self._next < len(self._paths):
            file, self._next = self._next, self._next + 1
            worker.task(file, self._paths[file], keep_args=self._keep_args, rows=self._rows)


def _death_of(process: subprocess.Popen[bytes]) -> str:
    status = process.wait()
    how = f"ended with status {status}"
    if status < 0:
        try:
            how = f"was ended by {signal.Signals(-status).name}"
        except ValueError:
            how = f"was ended by signal {-status}"
        if -status == signal.SIGKILL:
            how += " (is there enough memory?)"
    return f"the process that read it {how}"
