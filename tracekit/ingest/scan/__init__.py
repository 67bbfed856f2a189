"""The compiled scanner of trace files, for Python: text in, columns out.

The library is plain C without Python in it (``scan.h`` says how it works), built by
``hatch_build.py`` and loaded with ctypes; calls release the interpreter lock.
"""

from __future__ import annotations

import ctypes
import os.path
from collections.abc import Iterator
from typing import NamedTuple

from tracekit.errors import TracekitError

POOLS = ("name", "category", "process", "thread", "signature", "text", "track", "arg")
TABLES = ("event", "detail", "comm", "python", "args", "memory", "flow", "meta", "damage")
# What tk_events returns, in the order of the C enum.
MORE, END, FULL, NO_MEMORY = range(4)
# What follows the text that is given to it.
GOES_ON, ENDS, GIVE_UP = range(3)

DAMAGES = (
    "bad event",
    "repaired",
    "truncated",
    "foreign",
    "not an event",
    "no phase",
    "no readable time",
    "unfinished event (negative duration)",
    "unfinished event (no readable duration)",
    "unmatched B",
    "unmatched E",
    "flow without a readable id",
    "missing comma",
)
_LIBRARY = os.path.join(os.path.dirname(__file__), "_scan.so")  # noqa: PTH118, PTH120
# Strings of one file are given up and begun anew beyond this: their number has no bound.
_POOL_BYTES = 32 << 20


class Column(NamedTuple):
    """A column of one batch: whole numbers of ``bits`` bits, which lie in ``width`` bytes each, for
    most are small. No data: all are null; no validity: none is."""

    table: str
    name: str
    bits: int
    width: int
    rows: int
    data: memoryview
    validity: memoryview


class Strings(NamedTuple):
    """New strings of a pool: entry k is ``text[starts[k]:starts[k + 1]]``, flags 1 escaped,
    2 damaged. ``first`` is the number of the first of them; 0 where the pool began anew."""

    pool: str
    first: int
    entries: int
    starts: memoryview
    text: memoryview
    flags: memoryview


