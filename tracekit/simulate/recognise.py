"""The name of the schedule that an observed order of actions follows.

Orders of one schedule legitimately differ between frameworks (order of the micro-batches in the
backward, size of a group, place of W), so a name stands on structure: what alternates, how far a
stage runs ahead, how chunks take turns. The tests hold each rule against torch's own orders.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from tracekit.simulate.schedules import Action, peak_in_flight

_ALTERNATING = re.compile(r"F+(BF)*B+")  # warm-up, one for one, cool-down
_FILL_DRAIN = re.compile(r"F+B+")


@dataclass(frozen=True, slots=True)
class Recognised:
    """A schedule: its name, stages p, micro-batches m and chunks per stage v.

    ``name`` is one of gpipe, 1f1b, eager-1f1b, zb-h1, zb-h2, interleaved-1f1b, looped-bfs,
    interleaved-zb, zb-v, dualpipe-v, forward-only, unknown. ``reason`` says why it is unknown.
    """

    name: str
    p: int
    m: int
    v: int
    reason: str | None = None


def recognise(orders: Sequence[Sequence[Action]]) -> Recognised:
    """Name the schedule of one step from the actions of each stage, in order of start.

    ``orders[i]`` is stage i of p; an empty one is a stage whose ranks are missing, and the name
    then stands on the others. Where two schedules give the same order on every stage (one
    micro-batch, one stage; interleaved and breadth-first with m = p in older Megatron-LM) the
    simpler one is named: their bubbles are equal too. Never raises: what fits no rule is unknown.
    """
    present = {stage: list(order) for stage, order in enumerate(orders) if order}
    actions = [action for order in present.values() for action in order]
    p = len(orders)
    m = len({action.microbatch for action in actions})
    v = max((action.chunk for action in actions), default=0) + 1
    reason = _incomplete(present, m, v)
    if reason is not None:
        return Recognised("unknown", p, m, v, reason)
    if all(action.kind == "F" for action in actions):
        return Recognised("forward-only", p, m, v)
    split = any(action.kind in "IW" for action in actions)
    name, reason = _one_chunk(present, p, m, split) if v == 1 else _chunked(present, p, m, v, split)
    return Recognised(name, p, m, v, reason)


def _incomplete(present: dict[int, list[Action]], m: int, v: int) -> str | None:
    """Why the orders cannot be those of one whole step, or None."""
    if not present:
        return "no actions"
    forwards_only = all(a.kind == "F" for order in present.values() for a in order)
    for stage, order in present.items():
        counts = Counter((a.kind, a.chunk, a.microbatch) for a in order)
        if any(a.stage != stage for a in order):
            return f"stage {stage} runs an action of another stage"
        if max(counts.values()) > 1:
            return f"stage {stage} repeats an action: more than one step"
        forwards = {(c, mb) for kind, c, mb in counts if kind == "F"}
        backwards = [(c, mb) for kind, c, mb in counts if kind in "BI"]
        weights = {(c, mb) for kind, c, mb in counts if kind in "BW"}
        whole = len(forwards) == m * v and (
            forwards_only or (len(backwards) == m * v and set(backwards) == forwards == weights)
        )
        if not whole:
            return f"stage {stage} lacks actions of {m} micro-batches and {v} chunks"
    return None


def _one_chunk(
    present: dict[int, list[Action]], p: int, m: int, split: bool
) -> tuple[str, str | None]:
    letters = {stage: _letters(order) for stage, order in present.items()}
    if not split and all(_FILL_DRAIN.fullmatch(text) for text in letters.values()):
        return "gpipe", None
    for stage, text in letters.items():
        if not _ALTERNATING.fullmatch(text):
            return "unknown", f"stage {stage} does not alternate forward and backward"
    ahead = {stage: _run_ahead(text) for stage, text in letters.items()}
    held = max(peak_in_flight(order) for order in present.values())
    if all(count == min(m, p - stage) for stage, count in ahead.items()):
        if not split:
            return "1f1b", None
        if held <= p:
            return "zb-h1", None
        return "unknown", f"W runs late: a stage holds {held} micro-batches, ZB-H1 {p}"
    # Twice the warm-up: ZB-H2, or the order of torch's interleaved schedule with one chunk.
    if (
        all(count == min(m, 2 * (p - stage) - 1) for stage, count in ahead.items())
        and held <= 2 * p - 1
    ):
        return ("zb-h2" if split else "eager-1f1b"), None
    stage = next(s for s, count in ahead.items() if count != min(m, p - s))
    return "unknown", (
        f"stage {stage} runs {ahead[stage]} forwards before its first backward, "
        f"1F1B runs {min(m, p - stage)}"
    )


def _chunked(
    present: dict[int, list[Action]], p: int, m: int, v: int, split: bool
) -> tuple[str, str | None]:
    if split and m == 1:
        return "unknown", "one micro-batch does not tell where the chunks lie"
    if split and v == 2 and _leads_like_v(present, p, m):
        crossed = any(_crosses_chunks(order) for order in present.values())
        return ("dualpipe-v" if crossed else "zb-v"), None
    for stage, order in present.items():
        if not _takes_chunks_in_turn(order, m, v):
            return "unknown", f"stage {stage} does not take its chunks in turn"
    letters = {stage: _letters(order) for stage, order in present.items()}
    if not split and all(_FILL_DRAIN.fullmatch(text) for text in letters.values()):
        return "looped-bfs", None
    for stage, text in letters.items():
        if not _ALTERNATING.fullmatch(text):
            return "unknown", f"stage {stage} does not alternate forward and backward"
    # Each stage runs ahead of the next by 2 chunks in interleaved 1F1B and by 1 in its
    # zero-bubble form: both need the same step between all stages.
    group = next(_group_size(order) for order in present.values())
    step = 1 if split else 2
    for stage, text in letters.items():
        expected = min(m * v, (v - 1) * group + step * (p - 1 - stage) + 1)
        if _run_ahead(text) != expected:
            return "unknown", (
                f"stage {stage} runs {_run_ahead(text)} forwards before its first backward, "
                f"interleaving runs {expected}"
            )
    return ("interleaved-zb" if split else "interleaved-1f1b"), None


def _letters(order: Sequence[Action]) -> str:
    """F and B of an order; I stands for the whole backward, W is left out."""
    return "".join("F" if a.kind == "F" else "B" for a in order if a.kind != "W")


def _run_ahead(letters: str) -> int:
    return len(letters) - len(letters.lstrip("F"))


def _forward_chunks(order: Sequence[Action]) -> list[int]:
    return [action.chunk for action in order if action.kind == "F"]


def _group_size(order: Sequence[Action]) -> int:
    """Micro-batches that pass one chunk before the next chunk has its turn."""
    return len(next(iter(_runs(_forward_chunks(order))))[1])


def _runs(chunks: Sequence[int]) -> list[tuple[int, list[int]]]:
    return [(chunk, list(run)) for chunk, run in groupby(chunks)]


def _takes_chunks_in_turn(order: Sequence[Action], m: int, v: int) -> bool:
    """Forwards go up through the chunks group by group, backwards down."""
    group = _group_size(order)
    sizes = [min(group, m - first) for first in range(0, m, group)]
    up = [chunk for size in sizes for chunk in range(v) for _ in range(size)]
    down = [chunk for size in sizes for chunk in reversed(range(v)) for _ in range(size)]
    backwards = [action.chunk for action in order if action.kind in "BI"]
    return _forward_chunks(order) == up and backwards == down


def _leads_like_v(present: dict[int, list[Action]], p: int, m: int) -> bool:
    """Chunk 1 of stage i lies 2(p-i)-1 virtual stages after its chunk 0: so far it runs ahead."""
    leads = {stage: _group_size(order) for stage, order in present.items()}
    # Equal leads are those of chunks in a loop, which a small m cuts to the same length.
    return len(set(leads.values())) > 1 and all(
        lead == min(m, 2 * (p - stage) - 1) for stage, lead in leads.items()
    )


def _crosses_chunks(order: Sequence[Action]) -> bool:
    """Whether a forward of one chunk is followed by a backward of the other, as in DualPipe."""
    return any(
        now.kind == "F" and after.kind in "BI" and now.chunk != after.chunk
        for now, after in pairwise(order)
    )
