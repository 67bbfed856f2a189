"""Which rank a trace is of, and which traces of one rank belong together.

The user's map wins, then what the trace says of itself, then the manifest that the collectors wrote
beside it, then its name. A lone trace that says nothing is rank 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tracekit.errors import InputError
from tracekit.ingest import header, sources
from tracekit_collectors import records


@dataclass(slots=True)
class Span:
    """From the first to the last time of a file."""

    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Capture:
    """One file of a rank: one window of its training."""

    file_id: int
    shown: str
    sha256: str
    rank: int
    header: dict[str, Any]
    manifest: records.RankManifest | None = None
    span: Span | None = None  # None: nothing in it has a time


@dataclass(frozen=True, slots=True)
class Owner:
    """The rank of a file, how it is known, and what has to be said of that."""

    rank: int
    manifest: records.RankManifest | None
    warning: str | None = None


class Owners:
    """Finds the rank of each trace of an ingest.

    Args:
        found: All files of the ingest.
        rank_map: What the user says.
        lone: Whether a single file may be rank 0 without a word of it: the run has no other.
    """

    def __init__(
        self, found: sources.Sources, rank_map: sources.RankMap | None, *, lone: bool
    ) -> None:
        self._found = found
        self._map = rank_map
        self._lone = lone

    def of(self, trace: sources.Trace, head: dict[str, Any]) -> Owner:
        """The owner of a trace whose header is known.

        Raises:
            InputError: nothing says it.
        """
        outside, manifest = self._outside(trace)
        stated = header.count(header.distributed(head).get("rank"))
        mapped = self._map.rank_of(trace) if self._map else None
        if mapped is not None:
            warning = f"{trace.shown}: says rank {stated}; rank {mapped} by the map"
            return Owner(mapped, manifest, warning if stated not in (None, mapped) else None)
        if stated is not None:
            return Owner(stated, manifest)
        if outside is not None:
            return Owner(outside, manifest)
        if self._lone:
            return Owner(0, None, f"{trace.shown}: no rank in it or in its name; taken as rank 0")
        raise InputError(
            f"{trace.shown}: no rank in it or in its name; name the files rank0.json, rank1.json, "
            "..., or give --rank-map FILE with lines 'NAME RANK'"
        )

    def guess(self, trace: sources.Trace) -> int | None:
        """The rank of a trace that was not opened, as far as what surrounds it tells."""
        mapped = self._map.rank_of(trace) if self._map else None
        return self._outside(trace)[0] if mapped is None else mapped

    def _outside(self, trace: sources.Trace) -> tuple[int | None, records.RankManifest | None]:
        place = trace.path.resolve()
        for at, manifest in self._found.manifests.items():
            if str(place) in manifest.own_traces:
                return manifest.rank, manifest
            if at.parent.resolve() != place.parent:
                continue
            # Without the .gz where the process was killed before it had packed its trace.
            if unpacked(trace.name) in map(unpacked, _files_of(manifest)):
                return manifest.rank, manifest
        return sources.rank_in_name(trace.name), None


def _files_of(manifest: records.RankManifest) -> list[str]:
    """Traces and memory snapshots."""
    said = [window.memory for window in manifest.windows if isinstance(window.memory, dict)]
    names = [window.trace for window in manifest.windows] + [memory.get("file") for memory in said]
    return [name for name in names if isinstance(name, str)]


def unpacked(name: str) -> str:
    """The name of a file before it was packed: a process that was killed may have left that."""
    return name.removesuffix(".gz")


def refuse_overlap(capture: Capture, others: Sequence[Capture]) -> None:
    """Two files of one rank are two captures of it, one after the other, or a mistake.

    Raises:
        InputError: they are of the same time.
    """
    for other in others:
        if other is capture or other.rank != capture.rank or not capture.span or not other.span:
            continue
        mine, theirs = capture.span, other.span
        if mine.start_ns < theirs.end_ns and theirs.start_ns < mine.end_ns:
            raise InputError(
                f"rank {capture.rank} is claimed for the same time by {other.shown} and "
                f"{capture.shown}; give one run at a time, or --rank-map FILE"
            )
