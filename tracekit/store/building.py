"""What surrounds a database that is being built: its place, its leftovers, a full disk.

A database for ``run.db`` is built as ``.run.db.PID.building`` in the same folder, what does not fit
into memory goes to ``.run.db.PID.tmp``, and what archives hold to ``.run.db.PID.unpacked``. All are
removed at the end; what a killed process left is removed by the next one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb

from tracekit.errors import StoreError
from tracekit.store.opening import first_line

# A file that nobody locks may belong to a process that is about to.
_SETTLED_S = 60
_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is larger than may be written here",
}
_in_use: set[Path] = set()


@contextlib.contextmanager
def place_for(path: Path) -> Iterator[tuple[Path, Path]]:
    """A file to build the database in, and a folder for what does not fit into memory.

    Neither exists yet; both are gone at the end.

    Raises:
        StoreError: this process builds the same database already.
    """
    key = path.absolute()
    if key in _in_use:
        raise StoreError(f"{path}: is being written by this process already")
    _in_use.add(key)
    building, overflow, _ = _places(path, os.getpid())
    try:
        _remove_leftovers(path)
        yield building, overflow
    finally:
        _remove(building, overflow)
        _in_use.discard(key)


def identity_of(path: Path) -> tuple[int, ...] | None:
    """What tells a file from any that takes its place; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[None]:
    """One program at a time puts a database into this folder, where its file system can lock."""
    folder = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


@contextlib.contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """An empty folder beside the database, for files that are needed while it is built.

    Raises:
        StoreError: it cannot be made.
    """
    *_, unpacked = _places(path, os.getpid())
    shutil.rmtree(unpacked, ignore_errors=True)
    _remove_leftovers(path)
    try:
        unpacked.mkdir()
    except OSError as error:
        raise StoreError(f"{path}: cannot be created: {error.strerror or error}") from error
    try:
        yield unpacked
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)


def _places(path: Path, pid: int) -> tuple[Path, Path, Path]:
    """The database in the making, what of it overflows, and what is unpacked for it."""
    building, overflow, unpacked = (
        path.with_name(f".{path.name}.{pid}.{what}") for what in ("building", "tmp", "unpacked")
    )
    return building, overflow, unpacked


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Make one line of a disk that is full, or of a memory limit that is too low.

    Raises:
        StoreError: instead of what DuckDB or the system raised.
    """
    try:
        yield
    except duckdb.Error as error:
        for number, text in _FULL.items():
            if os.strerror(number) in str(error):
                raise StoreError(f"{path}: cannot be written: {text}") from error
        if isinstance(error, duckdb.OutOfMemoryException):
            raise StoreError(
                f"{path}: cannot be written: the memory limit is too low ({first_line(error)})"
            ) from error
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise StoreError(f"{path}: cannot be written: {_FULL[error.errno]}") from error
        raise


def is_unpacked(folder: str) -> bool:
    """Whether a folder has the name of one for what an archive holds."""
    return re.fullmatch(r"\..+\.\d+\.unpacked", folder) is not None


def _remove_leftovers(path: Path) -> None:
    ours = re.compile(re.escape(f".{path.name}.") + r"(\d+)\.(?:building(?:\.wal)?|tmp|unpacked)")
    with contextlib.suppress(OSError):
        owners = {
            int(found.group(1))
            for entry in os.scandir(path.parent)
            if (found := ours.fullmatch(entry.name))
        }
        for pid in owners:
            building, overflow, unpacked = _places(path, pid)
            if _is_abandoned(building, pid):
                _remove(building, overflow, *([unpacked] if pid != os.getpid() else []))


def _is_abandoned(building: Path, pid: int) -> bool:
    """Whether the process has ended. Its number may be another's by now, or that of a process on
    another machine: the lock that DuckDB holds on the file says more."""
    try:
        with building.open("rb") as file:
            age = time.time() - os.fstat(file.fileno()).st_mtime
            if pid != os.getpid():
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        age = 0.0
    except OSError:
        return False
    return pid == os.getpid() or age > _SETTLED_S or not _lives(pid)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _remove(building: Path, *folders: Path) -> None:
    for file in (building, building.with_name(building.name + ".wal")):
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
