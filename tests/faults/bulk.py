"""Large traces made quickly: a stretch of 1 ms over and over, with times and ids of its own.

A stretch holds 20 operators with shapes, their launches, kernels and flows, and 4 memory events;
kernels and launches are linked by their correlation, one stream runs 20 kernels of 30 us.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.builders import TraceBuilder

EVENTS = 60  # of a stretch, and 4 memory events
_MARK = 1_000_000  # the number of the first stretch: each has seven digits
_PIECE_BYTES = 4 << 20


def _stretch(rank: int) -> bytes:
    trace = TraceBuilder(rank, 8)
    start = _MARK * 1000
    for number in range(20):
        at = start + 50 * number
        correlation = _MARK * 100 + number
        shapes = {"Input Dims": [[4096, number + 1], [number + 1, 11008]], "Ev Idx": 7}
        types = {"Input type": ["c10::BFloat16", "c10::BFloat16"], "Sequence number": number}
        trace.cpu_op("aten::mm", at, "21.5", external_id=correlation, **shapes, **types)
        trace.kernel(
            f"void at::native::vectorized_elementwise_kernel<4, at::native::add_{number}>",
            at + 15, 30, launch=at + 5, correlation=correlation,
            **{"registers per thread": 32, "shared memory": 0, "warps per SM": 15.515152},
            **{"blocks per SM": 3.878788, "est. achieved occupancy %": 24},
        )  # fmt: skip
        if number % 5 == 0:
            trace.memory(at, 512, 4096 * (number + 1), 1 << 30)
    data = trace.json()
    return data[data.index(b"[\n  {", data.index(b"traceEvents")) + 2 : data.rindex(b"\n  ]")]


def pieces(rank: int, size: int) -> Iterator[bytes]:
    """A trace of about ``size`` bytes."""
    whole = TraceBuilder(rank, 8).json()
    cut = whole.index(b'"traceEvents": [') + len(b'"traceEvents": [\n')
    head, tail = whole[:cut], whole[whole.index(b"]", cut) :]
    stretch = _stretch(rank)
    mark = str(_MARK).encode()
    count = stretches(rank, size)
    at_once = _PIECE_BYTES // len(stretch)
    yield head
    for first in range(0, count, at_once):
        numbers = range(_MARK + first, _MARK + min(first + at_once, count))
        end = b",\n" if first + at_once < count else b"\n  "
        yield b",\n".join(stretch.replace(mark, b"%d" % n) for n in numbers) + end
    yield tail


def stretches(rank: int, size: int) -> int:
    """How many of them make such a trace."""
    return max(1, size // (len(_stretch(rank)) + 2))


def write(path: Path, rank: int, size: int) -> Path:
    """Write the trace; with a name in .gz as a gzip of many members."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file, ThreadPoolExecutor(2) as threads:
        if path.suffix != ".gz":
            file.writelines(pieces(rank, size))
            return path
        packed = []
        for piece in pieces(rank, size):
            packed.append(threads.submit(gzip.compress, piece, 1, mtime=0))
            if len(packed) > 3:
                file.write(packed.pop(0).result())
        file.writelines(future.result() for future in packed)
    return path
