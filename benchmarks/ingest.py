"""Ingest and overlap beside bare JSON decoding of the same bytes, alternating, medians and ratios.

python benchmarks/ingest.py TRACE.json.gz [--repeat 5]
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tracekit.analysis.comm_overlap import COMM_OVERLAP
from tracekit.ingest.run import ingest
from tracekit.store import open_run


def tracekit_ingest(trace: Path, scratch: Path) -> None:
    ingest([trace], scratch / "run.db", force=True)
    with open_run(scratch / "run.db") as reader:
        COMM_OVERLAP.run(reader)


def json_loads(trace: Path, scratch: Path) -> None:
    json.loads(gzip.decompress(trace.read_bytes()))


CONTENDERS: dict[str, Callable[[Path, Path], None]] = {
    "tracekit ingest + overlap": tracekit_ingest,
    "gunzip + json.loads": json_loads,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("trace", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    size = len(gzip.decompress(args.trace.read_bytes()))
    seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.repeat):
            for name, contender in CONTENDERS.items():
                began = time.perf_counter()
                contender(args.trace, Path(folder))
                seconds[name].append(time.perf_counter() - began)
    base = statistics.median(seconds["tracekit ingest + overlap"])
    for name, found in seconds.items():
        middle = statistics.median(found)
        rate = size / middle / 1e6
        print(f"{name:28} {middle:7.2f} s {rate:7.1f} MB/s  x{middle / base:.2f}")


if __name__ == "__main__":
    main()
