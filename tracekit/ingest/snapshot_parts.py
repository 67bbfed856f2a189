"""The parts of a CUDA memory snapshot, checked: segments, their blocks, and each device's history.

A snapshot comes from outside: what of it is not as torch writes it is left out and counted, and
what is left out makes the figures that need all of it unavailable.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_MOST_ADDRESS = (1 << 64) - 1
_MOST_BYTES = (1 << 62) - 1
_MOST_DEVICE = (1 << 15) - 1
_LONGEST_TEXT = 200
ALLOCATED = "active_allocated"
ACTIVE = (ALLOCATED, "active_awaiting_free", "active_pending_free")


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a segment. ``requested``: what the program asked for, null: not told."""

    address: int
    bytes: int
    requested: int | None
    state: str
    frames: list[Any]


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory that the allocator holds of the device."""

    device: int
    address: int
    bytes: int
    stream: int | None
    kind: str | None
    pool: str | None
    is_expandable: bool | None
    frames: list[Any]
    blocks: list[Block]


@dataclass(frozen=True, slots=True)
class Entry:
    """One event of a device's history; ``ts_ns`` is in ns since the Unix epoch."""

    action: str
    address: int | None
    bytes: int
    stream: int | None
    ts_ns: int | None
    frames: list[Any]


@dataclass(slots=True)
class Parts:
    """What a snapshot holds. ``history``: by device; ``left_out``: what, and how often."""

    segments: list[Segment] = field(default_factory=list)
    history: dict[int, list[Entry]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    def devices(self) -> list[int]:
        """Those of which it says anything; device 0 where it says nothing at all."""
        with_history = {device for device, entries in self.history.items() if entries}
        return sorted(with_history | {segment.device for segment in self.segments}) or [0]


def is_snapshot(value: Any) -> bool:
    """Whether an unpickled value has the form of a snapshot."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("segments"), list)
        and isinstance(value.get("device_traces", []), list)
    )


def parts_of(value: dict[str, Any]) -> Parts:
    """The parts of what :func:`is_snapshot`."""
    found = Parts()
    seen: set[int] = set()
    for item in value["segments"]:
        segment = _segment(item, found, seen) if _is_new(item, seen) else None
        if segment is None:
            found.left_out["segment"] += 1
        else:
            found.segments.append(segment)
    for device, items in enumerate(value.get("device_traces", [])[: _MOST_DEVICE + 1]):
        if not isinstance(items, list) or not _is_new(items, seen):
            found.left_out["history of a device"] += 1
            continue
        entries = [_entry(item) if _is_new(item, seen) else None for item in items]
        found.history[device] = [entry for entry in entries if entry is not None]
        if missing := entries.count(None):
            found.left_out["entry of a history"] += missing
    return found


def _is_new(item: Any, seen: set[int]) -> bool:
    """A pickle may hold one object in a million places: torch writes each part once."""
    if not isinstance(item, dict | list) or id(item) in seen:
        return False
    if item:
        seen.add(id(item))
    return True


def _segment(item: Any, found: Parts, seen: set[int]) -> Segment | None:
    address, size = _whole(item, "address", _MOST_ADDRESS), _whole(item, "total_size", _MOST_BYTES)
    device = _whole(item, "device", _MOST_DEVICE) if "device" in item else 0
    listed = item.get("blocks")
    if address is None or size is None or device is None or not isinstance(listed, list):
        return None
    if not _is_new(listed, seen):
        return None
    blocks, follows = [], address
    for each in listed:
        block = _block(each, follows) if _is_new(each, seen) else None
        if block is None:
            found.left_out["block"] += 1
            continue
        blocks.append(block)
        follows = block.address + block.bytes
    expandable = item.get("is_expandable")
    return Segment(
        device=device,
        address=address,
        bytes=size,
        stream=_whole(item, "stream", _MOST_ADDRESS),
        kind=_text(item, "segment_type"),
        pool=_pool(item.get("segment_pool_id")),
        is_expandable=expandable if isinstance(expandable, bool) else None,
        frames=_frames(item),
        blocks=blocks,
    )


def _block(item: Any, follows: int) -> Block | None:
    """``follows``: where the block before it ends; torch before 2.1 wrote no address."""
    if not isinstance(item, dict):
        return None
    address = _whole(item, "address", _MOST_ADDRESS) if "address" in item else follows
    size, state = _whole(item, "size", _MOST_BYTES), _text(item, "state")
    if address is None or size is None or state is None:
        return None
    return Block(address, size, _whole(item, "requested_size", _MOST_BYTES), state, _frames(item))


def _entry(item: Any) -> Entry | None:
    if not isinstance(item, dict):
        return None
    action, size = _text(item, "action"), _whole(item, "size", _MOST_BYTES)
    address = _whole(item, "addr", _MOST_ADDRESS)
    if action is None or size is None or (address is None and action != "oom"):
        return None
    micros = _whole(item, "time_us", (1 << 62) // 1000)
    return Entry(
        action=action,
        address=address,
        bytes=size,
        stream=_whole(item, "stream", _MOST_ADDRESS),
        ts_ns=micros * 1000 if micros else None,
        frames=_frames(item),
    )


def _whole(item: Any, key: str, most: int) -> int | None:
    value = item.get(key) if isinstance(item, dict) else None
    return value if type(value) is int and 0 <= value <= most else None


def _text(item: dict[str, Any], key: str) -> str | None:
    value = item.get(key)
    return value[:_LONGEST_TEXT] if isinstance(value, str) else None


def _frames(item: dict[str, Any]) -> list[Any]:
    value = item.get("frames")
    return value if isinstance(value, list) else []


def _pool(value: Any) -> str | None:
    """Two numbers; (0, 0) is the pool that all use who ask for no other."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        return None
    return ",".join(str(part) for part in value if type(part) is int)
