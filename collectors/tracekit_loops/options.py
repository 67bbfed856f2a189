"""The command line that all loops share: option names, checks, one-line errors.

Standard library only, so that `--help` and a refused option cost no torch import. What the
options then do is `process` and `training`'s business.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a loop trains when it is told nothing: sized for four ranks on two cores."""

    steps: int = 12
    batch_size: int = 16
    seq_len: int = 64
    layers: int = 8
    hidden: int = 256
    heads: int = 8
    lr: float = 2e-3


class LoopParser(argparse.ArgumentParser):
    """Refuses with one line: every rank prints it, and the usage with it would be a page."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: error: {message}", file=sys.stderr)
        raise SystemExit(2)


def launched() -> bool:
    """Whether torchrun, or a launcher that speaks as it does, started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def rank() -> int:
    """This process's rank; without a launcher there is only rank 0."""
    return int(os.environ["RANK"]) if launched() else 0


def world_size() -> int:
    """How many ranks the launcher started."""
    return int(os.environ["WORLD_SIZE"]) if launched() else 1


def whole(least: int, most: int = 1_000_000_000) -> Callable[[str], int]:
    """An option type: a whole number from `least` to `most`."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"must be a whole number from {least} to {most}, not {text!r}"
            )
        return value

    return convert


def above_zero(text: str) -> float:
    """An option type: a finite number above zero."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text!r}")
    return value


def writable_file(text: str) -> Path:
    """An option type: a file whose folder exists, so that a typo is found before the training."""
    path = Path(text)
    if not path.parent.is_dir() or path.is_dir():
        raise argparse.ArgumentTypeError(f"cannot be written: {text!r}")
    return path


def loop_parser(
    name: str, description: str, defaults: Defaults | None = None, *, ranks: bool = True
) -> LoopParser:
    """A parser with the options of every loop; the loop adds its own."""
    default = defaults or Defaults()
    several = f"torchrun --nproc-per-node N -m tracekit_loops.{name} starts N ranks; "
    parser = LoopParser(
        prog=f"tracekit_loops.{name}",
        description=f"{description} One model, one text: the same options and seed give the same "
        "losses in every loop.",
        epilog=(several if ranks else "") + f"python -m tracekit_loops.{name} starts one.",
        allow_abbrev=False,
    )
    shown = " (default: %(default)s)"
    training = parser.add_argument_group("training")
    model = parser.add_argument_group("model")
    for group, option, least, most, value, text in (
        (training, "--steps", 1, 1_000_000, default.steps, "optimizer steps"),
        (training, "--batch-size", 1, 65536, default.batch_size, "sequences a step, all ranks"),
        (training, "--seed", 0, 2**63 - 1, 0, "of the text and of the weights"),
        (model, "--seq-len", 1, 4096, default.seq_len, "characters a sequence"),
        (model, "--layers", 1, 4096, default.layers, "transformer blocks"),
        (model, "--hidden", 1, 65536, default.hidden, "width of the model"),
        (model, "--heads", 1, 65536, default.heads, "attention heads"),
    ):
        group.add_argument(
            option, type=whole(least, most), default=value, metavar="N", help=text + shown
        )
    training.add_argument(
        "--lr", type=above_zero, default=default.lr, help="AdamW's learning rate" + shown
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--log-every",
        type=whole(1),
        default=1,
        metavar="N",
        help="print the loss every N steps, and of the first and the last step" + shown,
    )
    output.add_argument(
        "--losses",
        type=writable_file,
        metavar="FILE",
        help="write the loss of every step to FILE as JSON, in full precision",
    )
    return parser


def parse(parser: LoopParser, argv: list[str] | None = None) -> argparse.Namespace:
    """The options, with what the shared ones ask of one another checked."""
    args = parser.parse_args(argv)
    require_multiple(parser, "--hidden", args.hidden, args.heads, "--heads")
    return args


def require_multiple(parser: LoopParser, option: str, value: int, of: int, reason: str) -> None:
    """Refuse a value that does not divide evenly; `reason` names what it is divided by."""
    if value % of:
        parser.error(f"argument {option}: {value} is not a multiple of {of} ({reason})")
