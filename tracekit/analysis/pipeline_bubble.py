"""Pipeline bubble: how much of each stage's time is lost to the schedule, beside its theory."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Annotated, Any

from tracekit.analysis.base import Analyzer, Dim, Missing, Unit, Value
from tracekit.simulate.recognise import Recognised, recognise
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


# Of several ranks on one stage (tensor parallel) one tells the order.
_ORDERS = """
    SELECT pipeline, step, stage, kind, chunk, microbatch
    FROM action WHERE start_ns IS NOT NULL AND step IS NOT NULL
    QUALIFY rank = min(rank) OVER (PARTITION BY pipeline, stage)
    ORDER BY pipeline, step, stage, host_start_ns
"""

# Stages that each pipeline should have: virtual stages as recorded, over chunks per position.
_EXPECTED = """
    SELECT a.pipeline, max(r.stages) // (max(a.chunk) + 1)
    FROM action AS a JOIN rank AS r USING (rank) GROUP BY a.pipeline
"""

_Schedules = dict[tuple[int, int], Recognised]


def _recognise_all(reader: Reader, expected: dict[int, int | None]) -> _Schedules:
    """The schedule of each pipeline and step."""
    by_step: dict[tuple[int, int], dict[int, list[Action]]] = defaultdict(lambda: defaultdict(list))
    for pipeline, step, stage, kind, chunk, microbatch in reader.rows(_ORDERS):
        by_step[pipeline, step][stage].append(Action(kind, stage, chunk, microbatch))
    found = {}
    for (pipeline, step), by_stage in by_step.items():
        p = max(expected.get(pipeline) or 0, max(by_stage) + 1)
        found[pipeline, step] = recognise([by_stage.get(stage, []) for stage in range(p)])
    return found


def _absent_stages(reader: Reader, expected: dict[int, int | None]) -> list[Missing]:
    """A window is only whole with all stages: the first forward or last backward may be missing."""
    found = []
    for pipeline, stages in reader.rows(
        "SELECT pipeline, list(DISTINCT stage ORDER BY stage) FROM action GROUP BY pipeline"
    ):
        p = max(expected.get(pipeline) or 0, max(stages) + 1)
        absent = sorted(set(range(p)) - set(stages))
        if absent:
            reason = f"only {len(stages)} of {p} stages are here: the window may be too short"
            found.append(Missing(reason, {"pipeline": pipeline, "stage": absent}))
    return found


def _add_theory(
    reader: Reader, records: list[dict[str, Any]], by: tuple[str, ...]
) -> list[Missing]:
    """Fill in the schedule and its theory where all steps of a row agree on them."""
    if not records:
        return [Missing("not available: no pipeline action in this run")]
    expected: dict[int, int | None] = dict(reader.rows(_EXPECTED))
    schedules = _recognise_all(reader, expected)
    missing = _absent_stages(reader, expected)
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
