"""Pipeline parallel (torch.distributed.pipelining): every rank holds some of the layers.

The batch passes through the stages in micro-batches, in the order of the chosen schedule. The
rank of the last stage is the one that knows the loss, and prints it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracekit_collectors import note
from tracekit_loops import options

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed.pipelining import PipelineStage

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


def make_schedule(name: str, stages: Sequence[PipelineStage], microbatches: int) -> Any:
    """The schedule over this rank's stages; the two kinds have no useful base in common."""
    from torch.distributed import pipelining

    from tracekit_loops.model import next_character_loss

    if name == "interleaved":
        return pipelining.ScheduleInterleaved1F1B(
            list(stages), microbatches, loss_fn=next_character_loss
        )
    single = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B}[name]
    return single(stages[0], microbatches, loss_fn=next_character_loss)


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
        stage_count = here.world_size * args.virtual_stages
        chains = cut(build_model(args).parts(), stage_count)
        # Looped placement: with several stages a rank, rank r holds stages r, r + p, r + 2p ...
        stages = [
            PacedStage(
                nn.Sequential(*chains[index]).to(here.device),
                index,
                stage_count,
                here.device,
                group=here.mesh.get_group(),
                pace_s=args.pace / 1000.0,
            )
            for index in range(here.rank, stage_count, here.world_size)
        ]
        del chains  # the other ranks' weights
        schedule = make_schedule(args.schedule, stages, args.microbatches)
        optimizer = adamw((p for stage in stages for p in stage.submod.parameters()), args.lr)
        curve = LossCurve(args, here, speaker=here.world_size - 1)
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
        choices=("gpipe", "1f1b", "interleaved"),
        default="1f1b",
        help="order of the forward and backward passes (default: 1f1b)",
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
        help="stages a rank (default: 2 for the interleaved schedule, else 1)",
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
    interleaved = args.schedule == "interleaved"
    if args.virtual_stages is None:
        args.virtual_stages = 2 if interleaved else 1
    if args.virtual_stages > 1 and not interleaved:
        parser.error("argument --virtual-stages: only the interleaved schedule has several a rank")
    ranks = options.world_size()
    stages = ranks * args.virtual_stages
    options.require_multiple(parser, "--layers", args.layers, stages, "stages")
    options.require_multiple(
        parser, "--batch-size", args.batch_size, args.microbatches, "--microbatches"
    )
    if args.schedule == "1f1b" and args.microbatches < stages:
        parser.error(f"argument --microbatches: 1f1b needs {stages} or more, one a stage")
    if interleaved:
        rounds = max(1, args.microbatches // ranks)
        options.require_multiple(parser, "--microbatches", args.microbatches, rounds, "rounds")
    return args


def main() -> None:
    train(parse())


if __name__ == "__main__":
    main()
