"""CUDA memory snapshots of a run, as ``torch.cuda.memory`` pickles them, into the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracekit.errors import InputError
from tracekit.ingest import snapshot_parts, snapshot_rows, unpickle
from tracekit.ingest.header import count
from tracekit.ingest.known_files import digest, is_known, register
from tracekit.ingest.loading import Loader
from tracekit.ingest.ownership import unpacked
from tracekit.ingest.sources import Sources, Trace
from tracekit.ingest.stacks import Stacks
from tracekit.ingest.unpack import Unpacker
from tracekit.store import Writer
from tracekit_collectors import records

_NOT_THERE = "the memory snapshot that the manifest names is not there"
_MOST_ENTRIES = (1 << 63) - 1


@dataclass(slots=True)
class _Owned:
    """A file, and the rank and manifest that it is of."""

    file: Trace
    rank: int
    manifest: records.RankManifest | None


class Snapshots:
    """The snapshots of an ingest: :meth:`claim` before the ranks are written, then :meth:`load`."""

    def __init__(self, found: Sources) -> None:
        self._found = found
        self._owned: list[_Owned] = []

    def claim(self, loader: Loader) -> None:
        """Find the rank of each.

        Raises:
            InputError: nothing says it.
        """
        for file in self._found.snapshots:
            owner = loader.claim(file)
            self._owned.append(_Owned(file, owner.rank, owner.manifest))

    def load(self, writer: Writer, loader: Loader, *, most_bytes: int) -> None:
        """Read them, one at a time; what one that cannot be read lacks, a warning says.

        Args:
            writer: Where they go.
            loader: For its warnings.
            most_bytes: Memory that the reading of one may take.

        Raises:
            InputError: one that the user named cannot be read, or is no snapshot.
        """
        self._say_missing(writer, loader)
        stacks = Stacks(writer)
        for owned in self._owned:
            try:
                self._load(writer, stacks, loader, owned, most_bytes)
            except (InputError, OSError) as error:
                if owned.file.is_named:
                    raise InputError(f"{error}") from error
                _say(writer, loader, owned, str(error))

    def _say_missing(self, writer: Writer, loader: Loader) -> None:
        """What manifests name, and is in none of the places that were looked at."""
        there = {unpacked(owned.file.name) for owned in self._owned}
        for manifest in self._found.manifests.values():
            for window in manifest.windows:
                name = window.memory.get("file") if isinstance(window.memory, dict) else None
                if isinstance(name, str) and unpacked(name) not in there:
                    loader.warnings.append(f"rank {manifest.rank}: {name}: {_NOT_THERE}")
                    note = (manifest.rank, "problem", f"{name}: {_NOT_THERE}", "manifest")
                    if note not in writer.rows("SELECT * FROM note WHERE key = 'problem'"):
                        writer.insert("note", [note])

    def _load(
        self, writer: Writer, stacks: Stacks, loader: Loader, owned: _Owned, most_bytes: int
    ) -> None:
        shown, path = owned.file.shown, owned.file.path
        sha256 = digest(path)
        if is_known(writer, sha256):
            loader.warnings.append(f"{shown}: a file of the same content is there already, skipped")
            return
        parts = snapshot_parts.parts_of(_snapshot(owned.file, most_bytes))
        entries = sum(len(history) for history in parts.history.values())
        state = "partial" if parts.left_out else "whole"
        file_id = register(
            writer,
            shown,
            sha256,
            "memory",
            path.stat().st_size,
            rank=owned.rank,
            events=entries,
            state=state,
        )
        most = _max_entries(owned)
        found = snapshot_rows.Snapshot(owned.rank, file_id, parts, most)
        for reason in snapshot_rows.insert(writer, stacks, found):
            loader.warnings.append(f"rank {owned.rank}: {shown}: {reason}")
        if parts.left_out:
            what = ", ".join(f"{count} x {what}" for what, count in parts.left_out.items())
            _say(
                writer, loader, owned, f"{shown}: not as torch writes it: {what}: left out", file_id
            )


def _snapshot(file: Trace, most_bytes: int) -> dict[str, Any]:
    """What a file holds.

    Raises:
        InputError: it is no snapshot, is damaged, or too large.
        OSError: it cannot be read.
    """
    unpacker = Unpacker(file.path)
    pieces, size = [], 0
    for piece in unpacker.pieces():
        pieces.append(piece)
        size += len(piece)
        if 2 * size > most_bytes:  # it is joined, and then read
            raise unpickle.PickleError(file.shown, size, "too large for --memory-limit: raise it")
    if unpacker.damage:
        at, what = unpacker.damage[0]
        raise unpickle.PickleError(file.shown, at, what)
    data = b"".join(pieces)
    pieces.clear()
    value = unpickle.load(data, file.shown, most_bytes=most_bytes - size)
    if not snapshot_parts.is_snapshot(value):
        raise InputError(
            f"{file.shown}: a pickle, but not a memory snapshot: no segments in it; give what "
            "torch.cuda.memory._dump_snapshot wrote"
        )
    return dict(value)


def _max_entries(owned: _Owned) -> int | None:
    """How long the history of a device may be, where the manifest says it."""
    for window in owned.manifest.windows if owned.manifest else []:
        said = window.memory if isinstance(window.memory, dict) else {}
        name = said.get("file")
        if isinstance(name, str) and unpacked(name) == unpacked(owned.file.name):
            return count(said.get("max_entries"), _MOST_ENTRIES)
    return None


def _say(
    writer: Writer, loader: Loader, owned: _Owned, text: str, file_id: int | None = None
) -> None:
    """Damage, also for ``--strict``; that of a file which could not be read is a note."""
    line = f"rank {owned.rank}: {text}"
    loader.warnings.append(line)
    loader.damaged.append(line)
    if file_id is None:
        note = (owned.rank, "problem", f"memory snapshot: {text}", owned.file.shown)
        writer.add("note", [note])
    else:
        row = (file_id, owned.rank, "memory snapshot", None, 1, text, "damage")
        writer.add("damage", [row])
