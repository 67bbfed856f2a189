"""A batch of a reader process as Arrow arrays."""

from __future__ import annotations

import struct

import pyarrow as pa
import pyarrow.compute as pc

from tracekit.ingest import text
from tracekit.ingest.workers import Frame

_TYPES = {32: pa.int32(), 64: pa.int64()}
Columns = dict[str, dict[str, pa.Array]]
Strings = list[tuple[str, int, list[memoryview]]]


def unpacked(frame: Frame) -> tuple[Columns, Strings, memoryview]:
    """The columns of each table; the new strings of each pool with the number of the first of them;
    the texts of kept args."""
    args, *buffers = frame.buffers
    columns: Columns = {}
    for number, (table, name, bits, width, rows) in enumerate(frame.head["columns"]):
        data, validity = buffers[2 * number : 2 * number + 2]
        columns.setdefault(table, {})[name] = _array(bits, width, rows, data, validity)
    rest = buffers[2 * len(frame.head["columns"]) :]
    strings = [
        (pool, first, rest[3 * number : 3 * number + 3])
        for number, (pool, first, _) in enumerate(frame.head["pools"])
    ]
    return columns, strings, args


def _array(bits: int, width: int, rows: int, data: text.Buffer, validity: text.Buffer) -> pa.Array:
    """A column as it was sent: see ``scan.Column``."""
    if not len(data):
        return pa.nulls(rows, _TYPES[bits])
    valid = pa.py_buffer(validity) if len(validity) else None
    sent = pa.Array.from_buffers(_TYPES[width * 8], rows, [valid, pa.py_buffer(data)])
    return sent.cast(_TYPES[bits])


def signature(raw: bytes) -> tuple[str | None, ...]:
    """Dims, types and values, as the scanner puts them into one string."""
    sizes = struct.unpack_from("<3i", raw)
    at, found = 12, []
    for size in sizes:
        found.append(text.json_text(raw[at : at + size]) if size >= 0 else None)
        at += max(size, 0)
    return tuple(found)


_counted: list[pa.Array] = [pa.array(range(1 << 10), pa.int32())]


def numbers(first: int, count: int) -> pa.Array:
    """``first`` and the numbers behind it."""
    while len(_counted[0]) < count:
        half = _counted[0]
        _counted[0] = pa.concat_arrays([half, pc.add(half, pa.scalar(len(half), pa.int32()))])
    return pc.add(_counted[0].slice(0, count), pa.scalar(first, pa.int32()))
