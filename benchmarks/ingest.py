"""tracekit's ingest and two analyses beside HTA's, and beside bare orjson, on the same files.

    python benchmarks/ingest.py [--traces DIR] [--scratch DIR] [--only NAME]... [--repeat 5]

Contenders take turns, each turn in a fresh process, the order reversed every other round, after a
turn each on a small file that does not count, and with all input read once before. Ratios are
taken within a round, then their median. --quick is a smoke run, whose figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import inputs
import rivals
import tables
from environment import HTA_PACKAGES, environment, versions
from measure import CommandError
from rivals import Contender, Figure

HERE = Path(__file__).resolve().parent
COPIED = {  # name: (folder of the trace, ranks)
    "memory-1": ("memory_2xV100_rank1", 1),
    "memory-4": ("memory_2xV100_rank1", 4),
    "memory-8": ("memory_2xV100_rank1", 8),
    "nccl-1": ("nccl_8xA100_rank3", 1),
}
GENERATED = "generated"
PRACTICE_MB = QUICK_MB = 20
# What orjson needs for a byte of JSON, with room to spare: 7 on the traces here.
ORJSON_BYTES_PER_BYTE = 9


def arguments() -> argparse.Namespace:
    names = [*COPIED, GENERATED]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--traces", type=Path, default=HERE.parents[1] / "shared" / "traces", metavar="DIR",
        help="folder of the real traces (default: ../shared/traces)")  # fmt: skip
    add("--scratch", type=Path, default=HERE / ".scratch", metavar="DIR",
        help="keeps HTA's environment, the inputs and run.db (default: %(default)s)")  # fmt: skip
    add("--only", action="append", choices=names, help="this input; repeatable (default: all)")
    add("--repeat", type=int, default=5, help="rounds that count (default: %(default)s)")
    add("--generated-mb", type=int, default=1700, help="JSON of the generated file, in MB")
    add("--hta-generated", action="store_true", help="run HTA on the generated file as well")
    add("--hta-python", type=Path, help="a Python that has HTA and orjson, not one made here")
    add("--no-hta", action="store_true", help="leave HTA out")
    add("--jobs", type=int, help="for tracekit (default: its own)")
    add("--memory-limit-mib", type=int, help="for tracekit (default: its own)")
    add("--cores", help="pin everything to these, for example 0,1 (default: no pinning)")
    add("--json", type=Path, metavar="FILE", help="write every figure of every round as well")
    add("--quick", action="store_true", help="one round, one real rank and 20 generated MB")
    args = parser.parse_args()
    if args.quick:
        args.repeat, args.generated_mb = 1, QUICK_MB
        args.only = args.only or ["memory-1", GENERATED]
    return args


def prepare(args: argparse.Namespace, name: str) -> inputs.Input:
    if name == GENERATED:
        return inputs.generated(args.scratch, args.generated_mb)
    folder, ranks = COPIED[name]
    found = sorted((args.traces / folder).glob("*.json.gz"))
    if not found:
        raise SystemExit(f"{args.traces / folder}: no trace there; give --traces or --only")
    return inputs.copies(found[0], args.scratch, name, ranks)


def contenders(
    args: argparse.Namespace, python: Path, data: inputs.Input, *, hta: bool
) -> list[Contender]:
    output = args.scratch / "run.db"
    options = rivals.Options(args.jobs, args.memory_limit_mib)
    chosen = [rivals.tracekit(output, options), rivals.tracekit_commands(output, options)]
    if hta and not args.no_hta:
        chosen.insert(0, rivals.hta(python))
    # One file is held at a time.
    if ORJSON_BYTES_PER_BYTE * data.json_bytes / len(data.files) < available_bytes():
        chosen += [rivals.orjson(python, collect=True), rivals.orjson(python, collect=False)]
    else:
        print("orjson left out: too little memory here", file=sys.stderr)
    return chosen


def available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def rounds_of(data: inputs.Input, chosen: list[Contender], repeat: int) -> list[dict[str, Figure]]:
    """What each contender cost, by round."""
    data.warm()
    found: list[dict[str, Figure]] = []
    for number in range(repeat):
        figures: dict[str, Figure] = {}
        for contender in chosen if number % 2 == 0 else reversed(chosen):
            if sys.stderr.isatty():
                print(f"{data.name}: round {number + 1} of {repeat}", end="\r", file=sys.stderr)
            figures |= contender(data)
        found.append(figures)
    return found


def main() -> None:
    args = arguments()
    if args.cores:
        os.sched_setaffinity(0, {int(core) for core in args.cores.split(",")})
    args.scratch.mkdir(parents=True, exist_ok=True)
    python = args.hta_python or environment(args.scratch / "hta")
    found = {
        "cores": len(os.sched_getaffinity(0)),
        "tracekit": versions(Path(sys.executable), ["tracekit", "duckdb", "pyarrow"]),
        "rivals": versions(python, list(HTA_PACKAGES)),
    }
    print(json.dumps(found), "\n", flush=True)
    practice = inputs.generated(args.scratch, PRACTICE_MB)
    rounds_of(practice, contenders(args, python, practice, hta=True), 1)
    everything: list[dict[str, Any]] = []
    for name in args.only or [*COPIED, GENERATED]:
        data = prepare(args, name)
        hta = name != GENERATED or args.hta_generated or args.quick
        chosen = contenders(args, python, data, hta=hta)
        rounds = rounds_of(data, chosen, args.repeat)
        database = (args.scratch / "run.db").stat().st_size
        print(tables.report(data, rounds, database), flush=True)
        everything.append(
            {
                "input": data.name,
                "json_bytes": data.json_bytes,
                "gz_bytes": data.gz_bytes,
                "database_bytes": database,
                "rounds": [{who: asdict(f) for who, f in figures.items()} for figures in rounds],
            }
        )
        if args.json:
            args.json.write_text(json.dumps(found | {"inputs": everything}, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except CommandError as error:
        raise SystemExit(f"a contender failed, {error}") from None
