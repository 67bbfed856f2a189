"""ZeRO stage 1: data parallel, with the optimizer's state divided among the ranks."""

from __future__ import annotations

import argparse

from tracekit_collectors import note
from tracekit_loops import options


def train(args: argparse.Namespace) -> None:
    """Train, one line of output a step."""
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    from tracekit_loops.model import build_model, next_character_loss
    from tracekit_loops.process import LossCurve, joined
    from tracekit_loops.text import Text

    note("paradigm", "zero")
    note("zero_stage", 1)
    note("tokens_per_step", args.batch_size * args.seq_len)
    with joined("dp") as here:
        text = Text(args.seed)
        model = DistributedDataParallel(
            build_model(args).to(here.device),
            process_group=here.mesh.get_group(),
            gradient_as_bucket_view=True,
        )
        # Each rank keeps AdamW's state for whole parameters, steps those, and broadcasts them:
        # as one flat bucket a rank, in place of a broadcast a parameter.
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(),
            optimizer_class=torch.optim.AdamW,
            process_group=here.mesh.get_group(),
            parameters_as_bucket_view=True,
            lr=args.lr,
            foreach=False,
        )
        curve = LossCurve(args, here, average=True)
        for step in range(args.steps):
            tokens, targets = text.batch(step, args.batch_size, args.seq_len)
            loss = next_character_loss(model(here.share(tokens)), here.share(targets))
            loss.backward()  # type: ignore[no-untyped-call]
            curve.add(loss)
            optimizer.step()
            optimizer.zero_grad()
        curve.save()


def main() -> None:
    parser = options.loop_parser(
        "zero", "Train data parallel with the optimizer state divided (ZeRO stage 1)."
    )
    args = options.parse(parser)
    options.require_multiple(parser, "--batch-size", args.batch_size, options.world_size(), "ranks")
    train(args)


if __name__ == "__main__":
    main()
