"""Pipeline bubble: how much of each stage's time is lost to the schedule, beside its theory."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields
from typing import Annotated, Any

from tracekit.analysis.base import Analyzer, Dim, Missing, Unit, Value
from tracekit.simulate.recognise import recognise
from tracekit.simulate.schedules import Action
from tracekit.simulate.theory import theoretical_bubble_ratio, why_no_theory
from tracekit.store import Reader


@dataclass(frozen=True, slots=True)
class PipelineBubble:
    """How much of the pipeline's window each stage spends in the bubble.

    The window of a step goes from the first forward of any stage to the last backward of any.
    Busy is the union of compute in actions; a receive that waits is bubble, not communication.
    ``bubble_ratio`` is (p-1)/(m+p-1) for uniform GPipe and 1F1B (GPipe, Zero Bubble papers);
    ``bubble_overhead`` is (p-1)/m for them (Megatron-LM, Llama 3). Sums over the steps of a group.
    """

    pipeline: Annotated[int | None, Dim("First rank of the pipeline: which replica.")]
    stage: Annotated[int | None, Dim("Position in the pipeline.")]
    rank: Annotated[int | None, Dim("Global rank.")]
    step: Annotated[int | None, Dim("Training step.")]
    bubble_ratio: Annotated[float | None, Value("bubble / window.", Unit.RATIO, "lower")]
    theoretical_ratio: Annotated[
        float | None,
        Value("What the recognised schedule gives with uniform stages.", Unit.RATIO, "lower"),
    ]
    bubble_overhead: Annotated[float | None, Value("bubble / busy.", Unit.RATIO, "lower")]
    schedule: Annotated[str | None, Value("Recognised from the order of actions.", Unit.TEXT)]
    microbatches: Annotated[int | None, Value("Micro-batches per step.", Unit.COUNT)]
    steps: Annotated[int | None, Value("Steps that the sums are over.", Unit.COUNT)]
    window_ns: Annotated[int | None, Value("Window, mean per step.", Unit.NS, "lower")]
    busy_ns: Annotated[int | None, Value("Computing in actions, mean per step.", Unit.NS)]
    transfer_ns: Annotated[
        int | None,
        Value("Exposed point-to-point transfer; null: not recorded.", Unit.NS, "lower"),
    ]
    other_comm_ns: Annotated[
        int | None, Value("Exposed collectives inside actions.", Unit.NS, "lower")
    ]
    bubble_ns: Annotated[int | None, Value("The rest, mean per step.", Unit.NS, "lower")]
    warmup_ns: Annotated[int | None, Value("Bubble before the first backward.", Unit.NS, "lower")]
    steady_ns: Annotated[int | None, Value("Bubble in between.", Unit.NS, "lower")]
    cooldown_ns: Annotated[int | None, Value("Bubble after the last forward.", Unit.NS, "lower")]


# Of several ranks on one stage (tensor parallel) one tells the order. Step -1: no step marks.
_ORDERS = """
    SELECT pipeline, coalesce(step, -1) AS step, stage, kind, chunk, microbatch
    FROM action WHERE start_ns IS NOT NULL
        AND (step IS NOT NULL OR rank NOT IN (SELECT rank FROM step))
    QUALIFY rank = min(rank) OVER (PARTITION BY pipeline, step, stage)
    ORDER BY pipeline, step, stage, host_start_ns
