"""What is known of the run before anything is computed: facts and reasons for doubt."""

from __future__ import annotations

import json
from typing import Any

from tracekit.analysis.base import Unit
from tracekit.analysis.presence import Presence, presence
from tracekit.present.structured import describe, ranges
from tracekit.present.units import show
from tracekit.store import Reader
from tracekit_tui import queries
from tracekit_tui.model import RankInfo, Run

Lines = list[tuple[str, str]]
_Notes = list[tuple[str, str, list[int | None]]]


def load_run(reader: Reader) -> Run:
    """Read the small tables; milliseconds on any run."""
    ranks = tuple(RankInfo(*row) for row in reader.rows(queries.RANKS))
    ((start, end),) = reader.rows(queries.EXTENT)
    ((steps, first, last),) = reader.rows(queries.STEP_RANGE)
    ((events, world),) = reader.rows(queries.COUNTS)
    here = presence(reader)
    notes: _Notes = [(key, value, where) for key, value, where in reader.rows(queries.NOTES)]
    found = {key: value for key, value, _ in notes}
    extent = None if start is None or end is None or end <= start else (start, end)
    facts: Lines = [("command", _command(found))] if "command" in found else []
    facts += [
        ("ranks", _of(len(here.covered), world)),
        ("steps", _steps(steps, first, last)),
        ("span", show(None if extent is None else extent[1] - extent[0], Unit.NS)),
        ("events", show(events, Unit.COUNT)),
        *_rank_facts(reader),
    ]
    return Run(
        ranks,
        extent,
        steps,
        first,
        last,
        events,
        world,
        tuple(facts),
        tuple(_trust(reader, ranks, here, notes)),
    )


def _of(count: int, whole: int | None) -> str:
    text = show(count, Unit.COUNT)
    return text if whole is None else f"{text} of {show(whole, Unit.COUNT)}"


def _steps(count: int, first: int | None, last: int | None) -> str:
    if not count:
        return "none marked"
    return f"{show(count, Unit.COUNT)} ({first}-{last})" if count > 1 else f"1 ({first})"


def _command(notes: dict[str, str]) -> str:
    try:
        parts = json.loads(notes["command"])
    except ValueError:
        return notes["command"]
    return " ".join(map(str, parts)) if isinstance(parts, list) else notes["command"]


def _rank_facts(reader: Reader) -> Lines:
    ((backend, device, kind, hosts, evidence, schedule, microbatches, stages),) = reader.rows(
        queries.RANK_VALUES
    )
    facts: Lines = [("evidence", _listed(evidence) or show(None, None))]
    facts.append(("device", _listed(device or kind) or show(None, None)))
    if hosts:
        count = "" if len(hosts) == 1 else f"{show(len(hosts), Unit.COUNT)}: "
        facts.append(("hosts", count + _listed(hosts)))
    if backend:
        facts.append(("backend", _listed(backend)))
    if schedule:
        parts = [_listed(schedule)]
        parts += [f"{stages} stages"] if stages else []
        parts += [f"{_listed(microbatches)} micro-batches"] if microbatches else []
        facts.append(("schedule", ", ".join(parts)))
    return facts


def _listed(values: list[Any] | None, most: int = 3) -> str:
    if not values:
        return ""
    shown = ", ".join(map(str, values[:most]))
    return shown if len(values) <= most else f"{shown} and {len(values) - most} more"


def _trust(reader: Reader, ranks: tuple[RankInfo, ...], here: Presence, notes: _Notes) -> Lines:
    """(kind, sentence) of everything that a reader of the figures should know."""
    doubts: Lines = []
    for key, value, _ in notes:
        if key == "pace_ms":
            doubts.append(
                (
                    "synthetic",
                    f"paced: each action lasts at least {value} ms by sleeping;"
                    " times show the schedule, not the speed of a model",
                )
            )
    if here.gaps:
        doubts.append(("missing", f"rank {ranges(here.gaps)}: no trace here"))
    if here.empty:
        doubts.append(("empty", describe("the trace is empty", {"rank": here.empty})))
    blind = [info.rank for info in ranks if info.evidence == "none"]
    if blind:
        doubts.append(("no times", describe("no timed work in the trace", {"rank": blind})))
    for note, where in reader.rows(queries.UNALIGNED):
        doubts.append(("clock", describe(note, {"rank": where})))
    for state, where in reader.rows(queries.CAPTURES):
        doubts.append(("capture", describe(state, {"rank": where})))
    for kind, count, where, detail, details in reader.rows(queries.DAMAGE):
        text = f"{kind}, {show(count, Unit.COUNT)} times: {detail}"
        text += f" and {details - 1} other kinds" if details > 1 else ""
        doubts.append(("damage", describe(text, {"rank": where} if where else {})))
    for key, value, where in notes:
        if key in ("problem", "no trace"):
            known = [rank for rank in where if rank is not None]
            doubts.append((key, describe(value, {"rank": known} if known else {})))
    return doubts
