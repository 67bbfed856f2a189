"""Which rows the timeline has: a rank each, and lanes beneath the ranks that are open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tracekit_tui.model import Lane, RankInfo


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the timeline."""

    info: RankInfo
    lane: Lane

    @property
    def rank(self) -> int:
        return self.info.rank


def rows_of(ranks: Iterable[RankInfo], opened: frozenset[int]) -> list[Row]:
    """A row per rank, and the lanes of those in ``opened``."""
    rows = []
    for info in ranks:
        rows.append(Row(info, Lane.RANK))
        if info.rank in opened:
            rows += [Row(info, lane) for lane in lanes_of(info)]
    return rows


def lanes_of(info: RankInfo) -> list[Lane]:
    """The lanes that a rank opens into."""
    lanes = [Lane.ACTIONS] if info.has_actions else []
    return [*lanes, Lane.COMPUTE, Lane.COMMUNICATION, Lane.MEMORY]


def gutter_width(ranks: Iterable[RankInfo]) -> int:
    """Cells that the names of rows take, with a space after them."""
    longest = max(
        (len(gutter_text(Row(info, Lane.RANK), opened=False)) for info in ranks), default=0
    )
    return max(longest, len("    compute")) + 1


def gutter_text(row: Row, *, opened: bool) -> str:
    """The name of a row, for example ``▸ rank 12 s3``; ``~`` where the clock is not aligned."""
    if row.lane is not Lane.RANK:
        name = "comm" if row.lane is Lane.COMMUNICATION else str(row.lane)
        return f"   {name}"
    stage = "" if row.info.stage is None else f" s{row.info.stage}"
    clock = "" if row.info.aligned else "~"
    return f"{'▾' if opened else '▸'} rank {row.rank}{clock}{stage}"
