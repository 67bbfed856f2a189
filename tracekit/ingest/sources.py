"""Find the files of a run: traces, also in archives, and what the collectors wrote beside them."""

from __future__ import annotations

import fnmatch
import glob
import gzip
import re
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tracekit.errors import InputError, UsageError
from tracekit.ingest import reading
from tracekit.store.building import is_unpacked
from tracekit_collectors import records, telemetry

_TRACE_SUFFIXES = (".json", ".json.gz")
_SNAPSHOT_SUFFIXES = (".pickle", ".pickle.gz")
# A snapshot is a dict whose first key that is.
_SNAPSHOT_MARK = b"segments"
_ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz")
# Before the events stand the process groups: those of thousands of ranks fit.
_HEAD_BYTES = 4 << 20
# Of a trace, also of one that ends before its events.
_MARKS = (
    b'"traceEvents"',
    b'"ph"',
    b'"deviceProperties"',
    b'"distributedInfo"',
    b'"schemaVersion"',
)
_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])(?:rank|worker|r)[-_.]?(\d+)(?!\d)", re.IGNORECASE)
_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Trace:
    """A file to read, and the name that the user knows it by."""

    path: Path
    shown: str
    is_named: bool = False  # by the user, and not found in a folder

    @property
    def name(self) -> str:
        """The last part of the name, also of a file in an archive."""
        return self.shown.replace("!", "/").rpartition("/")[2]


@dataclass(slots=True)
class Sources:
    """The files of one run."""

    traces: list[Trace] = field(default_factory=list)
    snapshots: list[Trace] = field(default_factory=list)  # of memory
    manifests: dict[Path, records.RankManifest] = field(default_factory=dict)
    run_files: list[Path] = field(default_factory=list)
    samples: list[Trace] = field(default_factory=list)  # telemetry
    gpus: list[Trace] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)  # other JSON in the folders


def find(paths: Sequence[Path], scratch: Path) -> Sources:
    """Collect traces, manifests and telemetry from files, folders, patterns and archives.

    Args:
        paths: Files, folders, or patterns such as ``run/*.json.gz``.
        scratch: A folder for what archives hold.

    Raises:
        InputError: a path that does not exist, or nothing that could be a trace in any of them.
    """
    found = Sources()
    for path in paths:
        for each in _expanded(path):
            if each.is_dir():
                for file in sorted(p for p in each.rglob("*") if p.is_file()):
                    # What another ingest unpacks is no file of the user's.
                    if not any(map(is_unpacked, file.relative_to(each).parts[:-1])):
                        _add(found, file, str(file), scratch, named=False)
            elif each.is_file():
                _add(found, each, str(each), scratch, named=True)
            else:
                raise InputError(f"{each}: is no file")
    found.traces = _without_doubles(found.traces)
    found.snapshots = _without_doubles(found.snapshots)
    if not found.traces and not found.snapshots:
        where = ", ".join(str(path) for path in paths)
        raise InputError(f"{where}: no trace (*.json, *.json.gz, *.tar.gz) in it")
    return found


def _without_doubles(files: list[Trace]) -> list[Trace]:
    once = {file.path.resolve(): file for file in reversed(files)}
    return list(once.values())[::-1]


def _expanded(path: Path) -> list[Path]:
    if path.exists():
        return [path]
    if glob.has_magic(str(path)):
        matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))  # noqa: PTH207 - it may be absolute
        if matches:
            return matches
        raise InputError(f"{path}: no file matches")
    raise InputError(f"{path}: no such file or folder")


def _add(found: Sources, file: Path, shown: str, scratch: Path, *, named: bool) -> None:
    name = Trace(file, shown).name
    if (name.startswith(".") or records.is_asked_file(name)) and not named:
        return
    if records.is_run_file(name):
        found.run_files.append(file)
    elif telemetry.is_samples(name):
        found.samples.append(Trace(file, shown))
    elif telemetry.is_facts(name):
        found.gpus.append(Trace(file, shown))
    elif name.startswith("rank-") and name.endswith(".json") and ".trace" not in name:
        try:
            found.manifests[file] = records.read_manifest(file)
        except (ValueError, TypeError, OSError) as error:
            if named or _looks_like_a_trace(file):
                found.traces.append(Trace(file, shown))
            else:
                found.problems.append((shown, f"manifest cannot be read: {error}"))
    elif records.is_packed_already(file):
        return
    elif name.endswith(_SNAPSHOT_SUFFIXES) or (named and _head(file, 2).startswith(b"\x80")):
        _add_snapshot(found, Trace(file, shown, named))
    elif name.endswith(_ARCHIVE_SUFFIXES) or (named and _is_archive(file)):
        _add_archive(found, file, shown, scratch)
    elif named or name.endswith(_TRACE_SUFFIXES):
        if named or _looks_like_a_trace(file):
            found.traces.append(Trace(file, shown))
        else:
            found.passed_over.append(shown)


