"""The schedules of torch.distributed.pipelining: what each asks for, and which stages a rank holds.

Standard library only, as the command line needs it; torch is loaded where a schedule is made.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit_loops import options

if TYPE_CHECKING:
    from torch.distributed.pipelining import PipelineStage


@dataclass(frozen=True, slots=True)
class Schedule:
    """One of torch's.

    Attributes:
        torch_name: Its class there.
        chunks: Stages of a rank where nothing is said.
        is_fixed: Whether it can have no other number of them.
        is_v: Whether the stages go down the ranks and up again, so that the first rank holds the
            first and the last one; else they go round and round.
        in_rounds: Whether micro-batches come in equal rounds of about the number of ranks.
        fills: Whether there must be a micro-batch for each stage.
    """

    torch_name: str
    chunks: int = 1
    is_fixed: bool = True
    is_v: bool = False
    in_rounds: bool = False
    fills: bool = False

    def stages_of(self, rank: int, ranks: int, chunks: int) -> list[int]:
        """The stages of a rank, in the order of the model."""
        if self.is_v:
            return [rank, 2 * ranks - 1 - rank]
        return list(range(rank, ranks * chunks, ranks))

    def rank_of_loss(self, ranks: int) -> int:
        """The rank that holds the last stage."""
        return 0 if self.is_v else ranks - 1

    def check(self, parser: options.LoopParser, args: argparse.Namespace) -> None:
        """Fill in and refuse, by the number of ranks that there are."""
        ranks = options.world_size()
        if args.virtual_stages is None:
            args.virtual_stages = self.chunks
        if self.is_fixed and args.virtual_stages != self.chunks:
            count = "one stage" if self.chunks == 1 else f"{self.chunks} stages"
            parser.error(f"argument --virtual-stages: {args.schedule} has {count} a rank")
        stages = ranks * args.virtual_stages
        options.require_multiple(parser, "--layers", args.layers, stages, "stages")
        microbatches = args.microbatches
        options.require_multiple(
            parser, "--batch-size", args.batch_size, microbatches, "--microbatches"
        )
        if self.fills and microbatches < stages:
            parser.error(
                f"argument --microbatches: {args.schedule} needs {stages} or more, one a stage"
            )
        if self.in_rounds:
            rounds = max(1, microbatches // ranks)
            options.require_multiple(parser, "--microbatches", microbatches, rounds, "rounds")

    def make(self, stages: Sequence[PipelineStage], microbatches: int) -> Any:
        """torch's own over this rank's stages; the two kinds have no useful base in common."""
        from torch.distributed import pipelining

        from tracekit_loops.model import next_character_loss

        cls = getattr(pipelining, self.torch_name)
        one = self.is_fixed and self.chunks == 1
        return cls(stages[0] if one else list(stages), microbatches, loss_fn=next_character_loss)


SCHEDULES = {
    "gpipe": Schedule("ScheduleGPipe"),
    "1f1b": Schedule("Schedule1F1B", fills=True),
    "looped-bfs": Schedule("ScheduleLoopedBFS", chunks=2, is_fixed=False),
    "interleaved": Schedule("ScheduleInterleaved1F1B", chunks=2, is_fixed=False, in_rounds=True),
    "interleaved-zb": Schedule(
        "ScheduleInterleavedZeroBubble", chunks=2, is_fixed=False, in_rounds=True
    ),
    "zb-v": Schedule("ScheduleZBVZeroBubble", chunks=2, is_v=True),
    "dualpipe-v": Schedule("ScheduleDualPipeV", chunks=2, is_v=True, fills=True),
}
