"""What to capture, as the wrapper hands it to the ranks: one environment variable."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

VARIABLE = "TRACEKIT_CAPTURE"
DIRECTORY = "TRACEKIT_RUN_DIR"
# What the profiler of a rank can record, and what stands beside it.
COLLECT = ("torch", "memory", "nvml", "shapes", "stacks", "flops")
COLLECT_BY_DEFAULT = ("torch", "memory", "nvml", "shapes")


class Recording(NamedTuple):
    """One window: the profiler starts with step ``start``; ``first`` to ``last`` are recorded.

    Between two there is a whole step that neither records: what torch is still to note of the
    earlier one (a collective that is under way) would be written into the later one.
    """

    start: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Options:
    """Which steps to record, and what of them. Steps are numbered from 0.

    The step in which the rank is found (up to its first optimizer step) is never recorded: there
    ``wait`` whole steps pass first, ``warmup`` have the profiler on, ``active`` are recorded, and
    all three again, ``repeat`` times (0: only what is asked for meanwhile; with neither wait nor
    warm-up one step lies between two windows). Or a window begins at
    every multiple of ``every``, or at each of ``at_steps``, with the steps before it for the
    warm-up, as far as there are any.

    Raises:
        ValueError: numbers that make no window.
    """

    wait: int = 1
    warmup: int = 1
    active: int = 3
    repeat: int = 1
    every: int | None = None
    at_steps: tuple[int, ...] = ()
    collect: tuple[str, ...] = COLLECT_BY_DEFAULT

    def __post_init__(self) -> None:
        if min(self.wait, self.warmup, self.active - 1, self.repeat) < 0:
            raise ValueError("wait, warmup and repeat are 0 or more, active 1 or more")
        if self.every is not None and self.at_steps:
            raise ValueError("windows come every N steps or at given steps: not both")
        if self.every is not None and self.every <= self.active:
            raise ValueError(
                f"a window of {self.active} steps every {self.every} steps is no window: every "
                "step would be recorded"
            )
        if self.at_steps and min(self.at_steps) < 1:
            raise ValueError("step 0 is the one in which a rank is found: it cannot be recorded")
        if unknown := [name for name in self.collect if name not in COLLECT]:
            raise ValueError(f"nothing is called {unknown[0]!r}: one of {', '.join(COLLECT)}")

    @property
    def left_out(self) -> list[int]:
        """Of ``at_steps`` those within the window of an earlier one, or right behind it."""
        kept = {window.first for window in self.recordings()} if self.at_steps else set()
        return sorted(set(self.at_steps) - kept)

    def recordings(self) -> Iterator[Recording]:
        """The windows, in order. Where two would overlap or touch the second is left out."""
        settled = 1  # the first step that no window has
        for first in self._firsts():
            if first > settled or first == 1:
                last = first + self.active - 1
                yield Recording(max(first - self.warmup, settled), first, last)
                settled = last + 1

    def _firsts(self) -> Iterator[int]:
        if self.at_steps:
            yield from sorted(set(self.at_steps))
        elif self.every is not None:
            first = self.every
            while True:
                yield first
                first += self.every
        else:
            cycle = max(self.wait + self.warmup, 1) + self.active
            for number in range(self.repeat):
                yield 1 + self.wait + self.warmup + number * cycle

    def to_environment(self, directory: Path) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self)), DIRECTORY: str(directory)}


def from_environment() -> tuple[Options, Path] | None:
    """The options and the run directory; None in a process that is not wrapped."""
    text, directory = os.environ.get(VARIABLE), os.environ.get(DIRECTORY)
    if not text or not directory:
        return None
    said = json.loads(text)
    lists = {name: tuple(said[name]) for name in ("at_steps", "collect") if name in said}
    return Options(**(said | lists)), Path(directory)
