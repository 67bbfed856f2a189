"""Starts reference loops the way a user does, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

COLLECTORS = Path(__file__).parents[2] / "collectors"
LOOPS = ("single", "data", "tensor", "pipeline", "zero", "fsdp")
# No loop here takes half as long; a hang must not look like a slow machine.
TIMEOUT_S = 120


def environment() -> dict[str, str]:
    """Ours without a launcher's traces, with the collectors importable and one thread a rank."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    }
    path = os.pathsep.join([str(COLLECTORS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return inherited | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def command(loop: str, ranks: int, *options: str) -> list[str]:
    """The command line of a loop; 0 ranks means without torchrun."""
    launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
    return [sys.executable, "-m", *(launcher if ranks else ()), f"tracekit_loops.{loop}", *options]


def run(loop: str, ranks: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a loop to its end, whatever that is."""
    return subprocess.run(
        command(loop, ranks, *options),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def losses(folder: Path, loop: str, ranks: int, *options: str) -> list[float]:
    """The loss curve of a loop that ends well, checked against the lines that it printed."""
    file = folder / "losses.json"
    done = run(loop, ranks, "--losses", str(file), *options)
    assert done.returncode == 0, done.stderr
    curve: list[float] = json.loads(file.read_text())["losses"]
    assert done.stdout.splitlines() == [
        f"step {step} loss {loss:.4f}" for step, loss in enumerate(curve, 1)
    ]
    return curve
