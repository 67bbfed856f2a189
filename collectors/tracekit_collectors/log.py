"""What the collectors have to say goes into the run directory, never to the program's output."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tracekit_collectors import records

# Of a capture that the program itself began; the wrapper names its own in the environment.
_directory: list[str | None] = [None]


def write_to(directory: Path | None) -> None:
    """Where the log is of a capture that the program itself began."""
    _directory[-1] = None if directory is None else str(directory)


def write(text: str) -> None:
    """Append one line to the log of the run directory; a log that cannot be written is let go."""
    directory = _directory[-1] or os.environ.get("TRACEKIT_RUN_DIR")
    if not directory:
        return
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%S')} pid {os.getpid()}: {' '.join(text.split())}\n"
    try:
        # One write in append mode: lines of several processes do not mix.
        with (Path(directory) / records.LOG_FILE).open("a", encoding="utf-8") as file:
            file.write(line)
    except OSError:
        pass
