"""Step breakdown: where each step of each rank goes."""

from dataclasses import dataclass
from typing import Annotated

from tracekit.analysis.base import Analyzer, Dim, Unit, Value


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """Each step window split into disjoint classes that sum to it, to the nanosecond.

    ``compute`` counts alone or overlapping anything; exposed communication is what no compute
    hides, exposed memory copies what neither hides. ``unlinked`` is what only work covers whose
    launch is not in the trace: it is of no step. The rest is idle. Where several mesh dimensions
    are exposed at once the time goes to the first of tp, cp, ep, pp, dp, unknown.
    Means over the steps (and ranks) of a group. A rank without steps is one window: its span.
    """

    rank: Annotated[int | None, Dim("Global rank.")]
    stage: Annotated[int | None, Dim("Position in the pipeline.")]
    step: Annotated[int | None, Dim("Training step.")]
    windows: Annotated[int, Value("Step windows that the means are over.", Unit.COUNT)]
    window_ns: Annotated[int | None, Value("Length of the step window.", Unit.NS, "lower")]
    compute_ns: Annotated[int | None, Value("Something computes.", Unit.NS)]
    exposed_ns: Annotated[
        int | None, Value("Only communication runs, all dimensions.", Unit.NS, "lower")
    ]
    exposed_memory_ns: Annotated[
        int | None, Value("Only memory copies and sets run.", Unit.NS, "lower")
    ]
    unlinked_ns: Annotated[
        int | None,
        Value("Only work runs whose launch is not in the trace.", Unit.NS, detail=True),
    ]
    idle_ns: Annotated[int | None, Value("Nothing runs.", Unit.NS, "lower")]
    compute_ratio: Annotated[float | None, Value("compute / window.", Unit.RATIO, "higher")]
    exposed_ratio: Annotated[float | None, Value("exposed / window.", Unit.RATIO, "lower")]
    idle_ratio: Annotated[float | None, Value("idle / window.", Unit.RATIO, "lower")]
    exposed_tp_ns: Annotated[
        int | None, Value("Exposed, tensor parallel.", Unit.NS, "lower", detail=True)
    ]
    exposed_cp_ns: Annotated[
        int | None, Value("Exposed, context parallel.", Unit.NS, "lower", detail=True)
    ]
    exposed_ep_ns: Annotated[
        int | None, Value("Exposed, expert parallel.", Unit.NS, "lower", detail=True)
    ]
    exposed_pp_ns: Annotated[
        int | None, Value("Exposed, pipeline parallel.", Unit.NS, "lower", detail=True)
    ]
    exposed_dp_ns: Annotated[
        int | None, Value("Exposed, data parallel.", Unit.NS, "lower", detail=True)
    ]
    exposed_unknown_ns: Annotated[
        int | None, Value("Exposed, group of unknown dimension.", Unit.NS, "lower", detail=True)
    ]


STEP_BREAKDOWN = Analyzer(
    name="step_breakdown",
    title="Step breakdown",
    row=StepBreakdown,
    by=("rank", "stage", "step"),
    default_by=("rank",),
    headline="window_ns",
)
