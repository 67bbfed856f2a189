"""What a command costs: wall and CPU seconds, and the peak memory of its whole process tree.

CPU seconds are the kernel's count for the command and every descendant that was waited for.
Peak memory is the largest sum of the resident sets of the tree, read from /proc every 10 ms, or
the high-water mark of one process where that is larger. A page that two processes share counts
in both, so the peak errs upwards for whoever forks.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

INTERVAL_S = 0.01


@dataclass(frozen=True, slots=True)
class Cost:
    """One command that ran to its end."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    output: str


class CommandError(Exception):
    """A contender ended with another status than 0."""


class _Tree:
    """The processes below a root, and the most memory that they were seen to hold."""

    def __init__(self, root: int) -> None:
        self.members = {root}
        self.strangers: set[int] = set()
        self.peak_bytes = 0

    def sample(self) -> None:
        alive = {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208
        for pid in sorted(alive - self.members - self.strangers):
            (self.members if _parent(pid) in self.members else self.strangers).add(pid)
        resident = 0
        for pid in self.members & alive:
            now, high = _memory(pid)
            resident += now
            self.peak_bytes = max(self.peak_bytes, high)
        self.peak_bytes = max(self.peak_bytes, resident)


def _parent(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def _memory(pid: int) -> tuple[int, int]:
    """Resident bytes now, and at most since the process began its program."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0, 0
    found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", status, re.MULTILINE))
    return int(found.get("VmRSS", 0)) * 1024, int(found.get("VmHWM", 0)) * 1024


def run(command: Sequence[str | Path]) -> Cost:
    """Run a command in a fresh process.

    Raises:
        CommandError: it ended with another status than 0.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        tree, ended = _Tree(process.pid), threading.Event()
        sampler = threading.Thread(target=_sample_until, args=(tree, ended))
        sampler.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            wall = perf_counter() - began
            ended.set()
            sampler.join()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            said = err.read().decode(errors="replace")[-2000:]
            line = " ".join(str(word) for word in command)
            raise CommandError(f"status {process.returncode}: {line[:500]}\n{said}")
        cpu = usage.ru_utime + usage.ru_stime
        return Cost(wall, cpu, tree.peak_bytes, out.read().decode(errors="replace"))


def _sample_until(tree: _Tree, ended: threading.Event) -> None:
    while not ended.wait(INTERVAL_S):
        tree.sample()
