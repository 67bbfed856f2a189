"""Find the files of a run and say which rank each trace belongs to."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tracekit.errors import InputError
from tracekit_collectors import records

_TRACE_SUFFIXES = (".json", ".json.gz")
# Before the events stand the process groups: those of thousands of ranks fit.
_HEAD_BYTES = 4 << 20
_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])(?:rank|worker|r)[-_.]?(\d+)(?!\d)", re.IGNORECASE)


@dataclass(slots=True)
class Sources:
    """The files of one run."""

    traces: list[Path] = field(default_factory=list)
    manifests: dict[Path, records.RankManifest] = field(default_factory=dict)
    run_files: list[Path] = field(default_factory=list)
    nvml: list[Path] = field(default_factory=list)
    problems: list[tuple[Path, str]] = field(default_factory=list)


def find(paths: Sequence[Path]) -> Sources:
    """Collect traces, manifests and telemetry from files and folders.

    Raises:
        InputError: a path that does not exist, or nothing that could be a trace in any of them.
    """
    found = Sources()
    for path in paths:
        if path.is_dir():
            for file in sorted(p for p in path.rglob("*") if p.is_file()):
                _add(found, file, named=False)
        elif path.is_file():
            _add(found, path, named=True)
        else:
            raise InputError(f"{path}: no such file or folder")
    found.traces = list(dict.fromkeys(path.resolve() for path in found.traces))
    if not found.traces:
        where = ", ".join(str(path) for path in paths)
        raise InputError(f"{where}: no trace (*.json, *.json.gz) in it")
    return found


def _add(found: Sources, file: Path, *, named: bool) -> None:
    name = file.name
    if name.startswith(".") and not named:
        return
    if name == records.RUN_FILE:
        found.run_files.append(file)
    elif name.startswith("nvml.") and name.endswith(".jsonl"):
        found.nvml.append(file)
    elif name.startswith("rank-") and name.endswith(".json") and ".trace." not in name:
        try:
            found.manifests[file] = records.read_manifest(file)
        except (ValueError, TypeError, OSError) as error:
            if named or _looks_like_a_trace(file):
                found.traces.append(file)
            else:
                found.problems.append((file, f"manifest cannot be read: {error}"))
    elif named or (name.endswith(_TRACE_SUFFIXES) and _looks_like_a_trace(file)):
        found.traces.append(file)


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
    return not head.strip() or head.lstrip()[:1] == b"[" or b'"traceEvents"' in head


def rank_in_name(path: Path) -> int | None:
    """The rank in a file name such as rank3.json or worker3_step.json, where there is just one."""
    numbers = {int(number) for number in _RANK_IN_NAME.findall(path.name)}
    return numbers.pop() if len(numbers) == 1 else None
