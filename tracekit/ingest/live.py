"""What the ranks of a run that goes on have said of themselves so far."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.errors import InputError
from tracekit_collectors import progress, records

# A rank speaks every other second, but only where a step ends.
_SILENT_NS = 10 * 10**9


@dataclass(frozen=True, slots=True)
class LiveRank:
    """One rank. Times in ns; ``age_ns`` since it last spoke, ``step_ns`` a step's mean of late."""

    rank: int
    host: str
    pid: int
    state: str
    steps: int
    step_ns: int | None
    age_ns: int | None
    windows: list[list[int]]  # recorded steps of each

    @property
    def is_silent(self) -> bool:
        """Whether it has been quiet for longer than its steps explain, and not ended."""
        if self.age_ns is None or self.has_ended:
            return False
        return self.age_ns > max(_SILENT_NS, 5 * (self.step_ns or 0))

    @property
    def has_ended(self) -> bool:
        return self.state == "ended" or self.state.startswith(("finished", "incomplete"))


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run directory as it stands."""

    wrappers: list[dict[str, Any]]  # what each node's wrapper says: command, host, start, end
    ranks: list[LiveRank]

    @property
    def goes_on(self) -> bool:
        """Whether a wrapper, or without one a rank, has not ended."""
        if self.wrappers:
            return any("exit_status" not in wrapper for wrapper in self.wrappers)
        return any(not rank.has_ended for rank in self.ranks)


def look(directory: Path) -> LiveRun:
    """Read a run directory.

    Raises:
        InputError: it is none.
    """
    if not directory.is_dir():
        raise InputError(f"{directory}: no such run directory")
    wrappers = []
    for path in sorted(directory.glob("run*.json")):
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if records.is_run_file(path.name) and isinstance(said, dict):
            wrappers.append(said)
    ranks = [rank for path in records.manifests_in(directory) if (rank := _rank(directory, path))]
    if not wrappers and not ranks:
        raise InputError(f"{directory}: holds no run")
    return LiveRun(wrappers, sorted(ranks, key=lambda rank: (rank.rank, rank.host, rank.pid)))


def _rank(directory: Path, path: Path) -> LiveRank | None:
    try:
        manifest = records.read_manifest(path)
        windows = [list(window.steps) for window in manifest.windows if window.trace]
    except (OSError, ValueError, TypeError):
        return None
    seen = progress.read(directory, path.stem)
    # Until its process has ended, what it does now says more than how its capture went.
    over = manifest.state != "started" and (seen is None or seen.doing == "ended")
    return LiveRank(
        rank=manifest.rank,
        host=manifest.host,
        pid=manifest.pid,
        state=manifest.state if over or seen is None else seen.doing,
        steps=max(manifest.steps_seen, seen.steps if seen else 0),
        step_ns=seen.step_ns if seen else None,
        age_ns=max(time.time_ns() - seen.time_ns, 0) if seen else None,
        windows=windows,
    )
