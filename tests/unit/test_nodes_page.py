"""The commands of docs/several_nodes.md, as they stand there, with launchers that start nothing.

A launcher of ours puts a recorded run into the run directory that the wrapper hands it. The real
ones, on two nodes, are in tests/clients/test_nodes.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tracekit.store import open_run
from tracekit_collectors.records import is_run_file

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "several_nodes.md").read_text()
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "python")
SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_NNODES": "2"}


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    launch = f'set -eu\ncp {ROOT}/sample_traces/data_2/rank-* "$TRACEKIT_RUN_DIR"\n'
    scripts = {
        **dict.fromkeys(LAUNCHERS, launch),
        "srun": 'while case "$1" in -*) ;; *) false ;; esac; do shift; done\nexec "$@"\n',
        "scontrol": "echo node-a; echo node-b\n",
        "hostname": "echo node-a\n",
        "tracekit": f'exec {sys.executable} -m tracekit "$@"\n',
    }
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}")
        (folder / name).chmod(0o755)
    return folder


def test_each_way_has_its_commands() -> None:
    assert len(BLOCKS) == 6
    for launcher in LAUNCHERS:
        assert any(re.search(rf"-- (\\\n\s+)?{launcher} ", block) for block in BLOCKS)


@pytest.mark.parametrize("block", BLOCKS)
def test_commands(tmp_path: Path, commands: Path, block: str) -> None:
    (tmp_path / "train.py").touch()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.replace("/shared/", f"{tmp_path}/")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={
            **os.environ, **SLURM, "SCRATCH": str(tmp_path),
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (record,) = (path for path in tmp_path.glob("run-*/*.json") if is_run_file(path.name))
    command = json.loads(record.read_text())["command"]
    assert command[0] in LAUNCHERS
    assert command[-1] == "train.py"
    assert all(command)
    assert ("node-a:29500" in command) == ("scontrol" in block)
    for database in tmp_path.glob("*.db"):
        with open_run(database) as reader:
            assert reader.rows("SELECT rank FROM rank ORDER BY rank") == [(0,), (1,)]
    assert ("tracekit ingest" in block) == bool(list(tmp_path.glob("*.db")))
