"""What `tracekit run` costs the training: beside nothing, and beside bare torch.profiler.

    python benchmarks/overhead.py [--only PART] [--rounds 9] [--start-rounds 21] [--json FILE]

Contenders take turns, each turn in a fresh process, the order reversed every other round, after a
round that does not count. Differences and ratios are taken within a round, then their median.
The machine should do nothing else: two contenders that are the same command (plain, and plain
again) say how far it does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tracekit_collectors.launch import environment
from tracekit_collectors.options import Options

TRAINING = str(Path(__file__).with_name("training.py"))
FIRST, LAST = 3, 32  # recorded, of 150 steps
INSIDE = slice(FIRST + 1, LAST)  # neither the step that starts the recording nor that which ends it
OUTSIDE = slice(LAST + 15, None)  # packing, beside the training, is over by then
WAITS = Options(repeat=0)
RECORDS = Options(wait=1, warmup=1, active=LAST - FIRST + 1)


@dataclass
class Contender:
    """A command and its environment; ``result`` makes a figure of what a turn took."""

    name: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    options: Options | None = None

    def turn(self, folder: Path) -> dict[str, Any]:
        """One run: seconds from start to end, and what the training wrote."""
        folder.mkdir()
        env = dict(os.environ)
        if self.options is not None:
            env = environment(self.options, folder)
        result = folder / "result.json"
        command = [word.replace("RESULT", str(result)) for word in self.command]
        command = [word.replace("FOLDER", str(folder)) for word in command]
        began, began_ns = time.perf_counter(), time.time_ns()
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        wall = time.perf_counter() - began
        if done.returncode:
            sys.exit(f"{self.name}: status {done.returncode}\n{done.stderr[-2000:]}")
        found = json.loads(result.read_text()) if result.exists() else {}
        if found:
            found["start_s"] = (found["first_ended_ns"] - began_ns) / 1e9
        return {"wall_s": wall, **found}


def rounds_of(contenders: list[Contender], count: int) -> list[dict[str, dict[str, Any]]]:
    """Every contender once in each round."""
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(count + 1):
            order = contenders if number % 2 else contenders[::-1]
            turns = {who.name: who.turn(Path(scratch, f"{number}-{i}")) for i, who in
                     enumerate(order)}  # fmt: skip
            print(f"round {number} of {count}", file=sys.stderr)
            found.append(turns)
    return found[1:]


def row(title: str, values: list[float], unit: str, aim: str) -> str:
    middle = f"{median(values):.2f} {unit}"
    return f"| {title} | {middle} | {min(values):.2f} to {max(values):.2f} | {aim} |"


Rounds = list[dict[str, dict[str, Any]]]


def against(
    rounds: Rounds, ours: str, rival: str, value: Callable[[dict[str, Any]], float]
) -> list[float]:
    """What ours takes more than the rival, of the rival's, in percent, in each round."""
    return [100 * (value(turns[ours]) / value(turns[rival]) - 1) for turns in rounds]


def more(
    rounds: Rounds, ours: str, rival: str, value: Callable[[dict[str, Any]], float], unit: float
) -> list[float]:
    """What ours takes more than the rival."""
    return [(value(turns[ours]) - value(turns[rival])) / unit for turns in rounds]


def inside(turn: dict[str, Any]) -> float:
    return median(turn["steps_ns"][INSIDE])


def outside(turn: dict[str, Any]) -> float:
    return median(turn["steps_ns"][OUTSIDE])


def closing(turn: dict[str, Any]) -> float:
    return float(turn["steps_ns"][LAST])


def resident(turn: dict[str, Any]) -> float:
    return float(turn["memory"]["resident"])


