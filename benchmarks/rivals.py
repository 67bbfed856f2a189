"""The contenders: what each is run as, always in a fresh process, and what it cost.

HTA is measured as its users call it but for the plots, which are off. orjson parses bytes that
are in memory already, once with Python's collector as it is and once with it off, which is the
best that orjson can do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inputs import Input
from measure import Cost, run

PROBE = Path(__file__).with_name("probe.py")

HTA, HTA_PROCESS = "HTA, in process", "HTA, whole process"
ORJSON, ORJSON_NO_GC = "orjson.loads", "orjson.loads, gc off"
TRACEKIT, TRACEKIT_COMMANDS = "tracekit, in process", "tracekit, two commands"


@dataclass(frozen=True, slots=True)
class Figure:
    """What one run of a contender cost."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    parts: dict[str, list[float]] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)


Contender = Callable[[Input], dict[str, Figure]]


@dataclass(frozen=True, slots=True)
class Options:
    """How tracekit is asked to run; None leaves it to tracekit."""

    jobs: int | None = None
    memory_limit_mib: int | None = None

    def keywords(self) -> dict[str, int]:
        limit = None if self.memory_limit_mib is None else self.memory_limit_mib << 20
        wanted = {"jobs": self.jobs, "memory_limit": limit}
        return {key: value for key, value in wanted.items() if value is not None}

    def arguments(self) -> list[str]:
        words = [] if self.jobs is None else ["--jobs", str(self.jobs)]
        if self.memory_limit_mib is not None:
            words += ["--memory-limit", f"{self.memory_limit_mib}MiB"]
        return words


def probe(python: Path, name: str, request: dict[str, Any]) -> tuple[Cost, dict[str, Any]]:
    """Run one body of probe.py: the cost of its process, and what it says."""
    cost = run([python, "-P", PROBE, name, json.dumps(request)])
    return cost, json.loads(cost.output.splitlines()[-1])


def _figure(cost: Cost, said: dict[str, Any]) -> Figure:
    wall, cpu = (sum(spent) for spent in zip(*said["parts"].values(), strict=True))
    return Figure(wall, cpu, cost.peak_bytes, said["parts"], said["answer"])


def _files(data: Input) -> dict[str, str]:
    return {str(rank): str(path.resolve()) for rank, path in data.files.items()}


def hta(python: Path) -> Contender:
    """HTA, of which one run gives both figures."""

    def contend(data: Input) -> dict[str, Figure]:
        cost, said = probe(python, "hta", {"files": _files(data)})
        whole = Figure(cost.wall_s, cost.cpu_s, cost.peak_bytes)
        return {HTA: _figure(cost, said), HTA_PROCESS: whole}

    return contend


def orjson(python: Path, *, collect: bool) -> Contender:
    """Bare parsing, on one core."""

    def contend(data: Input) -> dict[str, Figure]:
        found = _figure(*probe(python, "orjson", {"files": _files(data), "gc": collect}))
        return {ORJSON if collect else ORJSON_NO_GC: found}

    return contend


def tracekit(output: Path, options: Options) -> Contender:
    """Ingest and both analyses through the Python interface."""

    def contend(data: Input) -> dict[str, Figure]:
        _remove(output)
        request = {
            "files": _files(data),
            "output": str(output.resolve()),
            "options": options.keywords(),
        }
        return {TRACEKIT: _figure(*probe(Path(sys.executable), "tracekit", request))}

    return contend


def tracekit_commands(output: Path, options: Options) -> Contender:
    """The same as a user types it: `tracekit ingest`, then `tracekit report`."""

    def contend(data: Input) -> dict[str, Figure]:
        _remove(output)
        command = [sys.executable, "-P", "-m", "tracekit"]
        ingest = run([*command, "ingest", *_files(data).values(), "-o", output, "-q",
                      *options.arguments()])  # fmt: skip
        report = run([*command, "report", output, "-a", "comm_overlap", "-a", "step_breakdown",
                      "--format", "json"])  # fmt: skip
        peak = max(ingest.peak_bytes, report.peak_bytes)
        wall, cpu = ingest.wall_s + report.wall_s, ingest.cpu_s + report.cpu_s
        parts = {"ingest": [ingest.wall_s, ingest.cpu_s], "report": [report.wall_s, report.cpu_s]}
        return {TRACEKIT_COMMANDS: Figure(wall, cpu, peak, parts)}

    return contend


def _remove(output: Path) -> None:
    for path in (output, output.with_name(output.name + ".wal")):
        path.unlink(missing_ok=True)
