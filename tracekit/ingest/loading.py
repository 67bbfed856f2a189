"""Load the traces of a run: each frame of its readers into the store, file by file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracekit.errors import InputError
from tracekit.ingest import header, sources
from tracekit.ingest.intake import Intake
from tracekit.ingest.ownership import Capture, Owner, Owners, refuse_overlap
from tracekit.ingest.pools import Numbers
from tracekit.ingest.rank_state import RankState
from tracekit.ingest.workers import DeadWorkerError, Frame, Workers
from tracekit.store import Writer
from tracekit.store.writer import as_map

# Whole things that no figure uses are left out, which is no damage.
_SKIPPED = ("not an event",)
# Times before September 2001 are relative ones: their base, in a whole file, may stand at its end.
_NO_CLOCK_NS = 10**18
_NO_BASE = "the base of its times was not read: they are not of the calendar"


@dataclass(slots=True)
class At:
    """How far the reading is: bytes on disk, and files."""

    total_bytes: int
    total_files: int
    bytes: int = 0
    files: int = 0


Progress = Callable[[At], None]


@dataclass(slots=True)
class _Open:
    """A file that is being read."""

    capture: Capture
    intake: Intake
    read: int = 0


class Loader:
    """Takes the frames of all files.

    Attributes:
        captures: All files of the run, those of an earlier ingest first; whole at the end.
        ranks: What was loaded of each rank by this ingest.
        events: Rows of events that it added.
        warnings: What the user should know, a line each.
        damaged: The lines among them that ``--strict`` forbids.
    """

    def __init__(
        self,
        writer: Writer,
        found: sources.Sources,
        rank_map: sources.RankMap | None,
        before: list[Capture],
        progress: Progress,
    ) -> None:
        self._writer = writer
        self._found = found
        self._rank_map = rank_map
        self._owners = Owners(found, rank_map, lone=_is_lone(found) and not before)
        self._first_file = max((capture.file_id for capture in before), default=-1) + 1
        self._open: dict[int, _Open] = {}
        self._sizes = [trace.path.stat().st_size for trace in found.traces]
        self._at = At(sum(self._sizes), len(found.traces))
        self._progress = progress
        self.captures = before
        self.ranks: dict[int, RankState] = {}
        self.events = 0
        self.warnings: list[str] = []
        self.damaged: list[str] = []

    def load(self, workers: Workers) -> None:
        """Read every file.

        Raises:
            InputError: a file that is no trace or cannot be read, a reader that died, a rank that
                is unknown, or one that two files claim for the same time.
        """
        numbers = Numbers(self._writer)
        hashes: dict[int, str] = {}
        self._progress(self._at)
        try:
            for frame in workers:
                if frame.kind == "begin":
                    hashes[frame.file] = frame.head["sha256"]
                    go = not self._known(frame.file, frame.head["sha256"])
                    workers.answer(frame.file, go=go)
                    if not go:
                        self._advance(self._sizes[frame.file], done=True)
                elif frame.kind == "open":
                    self._begin(frame, hashes[frame.file], numbers)
                elif frame.file in self._open:
                    self._take(self._open[frame.file], frame)
                elif frame.kind == "end":
                    self._advance(self._sizes[frame.file], done=True)
        except DeadWorkerError as error:
            raise InputError(f"{self._called(error.file)}: {error}; nothing was written") from error

    def claim(self, file: sources.Trace) -> Owner:
        """The owner of a file that is no trace; its rank is one of the run's from now on.

        Raises:
            InputError: nothing says whose it is.
        """
        owner = self._owners.of(file, {})
        if owner.warning:
            self.warnings.append(owner.warning)
        self._state(owner.rank)
        # With what its manifest says of the rank, which may have no trace.
        self.captures.append(Capture(-1, file.shown, "", owner.rank, {}, owner.manifest))
        return owner

    def _begin(self, frame: Frame, sha256: str, numbers: Numbers) -> None:
        trace, head = self._found.traces[frame.file], frame.head["header"]
        owner = self._owners.of(trace, head)
        if owner.warning:
            self.warnings.append(owner.warning)
        for capture in self.captures:
            if capture.sha256 == sha256 and capture.rank == owner.rank:
                self._pass_over(trace, capture)
                return
        number = self._first_file + frame.file
        capture = Capture(number, trace.shown, sha256, owner.rank, head, owner.manifest)
        self.captures.append(capture)
        base = header.base_ns(head)
        intake = Intake(self._writer, numbers, self._state(owner.rank), number, base)
        self._open[frame.file] = _Open(capture, intake)

    def _take(self, file: _Open, frame: Frame) -> None:
        read = frame.head["read"]
        if frame.kind == "batch":
            file.intake.take(frame)
        elif frame.kind == "end":
            self._check_rank(file.capture, frame.head["header"])
            file.capture.header = frame.head["header"]
            file.intake.finish(header.base_ns(file.capture.header))
            file.capture.span = file.intake.span
            self.events += file.intake.events
            refuse_overlap(file.capture, self.captures)
            self._insert_file(file, frame)
            del self._open[frame.file]
            read = self._sizes[frame.file]
        self._advance(read - file.read, done=frame.kind == "end")
        file.read = read

    def _check_rank(self, capture: Capture, whole: dict[str, Any]) -> None:
        """The rank was taken from what stood before the events, or at the end of the file.

        Raises:
            InputError: the trace itself, whose end is known now, says another.
        """
        early, own = (
            header.count(header.distributed(head).get("rank")) for head in (capture.header, whole)
        )
        if early is not None and own is not None and early != own:
            raise InputError(
                f"{capture.shown}: says rank {own}, and at its end rank {early}: two traces in one "
                "file; give each a file of its own"
            )

    def _known(self, file: int, sha256: str) -> bool:
        """Whether the same bytes were loaded already for what must be the same rank."""
        trace = self._found.traces[file]
        mine = self._owners.guess(trace)
        for capture in self.captures:
            if capture.sha256 == sha256 and mine in (None, capture.rank):
                self._pass_over(trace, capture)
                return True
        return False

    def _pass_over(self, trace: sources.Trace, first: Capture) -> None:
        self.warnings.append(f"{trace.shown}: same content as {first.shown}, skipped")

    def _advance(self, size: int, *, done: bool) -> None:
        self._at.bytes += size
        self._at.files += done
        self._progress(self._at)

    def _called(self, file: int) -> str:
        """A file by its name and its rank, as far as that is known."""
        trace = self._found.traces[file]
        opened = self._open.get(file)
        rank = opened.capture.rank if opened else self._owners.guess(trace)
        return trace.shown if rank is None else f"rank {rank}: {trace.shown}"

    def _state(self, rank: int) -> RankState:
        if rank not in self.ranks:
            earlier = any(
                capture.file_id < self._first_file
                for capture in self.captures
                if capture.rank == rank
            )
            self.ranks[rank] = RankState.of(self._writer, rank) if earlier else RankState(rank)
        return self.ranks[rank]

    def _insert_file(self, file: _Open, frame: Frame) -> None:
        capture, end = file.capture, frame.head
        number, rank, span = capture.file_id, capture.rank, capture.span
        times = (span.start_ns, span.end_ns) if span else (None, None)
        size = self._sizes[frame.file]
        row = (number, capture.shown, capture.sha256, "trace", size, rank, end["state"])
        said = {key: json.dumps(value) for key, value in capture.header.items()}
        maps = (as_map(said), as_map(end["args"]))
        self._writer.add("file", [(*row, file.intake.events, *times, file.intake.is_wide, *maps)])
        damage = [
            (number, rank, kind, at, count, detail, _severity(kind))
            for kind, at, count, detail in end["damage"]
        ]
        notime = bool(damage) and _lost_its_base(capture, end["state"])
        if notime:
            *first, detail, severity = damage[-1]
            damage[-1] = (*first, "; ".join(filter(None, (detail, _NO_BASE))), severity)
        self._writer.add("damage", damage)
        if damage:
            line = _line(capture, damage) + (f"; {_NO_BASE}" if notime else "")
            self.warnings.append(line)
            if any(row[-1] == "damage" for row in damage):
                self.damaged.append(line)


def _is_lone(found: sources.Sources) -> bool:
    return len(found.traces) == 1 or (not found.traces and len(found.snapshots) == 1)


def _lost_its_base(capture: Capture, state: str) -> bool:
    """Whether what is missing of a file held the base of its times."""
    span = capture.span
    relative = span is not None and span.start_ns < _NO_CLOCK_NS
    return relative and state == "partial" and not header.base_ns(capture.header)


def _severity(kind: str) -> str:
    return "skipped" if kind in _SKIPPED or kind.startswith("phase ") else "damage"


def _line(capture: Capture, damage: list[tuple[Any, ...]]) -> str:
    """The first places of what is wrong with a file."""
    if damage[0][2] == "empty":
        return f"rank {capture.rank}: empty trace: {capture.shown}"
    said = []
    for kind in dict.fromkeys(row[2] for row in damage):
        rows = [row for row in damage if row[2] == kind]
        count, at = sum(row[4] for row in rows), rows[0][3]
        number = f"{count} " if count > 1 or "event" in kind else ""
        place = "" if at is None else f", the first at byte {at}" if count > 1 else f" at byte {at}"
        said.append(f"{number}{kind}{place}")
    more = f"; {len(said) - 3} more kinds, see `tracekit info`" if len(said) > 3 else ""
    return f"rank {capture.rank}: {capture.shown}: {'; '.join(said[:3])}{more}"
