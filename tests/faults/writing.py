"""Bytes for the fault tests: traces in every layout, and where each event of theirs stands.

Nothing here asks the reader under test: places and spans come from the bytes alone.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import re
import signal
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.builders import Layout, TraceBuilder

KINETO: tuple[Layout, ...] = ("kineto", "kineto-2026")
LAYOUTS = ("kineto", "kineto-2026", "compact", "indent-2", "pretty", "list")
BASE_NS = 1_700_000_000_000_000_000

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[\s,]*")
_EVENT_START = re.compile(rb'\{\s*"ph"')


def three(name: str = "middle", place: int = 1, cat: str = "python_function") -> TraceBuilder:
    """Three events, 10 us each, at 0, 20 and 40; the one at ``place`` has the name and category.

    The other two are kernels "k0", "k1", "k2" by their place. No rank inside: the file name says.
    """
    trace = TraceBuilder(distributed=False, flows=False)
    for number in range(3):
        if number == place:
            trace.cpu_op(name, 20 * number, 10, cat=cat, **{"Python id": 1, "Ev Idx": 7})
        else:
            trace.kernel(f"k{number}", 20 * number, 10, launch=False)
    return trace


def laid(trace: TraceBuilder, layout: str) -> bytes:
    """The trace in a layout of the builder, or in ``indent-2``: as json.dumps(indent=2) does."""
    if layout != "indent-2":
        return trace.json(layout)  # type: ignore[arg-type]
    # A raw newline cannot stand in a JSON string: blanks at the start of a line are indents.
    return re.sub(rb"(?m)^ +", lambda m: b" " * (len(m[0]) // 2), trace.json("pretty"))


def raw(data: bytes, marker: str, put: str | bytes) -> bytes:
    """Put text in the place of a marker that stands there once, with nothing escaped."""
    assert data.count(marker.encode()) == 1
    return data.replace(marker.encode(), put.encode() if isinstance(put, str) else put)


def start_of(data: bytes, marker: str | bytes) -> int:
    """Where the event begins that holds the marker: of its ``{``."""
    at = data.index(marker.encode() if isinstance(marker, str) else marker)
    return [m.start() for m in _EVENT_START.finditer(data) if m.start() <= at][-1]


def spans_of(data: bytes) -> list[tuple[int, int]]:
    """Where each event of a valid trace begins and ends."""
    text = data.decode("latin-1")  # a character a byte; JSON's own marks are all ASCII
    key = re.search(r'"traceEvents"\s*:\s*\[', text)
    at = key.end() if key else text.index("[") + 1
    found = []
    while text[(at := _BLANK.match(text, at).end())] != "]":  # type: ignore[union-attr]
        _, end = _DECODER.raw_decode(text, at)
        found.append((at, end))
        at = end
    return found


def reordered(data: bytes, order: Sequence[str]) -> bytes:
    """A trace with its top-level keys in another order; those not named come first."""
    text = data.decode()
    at = text.index("{") + 1
    parts: dict[str, str] = {}
    while text[(at := _BLANK.match(text, at).end())] != "}":  # type: ignore[union-attr]
        key, end = _DECODER.raw_decode(text, at)
        value = re.compile(r"\s*:\s*").match(text, end).end()  # type: ignore[union-attr]
        _, end = _DECODER.raw_decode(text, value)
        parts[key] = text[at:end]
        at = end
    keys = sorted(parts, key=lambda key: order.index(key) if key in order else -1)
    return ("{" + ",\n".join(parts[key] for key in keys) + "}").encode()


def unescaped(data: bytes) -> bytes:
    """The trace with its ``\\uXXXX`` as the characters themselves, as Kineto writes them."""

    def plain(match: re.Match[str]) -> str:
        text: str = json.loads(f'"{match[2]}"')
        return match[1] + "".join(
            json.dumps(c)[1:-1] if c < " " or c in '"\\' or "\ud800" <= c <= "\udfff" else c
            for c in text
        )

    pattern = r"(?<!\\)((?:\\\\)*)((?:\\u[0-9a-fA-F]{4})+)"
    return re.sub(pattern, plain, data.decode()).encode()


def in_members(data: bytes, cuts: Sequence[int]) -> bytes:
    """Gzip in several members, cut at these bytes."""
    edges = [0, *sorted(cuts), len(data)]
    parts = [data[a:b] for a, b in itertools.pairwise(edges)]
    return b"".join(gzip.compress(part, 1, mtime=0) for part in parts)


def with_gzip_fields(data: bytes) -> bytes:
    """Gzip with an extra field, a file name, a comment and a checksum of its header (RFC 1952)."""
    packed = gzip.compress(data, 1, mtime=0)
    extra = b"AB\x04\x00\x1f\x8b\x00\xff"  # bytes that look like a gzip themselves
    fields = len(extra).to_bytes(2, "little") + extra + b"trace.json\x00" + b"a comment\x00"
    head = packed[:3] + bytes([0x02 | 0x04 | 0x08 | 0x10]) + packed[4:10] + fields
    return head + (zlib.crc32(head) & 0xFFFF).to_bytes(2, "little") + packed[10:]


def tar(path: Path, members: Mapping[str, bytes]) -> Path:
    """An archive, compressed as its name says."""
    mode: Any = "w" if path.suffix == ".tar" else "w:gz"
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def write_all(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write the files under their names and give back the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """A hang becomes a failure."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
