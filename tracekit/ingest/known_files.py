"""Small files of a run directory: each is read once, whatever the name that it comes under."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

from tracekit.store import Writer
from tracekit.store.writer import as_map


@contextlib.contextmanager
def new_file(
    writer: Writer, path: Path, shown: str, kind: str, warnings: list[str]
) -> Iterator[bytes | None]:
    """What a small file holds; None where the database has it, or it cannot be read."""
    try:
        data = path.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        known = is_known(writer, sha256)
        yield None if known else data
        if not known:
            register(writer, shown, sha256, kind, len(data))
    except (OSError, ValueError, RecursionError) as error:
        warnings.append(f"{shown}: cannot be read: {error}")


def digest(path: Path) -> str:
    """SHA-256 of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_known(writer: Writer, sha256: str) -> bool:
    """Whether the database has a file of this content."""
    return bool(writer.scalar("SELECT count(*) FROM file WHERE sha256 = $1", [sha256]))


def register(
    writer: Writer,
    shown: str,
    sha256: str,
    kind: str,
    size: int,
    *,
    rank: int | None = None,
    events: int = 0,
    state: str = "whole",
) -> int:
    """Remember a file that is no trace, and return its number. ``size`` is in bytes."""
    number = writer.scalar("SELECT coalesce(max(file_id) + 1, 0) FROM file")
    row = (number, shown, sha256, kind, size, rank, state, events, None, None, False)
    writer.insert("file", [(*row, as_map({}), as_map({}))])
    return int(number)