"""

# Stages that each pipeline should have: virtual stages as recorded over chunks per position, the
# size of the pipeline's group, and no fewer than were seen, with or without work. Files may say
# anything: no more than an action's name can.
_EXPECTED = """
    SELECT a.pipeline, least(10000, greatest(
        coalesce(max(r.stages) // (max(a.chunk) + 1), 0),
        coalesce(max(m.size), 0), coalesce(max(g.size), 0), max(a.stage) + 1))
    FROM action AS a
    JOIN rank AS r USING (rank)
    LEFT JOIN mesh AS m ON m.rank = a.rank AND m.dim = 'pp'
    LEFT JOIN process_group AS g ON g.rank = a.rank AND g.dim = 'pp'
    GROUP BY a.pipeline
"""

_Key = tuple[int, int]  # pipeline, step


def _orders(reader: Reader, expected: dict[int, int]) -> dict[_Key, list[list[Action]]]:
    """The actions of each stage in order; none of a stage whose work is not here."""
    found: dict[_Key, list[list[Action]]] = {}
    for pipeline, step, stage, kind, chunk, microbatch in reader.rows(_ORDERS):
        stages = found.setdefault((pipeline, step), [[] for _ in range(expected[pipeline])])
        stages[stage].append(Action(kind, stage, chunk, microbatch))
    return found


def _absent_stages(orders: dict[_Key, list[list[Action]]]) -> list[Missing]:
    """A window is only whole with all stages: the first forward or last backward may be missing."""
    absent: dict[tuple[int, tuple[int, ...]], list[int]] = defaultdict(list)
    for (pipeline, step), stages in orders.items():
        without = tuple(stage for stage, order in enumerate(stages) if not order)
        if without:
            absent[pipeline, without].append(step)
    found = []
    for (pipeline, without), steps in absent.items():
        p = len(next(stages for key, stages in orders.items() if key[0] == pipeline))
        where: dict[str, Any] = {"pipeline": pipeline, "stage": list(without)}
        if set(steps) != {step for key, step in orders if key == pipeline}:
            where["step"] = steps
        reason = f"only {p - len(without)} of {p} stages are here: the window may be too short"
        found.append(Missing(reason, where))
    return found


def _ranks_without(reader: Reader, records: list[dict[str, Any]]) -> list[Missing]:
    """No rank drops out: one without a pipeline action keeps an empty row."""
    seen = {record["rank"] for record in records}
    absent = [
        rank for (rank,) in reader.rows("SELECT rank FROM rank ORDER BY rank") if rank not in seen
    ]
    empty = dict.fromkeys(field.name for field in fields(PipelineBubble))
    records += [{**empty, "rank": rank} for rank in absent]
    reason = "not available: no work of a pipeline action on this rank"
    return [Missing(reason, {"rank": absent})] if absent else []


def _add_theory(
    reader: Reader, records: list[dict[str, Any]], by: tuple[str, ...]
) -> list[Missing]:
    """Fill in the schedule and its theory where all steps of a row agree on them."""
    if not records:
        if reader.scalar("SELECT count(*) FROM action"):
            return [Missing("not available: no work of the pipeline's actions is in the trace")]
        return [Missing("not available: no pipeline action in this run")]
    expected: dict[int, int] = dict(reader.rows(_EXPECTED))
    orders = _orders(reader, expected)
    missing = _absent_stages(orders)
    schedules = {key: recognise(stages) for key, stages in orders.items()}
    reasons = set()
    for record in records:
        seen = {
            schedule
            for (pipeline, step), schedule in schedules.items()
            if record["pipeline"] in (None, pipeline) and record["step"] in (None, step)
        }
        names = {schedule.name for schedule in seen}
        record["schedule"] = names.pop() if len(names) == 1 else "mixed"
        if len(seen) != 1:
            reasons.add("no theory: the steps differ in their schedule or micro-batches")
            continue
        (only,) = seen
        theory = theoretical_bubble_ratio(only.name, only.p, only.m, only.v)
        record["theoretical_ratio"] = None if theory is None else float(theory)
        why = only.reason or why_no_theory(only.name, only.p, only.m, only.v)
        if why is not None:
            reasons.add(f"no theory: {why}")
    if "rank" in by:
        missing += _ranks_without(reader, records)
    return missing + [Missing(reason) for reason in sorted(reasons)]


PIPELINE_BUBBLE = Analyzer(
    name="pipeline_bubble",
    title="Pipeline bubble",
    row=PipelineBubble,
    by=("pipeline", "stage", "rank", "step"),
    default_by=("stage",),
    headline="bubble_ratio",
    finish=_add_theory,
)
