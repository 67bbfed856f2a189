"""Open a database that somebody else may hold, or that was left in the middle of a change.

DuckDB keeps changes in a log beside the database, ``NAME.wal``, until it folds them in. A log that
a killed program left is read with the database, up to the last change that is whole: DuckDB does
so without a word, and here the loss is put into words. A log that DuckDB refuses is passed over by
opening the database elsewhere, with the good part of the log or with none. Nothing that belongs to
the user is changed or removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

import duckdb

from tracekit.errors import StoreError

_Opened = TypeVar("_Opened")

_HOLDER = re.compile(r"lock is held in (.*?) ?\(?PID (\d+)\)?")
_DAMAGED_AT = re.compile(r"entry at byte position (\d+)")
# An entry of the log is a length, a checksum (8 bytes each) and its bytes; these end a change.
_ENTRY_HEAD = 16
_END_OF_CHANGE = b"\x64\x00\x64\xff\xff"
_LOG_MAGIC = b"\x64\x00\x62"
_LOG_HEAD_BYTES = 256
_TRACE_HEAD = 64


class StoreLockedError(StoreError):
    """Another program writes to the database: trying again later may work.

    Attributes:
        program: What holds it, as far as the system tells.
        pid: Its process id, 0 where it is not known.
    """

    def __init__(self, path: Path, program: str, pid: int) -> None:
        self.program = program
        self.pid = pid
        who = f"{program} (PID {pid})" if program else f"PID {pid}" if pid else "another program"
        super().__init__(f"{path}: locked: {who} is writing to it; try again when that has ended")


def log_of(path: Path) -> Path:
    """Where DuckDB keeps the log of a database."""
    return path.with_name(path.name + ".wal")


def open_readable(path: Path, attempt: Callable[[Path], _Opened]) -> tuple[_Opened, str | None]:
    """Open a database through ``attempt``, and say what of it is lost.

    Args:
        path: The database.
        attempt: Opens the path it is given, read-only, or raises DuckDB's error.

    Returns:
        What ``attempt`` gave, and a line on a log that was left beside the database, or None.

    Raises:
        StoreLockedError: somebody writes to it.
        StoreError: it cannot be opened.
    """
    log = log_of(path)
    try:
        opened = attempt(path)
    except duckdb.Error as error:
        if "WAL" in str(error) and os.path.lexists(log):
            return _open_elsewhere(path, log, error, attempt)
        raise opening_error(path, error) from error
    return opened, _describe(log) if log.exists() else None


def opening_error(path: Path, error: duckdb.Error) -> StoreError:
    """DuckDB's error in one line of ours."""
    text = str(error)
    if "Could not set lock" in text or "Conflicting lock" in text:
        holder = _HOLDER.search(text)
        program = Path(holder.group(1)).name if holder else ""
        return StoreLockedError(path, program, int(holder.group(2)) if holder else 0)
    with contextlib.suppress(OSError), path.open("rb") as file:
        head = file.read(_TRACE_HEAD)
        if head.startswith(b"\x1f\x8b") or head.lstrip()[:1] in (b"{", b"["):
            return StoreError(
                f"{path}: is no database; to load traces: tracekit ingest {path} -o run.db"
            )
    return StoreError(f"{path}: cannot be opened: {first_line(error)}")


def first_line(error: Exception) -> str:
    """What went wrong, without DuckDB's advice on it."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def _open_elsewhere(
    path: Path, log: Path, problem: duckdb.Error, attempt: Callable[[Path], _Opened]
) -> tuple[_Opened, str]:
    """Open the database away from its log, with as much of the log as is whole."""
    text = str(problem)
    damaged = _DAMAGED_AT.search(text)
    if damaged:
        loss = (
            f"damaged at byte {damaged.group(1)}: the changes from there on are lost; "
            "shown is the state before them"
        )
    elif "does not match" in text:
        loss = "the log of another database: not read"
    else:
        loss = (
            f"cannot be read ({first_line(problem)}): the changes in it are lost; "
            "shown is the state before them"
        )
    try:
        for kept in dict.fromkeys([int(damaged.group(1)) if damaged else 0, 0]):
            # Once open, the files need no name.
            with tempfile.TemporaryDirectory(prefix="tracekit-") as folder:
                place = Path(folder) / path.name
                _link_or_copy(path, place)
                if kept:
                    with log.open("rb") as whole, log_of(place).open("wb") as part:
                        part.write(whole.read(kept))
                try:
                    return attempt(place), f"{log}: {loss}"
                except duckdb.Error as error:
                    problem = error
    except OSError as error:
        raise StoreError(
            f"{path}: the log beside it, {log.name}, cannot be read, and there is no room for a "
            f"copy without it ({error.strerror}); move {log.name} away to open the state before it"
        ) from error
    raise opening_error(path, problem) from problem


def _link_or_copy(path: Path, place: Path) -> None:
    try:
        os.link(path.resolve(), place)
    except OSError:
        shutil.copyfile(path, place)


def _describe(log: Path) -> str:
    who = "a program that wrote to this database did not end as it should"
    try:
        with log.open("rb") as file:
            lost = _unfinished_bytes(file)
    except OSError:
        lost = None
    match lost:
        case None:
            return f"{log}: {who}; its log cannot be read, and what it wrote last is lost"
        case 0:
            return f"{log}: {who}; all that it had committed is shown"
        case _:
            return (
                f"{log}: {who}; the last {lost} bytes of its log hold no whole change: lost. "
                "Shown is the last committed state"
            )


def _unfinished_bytes(file: BinaryIO) -> int | None:
    """How many bytes at the end of a log belong to no whole change; None: it is no log."""
    size = os.fstat(file.fileno()).st_size
    head = file.read(_LOG_HEAD_BYTES)
    if not head.startswith(_LOG_MAGIC):
        return None
    # The head ends with 0xffff, and so may something within it: the entries tell.
    ends = [at + 2 for at in range(len(head) - 1) if head[at : at + 2] == b"\xff\xff"]
    return min((size - _last_whole_change(file, end, size) for end in ends), default=None)


def _last_whole_change(file: BinaryIO, start: int, size: int) -> int:
    """Where the last whole change ends, for entries that begin at ``start``."""
    whole = at = start
    while at + _ENTRY_HEAD <= size:
        file.seek(at)
        length = int.from_bytes(file.read(8), "little")
        at += _ENTRY_HEAD + length
        if length == len(_END_OF_CHANGE) and at <= size:
            file.seek(at - length)
            if file.read(length) == _END_OF_CHANGE:
                whole = at
    return whole
