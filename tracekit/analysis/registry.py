"""The analyzers, in the order in which a report shows them."""

from tracekit.analysis.base import Analyzer
from tracekit.analysis.comm_overlap import COMM_OVERLAP
from tracekit.analysis.coverage import COVERAGE
from tracekit.analysis.pipeline_bubble import PIPELINE_BUBBLE
from tracekit.analysis.stage_memory import STAGE_MEMORY
from tracekit.analysis.step_breakdown import STEP_BREAKDOWN

ANALYZERS: tuple[Analyzer, ...] = (
    PIPELINE_BUBBLE,
    COMM_OVERLAP,
    STEP_BREAKDOWN,
    STAGE_MEMORY,
    COVERAGE,
)

BY_NAME = {analyzer.name: analyzer for analyzer in ANALYZERS}