def _add_snapshot(found: Sources, file: Trace) -> None:
    """Any pickle that the user names; of those in a folder what may be a snapshot."""
    if records.is_snapshot_of_ours(file.path.name):
        packed = file.path.with_name(f"{file.path.name}.gz")
        if file.is_named or not packed.exists():  # else it is there twice
            found.snapshots.append(file)
    elif file.is_named or _SNAPSHOT_MARK in _head(file.path, 256):
        found.snapshots.append(file)


def _head(file: Path, size: int) -> bytes:
    """The first bytes of a file, decompressed; empty where it cannot be read."""
    try:
        with file.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
        with gzip.open(file) if packed else file.open("rb") as stream:
            return stream.read(size)
    except (OSError, EOFError, zlib.error):
        return b""


def _is_archive(file: Path) -> bool:
    if file.name.endswith(_TRACE_SUFFIXES):
        return False
    try:
        return tarfile.is_tarfile(file)
    except (OSError, EOFError, zlib.error):
        return False


class _Member(tarfile.TarInfo):
    """A member of an archive. An archive ends with zeros; tarfile takes a damaged header for its
    end, and a cut between two members too, without a word."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except tarfile.HeaderError as error:
            if isinstance(error, tarfile.EOFHeaderError):  # type: ignore[attr-defined]
                raise
            text = f"no header of a member at byte {archive.offset}: {error}"
            raise tarfile.ReadError(text) from error


def _add_archive(found: Sources, file: Path, shown: str, scratch: Path) -> None:
    """Copy what an archive holds out of it, under names of ours: its own may point anywhere."""
    folder = scratch / f"archive{len(list(scratch.iterdir()))}"
    folder.mkdir()
    count = 0
    try:
        with tarfile.open(file, "r|*", tarinfo=_Member) as archive:
            for number, member in enumerate(archive):
                if not member.isfile():
                    continue
                place = folder / str(number)
                place.mkdir()
                target = place / (Path(member.name).name or "unnamed")
                count += 1
                whole = _copy(archive, member, target)
                _add(found, target, f"{shown}!{member.name}", scratch, named=False)
                if not whole:
                    raise EOFError("it ends early")
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise  # our own folder: no space is left, say
        if not count:
            raise InputError(f"{shown}: no archive that can be read: {error}") from error
        found.problems.append((shown, f"damaged archive: what stands before it is kept: {error}"))


def _copy(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> bool:
    """Whether the member was whole; what there is of it is written."""
    source = archive.extractfile(member)
    left = member.size
    with target.open("wb") as out:
        while source is not None and left:
            try:
                part = source.read(min(left, _COPY_BYTES))
            except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile):
                return False
            if not part:
                return False
            out.write(part)
            left -= len(part)
    return True


def _looks_like_a_trace(file: Path) -> bool:
    """Tell a trace from other JSON in a folder. What cannot be read is let through: it is an
    error or a damage to report, not a file to pass over."""
    try:
        with file.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
        with gzip.open(file) if packed else file.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return True
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[:1] == b"{":
        return any(mark in head for mark in _MARKS) or len(head) == _HEAD_BYTES
    if start[:1] not in (b"", b"["):
        return reading.events_begin(start) is not None  # its begin was lost
    return not start or (start[:1] == b"[" and (b'"ph"' in head or not start[1:].strip(b" \n]")))


def rank_in_name(name: str) -> int | None:
    """The rank in a file name such as rank3.json or worker3_step.json, where there is just one."""
    numbers = {int(number) for number in _RANK_IN_NAME.findall(name)}
    return numbers.pop() if len(numbers) == 1 else None


class RankMap:
    """Ranks by file, as the user gave them.

    A line is ``FILE RANK``: a path, a name or a pattern, and a number. ``#`` begins a comment.
    """

    def __init__(self, path: Path) -> None:
        """Read a map.

        Raises:
            UsageError: it cannot be read, or a line is not what it should be.
        """
        self._lines: list[tuple[str, int]] = []
        self._shown = path
        self._used: set[str] = set()
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--rank-map {path}: cannot be read: {error}") from error
        for number, line in enumerate(text.splitlines(), start=1):
            line = line.partition("#")[0].strip()
            if not line:
                continue
            name, rank = (["", *line.rsplit(None, 1)])[-2:]
            if not name or not (rank.isascii() and rank.isdigit()) or int(rank) >= 1 << 31:
                raise UsageError(f"--rank-map {path}, line {number}: not FILE RANK: {line!r}")
            if any(name == other and int(rank) != theirs for other, theirs in self._lines):
                raise UsageError(f"--rank-map {path}, line {number}: {name} has another rank above")
            self._lines.append((name, int(rank)))
        self._folder = path.parent

    def rank_of(self, trace: Trace) -> int | None:
        """The rank that the map gives a file, or None; the first line that fits counts."""
        for name, rank in self._lines:
            names = {trace.shown, trace.name, str(trace.path)}
            same = (self._folder / name).resolve() == trace.path.resolve()
            if same or any(each == name or fnmatch.fnmatchcase(each, name) for each in names):
                self._used.add(name)
                return rank
        return None

    def unused(self) -> list[str]:
        """What fitted no file, a line each."""
        return [
            f"--rank-map {self._shown}: {name}: no such file among these"
            for name, _ in self._lines
            if name not in self._used
        ]
