"""A command of tracekit as a process of its own: its memory, its workers, its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

_PAGE = os.sysconf("SC_PAGE_SIZE")
_WORKER = b"tracekit.ingest.worker"


class Running:
    """``with Running("ingest", ...) as command``: started, and gone at the end with all its own."""

    def __init__(self, *arguments: object, before: Callable[[], None] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tracekit", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=before,
        )
        self.pid = self.process.pid
        self.started = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        left = self.tree()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()

    def tree(self) -> list[int]:
        """Itself and all that it started, as long as they live."""
        parents: dict[int, list[int]] = {}
        for pid, fields in _processes():
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(pid)
        found = [self.pid]
        for pid in found:
            found += parents.get(pid, [])
        return found

    def session(self) -> list[int]:
        """The processes of its session that still run, also when it has ended itself."""
        return [pid for pid, f in _processes() if int(f[3]) == self.pid and f[0] != "Z"]

    def workers(self) -> list[int]:
        """The processes that read traces."""
        return [pid for pid in self.tree() if _WORKER in _text(pid, "cmdline")]

    def worker_that_reads(self, files: list[Path], seconds: float = 30) -> tuple[int, Path]:
        """A worker and the trace that it has open."""
        wanted = {file.resolve() for file in files}
        for _ in self.moments(seconds):
            for pid in self.workers():
                for file in _open_files(pid):
                    if file in wanted:
                        return pid, file
        raise AssertionError("no worker opened a trace")

    def has_workers(self, seconds: float = 30) -> bool:
        """Whether it comes to processes that read traces."""
        return any(self.workers() for _ in self.moments(seconds))

    def moments(self, seconds: float, every: float = 0.01) -> Iterator[None]:
        """While it runs, for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            yield
            time.sleep(every)

    def peak_bytes(self, seconds: float) -> int:
        """The most memory that its processes held together, until its end."""
        peak = 0
        for _ in self.moments(seconds, 0.02):
            peak = max(peak, sum(_resident(pid) for pid in self.tree()))
        return peak

    def wait(self, seconds: float) -> tuple[int, str]:
        """Its exit status and what it wrote to stderr."""
        _, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, err

    def signal(self, number: signal.Signals) -> None:
        """To all of its processes, as a terminal does on Ctrl-C."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def session_ends(self, seconds: float = 10) -> bool:
        """Whether nothing that it started is left after a while."""
        end = time.monotonic() + seconds
        while self.session() and time.monotonic() < end:
            time.sleep(0.02)
        return not self.session()


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Process ids with the fields of their stat after the name: state, parent, group, session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _text(int(entry.name), "stat")):
            yield int(entry.name), stat.rpartition(b")")[2].decode().split()


def _text(pid: int, name: str) -> bytes:
    try:
        return (Path("/proc") / str(pid) / name).read_bytes()
    except OSError:
        return b""


def _resident(pid: int) -> int:
    fields = _text(pid, "statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _open_files(pid: int) -> list[Path]:
    found = []
    with contextlib.suppress(OSError):
        for link in (Path("/proc") / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(link.readlink())
    return found
