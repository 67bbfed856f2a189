"""Tensor parallel (DTensor): every rank computes its heads and its MLP columns of every block.

With ``--sequence`` also sequence parallel, as in Megatron (Korthikanti et al. 2022, section 4.2.2):
between the halves, where tensor parallelism alone has every rank do the same, each has its share of
the sequence. An all-reduce becomes a reduce-scatter there and an all-gather before the next half.
"""

from __future__ import annotations

import argparse
from typing import Any

from tracekit_collectors import note
from tracekit_loops import options


def train(args: argparse.Namespace) -> None:
    """Train, one line of output a step."""
    from torch.distributed.tensor.parallel import parallelize_module

    from tracekit_loops.model import build_model, next_character_loss
    from tracekit_loops.process import LossCurve, adamw, joined
    from tracekit_loops.text import Text

    note("paradigm", "tensor")
    note("sequence_parallel", args.sequence)
    note("tokens_per_step", args.batch_size * args.seq_len)
    with joined("tp") as here:
        text = Text(args.seed)
        model = build_model(args).to(here.device)
        for part, plan in zip(model.parts(), plans(args), strict=True):
            parallelize_module(part, here.mesh, plan)
        optimizer = adamw(model.parameters(), args.lr)
        curve = LossCurve(args, here)
        for step in range(args.steps):
            tokens, targets = text.batch(step, args.batch_size, args.seq_len)
            loss = next_character_loss(model(tokens.to(here.device)), targets.to(here.device))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            curve.add(loss)
        curve.save()


def plans(args: argparse.Namespace) -> list[dict[str, Any]]:
    """How embedding, blocks and head are divided, in the order in which they run."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        PrepareModuleOutput,
        RowwiseParallel,
        SequenceParallel,
    )

    share = Shard(1) if args.sequence else Replicate()  # of what lies between the halves
    # Each half of a block is split by columns, then by rows: what lies between needs no
    # communication, and each half costs one all-reduce forward and one backward.
    block: dict[str, Any] = {
        "attention.qkv": ColwiseParallel(input_layouts=share),
        "attention.out": RowwiseParallel(output_layouts=share),
        "mlp.up": ColwiseParallel(input_layouts=share),
        "mlp.down": RowwiseParallel(output_layouts=share),
    }
    if not args.sequence:
        # Embedding, norms and head are whole on every rank, and stay equal since their inputs are.
        return [{}, *[block] * args.layers, {}]
    block |= {"attention_norm": SequenceParallel(), "mlp_norm": SequenceParallel()}
    embedding = {"": PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=share)}
    head = {
        "norm": SequenceParallel(),
        "scores": PrepareModuleInput(
            input_layouts=share, desired_input_layouts=Replicate(), use_local_output=True
        ),
    }
    return [embedding, *[block] * args.layers, head]


def main() -> None:
    parser = options.loop_parser("tensor", "Train tensor parallel, every block split by DTensor.")
    parser.add_argument_group("tensor parallel").add_argument(
        "--sequence",
        action="store_true",
        help="divide the sequence where the blocks are not divided (Megatron's sequence parallel)",
    )
    args = options.parse(parser)
    if args.sequence:
        ranks = options.world_size()
        options.require_multiple(parser, "--seq-len", args.seq_len, ranks, "ranks")
    options.require_multiple(parser, "--heads", args.heads, options.world_size(), "ranks")
    train(args)


if __name__ == "__main__":
    main()