def steps(rounds: int) -> tuple[list[str], Rounds]:
    python = [sys.executable, TRAINING, "RESULT"]
    bare = [*python, "--bare", f"{FIRST}:{LAST}", "FOLDER/bare.json"]
    found = rounds_of(
        [
            Contender("plain", python),
            Contender("plain again", python),
            Contender("waits", python, options=WAITS),
            Contender("records", python, options=RECORDS),
            Contender("bare", bare),
        ],
        rounds,
    )
    return [
        row("a step, of the plain command", [outside(t["plain"]) / 1e6 for t in found], "ms", ""),
        row("the same command again", against(found, "plain again", "plain", outside), "%", "0"),
        row("waiting for a window", against(found, "waits", "plain", outside), "%", "< 1"),
        row("after a window", against(found, "records", "plain", outside), "%", "< 1"),
        row("memory, waiting", more(found, "waits", "plain", resident, 2**20), "MiB", "< 48"),
        row("memory, after a window", more(found, "records", "plain", resident, 2**20), "MiB", ""),
        row("bare torch.profiler, the same", more(found, "bare", "plain", resident, 2**20), "MiB",
            ""),
        row("inside, beyond the plain command", against(found, "records", "plain", inside), "%",
            ""),
        row("bare torch.profiler, the same", against(found, "bare", "plain", inside), "%", ""),
        row("inside, beyond bare torch.profiler", against(found, "records", "bare", inside), "%",
            "<= 3"),
        row("the step that ends the window", [closing(t["records"]) / 1e6 for t in found], "ms",
            ""),
        row("bare torch.profiler, the same", [closing(t["bare"]) / 1e6 for t in found], "ms", ""),
    ], found  # fmt: skip


def tiny(rounds: int) -> tuple[list[str], Rounds]:
    python = [sys.executable, TRAINING, "RESULT", "--tiny", "--steps", "4000"]
    found = rounds_of(
        [Contender("plain", python), Contender("waits", python, options=WAITS)], rounds
    )
    return [row("waiting, a step", more(found, "waits", "plain", outside, 1e3), "us", "")], found


def starts(rounds: int) -> tuple[list[str], Rounds]:
    nothing, imports = [sys.executable, "-c", "pass"], [sys.executable, "-c", "import torch"]
    one = [sys.executable, TRAINING, "RESULT", "--tiny", "--steps", "1"]
    wrapped = [sys.executable, "-m", "tracekit", "run", "-q", "--no-ingest", "--run-dir",
               "FOLDER/run", "--", "true"]  # fmt: skip
    found = rounds_of(
        [
            Contender("nothing", nothing),
            Contender("nothing, hooks", nothing, options=WAITS),
            Contender("imports", imports),
            Contender("imports, hooks", imports, options=WAITS),
            Contender("one", one),
            Contender("one, hooks", one, options=WAITS),
            Contender("true", ["true"]),
            Contender("true, wrapped", wrapped),
        ],
        rounds,
    )

    def wall(turn: dict[str, Any]) -> float:
        return float(turn["wall_s"])

    def start(turn: dict[str, Any]) -> float:
        return float(turn["start_s"])

    def ms(ours: str, rival: str, value: Callable[[dict[str, Any]], float]) -> list[float]:
        return more(found, ours, rival, value, 1e-3)

    return [
        row("python that does nothing", ms("nothing, hooks", "nothing", wall), "ms", "< 10"),
        row("python that imports torch", ms("imports, hooks", "imports", wall), "ms", "< 100"),
        row("to the end of the first step", ms("one, hooks", "one", start), "ms", "< 100"),
        row("the wrapper's own, around `true`", ms("true, wrapped", "true", wall), "ms", ""),
    ], found


PARTS = {"starts": starts, "tiny": tiny, "steps": steps}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--start-rounds", type=int, default=21)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure as well")
    parser.add_argument("--only", action="append", choices=PARTS, help="repeatable (default: all)")
    said = parser.parse_args()
    parts = {
        name: part(said.start_rounds if name == "starts" else said.rounds)
        for name, part in PARTS.items()
        if name in (said.only or PARTS)
    }
    print("| what | median | least to most | aim |\n|---|---|---|---|")
    for lines, _ in parts.values():
        print("\n".join(lines))
    if said.json:
        said.json.write_text(json.dumps({name: found for name, (_, found) in parts.items()}))


if __name__ == "__main__":
    main()