class Scanner:
    """Parses the events of one file, piece by piece.

    Raises:
        MemoryError: an allocation failed.
    """

    def __init__(self, *, keep_args: bool, list_root: bool, rows: int) -> None:
        self._library = library()
        self._scan = self._library.tk_new(int(keep_args), int(list_root), rows)
        if not self._scan:
            raise MemoryError
        self._sent = dict.fromkeys(POOLS, 0)

    def close(self) -> None:
        """Free the memory; the scanner and what it gave are of no use then."""
        self._library.tk_free(self._scan)
        self._scan = None

    def events(self, text: bytes, base: int, follows: int) -> tuple[int, int]:
        """Parse what ``text``, which stands ``base`` bytes into the file, holds of the events.

        Returns:
            What it stopped at (MORE, END, FULL) and how many bytes are settled.
        """
        used = ctypes.c_int64()
        result = self._library.tk_events(
            self._scan, text, len(text), base, follows, ctypes.byref(used)
        )
        if result == NO_MEMORY:
            raise MemoryError
        return result, used.value

    def end(self) -> None:
        """Count the slices that were begun and never ended."""
        self._library.tk_close(self._scan)

    def closed(self) -> bool:
        """Whether the end of the events was seen."""
        return bool(self._library.tk_closed(self._scan))

    def foreign(self) -> bool:
        """Whether the file goes on with the events of another process."""
        return bool(self._library.tk_foreign(self._scan))

    def rows(self, table: str) -> int:
        """How many rows of a table wait to be flushed."""
        return int(self._library.tk_rows(self._scan, TABLES.index(table)))

    def flush(self) -> tuple[list[Column], list[Strings], memoryview]:
        """The columns since the last flush, the new strings, and the texts of kept args.

        All of it is valid until :meth:`reset`.
        """
        if self._library.tk_flush(self._scan):
            raise MemoryError
        args = self._library.tk_args_size(self._scan)
        text = _view(self._library.tk_args(self._scan), args)
        return list(self._columns()), list(self._strings()), text

    def reset(self) -> None:
        """Forget what was flushed, and the strings where they are many."""
        size = sum(
            self._library.tk_pool_starts(self._scan, number)[count]
            for number in range(len(POOLS))
            if (count := self._library.tk_pool_count(self._scan, number))
        )
        if self._library.tk_reset(self._scan, int(size > _POOL_BYTES)):
            for pool in ("name", "signature", "text", "track"):
                self._sent[pool] = 0

    def arg_counts(self) -> list[int]:
        """How often each key of the pool ``arg`` stood in the args of an event."""
        count = self._library.tk_pool_count(self._scan, POOLS.index("arg"))
        count = min(count, self._library.tk_arg_counted(self._scan))
        return list(self._library.tk_arg_counts(self._scan)[:count]) if count else []

    def _columns(self) -> Iterator[Column]:
        for number, (table, name, bits) in enumerate(_described(self._library)):
            rows = int(self._library.tk_rows(self._scan, TABLES.index(table)))
            if not rows:
                continue
            width = int(self._library.tk_width(self._scan, number))
            data = _view(self._library.tk_data(self._scan, number), rows * width)
            valid = _view(self._library.tk_validity(self._scan, number), (rows + 7) // 8)
            yield Column(table, name, bits, width, rows, data, valid)

    def _strings(self) -> Iterator[Strings]:
        for number, pool in enumerate(POOLS):
            count = int(self._library.tk_pool_count(self._scan, number))
            first = self._sent[pool]
            if count == first:
                continue
            self._sent[pool] = count
            starts = self._library.tk_pool_starts(self._scan, number)
            begin, end = starts[first], starts[count]
            text = self._library.tk_pool_bytes(self._scan, number)
            flags = self._library.tk_pool_flags(self._scan, number)
            yield Strings(
                pool,
                first,
                count - first,
                _view(ctypes.addressof(starts.contents) + first * 8, (count - first + 1) * 8),
                _view((text or 0) + begin, end - begin),
                _view(flags + first, count - first),
            )


def find_events(text: bytes) -> tuple[str, int]:
    """Where the events of a file begin: its root (``object``, ``list``), or ``unknown`` where more
    text is needed, or ``none``; and the place behind the opening bracket."""
    at = ctypes.c_int64()
    found = library().tk_find_events(text, len(text), ctypes.byref(at))
    return {0: "unknown", 1: "object", 2: "list"}.get(found, "none"), at.value


def _view(address: int | None, size: int) -> memoryview:
    if not address or size <= 0:
        return memoryview(b"")
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


_loaded: list[ctypes.CDLL] = []
_columns: list[tuple[str, str, int]] = []


def library() -> ctypes.CDLL:
    """The compiled library.

    Raises:
        TracekitError: it is not there, or does not load on this machine.
    """
    if not _loaded:
        try:
            found = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise TracekitError(
                f"{_LIBRARY}: the trace scanner cannot be loaded ({error}); install tracekit again "
                "on this machine, or run `python hatch_build.py` in its source"
            ) from error
        _declare(found)
        _loaded.append(found)
    return _loaded[0]


def _described(found: ctypes.CDLL) -> list[tuple[str, str, int]]:
    if not _columns:
        for number in range(found.tk_columns()):
            table = TABLES[found.tk_column_table(number)]
            name = found.tk_column_name(number).decode()
            _columns.append((table, name, found.tk_column_bits(number)))
    return _columns


def _declare(found: ctypes.CDLL) -> None:
    pointer, whole, size, text = (
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_int64,
        ctypes.c_char_p,
    )
    sizes = ctypes.POINTER(ctypes.c_int64)
    for name, result, arguments in (
        ("tk_new", pointer, (whole, whole, size)),
        ("tk_free", None, (pointer,)),
        ("tk_close", None, (pointer,)),
        ("tk_closed", whole, (pointer,)),
        ("tk_foreign", whole, (pointer,)),
        ("tk_events", whole, (pointer, text, size, size, whole, sizes)),
        ("tk_find_events", whole, (text, size, sizes)),
        ("tk_flush", whole, (pointer,)),
        ("tk_reset", whole, (pointer, whole)),
        ("tk_rows", size, (pointer, whole)),
        ("tk_columns", whole, ()),
        ("tk_column_bits", whole, (whole,)),
        ("tk_column_table", whole, (whole,)),
        ("tk_column_name", text, (whole,)),
        ("tk_data", pointer, (pointer, whole)),
        ("tk_validity", pointer, (pointer, whole)),
        ("tk_width", whole, (pointer, whole)),
        ("tk_args", pointer, (pointer,)),
        ("tk_args_size", size, (pointer,)),
        ("tk_pool_count", size, (pointer, whole)),
        ("tk_pool_bytes", pointer, (pointer, whole)),
        ("tk_pool_starts", sizes, (pointer, whole)),
        ("tk_pool_flags", pointer, (pointer, whole)),
        ("tk_arg_counts", sizes, (pointer,)),
        ("tk_arg_counted", size, (pointer,)),
    ):
        function = getattr(found, name)
        function.restype = result
        function.argtypes = arguments
