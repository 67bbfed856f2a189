"""The body of one contender, in its own fresh process and environment: imports are not timed.

Prints one line of JSON: seconds of wall and CPU (of this process and of the children it waited
for), by part, and what it answered. Standard library only, but for the contender itself.

    python probe.py hta|orjson|tracekit|versions '{"files": {"0": "rank0.json.gz"}, ...}'
"""

from __future__ import annotations

import gc
import gzip
import importlib.metadata
import json
import platform
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

Request = dict[str, Any]


class Clock:
    """Adds up the wall and CPU seconds of the parts that it is put around."""

    def __init__(self) -> None:
        self.parts: dict[str, list[float]] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        cpu, wall = _cpu_s(), perf_counter()
        yield
        spent = self.parts.setdefault(name, [0.0, 0.0])
        spent[0] += perf_counter() - wall
        spent[1] += _cpu_s() - cpu


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def hta(clock: Clock, request: Request) -> dict[str, Any]:
    """Load the ranks, then overlap and breakdown, without the plots."""
    from hta.trace_analysis import TraceAnalysis

    files = {int(rank): path for rank, path in request["files"].items()}
    with clock.part("read"):
        analysis = TraceAnalysis(trace_files=files, trace_dir=str(Path(files[0]).parent))
    with clock.part("analyses"):
        overlap = analysis.get_comm_comp_overlap(visualize=False)
        breakdown = analysis.get_temporal_breakdown(visualize=False)
    if not len(breakdown) == len(overlap) == len(files):
        raise SystemExit("HTA does not answer for every rank")
    return dict(
        zip(map(str, overlap["rank"]), map(float, overlap["comp_comm_overlap_pctg"]), strict=True)
    )


def orjson(clock: Clock, request: Request) -> dict[str, Any]:
    """Parse bytes that are in memory already, a file at a time; gunzip is not timed."""
    from orjson import loads

    if not request["gc"]:
        gc.disable()
    events = 0
    for path in request["files"].values():
        content = gzip.decompress(Path(path).read_bytes())
        with clock.part("loads"):
            trace = loads(content)
        events += len(trace["traceEvents"])
        del trace
    return {"events": events}


def tracekit(clock: Clock, request: Request) -> dict[str, Any]:
    """Ingest the ranks into a database, then overlap and breakdown of each."""
    from tracekit.analysis.comm_overlap import COMM_OVERLAP
    from tracekit.analysis.step_breakdown import STEP_BREAKDOWN
    from tracekit.ingest.run import ingest
    from tracekit.store import open_run

    files = [Path(path) for path in request["files"].values()]
    with clock.part("read"):
        ingest(files, Path(request["output"]), **request["options"])
    with clock.part("analyses"), open_run(Path(request["output"])) as reader:
        overlap = COMM_OVERLAP.run(reader)
        breakdown = STEP_BREAKDOWN.run(reader)
    if not len(breakdown.rows) == len(overlap.rows) == len(files):
        raise SystemExit("tracekit does not answer for every rank")
    return {
        str(row.rank): None if row.overlap is None else row.overlap * 100 for row in overlap.rows
    }


def versions(clock: Clock, request: Request) -> dict[str, Any]:
    """What is installed of the packages asked for."""
    found = {"python": platform.python_version()}
    for package in request["packages"]:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


PROBES: dict[str, Callable[[Clock, Request], dict[str, Any]]] = {
    probe.__name__: probe for probe in (hta, orjson, tracekit, versions)
}


def main() -> None:
    clock = Clock()
    answer = PROBES[sys.argv[1]](clock, json.loads(sys.argv[2]))
    print(json.dumps({"parts": clock.parts, "answer": answer}))


if __name__ == "__main__":
    main()
