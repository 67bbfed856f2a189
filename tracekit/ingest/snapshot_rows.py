"""The parts of a memory snapshot into the tables of the store, and the peak of each device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tracekit.ingest.memory_replay import Replay, Step, replay
from tracekit.ingest.snapshot_parts import ACTIVE, ALLOCATED, Block, Entry, Parts
from tracekit.ingest.stacks import Stacks
from tracekit.store import Writer
from tracekit.store.writer import storable

_ROWS_A_TABLE = 1 << 15
_U64, _I64, _I32, _TEXT = pa.uint64(), pa.int64(), pa.int32(), pa.string()
_OF_FILE = {"rank": _I32, "file_id": _I32, "device": _I32}
_SEGMENT = _OF_FILE | {
    "segment": _I32,
    "address": _U64,
    "bytes": _I64,
    "stream": _U64,
    "kind": _TEXT,
    "pool": _TEXT,
    "is_expandable": pa.bool_(),
    "stack_id": _I32,
}
_BLOCK = _OF_FILE | {
    "segment": _I32,
    "address": _U64,
    "bytes": _I64,
    "requested_bytes": _I64,
    "state": _TEXT,
    "stack_id": _I32,
}
_TRACE = _OF_FILE | {
    "entry": _I32,
    "action": _TEXT,
    "address": _U64,
    "bytes": _I64,
    "stream": _U64,
    "ts_ns": _I64,
    "stack_id": _I32,
}
_PEAK = (
    *("rank", "source", "file_id", "device", "step", "entry", "ts_ns", "requested_bytes"),
    *("allocated_bytes", "reserved_bytes", "at_least_bytes", "covers", "missing"),
)
_PEAK_BLOCK = _OF_FILE | {
    "address": _U64,
    "requested_bytes": _I64,
    "alloc_entry": _I32,
    "free_entry": _I32,
    "stack_id": _I32,
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot on its way into the store. ``max_entries``: of a device's history, if known."""

    rank: int
    file_id: int
    parts: Parts
    max_entries: int | None


def insert(writer: Writer, stacks: Stacks, found: Snapshot) -> list[str]:
    """Append all tables; what makes the peak of a device unknown, a line each."""
    _insert_segments(writer, stacks, found)
    reasons = []
    for device in found.parts.devices():
        key = (found.rank, found.file_id, device)
        entries = found.parts.history.get(device, [])
        rows = (
            (
                *key,
                n,
                storable(e.action),
                e.address,
                e.bytes,
                e.stream,
                e.ts_ns,
                stacks.of(e.frames),
            )
            for n, e in enumerate(entries)
        )
        _append(writer, "memory_trace", _TRACE, rows)
        _insert_state(writer, found, device)
        missing = _insert_peak(writer, stacks, found, device)
        if missing:
            reasons.append(f"device {device}: peak unavailable, because {missing}")
    stacks.write()
    return reasons


def _insert_segments(writer: Writer, stacks: Stacks, found: Snapshot) -> None:
    segments, of = found.parts.segments, (found.rank, found.file_id)
    rows: Iterable[Sequence[Any]] = (
        (
            *(*of, s.device, n, s.address, s.bytes, s.stream),
            *(storable(s.kind), s.pool, s.is_expandable, stacks.of(s.frames)),
        )
        for n, s in enumerate(segments)
    )
    _append(writer, "memory_segment", _SEGMENT, rows)
    rows = (
        (*of, s.device, n, b.address, b.bytes, b.requested, storable(b.state), stacks.of(b.frames))
        for n, s in enumerate(segments)
        for b in s.blocks
    )
    _append(writer, "memory_block", _BLOCK, rows)


def _insert_state(writer: Writer, found: Snapshot, device: int) -> None:
    blocks = _blocks(found, device)
    allocated = [block for block in blocks if block.state == ALLOCATED]
    requested = [block.requested for block in allocated]
    entries = found.parts.history.get(device, [])
    left_out = ", ".join(f"{count} x {what}" for what, count in found.parts.left_out.items())
    row = (
        found.rank,
        found.file_id,
        device,
        max((entry.ts_ns for entry in entries if entry.ts_ns is not None), default=None),
        None if None in requested else sum(size for size in requested if size is not None),
        sum(block.bytes for block in allocated),
        sum(block.bytes for block in blocks if block.state in ACTIVE),
        _reserved(found, device),
        len(entries),
        found.max_entries,
        left_out or None,
    )
    writer.add("memory_snapshot", [row])


