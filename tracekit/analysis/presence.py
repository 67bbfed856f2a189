"""Which ranks of the run the database covers: what each figure of the whole job stands on."""

from __future__ import annotations

import dataclasses
import itertools

from tracekit.store import Reader

# A file may claim any world size: above this, ranks are counted and not listed.
_LISTED_WORLD = 1_000_000

_RANKS = """
    SELECT r.rank, coalesce(bool_and(f.state = 'empty'), false)
    FROM rank AS r LEFT JOIN file AS f ON f.rank = r.rank AND f.kind = 'trace'
    GROUP BY r.rank ORDER BY r.rank
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Presence:
    """The ranks of a run by what is here of them.

    Attributes:
        world: Ranks that the run has; where no file says how many, those that are here.
        covered: Ranks with a trace that holds anything.
        empty: Ranks whose traces are all empty.
        gaps: Ranks without a trace, as runs of (first, last).
    """

    world: int
    covered: list[int]
    empty: list[int]
    gaps: list[tuple[int, int]]

    @property
    def whole(self) -> bool:
        return len(self.covered) == self.world

    @property
    def absent(self) -> int:
        """How many ranks have no trace here."""
        return self.world - len(self.covered) - len(self.empty)

    def absent_ranks(self) -> list[int] | None:
        """Which these are; None where they are too many to list."""
        if self.world > _LISTED_WORLD:
            return None
        return [rank for first, last in self.gaps for rank in range(first, last + 1)]


def presence(reader: Reader) -> Presence:
    """Hold the ranks that are here against the size of the run."""
    states: dict[int, bool] = dict(reader.rows(_RANKS))
    world: int = reader.scalar("SELECT max(world_size) FROM rank") or 0
    if len(states) >= world:
        world, gaps = len(states), []
    else:
        world = max([world, *(rank + 1 for rank in states)])
        edges = itertools.pairwise([-1, *states, world])
        gaps = [(a + 1, b - 1) for a, b in edges if b - a > 1]
    return Presence(
        world,
        [rank for rank, empty in states.items() if not empty],
        [rank for rank, empty in states.items() if empty],
        gaps,
    )
