"""Asks the store for what the timeline shows. Every method runs in a thread of the caller's."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from tracekit.store import Reader
from tracekit_tui import queries
from tracekit_tui.model import (
    EMPTY_CELL,
    ActionCell,
    Cell,
    Detail,
    Frame,
    FrameQuestion,
    Jump,
    Label,
    Lane,
    Spot,
)
from tracekit_tui.text import narrow

# A name is drawn in a bar of at least so many cells.
_LABEL_CELLS = 7
_MOST_LABELS = 4000
# Segments kept from earlier views; past this the cache starts anew.
_MOST_SEGMENTS = 4_000_000

ACTION_NAMES = {
    "F": "forward",
    "B": "backward",
    "I": "backward, input gradient",
    "W": "backward, weight gradient",
}


class Timeline:
    """The queries of the timeline; each method may run in any thread."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader.cursor()
        # Details and steps have a connection of their own: they never wait for a frame.
        self._side = reader.cursor()
        self._lock = threading.Lock()
        self._side_lock = threading.Lock()
        self._filled: set[int] = set()
        self._reader.execute(queries.CREATE_SEGMENTS)
        self._offsets: dict[int, int] = dict(self._reader.rows("SELECT rank, offset_ns FROM clock"))

    def frame(self, question: FrameQuestion) -> Frame:
        """Cells, actions, step starts and names of the ranks in the window."""
        window = question.window
        frame = Frame(window, question.ranks)
        if not question.ranks:
            return frame
        args: dict[str, Any] = {
            "ranks": list(question.ranks),
            "lo": window.start_ns,
            "hi": window.end_ns,
            "n": window.cells,
        }
        with self._lock:
            self._fill(question.ranks)
            for rank, cell, *times in self._reader.rows(queries.CELLS, args):
                row = frame.cells.setdefault(rank, [EMPTY_CELL] * window.cells)
                row[cell] = _cell(times)
            frame.actions.update((rank, [None] * window.cells) for rank in question.by_actions)
            for rank, cell, *action in self._rows_for(queries.ACTIONS, args, question.by_actions):
                frame.actions[rank][cell] = ActionCell(*action)
            for rank, cell, step in self._reader.rows(queries.STEPS, args):
                frame.steps.setdefault(rank, {})[cell] = step
            self._label(frame, question, args)
        return frame

    def _rows_for(
        self, sql: str, args: dict[str, Any], ranks: tuple[int, ...]
    ) -> list[tuple[Any, ...]]:
        return self._reader.rows(sql, args | {"ranks": list(ranks)}) if ranks else []

    def _fill(self, ranks: Sequence[int]) -> None:
        new = [rank for rank in ranks if rank not in self._filled]
        if not new:
            return
        if self._reader.scalar("SELECT count(*) FROM _segment") > _MOST_SEGMENTS:
            self._reader.execute(queries.CREATE_SEGMENTS)
            self._filled.clear()
            new = list(ranks)
        self._reader.execute(queries.FILL_SEGMENTS, {"ranks": new})
        self._filled.update(new)

    def _label(self, frame: Frame, question: FrameQuestion, args: dict[str, Any]) -> None:
        if not question.expanded:
            return
        shortest = _LABEL_CELLS * frame.window.span_ns // frame.window.cells
        found = self._reader.rows(
            queries.LABELS,
            args | {"ranks": list(question.expanded), "shortest": shortest, "most": _MOST_LABELS},
        )
        for rank, kind, first, past, text in found:
            labels = frame.labels.setdefault((rank, kind), [])
            # Streams of one lane may overlap: the earlier bar keeps its name.
            if past - first >= _LABEL_CELLS and (not labels or labels[-1].past <= first):
                labels.append(Label(first, past, narrow(text)))

    def detail(self, spot: Spot) -> Detail | None:
        """The event, or on a lane of actions the action, that fills most of the spot."""
        offset = self._offsets.get(spot.rank, 0)
        args: dict[str, Any] = {
            "rank": spot.rank,
            "lo": spot.start_ns + offset,
            "hi": spot.end_ns + offset,
        }
        with self._side_lock:
            if spot.lane is Lane.ACTIONS:
                return _action_detail(self._side.rows(queries.ACTION_AT, args), offset)
            kind = None if spot.lane is Lane.RANK else str(spot.lane)
            rows = self._side.rows(queries.WORK_AT, args | {"class": kind})
            if not rows:
                return None
            found, event, start, end, step, stream, dim, operation, others = rows[0]
            name = None
            if event is not None:
                name = self._side.scalar(queries.NAME_OF, {"rank": spot.rank, "event": event})
        parts = [operation, None if stream is None else f"stream {stream}"]
        extra = "  ".join(part for part in parts if part)
        what = found if dim is None else f"{found} ({dim})"
        return Detail(what, name, start - offset, end - offset, step, extra, others)

    def step_beside(self, jump: Jump) -> tuple[int, int] | None:
        """Start and end of the first step that starts after a time, or of the one before."""
        sql = queries.STEP_AFTER if jump.forward else queries.STEP_BEFORE
        with self._side_lock:
            rows = self._side.rows(sql, {"rank": jump.rank, "time": jump.time_ns})
        return (rows[0][1], rows[0][2]) if rows else None

    def interrupt(self) -> None:
        """Stop what runs, so that leaving never waits."""
        self._reader.interrupt()
        self._side.interrupt()


def _cell(times: Sequence[int]) -> Cell:
    compute, overlapped, exposed, copies, all_copies = times
    return compute, overlapped, exposed, copies, all_copies


def _action_detail(rows: list[tuple[Any, ...]], offset: int) -> Detail | None:
    if not rows:
        return None
    kind, stage, chunk, microbatch, pipeline, start, end, step, others = rows[0]
    name = f"{kind}{microbatch}  {ACTION_NAMES.get(kind, kind)}, stage {stage}, "
    name += f"micro-batch {microbatch}"
    extra = f"chunk {chunk}" if chunk else ""
    extra += f"  pipeline {pipeline}" if pipeline else ""
    return Detail("action", name, start - offset, end - offset, step, extra, others)
