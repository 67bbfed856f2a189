"""A training run to be measured: what its steps took, when the first ended, what memory it held.

    python benchmarks/training.py RESULT.json [--tiny] [--steps 150] [--bare FIRST:LAST TRACE.json]

It knows nothing of tracekit. ``--bare`` records steps with torch.profiler itself, with the options
that `tracekit run` has by default.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn


def model_and_input(tiny: bool) -> tuple[nn.Module, torch.Tensor]:
    """Some 25 ms a step on one core and some 800 operators, or 0.1 ms and 30."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if tiny:
        return nn.Linear(8, 8), torch.randn(4, 8)
    layer = nn.TransformerEncoderLayer(192, 4, 512, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 4), torch.randn(4, 48, 192)


def bare_profiler(first: int, last: int, trace: str) -> Any:
    from torch.profiler import ProfilerActivity, profile, schedule

    plan = schedule(wait=first - 1, warmup=1, active=last - first + 1, repeat=1)
    return profile(
        activities=[ProfilerActivity.CPU],
        schedule=plan,
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(trace),
        record_shapes=True,
        profile_memory=True,
    )


def resident_bytes() -> dict[str, int]:
    """Of this process: what is resident, and what of it belongs to no file."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    names = {"VmRSS": "resident", "RssAnon": "anonymous"}
    found = re.findall(r"^(VmRSS|RssAnon):\s+(\d+) kB$", status, re.MULTILINE)
    return {names[name]: int(kib) * 1024 for name, kib in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--bare", nargs=2, metavar=("FIRST:LAST", "TRACE"))
    said = parser.parse_args()
    model, x = model_and_input(said.tiny)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    profiler = None
    if said.bare:
        first, last = map(int, said.bare[0].split(":"))
        profiler = bare_profiler(first, last, said.bare[1])
        profiler.start()
    steps: list[int] = []
    first_ended = 0
    for step in range(said.steps):
        began = time.perf_counter_ns()
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()
        if profiler is not None:
            profiler.step()
        steps.append(time.perf_counter_ns() - began)
        if step == 0:
            first_ended = time.time_ns()
    if profiler is not None:
        profiler.stop()
    result = {"steps_ns": steps, "first_ended_ns": first_ended, "memory": resident_bytes()}
    said.result.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
