"""Open a database for a command, and say on stderr what of it could not be read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.cli.say import say

if TYPE_CHECKING:
    from tracekit.store import Reader


def open_aloud(database: Path) -> Reader:
    """A reader of the run, after a warning where one is due.

    Raises:
        StoreError: the database cannot be opened.
    """
    from tracekit.store import open_run

    reader = open_run(database)
    if reader.warning is not None:
        say(reader.warning)
    return reader
