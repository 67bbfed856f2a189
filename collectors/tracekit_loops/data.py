"""Data parallel (DDP): every rank holds the whole model and trains on its rows of the batch."""

from __future__ import annotations

import argparse

from tracekit_collectors import note
from tracekit_loops import options


def train(args: argparse.Namespace) -> None:
    """Train, one line of output a step."""
    from torch.nn.parallel import DistributedDataParallel

    from tracekit_loops.model import build_model, next_character_loss
    from tracekit_loops.process import LossCurve, adamw, joined
    from tracekit_loops.text import Text

    note("paradigm", "data")
    note("tokens_per_step", args.batch_size * args.seq_len)
    if args.bucket_mb is not None:
        note("bucket_mb", args.bucket_mb)
    with joined("dp") as here:
        text = Text(args.seed)
        model = DistributedDataParallel(
            build_model(args).to(here.device),
            process_group=here.mesh.get_group(),
            bucket_cap_mb=args.bucket_mb,
            # Gradients live in the buckets: without it they would be kept, and copied, twice.
            gradient_as_bucket_view=True,
        )
        optimizer = adamw(model.parameters(), args.lr)
        curve = LossCurve(args, here, average=True)
        for step in range(args.steps):
            tokens, targets = text.batch(step, args.batch_size, args.seq_len)
            loss = next_character_loss(model(here.share(tokens)), here.share(targets))
            loss.backward()  # type: ignore[no-untyped-call]
            # Before the optimizer: the ranks have just met in the last bucket and need no wait.
            curve.add(loss)
            optimizer.step()
            optimizer.zero_grad()
        curve.save()


def main() -> None:
    parser = options.loop_parser("data", "Train data parallel with DistributedDataParallel.")
    parser.add_argument_group("data parallel").add_argument(
        "--bucket-mb",
        type=options.above_zero,
        metavar="MB",
        help="size of the gradient buckets; small ones overlap with the backward pass, one that "
        "holds all gradients does not (default: DDP's own, 25 after a first one of 1)",
    )
    args = options.parse(parser)
    options.require_multiple(parser, "--batch-size", args.batch_size, options.world_size(), "ranks")
    train(args)


if __name__ == "__main__":
    main()
