"""ZeRO stages 2 and 3 (FSDP2): parameters, gradients and optimizer state divided by block."""

from __future__ import annotations

import argparse

from tracekit_collectors import note
from tracekit_loops import options


def train(args: argparse.Namespace) -> None:
    """Train, one line of output a step."""
    from torch.distributed.fsdp import fully_shard

    from tracekit_loops.model import build_model, next_character_loss
    from tracekit_loops.process import LossCurve, adamw, joined
    from tracekit_loops.text import Text

    note("paradigm", "fsdp")
    note("zero_stage", args.stage)
    note("tokens_per_step", args.batch_size * args.seq_len)
    with joined("dp") as here:
        text = Text(args.seed)
        model = build_model(args).to(here.device)
        # Stage 3 frees a block's gathered parameters after its forward pass and gathers them
        # again for the backward pass; stage 2 keeps them. The root group (embedding and head)
        # follows suit, where FSDP2 by itself would always keep it.
        for module in (*model.blocks, model):
            fully_shard(module, mesh=here.mesh, reshard_after_forward=args.stage == 3)
        optimizer = adamw(model.parameters(), args.lr)
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
    parser = options.loop_parser("fsdp", "Train fully sharded with FSDP2 (ZeRO stage 2 or 3).")
    parser.add_argument_group("data parallel").add_argument(
        "--stage",
        type=int,
        choices=(2, 3),
        default=3,
        help="2 keeps a block's parameters until its backward pass, 3 gathers them twice "
        "(default: 3)",
    )
    args = options.parse(parser)
    options.require_multiple(parser, "--batch-size", args.batch_size, options.world_size(), "ranks")
    train(args)


if __name__ == "__main__":
    main()
