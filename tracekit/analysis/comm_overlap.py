"""Communication overlap: how much communication hides behind compute."""

from dataclasses import dataclass
from typing import Annotated

from tracekit.analysis.base import Analyzer, Dim, Unit, Value


@dataclass(frozen=True, slots=True)
class CommOverlap:
    """How much of each rank's communication is hidden behind its own compute.

    U(x) is the union of the intervals of class x on one rank, so that two collectives at once
    count once. Without ``step``, over all that the trace holds; by step, over the communication
    that the step launched. Grouped over several ranks, times are sums over the ranks.
    """

    rank: Annotated[int | None, Dim("Global rank.")]
    stage: Annotated[int | None, Dim("Position in the pipeline.")]
    step: Annotated[int | None, Dim("Training step that launched the communication.")]
    overlap: Annotated[
        float | None,
        Value("1 - exposed / communication; null without communication.", Unit.RATIO, "higher"),
    ]
    exposed_ns: Annotated[
        int | None, Value("|U(comm) \\ U(compute)|: nothing computes.", Unit.NS, "lower")
    ]
    overlapped_ns: Annotated[int | None, Value("|U(comm) n U(compute)|.", Unit.NS)]
    comm_ns: Annotated[int | None, Value("|U(comm)|.", Unit.NS, "lower")]
    compute_ns: Annotated[
        int | None, Value("|U(compute)|; by step, of what the step launched.", Unit.NS)
    ]
    evidence: Annotated[
        str | None, Value("What the times stand on: kernel, operator or none.", Unit.TEXT)
    ]


COMM_OVERLAP = Analyzer(
    name="comm_overlap",
    title="Communication overlap",
    row=CommOverlap,
    by=("rank", "stage", "step"),
    default_by=("rank",),
    headline="overlap",
)
