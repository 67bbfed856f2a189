"""One process, the whole model: the curve that every other loop has to reproduce."""

from __future__ import annotations

import argparse

from tracekit_collectors import note
from tracekit_loops import options


def train(args: argparse.Namespace) -> None:
    """Train, one line of output a step."""
    from tracekit_loops.model import build_model, next_character_loss
    from tracekit_loops.process import LossCurve, adamw, joined
    from tracekit_loops.text import Text

    note("paradigm", "single")
    note("tokens_per_step", args.batch_size * args.seq_len)
    with joined("dp") as here:
        text = Text(args.seed)
        model = build_model(args).to(here.device)
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
    parser = options.loop_parser("single", "Train in one process.", ranks=False)
    args = options.parse(parser)
    if options.world_size() > 1:
        parser.error("this loop is one process; start it without torchrun")
    train(args)


if __name__ == "__main__":
    main()
