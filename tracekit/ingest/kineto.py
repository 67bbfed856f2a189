"""Read a Kineto trace file into typed events, block by block, keeping what damage leaves.

This module knows bytes and JSON; what the events mean is decided in ``columns`` and ``derive``.

Kineto writes one event between newlines at a fixed indent, and a raw newline cannot stand inside
a JSON string: so a file in its layout is cut safely at ``\\n  },\\n  {`` and one bad event costs
only itself. Files in any other layout are decoded as a whole.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tracekit.errors import InputError

_BLOCK_BYTES = 4 << 20
# Places that are named one by one; the rest of a kind is only counted.
_NAMED_PLACES = 20
_SEPARATOR = b"\n  },\n  {"
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_NOT_A_NUMBER = re.compile(rb":\s*-?(?:inf|nan|Infinity|NaN)\b")
_NO_RAW = msgspec.Raw()
_CONTROL = {code: "�" for code in range(0x20) if code not in (0x0A, 0x09)} | {0x09: " "}


class Args(msgspec.Struct, rename=None):
    """The arguments of an event that some figure uses; writers disagree about their types."""

    correlation: Any = None
    external_id: Any = msgspec.field(default=None, name="External id")
    external_id_old: Any = msgspec.field(default=None, name="external id")
    device: Any = None
    stream: Any = None
    queue: Any = msgspec.field(default=None, name="sycl queue")
    bytes: Any = None
    name: Any = None
    input_dims: msgspec.Raw = msgspec.field(default=_NO_RAW, name="Input Dims")
    input_types: msgspec.Raw = msgspec.field(default=_NO_RAW, name="Input type")
    concrete: msgspec.Raw = msgspec.field(default=_NO_RAW, name="Concrete Inputs")
    sequence: Any = msgspec.field(default=None, name="Sequence number")
    forward_thread: Any = msgspec.field(default=None, name="Fwd thread id")
    operation: Any = msgspec.field(default=None, name="Collective name")
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_description: Any = msgspec.field(default=None, name="Process Group Description")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    group_size: Any = msgspec.field(default=None, name="Group size")
    seq: Any = msgspec.field(default=None, name="Seq")
    in_elems: Any = msgspec.field(default=None, name="In msg nelems")
    out_elems: Any = msgspec.field(default=None, name="Out msg nelems")
    dtype: Any = None
    src_rank: Any = msgspec.field(default=None, name="Src Rank")
    dst_rank: Any = msgspec.field(default=None, name="Dst Rank")
    device_type: Any = msgspec.field(default=None, name="Device Type")
    device_id: Any = msgspec.field(default=None, name="Device Id")
    address: Any = msgspec.field(default=None, name="Addr")
    memory_bytes: Any = msgspec.field(default=None, name="Bytes")
    total_allocated: Any = msgspec.field(default=None, name="Total Allocated")
    total_reserved: Any = msgspec.field(default=None, name="Total Reserved")


class Event(msgspec.Struct):
    """One trace event. ``ts`` and ``dur`` stay text: a float would lose nanoseconds."""

    ph: str = ""
    name: Any = ""
    cat: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = _NO_RAW
    dur: msgspec.Raw = _NO_RAW
    id: Any = None
    args: Args | None = None


@dataclass(slots=True)
class Damage:
    """Something wrong with a file: its kind, the byte where it begins, and how often."""

    kind: str
    byte_offset: int | None
    detail: str
    count: int = 1


@dataclass(slots=True)
class TraceFile:
    """An open trace: the header at once, the events as they are read.

    ``damage`` and ``state`` (whole, partial, empty) are complete when ``blocks`` is exhausted.
    """

    path: Path
    header: dict[str, Any]
    damage: list[Damage] = field(default_factory=list)
    state: str = "whole"
    _data: bytes = b""
    _body: tuple[int, int] | None = None

    def blocks(self) -> Iterator[list[Event]]:
        """Events in the order of the file.

        Raises:
            InputError: a file in no known layout that is not valid JSON.
        """
        if self.state == "empty":
            return
        if self._body is None:
            yield from _decode_whole(self)
            return
        start, end = self._body
        while start < end:
            cut = self._data.find(_SEPARATOR, min(start + _BLOCK_BYTES, end), end)
            stop = end if cut < 0 else cut
            yield self._decode_block(start, stop, is_last=stop == end)
            start = stop + len(_SEPARATOR)

    def report(self, kind: str, byte_offset: int | None, detail: str) -> None:
        """Note one damage; past a few of a kind only their number grows."""
        same = [damage for damage in self.damage if damage.kind == kind]
        if len(same) < _NAMED_PLACES:
            self.damage.append(Damage(kind, byte_offset, detail))
        else:
            same[-1].count += 1

    def _decode_block(self, start: int, stop: int, *, is_last: bool) -> list[Event]:
        chunk = self._data[start:stop]
        try:
            return _EVENTS.decode(b"[{" + chunk + b"}]")
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        events = []
        offset = start
        pieces = chunk.split(_SEPARATOR)
        for number, piece in enumerate(pieces):
            event, problem = _decode_one(piece)
            if event is not None:
                events.append(event)
                if problem:
                    self.report("repaired", offset, problem)
            elif is_last and number == len(pieces) - 1 and self.state == "partial":
                self.report("truncated", offset, "the file ends within an event")
            else:
                self.report("bad event", offset, f"skipped: {problem}")
            offset += len(piece) + len(_SEPARATOR)
        return events


_EVENTS = msgspec.json.Decoder(list[Event])
_EVENT = msgspec.json.Decoder(Event)


def open_trace(path: Path) -> TraceFile:
    """Read and decompress a trace and find its header and its events.

    Raises:
        InputError: the file cannot be read or holds no trace.
    """
    data, damage = _read(path)
    trace = TraceFile(path, {}, damage, "partial" if damage else "whole", data)
    if not data.strip():
        trace.state = "empty"
        trace.damage.append(Damage("empty", 0, "the file holds no bytes"))
        return trace
    key = _EVENTS_KEY.search(data)
    if key is None:
        if data.lstrip()[:1] != b"[":
            raise InputError(f"{path}: not a trace: no traceEvents in it")
        return trace
    opening = data.find(b"{", key.end(), key.end() + 64)
    kineto_layout = (
        opening >= 0
        and data[key.end() : opening].strip() == b""
        and (data.find(_SEPARATOR, opening) >= 0 or data.find(b"\n  }\n  ]", opening) >= 0)
    )
    if not kineto_layout:
        return trace
    closing = data.rfind(b"\n  }\n  ]")
    tail = b"}"
    if closing < opening:
        closing, trace.state = len(data), "partial"
    else:
        tail = data[closing + len(b"\n  }\n  ]") :]
    trace._body = (opening + 1, closing)
    trace.header = _header(data[: key.end()], tail, trace)
    return trace


def _header(prefix: bytes, tail: bytes, trace: TraceFile) -> dict[str, Any]:
    for text in (prefix + b"]" + tail, prefix + b"]}"):
        try:
            decoded = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if isinstance(decoded, dict):
            return decoded
    trace.damage.append(Damage("header", 0, "what stands around the events is not valid JSON"))
    return {}


def _read(path: Path) -> tuple[bytes, list[Damage]]:
    """The decompressed bytes; a gzip that ends early gives what it holds."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if raw[:2] != b"\x1f\x8b":
        return raw, []
    try:
        return gzip.decompress(raw), []
    except (EOFError, OSError, zlib.error):
        kept = _inflate_what_there_is(raw)
        return kept, [
            Damage("compression", len(kept), "the compressed stream ends early or is damaged")
        ]


