"""The directory that a run is captured into: empty before it, and nothing of the user's is lost."""

from __future__ import annotations

import json
from pathlib import Path

from tracekit.errors import UsageError
from tracekit_collectors.records import is_ours, is_run_file


def prepare(directory: Path, *, force: bool) -> None:
    """Make it, or with ``force`` empty it of an earlier run.

    Raises:
        UsageError: it holds what is no run, or a run without ``force``, or cannot be made.
    """
    held = _held(directory)
    if held and not force:
        raise UsageError(f"{directory}: holds an earlier run; give -f to replace it")
    _make(directory, without=held)


def prepare_shared(directory: Path, *, force: bool) -> None:
    """Make it, or join the nodes that capture into it already.

    Raises:
        UsageError: it holds what is no run, or one that has ended, or cannot be made.
    """
    if force:
        raise UsageError("-f would delete what the other nodes of --shared have written")
    for path in _held(directory):
        if is_run_file(path.name) and _has_ended(path):
            raise UsageError(
                f"{directory}: holds a run that has ended ({path.name}); give another --run-dir"
            )
    _make(directory, without=[])


def _held(directory: Path) -> list[Path]:
    held = sorted(directory.iterdir()) if directory.is_dir() else []
    foreign = [path.name for path in held if path.is_dir() or not is_ours(path.name)]
    if foreign:
        raise UsageError(
            f"{directory}: holds what is no run ({foreign[0]}); give another --run-dir"
        )
    return held


def _has_ended(path: Path) -> bool:
    try:
        return "exit_status" in json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def _make(directory: Path, without: list[Path]) -> None:
    try:
        for path in without:
            path.unlink()
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{directory}: cannot be made: {error.strerror or error}") from error
