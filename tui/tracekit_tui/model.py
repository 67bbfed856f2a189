"""What the screens hold of a run: plain values that the queries fill in."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tracekit_tui.window import Window


class Kind(enum.IntEnum):
    """What a rank does at an instant; at no kind it is idle."""

    COMPUTE = 0
    OVERLAPPED = 1
    EXPOSED = 2
    COPIES = 3


# Nanoseconds of one cell: by Kind, then all copies, exposed or not.
Cell = tuple[int, int, int, int, int]
EMPTY_CELL: Cell = (0, 0, 0, 0, 0)


class Lane(enum.StrEnum):
    """What a row of the timeline is about."""

    RANK = "rank"
    ACTIONS = "actions"
    COMPUTE = "compute"
    COMMUNICATION = "communication"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class RankInfo:
    """A rank as the gutter and the overview name it."""

    rank: int
    host: str | None
    device: str | None
    evidence: str
    stage: int | None
    aligned: bool
    has_actions: bool


@dataclass(frozen=True, slots=True)
class Run:
    """What is known of the run before anything is computed."""

    ranks: tuple[RankInfo, ...]
    extent: tuple[int, int] | None
    steps: int
    first_step: int | None
    last_step: int | None
    events: int
    world_size: int | None
    facts: tuple[tuple[str, str], ...]
    trust: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ActionCell:
    """The pipeline action that fills most of a cell."""

    kind: str
    stage: int
    microbatch: int
    start_ns: int


@dataclass(frozen=True, slots=True)
class Label:
    """A name drawn inside its bar: first cell, one past the last, text."""

    first: int
    past: int
    text: str


@dataclass(frozen=True, slots=True)
class Frame:
    """All that one drawing of the timeline needs: at most some values per cell."""

    window: Window
    ranks: tuple[int, ...]
    cells: dict[int, list[Cell]] = field(default_factory=dict)
    actions: dict[int, list[ActionCell | None]] = field(default_factory=dict)
    steps: dict[int, dict[int, int]] = field(default_factory=dict)
    labels: dict[tuple[int, str], list[Label]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FrameQuestion:
    """Which ranks are on screen, which of them by actions, and which with named bars."""

    window: Window
    ranks: tuple[int, ...]
    by_actions: tuple[int, ...]
    expanded: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Spot:
    """What the cursor points at: a lane of a rank over ``[start_ns, end_ns)``."""

    rank: int
    lane: Lane
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Detail:
    """The event or action that fills most of a spot."""

    what: str
    name: str | None
    start_ns: int
    end_ns: int
    step: int | None
    extra: str
    others: int


@dataclass(frozen=True, slots=True)
class Jump:
    """To the step of a rank after or before a time."""

    rank: int
    time_ns: int
    forward: bool