def _inflate_what_there_is(raw: bytes) -> bytes:
    kept = bytearray()
    while raw:
        inflater = zlib.decompressobj(wbits=31)
        for start in range(0, len(raw), 1 << 16):
            try:
                kept += inflater.decompress(raw[start : start + (1 << 16)])
            except zlib.error:
                return bytes(kept)
            if inflater.eof:
                raw = inflater.unused_data + raw[start + (1 << 16) :]
                break
        else:
            return bytes(kept)
    return bytes(kept)


def _decode_one(piece: bytes) -> tuple[Event | None, str]:
    """An event on its own: as it is, repaired, or None, and what was wrong with it."""
    text = b"{" + piece + b"}"
    try:
        return _EVENT.decode(text), ""
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    cleaned = text.decode("utf-8", "replace").translate(_CONTROL).encode()
    cleaned = _NOT_A_NUMBER.sub(b": null", cleaned)
    try:
        return _EVENT.decode(cleaned), "bytes that JSON forbids"
    except msgspec.DecodeError as error:
        return None, str(error)


def _decode_whole(trace: TraceFile) -> Iterator[list[Event]]:
    try:
        if trace._data.lstrip()[:1] == b"[":
            yield _EVENTS.decode(trace._data)
            return
        trace.header = {
            key: msgspec.json.decode(value)
            for key, value in msgspec.json.decode(trace._data, type=dict[str, msgspec.Raw]).items()
            if key != "traceEvents"
        }
        yield msgspec.json.decode(trace._data, type=_Wrapped).events
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{trace.path}: not valid JSON: {error}") from error


class _Wrapped(msgspec.Struct):
    events: list[Event] = msgspec.field(name="traceEvents")
