"""The state of a run that goes on, as text."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from datetime import datetime
from typing import Any, TextIO

from tracekit.analysis.base import Unit
from tracekit.ingest.live import LiveRank, LiveRun
from tracekit.plain import plain
from tracekit.present.structured import ranges
from tracekit.present.table import print_rows
from tracekit.present.units import show

_HEADS = ["ranks", "host", "state", "steps", "step time", "last heard of", "recorded steps"]


def print_live(run: LiveRun, stream: TextIO) -> None:
    """A line for each node's command, and one for all ranks that are in the same state."""
    for wrapper in run.wrappers:
        stream.write(f"{plain(_about(wrapper))}\n")
    if not run.ranks:
        stream.write("no rank yet: no process has ended a training step\n")
        return
    print_rows(_HEADS, list(_lines(run.ranks)), stream)


def _about(wrapper: dict[str, Any]) -> str:
    command = " ".join(map(str, wrapper.get("command") or ()))
    where = f"on {wrapper.get('host')}"
    if "exit_status" in wrapper:
        return f"ended with status {wrapper['exit_status']} {where}: {command}"
    since = ""
    if isinstance(began := wrapper.get("start_ns"), int):
        since = f" since {datetime.fromtimestamp(began / 1e9):%Y-%m-%d %H:%M:%S}"
    return f"runs{since} {where}: {command}"


def _lines(ranks: list[LiveRank]) -> Iterator[tuple[str, ...]]:
    alike: dict[tuple[str, str, str], list[LiveRank]] = {}
    for rank in ranks:
        state = f"{rank.state} (silent)" if rank.is_silent else rank.state
        recorded = ", ".join(_steps(window) for window in rank.windows)
        alike.setdefault((rank.host, state, recorded), []).append(rank)
    for (host, state, recorded), group in alike.items():
        steps = sorted({rank.steps for rank in group})
        times = [rank.step_ns for rank in group if rank.step_ns is not None]
        ages = [rank.age_ns for rank in group if rank.age_ns is not None]
        yield (
            ranges((rank, rank) for rank in sorted({rank.rank for rank in group})),
            host,
            state,
            _steps(steps),
            show(int(statistics.median(times)) if times else None, Unit.NS),
            f"{show(max(ages), Unit.NS)} ago" if ages else "never",
            recorded or "none yet",
        )


def _steps(steps: list[int]) -> str:
    if not steps:
        return "none"
    return str(steps[0]) if steps[0] == steps[-1] else f"{steps[0]}-{steps[-1]}"
