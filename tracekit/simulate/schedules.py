"""The order of actions that each pipeline schedule prescribes, stage by stage.

Only orders: when an action runs is the business of ``replay``. A stage here is a position in the
pipeline, 0 to p-1, which may hold several model chunks. Chunk c of stage s is virtual stage
``c * p + s`` ("loop" placement, Megatron-LM's and torch's), or runs back and forth ("v"
placement: chunk 0 is virtual stage s, chunk 1 is ``2p - 1 - s``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["F", "B", "I", "W"]
Placement = Literal["loop", "v"]
Order = list["Action"]


@dataclass(frozen=True, slots=True)
class Action:
    """One piece of work of one stage on one micro-batch.

    ``kind``: F forward, B whole backward, or the backward split into I (gradient of the input,
    for which the upstream stage waits) and W (gradient of the weights, for which nobody waits).
    """

    kind: Kind
    stage: int
    chunk: int
    microbatch: int


def virtual_stage(stage: int, chunk: int, p: int, placement: Placement = "loop") -> int:
    """Index in model order of a chunk, 0 = first layers."""
    runs_backwards = placement == "v" and chunk % 2 == 1
    return chunk * p + (p - 1 - stage if runs_backwards else stage)


def gpipe(p: int, m: int) -> list[Order]:
    """All forwards, then all backwards (Huang et al. 2019; micro-batches of B as in torch)."""
    _check(p, m)
    return [_actions("F", stage, m) + _actions("B", stage, m) for stage in range(p)]


def forward_only(p: int, m: int) -> list[Order]:
    """Inference or evaluation: forwards alone."""
    _check(p, m)
    return [_actions("F", stage, m) for stage in range(p)]


def one_f_one_b(p: int, m: int) -> list[Order]:
    """PipeDream-Flush: p-1-i warm-up forwards on stage i, then one forward and one backward.

    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.1. torch's Schedule1F1B counts the
    first forward of the steady state as warm-up and emits the same order.
    """
    _check(p, m)
    return [
        _alternate(_actions("F", stage, m), _actions("B", stage, m), warm_up=p - 1 - stage)
        for stage in range(p)
    ]


def interleaved_one_f_one_b(p: int, m: int, v: int) -> list[Order]:
    """Megatron-LM's interleaved 1F1B: v chunks per stage, micro-batches in groups of p.

    Source: Narayanan et al. 2021, section 2.2.2: m must be a multiple of p. Stage i warms up with
    (v-1)p + 2(p-1-i) forwards of single chunks.
    """
    _check(p, m)
    if v < 2:
        raise ValueError(f"interleaved 1F1B needs 2 or more chunks per stage, got v={v}")
    if m % p:
        raise ValueError(f"interleaved 1F1B needs m to be a multiple of p, got m={m}, p={p}")
    chunks = list(range(v))
    return [
        _alternate(
            _grouped("F", stage, m, p, chunks),
            _grouped("B", stage, m, p, chunks[::-1]),
            warm_up=(v - 1) * p + 2 * (p - 1 - stage),
        )
        for stage in range(p)
    ]


def looped_bfs(p: int, m: int, v: int) -> list[Order]:
    """Breadth-first: all micro-batches through one chunk, then through the next.

    Source: Lamy-Poirier 2022 (Breadth-First Pipeline Parallelism); the backward takes the
    micro-batches in reverse, as torch's ScheduleLoopedBFS does.
    """
    _check(p, m)
    if v < 1:
        raise ValueError(f"a stage holds 1 or more chunks, got v={v}")
    return [
        [Action("F", stage, chunk, mb) for chunk in range(v) for mb in range(m)]
        + [
            Action("B", stage, chunk, mb)
            for chunk in reversed(range(v))
            for mb in reversed(range(m))
        ]
        for stage in range(p)
    ]


def zb_h1(p: int, m: int) -> list[Order]:
    """Zero Bubble H1: 1F1B with the backward split, W behind I by i micro-batches on stage i.

    Source: Qi et al. 2023 (Zero Bubble Pipeline Parallelism). Holds as much as 1F1B.
    """
    _check(p, m)
    return [_zero_bubble(stage, m, p - 1 - stage, lag=stage) for stage in range(p)]


def zb_h2(p: int, m: int) -> list[Order]:
    """Zero Bubble H2: twice the warm-up and twice the lag of H1, and 2p-1 micro-batches held.

    Source: Qi et al. 2023.
    """
    _check(p, m)
    return [_zero_bubble(stage, m, 2 * (p - 1 - stage), lag=2 * stage) for stage in range(p)]


SCHEDULES: dict[str, Callable[[int, int], list[Order]]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "zb-h1": zb_h1,
    "zb-h2": zb_h2,
    "forward-only": forward_only,
}
CHUNKED_SCHEDULES: dict[str, Callable[[int, int, int], list[Order]]] = {
    "interleaved-1f1b": interleaved_one_f_one_b,
    "looped-bfs": looped_bfs,
}


def schedule_orders(schedule: str, p: int, m: int, v: int = 1) -> list[Order]:
    """Orders of the schedule that ``recognise`` and ``theory`` know by this name.

    Raises ValueError for an unknown name, and for v other than 1 where a stage has one chunk.
    """
    if schedule in CHUNKED_SCHEDULES:
        return CHUNKED_SCHEDULES[schedule](p, m, v)
    if schedule not in SCHEDULES:
        known = ", ".join((*SCHEDULES, *CHUNKED_SCHEDULES))
        raise ValueError(f"no schedule named {schedule!r}; known: {known}")
    if v != 1:
        raise ValueError(f"{schedule} has one chunk per stage, got v={v}")
    return SCHEDULES[schedule](p, m)


def peak_in_flight(order: Sequence[Action]) -> int:
    """Most micro-batches (of one chunk) whose activations a stage holds at once.

    Held from F to the end of the whole backward: to B, or to W where the backward is split.
    """
    held = peak = 0
    for action in order:
        held += {"F": 1, "B": -1, "I": 0, "W": -1}[action.kind]
        peak = max(peak, held)
    return peak


def _check(p: int, m: int) -> None:
    if p < 1 or m < 1:
        raise ValueError(f"a pipeline has 1 or more stages and micro-batches, got p={p}, m={m}")


def _actions(kind: Kind, stage: int, m: int) -> Order:
    return [Action(kind, stage, 0, mb) for mb in range(m)]


def _grouped(kind: Kind, stage: int, m: int, group: int, chunks: Sequence[int]) -> Order:
    """Groups of micro-batches, each taken through every chunk before the next group begins."""
    return [
        Action(kind, stage, chunk, mb)
        for first in range(0, m, group)
        for chunk in chunks
        for mb in range(first, first + group)
    ]


def _alternate(forwards: Order, backwards: Order, warm_up: int) -> Order:
    warm_up = min(warm_up, len(forwards))
    order = forwards[:warm_up]
    steady = len(forwards) - warm_up
    for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
        order += (forward, backward)
    return order + backwards[steady:]


def _zero_bubble(stage: int, m: int, warm_up: int, lag: int) -> Order:
    order: Order = []
    for action in _alternate(_actions("F", stage, m), _actions("I", stage, m), warm_up):
        order.append(action)
        if action.kind == "I" and action.microbatch >= lag:
            order.append(Action("W", stage, 0, action.microbatch - lag))
    order += [Action("W", stage, 0, mb) for mb in range(max(0, m - lag), m)]
    return order
