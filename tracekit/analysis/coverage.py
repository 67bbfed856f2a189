"""Coverage: what of the run the database holds, and how far it can be trusted."""

from dataclasses import dataclass
from typing import Annotated, Any

from tracekit.analysis.base import Analyzer, Dim, Missing, Unit, Value
from tracekit.analysis.presence import presence
from tracekit.store import Reader


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the database holds of each rank, and what is missing or damaged."""

    rank: Annotated[int | None, Dim("Global rank.")]
    stage: Annotated[int | None, Dim("Position in the pipeline.")]
    host: Annotated[str | None, Value("Node the rank ran on.", Unit.TEXT)]
    state: Annotated[str, Value("Of the trace: whole, partial or empty.", Unit.TEXT)]
    evidence: Annotated[str, Value("What times stand on: kernel, operator or none.", Unit.TEXT)]
    steps: Annotated[int, Value("Steps marked in the trace.", Unit.COUNT, "higher")]
    events: Annotated[int, Value("Events kept.", Unit.COUNT)]
    span_ns: Annotated[int | None, Value("From the first to the last event.", Unit.NS)]
    unlinked: Annotated[
        int | None, Value("GPU work whose launch is not in the trace.", Unit.COUNT, "lower")
    ]
    damaged: Annotated[int, Value("Events skipped, repaired or left out.", Unit.COUNT, "lower")]
    clock_offset_ns: Annotated[
        int | None, Value("Against the reference clock; null: not aligned.", Unit.NS)
    ]
    clock_spread_ns: Annotated[
        int | None, Value("Median deviation of the offset's samples.", Unit.NS, "lower")
    ]


def _missing_ranks(
    reader: Reader, records: list[dict[str, Any]], by: tuple[str, ...]
) -> list[Missing]:
    """Ranks that the run has and the database has not."""
    here = presence(reader)
    if not here.absent:
        return []
    ranks = here.absent_ranks()
    reason = f"not in the run: {here.absent} of {here.world} ranks"
    return [Missing(reason, {} if ranks is None else {"rank": ranks})]


COVERAGE = Analyzer(
    name="coverage",
    title="Coverage",
    row=Coverage,
    by=("rank",),
    default_by=("rank",),
    headline="events",
    finish=_missing_ranks,
)
