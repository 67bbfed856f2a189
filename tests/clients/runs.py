"""Run real training under the wrapper, in processes of its own, as a user would."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.analysis.base import Result
from tracekit.analysis.registry import BY_NAME
from tracekit.store import open_run

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


@dataclass(frozen=True)
class Run:
    """A finished `tracekit run`."""

    done: subprocess.CompletedProcess[str]
    database: Path
    directory: Path

    def result(self, name: str, *by: str) -> Result:
        with open_run(self.database) as reader:
            return BY_NAME[name].run(reader, by or None)

    def manifests(self) -> list[dict[str, Any]]:
        files = [f for f in self.directory.glob("rank-*.json") if ".trace" not in f.name]
        found = [json.loads(file.read_text()) for file in files]
        return sorted(found, key=lambda manifest: manifest["rank"])


def tracekit_run(folder: Path, *command: str, options: tuple[str, ...] = ()) -> Run:
    """`tracekit run -o FOLDER/run.db OPTIONS -- COMMAND`."""
    database = folder / "run.db"
    done = subprocess.run(
        [sys.executable, "-m", "tracekit", "run", "-o", str(database), *options, "--", *command],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return Run(done, database, folder / "run.run")


def loop(folder: Path, ranks: int, name: str, *arguments: str) -> Run:
    """A reference loop under torchrun and the wrapper; it must succeed."""
    run = tracekit_run(folder, *TORCHRUN, str(ranks), "-m", f"tracekit_loops.{name}", *arguments)
    assert run.done.returncode == 0, run.done.stderr
    return run
