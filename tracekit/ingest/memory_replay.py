"""What was allocated when, from the history of an allocator and its state at the end of it.

The history is a ring: its beginning may be lost, so what lived before it is known only from what
it frees, or from what is still there at the end. Going back from the end, each allocation takes its
bytes away and each free gives them back; no state needs to be known but the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# How torch's CUDA allocator calls what it records. An allocation ends for the program, and for
# torch.cuda.memory_allocated, where its free is requested; it is completed once no stream uses it.
ALLOC, FREE = "alloc", "free_requested"
RESERVED = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
# They change neither.
NEUTRAL = frozenset({"free_completed", "snapshot", "oom", "user_defined"})


@dataclass(frozen=True, slots=True)
class Step:
    """One entry of a history: what happened, where, and how many bytes it was about."""

    action: str
    address: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Life:
    """One allocation; ``begin`` and ``end`` are the entries that made and freed it.

    None: it was made before the history begins, or lives on after it ends.
    """

    address: int
    bytes: int
    begin: int | None
    end: int | None


@dataclass(slots=True)
class Replay:
    """A history that was gone through.

    Attributes:
        peak_bytes: The most that was allocated at once, as requested from the allocator.
        peak_entry: The first entry after which that was so; None: before the first.
        reserved_bytes: Segments at that moment.
        most_reserved_bytes: The most that they were at any.
        begin_bytes: What was allocated before the first entry.
        lives: Every allocation that the history and its end tell of.
        wrong: What cannot be, an example of each kind. Where there is any, no figure holds.
    """

    peak_bytes: int
    reserved_bytes: int
    most_reserved_bytes: int
    peak_entry: int | None = None
    begin_bytes: int = 0
    lives: list[Life] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)

    def at_peak(self) -> list[Life]:
        """What lived at the peak: the bytes of it add up to ``peak_bytes``."""
        at = -1 if self.peak_entry is None else self.peak_entry
        return [
            life
            for life in self.lives
            if (life.begin is None or life.begin <= at) and (life.end is None or life.end > at)
        ]


def replay(steps: list[Step], live: Mapping[int, int], reserved_bytes: int) -> Replay:
    """Go back through a history.

    Args:
        steps: The history, oldest first.
        live: Bytes of what is allocated at the end, by address.
        reserved_bytes: Bytes of the segments at the end.
    """
    total, reserved = sum(live.values()), reserved_bytes
    found = Replay(total, reserved, reserved, len(steps) - 1 if steps else None)
    open_: dict[int, tuple[int, int | None]] = {at: (size, None) for at, size in live.items()}
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        if total >= found.peak_bytes:  # the first of equal ones
            found.peak_bytes, found.peak_entry = total, number
            found.reserved_bytes = reserved
        if step.action == ALLOC:
            total -= _begin(found, open_, number, step)
        elif step.action == FREE:
            total += _end(found, open_, number, step)
        elif step.action in RESERVED:
            reserved -= RESERVED[step.action] * step.bytes
            found.most_reserved_bytes = max(found.most_reserved_bytes, reserved)
        elif step.action not in NEUTRAL:
            _wrong(found, "an action that is not known", number, step)
    if total >= found.peak_bytes and steps:
        found.peak_bytes, found.peak_entry, found.reserved_bytes = total, None, reserved
    found.begin_bytes = total
    found.lives += [Life(at, size, None, end) for at, (size, end) in open_.items()]
    if reserved < 0 or total > reserved:
        found.wrong.setdefault("segments", "more is allocated than reserved as the history begins")
    return found


def _begin(found: Replay, open_: dict[int, tuple[int, int | None]], number: int, step: Step) -> int:
    if step.address not in open_:
        _wrong(found, "an allocation that is neither freed nor there at the end", number, step)
        return 0
    size, end = open_.pop(step.address)
    if size != step.bytes:
        _wrong(found, f"an allocation that has {size} bytes later", number, step)
    found.lives.append(Life(step.address, size, number, end))
    return size


def _end(found: Replay, open_: dict[int, tuple[int, int | None]], number: int, step: Step) -> int:
    if step.address in open_:
        _wrong(found, "a free of what is there afterwards", number, step)
        return 0
    open_[step.address] = (step.bytes, number)
    return step.bytes


def _wrong(found: Replay, kind: str, number: int, step: Step) -> None:
    found.wrong.setdefault(
        kind, f"entry {number}, {step.action[:40]!r} of {step.bytes} bytes, is {kind}"
    )
