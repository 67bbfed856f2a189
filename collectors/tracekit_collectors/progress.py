"""How far a rank is, for whoever looks on: a line that is written anew every other second."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from tracekit_collectors import records

_EVERY_S = 2.0
_BYTES = 256  # one page of one write: a reader sees the old line or the new one


@dataclass(frozen=True, slots=True)
class Seen:
    """What a rank last said of itself."""

    steps: int  # that have ended
    time_ns: int
    step_ns: int | None  # mean of the steps since it spoke before
    doing: str


class Progress:
    """Writes the line of one rank; a line that cannot be written is let go."""

    def __init__(self, directory: Path, name: str) -> None:
        self._path = records.progress_path(directory, name)
        self._speak_at = 0.0
        self._before: tuple[int, int] | None = None

    def tell(self, steps: int, doing: str, now_s: float) -> None:
        """``steps`` have ended. Costs nothing until it is time to speak."""
        if now_s < self._speak_at:
            return
        self._speak_at = now_s + _EVERY_S
        self.say(steps, doing)

    def say(self, steps: int, doing: str) -> None:
        """The same at once."""
        at = time.time_ns()
        mean = None
        if self._before is not None and steps > self._before[0]:
            mean = (at - self._before[1]) // (steps - self._before[0])
        self._before = steps, at
        line = json.dumps({"steps": steps, "time_ns": at, "step_ns": mean, "doing": doing})
        try:
            # Not kept open: a program that closes all that it does not know, as before an exec,
            # may have a file of its own by the same number then.
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                os.pwrite(file, line.encode()[: _BYTES - 1].ljust(_BYTES - 1) + b"\n", 0)
            finally:
                os.close(file)
        except OSError:
            self._speak_at = float("inf")


def read(directory: Path, name: str) -> Seen | None:
    """What a rank last said; None where it has said nothing, or nothing that can be read."""
    try:
        said = json.loads(records.progress_path(directory, name).read_text(encoding="utf-8"))
        step_ns = None if said["step_ns"] is None else int(said["step_ns"])
        return Seen(int(said["steps"]), int(said["time_ns"]), step_ns, str(said["doing"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
