"""Pipeline parallel (torch.distributed.pipelining): every rank holds some of the layers.

The batch passes through the stages in micro-batches, in the order of the chosen schedule. The
rank of the last stage is the one that knows the loss, and prints it.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tracekit_collectors import note
from tracekit_loops import options
from tracekit_loops.schedules import SCHEDULES

if TYPE_CHECKING:
    from torch import nn

# Small, so that an action is a few milliseconds of compute: at a pace of 60 ms four ranks then
# seldom want the two cores at once, which would delay the actions that wait for them.
DEFAULTS = options.Defaults(hidden=128, heads=4)


def cut(parts: list[nn.Module], stages: int) -> list[list[nn.Module]]:
    """The chain of parts as one chain a stage, each with the same number of blocks."""
    embedding, *blocks, head = parts
    size = len(blocks) // stages
    chains = [blocks[stage * size :][:size] for stage in range(stages)]
    chains[0].insert(0, embedding)
    chains[-1].append(head)
    return chains


def train(args: argparse.Namespace) -> None:
    """Train, one line of output a step."""
    import torch
    from torch import nn

    from tracekit_loops.model import build_model
    from tracekit_loops.pace import PacedStage
    from tracekit_loops.process import LossCurve, adamw, joined
    from tracekit_loops.text import Text

    write_notes(args)
    with joined("pp") as here:
        text = Text(args.seed)
        kind = SCHEDULES[args.schedule]
        stage_count = here.world_size * args.virtual_stages
        chains = cut(build_model(args).parts(), stage_count)
        stages = [
            PacedStage(
                nn.Sequential(*chains[index]).to(here.device),
                index,
                stage_count,
                here.device,
                group=here.mesh.get_group(),
                pace_s=args.pace / 1000.0,
            )
            for index in kind.stages_of(here.rank, here.world_size, args.virtual_stages)
        ]
        del chains  # the other ranks' weights
        schedule = kind.make(stages, args.microbatches)
        optimizer = adamw((p for stage in stages for p in stage.submod.parameters()), args.lr)
        curve = LossCurve(args, here, speaker=kind.rank_of_loss(here.world_size))
        for step in range(args.steps):
            tokens, targets = text.batch(step, args.batch_size, args.seq_len)
            inputs = (tokens.to(here.device),) if stages[0].is_first else ()
            target = targets.to(here.device) if stages[-1].is_last else None
            losses: list[torch.Tensor] = []
            schedule.step(*inputs, target=target, losses=losses)
            optimizer.step()
            optimizer.zero_grad()
            # Micro-batches are of one size, so the mean of their means is that of the batch.
            curve.add(torch.stack(losses).mean() if losses else None)
        curve.save()


def write_notes(args: argparse.Namespace) -> None:
    """Tell a capture, where there is one, what it looks at."""
    note("paradigm", "pipeline")
    note("schedule", args.schedule)
    note("microbatches", args.microbatches)
    note("virtual_stages", args.virtual_stages)
    note("tokens_per_step", args.batch_size * args.seq_len)
    if args.pace:
        note("pace_ms", f"{args.pace:g}")


def parse() -> argparse.Namespace:
    """The options, with what the schedules ask of them checked."""
    parser = options.loop_parser("pipeline", "Train pipeline parallel.", DEFAULTS)
    group = parser.add_argument_group("pipeline")
    group.add_argument(
        "--schedule",
        choices=tuple(SCHEDULES),
        default="1f1b",
        help="order of the forward and backward passes; interleaved-zb, zb-v and dualpipe-v split "
        "the backward pass in two (default: 1f1b)",
    )
    group.add_argument(
        "--microbatches",
        type=options.whole(1),
        default=8,
        metavar="N",
        help="equal parts of the batch that pass through the stages (default: 8)",
    )
    group.add_argument(
        "--virtual-stages",
        type=options.whole(1),
        metavar="N",
        help="stages a rank (default: 1 for gpipe and 1f1b, else 2)",
    )
    group.add_argument(
        "--pace",
        type=options.above_zero,
        default=0.0,
        metavar="MS",
        help="make every forward and every backward pass of a stage last MS milliseconds, so that "
        "the schedule shows on fewer cores than ranks (default: as long as it takes)",
    )
    args = options.parse(parser)
    SCHEDULES[args.schedule].check(parser, args)
    return args


def main() -> None:
    train(parse())


if __name__ == "__main__":
    main()
