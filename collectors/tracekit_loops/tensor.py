"""Tensor parallel (DTensor): every rank computes its heads and its MLP columns of every block."""

from __future__ import annotations

import argparse

from tracekit_collectors import note
from tracekit_loops import options


def train(args: argparse.Namespace) -> None:
    """Train, one line of output a step."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    from tracekit_loops.model import build_model, next_character_loss
    from tracekit_loops.process import LossCurve, adamw, joined
    from tracekit_loops.text import Text

    note("paradigm", "tensor")
    note("tokens_per_step", args.batch_size * args.seq_len)
    with joined("tp") as here:
        text = Text(args.seed)
        model = build_model(args).to(here.device)
        # Each half of a block is split by columns, then by rows: what lies between needs no
        # communication, and each half costs one all-reduce forward and one backward. Embedding,
        # norms and head are whole on every rank, and stay equal since their inputs are.
        for block in model.blocks:
            parallelize_module(
                block,
                here.mesh,
                {
                    "attention.qkv": ColwiseParallel(),
                    "attention.out": RowwiseParallel(),
                    "mlp.up": ColwiseParallel(),
                    "mlp.down": RowwiseParallel(),
                },
            )
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


def main() -> None:
    parser = options.loop_parser("tensor", "Train tensor parallel, every block split by DTensor.")
    args = options.parse(parser)
    options.require_multiple(parser, "--heads", args.heads, options.world_size(), "ranks")
    train(args)


if __name__ == "__main__":
    main()