def _insert_peak(writer: Writer, stacks: Stacks, found: Snapshot, device: int) -> str | None:
    """Append the peak of a device, and what lived at it; why it is not known, else None."""
    entries = found.parts.history.get(device, [])
    steps = [Step(entry.action, entry.address or 0, entry.bytes) for entry in entries]
    live = _live(found, device, entries)
    result = replay(steps, live, _reserved(found, device))
    wrong = _contradiction(found, result)
    is_lost = found.max_entries is not None and len(entries) >= found.max_entries
    missing = wrong
    if not entries:
        missing = missing or "the snapshot holds no history"
    elif is_lost:
        missing = missing or (
            f"its history is full ({len(entries)} entries): what came before it is lost"
        )
    at = result.peak_entry
    row: dict[str, Any] = {
        "rank": found.rank,
        "source": "history",
        "file_id": found.file_id,
        "device": device,
        "at_least_bytes": None if wrong else result.peak_bytes,
        "missing": missing,
    }
    if missing is None:
        row |= {
            "entry": at,
            "ts_ns": entries[at or 0].ts_ns,
            "requested_bytes": result.peak_bytes,
            "reserved_bytes": result.reserved_bytes,
            "covers": "unknown" if found.max_entries is None else "all",
        }
        _insert_peak_blocks(writer, stacks, found, device, result)
    writer.add("memory_peak", [[row.get(column) for column in _PEAK]])
    return missing


def _insert_peak_blocks(
    writer: Writer, stacks: Stacks, found: Snapshot, device: int, result: Replay
) -> None:
    entries = found.parts.history[device]
    there = {block.address: block for block in _blocks(found, device)}
    rows = []
    for life in sorted(result.at_peak(), key=lambda life: life.address):
        frames: list[Any] = []
        if life.begin is not None:
            frames = entries[life.begin].frames
        elif life.end is None and life.address in there:
            frames = there[life.address].frames
        row = (life.address, life.bytes, life.begin, life.end, stacks.of(frames))
        rows.append((found.rank, found.file_id, device, *row))
    _append(writer, "memory_peak_block", _PEAK_BLOCK, rows)


def _contradiction(found: Snapshot, result: Replay) -> str | None:
    for what, count in found.parts.left_out.items():
        return f"{count} x {what} cannot be read"
    return next(iter(result.wrong.values()), None)


def _live(found: Snapshot, device: int, entries: list[Entry]) -> dict[int, int]:
    """Requested bytes of what is allocated at the end, by address.

    torch before 2.0 does not tell them; then the last allocation at that address does.
    """
    blocks = [block for block in _blocks(found, device) if block.state == ALLOCATED]
    said: dict[int | None, int] = {}
    if any(block.requested is None for block in blocks):
        said = {entry.address: entry.bytes for entry in entries if entry.action == "alloc"}
    return {
        block.address: said.get(block.address, block.bytes)
        if block.requested is None
        else block.requested
        for block in blocks
    }


def _blocks(found: Snapshot, device: int) -> list[Block]:
    segments = [segment for segment in found.parts.segments if segment.device == device]
    return [block for segment in segments for block in segment.blocks]


def _reserved(found: Snapshot, device: int) -> int:
    return sum(segment.bytes for segment in found.parts.segments if segment.device == device)


def _append(
    writer: Writer, table: str, columns: dict[str, pa.DataType], rows: Iterable[Sequence[Any]]
) -> None:
    waiting: list[Sequence[Any]] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == _ROWS_A_TABLE:
            writer.append(table, _table(columns, waiting))
            waiting = []
    if waiting:
        writer.append(table, _table(columns, waiting))


def _table(columns: dict[str, pa.DataType], rows: list[Sequence[Any]]) -> pa.Table:
    values = zip(columns.items(), zip(*rows, strict=True), strict=True)
    return pa.table({name: pa.array(column, kind) for (name, kind), column in values})
