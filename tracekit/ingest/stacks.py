"""Stacks of a memory snapshot by number: each different one is in the store once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tracekit.store import Writer

# Of a stack the innermost frames, and of a name the begin: hostile files repeat what is long.
_MOST_FRAMES = 256
_LONGEST_NAME = 1000
_MOST_KNOWN = 1 << 18

_Frame = tuple[str | None, str | None, int | None]


class Stacks:
    """Numbers for lists of frames, as ``torch.cuda.memory`` writes them: innermost first."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._next = writer.scalar("SELECT coalesce(max(stack_id) + 1, 0) FROM memory_stack")
        self._frames: dict[_Frame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._new: list[tuple[int, list[_Frame]]] = []
        # Of the snapshot in hand: torch writes one frame, and one list, for all that share it.
        self._by_identity: dict[int, int | None] = {}

    def of(self, frames: list[Any]) -> int | None:
        """The number of a stack; None for one without a frame.

        The lists must live on until :meth:`write`: they are known by their identity.
        """
        if not frames:
            return None
        if id(frames) not in self._by_identity:
            self._by_identity[id(frames)] = self._number(frames)
        return self._by_identity[id(frames)]

    def write(self) -> None:
        """Append the new stacks, and forget who the lists were."""
        rows = [
            (number, depth, *frame)
            for number, frames in self._new
            for depth, frame in enumerate(frames)
        ]
        names = ("stack_id", "depth", "function", "file", "line")
        kinds = (pa.int32(), pa.int32(), pa.string(), pa.string(), pa.int64())
        if rows:
            columns = zip(names, kinds, zip(*rows, strict=True), strict=True)
            table = {name: pa.array(values, kind) for name, kind, values in columns}
            self._writer.append("memory_stack", pa.table(table))
        self._new.clear()
        self._by_identity.clear()
        if len(self._stacks) > _MOST_KNOWN or len(self._frames) > _MOST_KNOWN:
            self._stacks.clear()
            self._frames.clear()

    def _number(self, frames: list[Any]) -> int | None:
        found = [_frame(item) for item in frames[:_MOST_FRAMES] if isinstance(item, dict)]
        if not found:
            return None
        key = tuple(self._frames.setdefault(frame, len(self._frames)) for frame in found)
        number = self._stacks.get(key)
        if number is None:
            number = self._stacks[key] = self._next
            self._next += 1
            self._new.append((number, found))
        return number


def _frame(item: dict[str, Any]) -> _Frame:
    line = item.get("line")
    is_line = type(line) is int and 0 <= line < 1 << 31
    return _name(item.get("name")), _name(item.get("filename")), line if is_line else None


def _name(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    return value[:_LONGEST_NAME].encode("utf-8", "replace").decode()
