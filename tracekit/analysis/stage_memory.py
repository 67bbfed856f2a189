"""Memory per stage: the peak of each rank, what it is made of, and when it was reached."""

from dataclasses import dataclass
from typing import Annotated

from tracekit.analysis.base import Analyzer, Dim, Unit, Value


@dataclass(frozen=True, slots=True)
class StageMemory:
    """The peak of allocated memory and the model state, exact and local to the rank.

    ``params``, ``grads`` and ``optimizer`` are the shards the rank holds at the end of the
    captured window, counted from its own optimizers. What is alive at the peak adds up to it:
    params + grads_at_peak + optimizer + padding + gathered_at_peak + activations =
    peak_allocated, where activations is the rest. By stage: the rank with the highest peak, and
    the spread.
    """

    rank: Annotated[int | None, Dim("Global rank.")]
    stage: Annotated[int | None, Dim("Position in the pipeline.")]
    step: Annotated[int | None, Dim("Training step.")]
    peak_allocated_bytes: Annotated[
        int | None, Value("Highest sum of live allocations.", Unit.BYTES, "lower")
    ]
    peak_reserved_bytes: Annotated[
        int | None, Value("Highest sum held by the allocator.", Unit.BYTES, "lower")
    ]
    params_bytes: Annotated[int | None, Value("Parameters.", Unit.BYTES, "lower")]
    grads_bytes: Annotated[
        int | None, Value("Gradients at the end of a step.", Unit.BYTES, "lower")
    ]
    optimizer_bytes: Annotated[int | None, Value("Optimizer state.", Unit.BYTES, "lower")]
    padding_bytes: Annotated[
        int | None, Value("Padding of sharded parameters.", Unit.BYTES, "lower", detail=True)
    ]
    grads_at_peak_bytes: Annotated[
        int | None, Value("Gradients alive at the peak.", Unit.BYTES, "lower", detail=True)
    ]
    gathered_at_peak_bytes: Annotated[
        int | None, Value("Unsharded parameters alive at the peak.", Unit.BYTES, "lower")
    ]
    gathered_peak_bytes: Annotated[
        int | None,
        Value("Most unsharded parameters at once (FSDP2).", Unit.BYTES, "lower", detail=True),
    ]
    activations_bytes: Annotated[
        int | None, Value("Peak less the model state alive at it.", Unit.BYTES, "lower")
    ]
    headroom_bytes: Annotated[
        int | None, Value("Device memory less peak reserved.", Unit.BYTES, "higher")
    ]
    peak_step: Annotated[int | None, Value("Step in which the peak is.", Unit.COUNT)]
    peak_in: Annotated[str | None, Value("Pipeline action at the peak.", Unit.TEXT)]
    in_flight: Annotated[
        int | None, Value("Micro-batches forwarded and not yet backwarded at the peak.", Unit.COUNT)
    ]
    growth_bytes: Annotated[
        int | None,
        Value("Mean change of allocated from one step's end to the next.", Unit.BYTES, "lower"),
    ]
    spread_bytes: Annotated[
        int | None,
        Value(
            "Highest less lowest peak of the ranks in this row.", Unit.BYTES, "lower", detail=True
        ),
    ]


STAGE_MEMORY = Analyzer(
    name="stage_memory",
    title="Memory per stage",
    row=StageMemory,
    by=("rank", "stage", "step"),
    default_by=("rank",),
    headline="peak_allocated_bytes",
)
