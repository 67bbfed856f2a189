"""A Kineto file of any size, as `torch.profiler` writes it with stacks, shapes and memory on.

First the operators of all steps with their forward-backward links and memory events, then the
Python calls, then the launches, links, kernels and collectives. Times, durations, ids, addresses,
shapes and names differ from event to event; the same size gives the same events.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from sections import SECTIONS
from workload import Call, calls_of

HEADER = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 85_017_493_504}],
    "distributedInfo": {
        "backend": "nccl",
        "rank": 0,
        "world_size": 8,
        "pg_count": 1,
        "pg_config": [
            {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": list(range(8))}
        ],
    },
    "record_shapes": 1,
    "with_stack": 1,
    "profile_memory": 1,
}
FOOTER = {"traceName": "trace.json", "displayTimeUnit": "ms", "baseTimeNanoseconds": 10**18}


def _text(section: Callable[[int, list[Call]], Iterator[str]], step: int) -> bytes:
    return "".join(section(step, list(calls_of(step)))).encode()


def write_trace(path: Path, size: int, level: int = 1) -> None:
    """Write a gzipped trace of about ``size`` bytes of JSON."""
    steps = max(1, round(size / sum(len(_text(section, 0)) for section in SECTIONS)))
    with (
        gzip.GzipFile(path, "wb", compresslevel=level, mtime=0) as out,
        ThreadPoolExecutor(1) as packer,
    ):
        out.write(json.dumps(HEADER, indent=2).removesuffix("\n}").encode())
        separator = b',\n  "traceEvents": [\n  '
        written: Future[int] | None = None
        for section in SECTIONS:
            for step in range(steps):
                part = separator + _text(section, step).removeprefix(b",\n  ")
                if written:
                    written.result()
                written = packer.submit(out.write, part)
                separator = b",\n  "
        packer.submit(
            out.write, b"\n  ],\n" + json.dumps(FOOTER, indent=2).removeprefix("{\n").encode()
        ).result()
