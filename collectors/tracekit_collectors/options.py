"""What to capture, as the wrapper hands it to the ranks: one environment variable."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "TRACEKIT_CAPTURE"
DIRECTORY = "TRACEKIT_RUN_DIR"


@dataclass(frozen=True, slots=True)
class Options:
    """The steps to capture: after ``wait`` whole steps, ``warmup`` unrecorded, ``active`` recorded.

    The step in which the rank is found (up to its first optimizer step) is never captured.
    """

    wait: int = 1
    warmup: int = 1
    active: int = 3

    def to_environment(self, directory: Path) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self)), DIRECTORY: str(directory)}


def from_environment() -> tuple[Options, Path] | None:
    """The options and the run directory; None in a process that is not wrapped."""
    text, directory = os.environ.get(VARIABLE), os.environ.get(DIRECTORY)
    if not text or not directory:
        return None
    return Options(**json.loads(text)), Path(directory)
