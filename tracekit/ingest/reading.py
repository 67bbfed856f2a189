"""Read one trace file: its header, its events as batches of columns, and what is wrong with it.

Runs in the worker processes and uses the standard library only. Memory is bounded whatever the
size of the file: a piece of text, a batch of rows, and the strings of a few batches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from tracekit.errors import InputError
from tracekit.ingest import scan, text
from tracekit.ingest.ahead import ahead
from tracekit.ingest.unpack import Unpacker

if TYPE_CHECKING:
    from pathlib import Path

Buffer = text.Buffer
Send = Callable[[dict[str, Any], list[Buffer]], None]

# An event, or all that stands before the events, that is longer than this is damage.
_LARGEST_TEXT = 32 << 20
_PEEK_BYTES = 4 << 20
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_NO_EVENTS = b'{"traceEvents":[]'
# As Kineto writes it.
_AN_EVENT_ALONE = re.compile(rb'\{\s*"ph"\s*:\s*"[A-Za-z]"\s*,')
_AN_EVENT = re.compile(rb'\[\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:)')


def events_begin(data: bytes) -> int | None:
    """Where the first whole event stands in text that lacks its begin."""
    found = _AN_EVENT_ALONE.search(data)
    return found.start() if found else None


class Reading:
    """One file on its way through the scanner; :meth:`run` sends frames.

    Frames: ``open`` with the header that stands before the events, ``batch`` with columns and
    strings (their buffers follow), ``progress``, and ``end`` with the whole header, the damage
    (kind, byte offset, count, detail) and the state of the file.
    """

    def __init__(self, path: Path, send: Send, *, keep_args: bool, rows: int) -> None:
        self._path = path
        self._send = send
        self._keep_args = keep_args
        self._rows = rows
        self._unpacker = Unpacker(path)
        self._pieces: Generator[bytes, None, None] = ahead(self._unpacker.pieces())
        self._damage: list[tuple[str, int | None, int, str]] = []
        self._arg_keys: list[str] = []
        self._partial = False
        self._foreign = False
        self._is_empty = True  # nothing in it has a time
        self._is_blank = False  # not a byte of text came out of it

    def run(self) -> None:
        """Read the file to its end.

        Raises:
            InputError: it is no trace.
            OSError: it cannot be read.
        """
        try:
            self._read()
        finally:
            self._pieces.close()

    def _read(self) -> None:
        found, root, at = self._find_events()
        if root == "none":
            self._is_blank = not found.strip()
            self._send({"frame": "open", "header": {}}, [])
            self._finish({})
            return
        prefix = found[:at] if root == "object" else b""
        header = self._header(prefix) if prefix else {}
        early = header
        if root != "list" and "distributedInfo" not in header:
            early = self._peek() | header
        self._send({"frame": "open", "header": early}, [])
        rest, base, counts = self._events(found[at:], at, list_root=root == "list")
        self._finish(header | self._tail(prefix, rest, base), args=counts)

    def _find_events(self) -> tuple[bytes, str, int]:
        data, ended, root, at = b"", False, "unknown", 0
        while root == "unknown" and not ended and len(data) < _LARGEST_TEXT:
            data, ended = self._more(data)
            root, at = scan.find_events(data)
        if root in ("object", "list"):
            return data, root, at
        body = b"" if _is_binary(data) else data
        lists = (found for found in _AN_EVENT.finditer(body) if text.is_event(body, found.end()))
        if found := _EVENTS_KEY.search(body) or next(lists, None):
            self._note("header", 0, "what stands before the events is damaged")
            return data, "object", found.end()
        if headless := events_begin(body):
            self._note("header", 0, "the file lacks its begin")
            self._partial = True
            return data, "headless", headless
        if not data.strip():
            return data, "none", 0
        if root == "unknown" and ended:
            self._note("truncated", len(data), "the file ends before its events")
            self._partial = True
            return data, "none", 0
        raise InputError(f"{self._path}: not a trace: no traceEvents in it")

    def _events(
        self, data: bytes, base: int, *, list_root: bool
    ) -> tuple[bytes, int, dict[str, int]]:
        scanner = scan.Scanner(keep_args=self._keep_args, list_root=list_root, rows=self._rows)
        try:
            ended = False
            while True:
                follows = scan.GOES_ON if len(data) < _LARGEST_TEXT else scan.GIVE_UP
                result, used = scanner.events(data, base, scan.ENDS if ended else follows)
                base += used
                data = data[used:]
                if result == scan.FULL:
                    self._flush(scanner)
                elif result == scan.MORE:
                    data, ended = self._more(data)
                    self._send({"frame": "progress", "read": self._unpacker.read}, [])
                else:
                    break
            scanner.end()
            self._flush(scanner, last=True)
            self._foreign = scanner.foreign()
            self._partial |= self._foreign or not scanner.closed()
            counts: dict[str, int] = {}  # a key may have been written in several ways
            for key, count in zip(self._arg_keys, scanner.arg_counts(), strict=False):
                if count:
                    counts[key] = counts.get(key, 0) + count
            return data, base, counts
        finally:
            scanner.close()

    def _more(self, data: bytes) -> tuple[bytes, bool]:
        """At least as much again, so that one long event is not parsed over and over."""
        pieces = [data]
        wanted = len(data)
        while wanted >= 0:
            piece = next(self._pieces, b"")
            if not piece:
                return b"".join(pieces), len(pieces) == 1
            pieces.append(piece)
            wanted -= len(piece)
        return b"".join(pieces), False

    def _flush(self, scanner: scan.Scanner, *, last: bool = False) -> None:
        columns, strings, args = scanner.flush()
        buffers: list[Buffer] = [args]
        listed = []
        for column in columns:
            if column.table == "damage":
                continue
            self._is_empty &= column.table == "meta"
            listed.append([column.table, column.name, column.bits, column.width, column.rows])
            buffers += [column.data, column.validity]
        pools = []
        for new in strings:
            if new.pool == "arg":
                self._arg_keys += text.decoded(new.starts, new.text, new.flags)
                continue
            pools.append([new.pool, new.first, new.entries])
            buffers += [new.starts, new.text, new.flags]
        frame = {"frame": "batch", "read": self._unpacker.read, "columns": listed, "pools": pools}
        self._send(frame, buffers)
        if last:
            self._damage += _damages(columns)
        scanner.reset()

    def _header(self, prefix: bytes) -> dict[str, Any]:
        """What stands before the events."""
        found = text.members(prefix, b"}")
        if found is None:
            self._note("header", 0, "what stands before the events is not valid JSON")
            return text.salvaged(prefix)
        self._note_repairs(prefix, 0)
        return found

    def _note_repairs(self, part: bytes, base: int) -> None:
        for at in text.forbidden(part):
            self._note("repaired", base + at, _DETAILS["repaired"])

    def _peek(self) -> dict[str, Any]:
        """What may stand behind the events of a file that says nothing of its rank before them."""
        last = b""
        try:
            for piece in Unpacker(self._path).pieces():
                last = (last + piece)[-_PEEK_BYTES:]
        except OSError:
            return {}
        return text.behind(last)

    def _tail(self, prefix: bytes, rest: bytes, base: int) -> dict[str, Any]:
        """What stands behind the events; nothing but white space may follow it."""
        rest, too_long = self._rest(rest)
        if self._foreign:
            return {}
        if self._partial:
            return text.salvaged(rest)
        if too_long:
            self._note("trailing", base, "what stands behind the events is too long for a header")
            self._partial = True
            return self._own(prefix, rest)
        self._note_repairs(rest, base)
        if not prefix:
            found, wrong = {}, rest.strip() != b""
        else:
            whole = text.members(b'{"traceEvents":[', rest)
            found, wrong = whole or {}, whole is None
            if whole is not None and (again := _EVENTS_KEY.search(rest)):
                self._note("trailing", base + again.start(), "a second traceEvents: left out")
                self._partial = True
        if wrong:
            events = _NO_EVENTS if prefix else b"[]"
            kind, detail = _WRONG[text.fault(events + rest)]
            self._note(kind, base + (len(rest) if kind == "truncated" else 0), detail)
            self._partial = kind != "header"
            found = self._own(prefix, rest)
        return found

    def _own(self, prefix: bytes, rest: bytes) -> dict[str, Any]:
        """What is wrong behind the events, as far as it is of this trace: another one may follow,
        whose rank and times are not these."""
        own = text.first_members(_NO_EVENTS + rest) if prefix else None
        return text.salvaged(rest) if own is None else own

    def _rest(self, rest: bytes) -> tuple[bytes, bool]:
        pieces, size = [rest], len(rest)
        while size <= _LARGEST_TEXT:
            piece = next(self._pieces, b"")
            if not piece:
                return b"".join(pieces), False
            pieces.append(piece)
            size += len(piece)
        for _ in self._pieces:  # to its end, for what is wrong with the compression
            pass
        return b"".join(pieces), True

    def _finish(self, header: dict[str, Any], args: dict[str, int] | None = None) -> None:
        for at, detail in self._unpacker.damage:
            self._note("compression", at, detail)
            self._partial = True
        empty = self._is_empty and all(kind in _NO_DAMAGE for kind, *_ in self._damage)
        if empty:
            self._note("empty", 0, "the file holds no event")
        state = "partial" if self._partial else "whole"
        if empty or self._is_blank:
            state = "empty"
        end = {
            "frame": "end",
            "read": self._unpacker.read,
            "header": header,
            "damage": self._damage,
            "state": state,
            "args": args or {},
        }
        self._send(end, [])

    def _note(self, kind: str, at: int | None, detail: str) -> None:
        self._damage.append((kind, at, 1, detail))


_NO_DAMAGE = ("not an event",)
_WRONG = {
    "cut": ("truncated", "the file ends within its header"),
    "bad": ("header", "what stands behind the events is not valid JSON"),
    "more": ("trailing", "something follows the end of the trace: left out"),
}
_DETAILS = {
    "bad event": "skipped: it is not valid JSON",
    "repaired": "bytes that JSON forbids were replaced",
    "truncated": "the file ends here, within its events",
    "foreign": "what follows is of another process: left out",
    "not an event": "skipped: no object with members",
    "no phase": "left out: it does not say what it is",
    "missing comma": "no comma before an event",
}


def _is_binary(data: bytes) -> bool:
    """Whether this is no text: it may hold some that looks like events, and is no trace. A damaged
    trace may hold a few zeros, a binary file begins with many."""
    head = data[:4096]
    return head.count(0) * 10 > len(head)


def _damages(columns: list[scan.Column]) -> list[tuple[str, int | None, int, str]]:
    found = {
        c.name: memoryview(c.data).cast("q" if c.width == 8 else "i")
        for c in columns
        if c.table == "damage"
    }
    rows = zip(found["kind"], found["offset"], found["count"], strict=True) if found else ()
    named = []
    for number, offset, count in rows:
        phase = number - len(scan.DAMAGES)
        kind = scan.DAMAGES[number] if phase < 0 else f"phase {chr(phase)!r}"
        named.append(
            (
                kind,
                offset,
                count,
                _DETAILS.get(kind, "left out" if phase < 0 else "no figure uses it"),
            )
        )
    return sorted(named, key=lambda row: row[1] or 0)
