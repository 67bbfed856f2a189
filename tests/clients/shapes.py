"""Parameter shapes of the reference loops' default model, counted apart from the capture."""

from __future__ import annotations


def default_shapes() -> list[tuple[int, ...]]:
    from tracekit_loops import options
    from tracekit_loops.model import build_model

    args = options.loop_parser("data", "", options.Defaults()).parse_args([])
    return [tuple(parameter.shape) for parameter in build_model(args).parameters()]
