"""Runs that go on: windows asked for meanwhile, nodes that share a folder, no word of ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.runs import TORCHRUN, tracekit_run
from tests.faults.store import call
from tracekit.store import open_run

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

# Rank 0 asks for a window itself, as somebody at a terminal would.
ASKS = """
import os, pathlib, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(300):
    model(torch.ones(4, 8)).sum().backward(); optimizer.step(); optimizer.zero_grad()
    time.sleep(0.02)
    if step == 20 and dist.get_rank() == 0:
        pathlib.Path(os.environ["TRACEKIT_RUN_DIR"], "trigger").touch()
dist.destroy_process_group()
time.sleep(0.2)
"""


def test_all_ranks_record_the_window_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ASKS)
    command = (*TORCHRUN, "2", str(tmp_path / "train.py"))
    run = tracekit_run(tmp_path, *command, options=("--repeat", "0", "--active", "2"))
    assert run.done.returncode == 0, run.done.stderr
    asked = json.loads((run.directory / "asked-1.json").read_text())
    steps = [asked["first"], asked["last"]]
    for manifest in run.manifests():
        assert manifest["state"] == "finished"
        assert [window["steps"] for window in manifest["windows"]] == [steps]
    with open_run(run.database) as reader:
        found = reader.rows("SELECT rank, step FROM step ORDER BY rank, step")
    assert found == [(rank, step) for rank in (0, 1) for step in steps]
    status, out, _ = call("attach", run.directory)
    assert status == 0
    assert "finished" in out
    assert "0-1 " in out


# As a node of two: it waits until the other one's wrapper has come, so that neither is late.
NODE = """
import os, pathlib, time, torch
folder = pathlib.Path(os.environ["TRACEKIT_RUN_DIR"])
end = time.time() + 60
while len(list(folder.glob("run.*.json"))) < 2 and time.time() < end:
    time.sleep(0.05)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(8):
    model(torch.ones(4, 8)).sum().backward(); optimizer.step(); optimizer.zero_grad()
"""


def test_nodes_that_share_a_folder_are_one_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(NODE)
    command = [sys.executable, "-m", "tracekit", "run", "--shared", "--run-dir", "shared"]
    nodes = [
        subprocess.Popen(
            [*command, "--", sys.executable, "train.py"],
            cwd=tmp_path, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"},
        )
        for rank in range(2)
    ]  # fmt: skip
    for node in nodes:
        _, err = node.communicate(timeout=120)
        assert node.returncode == 0, err
    assert not (tmp_path / "run.db").exists()
    assert call("ingest", tmp_path / "shared", "-o", tmp_path / "run.db")[0] == 0
    with open_run(tmp_path / "run.db") as reader:
        assert reader.rows("SELECT rank, world_size, capture_state FROM rank ORDER BY rank") == [
            (0, 2, "finished"), (1, 2, "finished")
        ]  # fmt: skip
    # What has ended is another run's, and nobody's to delete.
    for options, said in (((), "holds a run that has ended"), (("-f",), "would delete")):
        done = subprocess.run(
            [*command, *options, "--", "true"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, said in done.stderr) == (2, True)


QUIET = """
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10):
    optimizer.zero_grad(); model(torch.ones(4, 8)).sum().backward(); optimizer.step()
print("done")
"""


@pytest.mark.parametrize("options", [(), ("--wait", "0", "--warmup", "0", "--repeat", "2")])
def test_torch_prints_nothing_because_of_us(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Neither libkineto's lines nor the allocator's complaint of blocks that it does not know."""
    (tmp_path / "train.py").write_text(QUIET)
    command = (sys.executable, str(tmp_path / "train.py"))
    run = tracekit_run(tmp_path, *command, options=("-q", *options))
    assert (run.done.returncode, run.done.stdout, run.done.stderr) == (0, "done\n", "")
    assert run.manifests()[0]["state"] == "finished"


# What it and its children print with a capture of its own, or without; it may use the profiler
# itself, before and after, and then libkineto's lines are its own.
IN_CODE = """
import contextlib, subprocess, sys, torch, tracekit
from torch.profiler import profile

def own():
    if "own" in sys.argv:
        with profile():
            torch.ones(4).sum()

def child():
    says = "import os, sys; print(sorted(os.environ), file=sys.stderr)"
    subprocess.run([sys.executable, "-S", "-c", says])

own(); child()
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
captured = tracekit.capture("captured", wait=0, active=2, repeat=2)
with captured if "captured" in sys.argv else contextlib.nullcontext():
    for step in range(10):
        optimizer.zero_grad(); model(torch.ones(4, 8)).sum().backward(); optimizer.step()
        if step == 4:
            child()
own(); child()
print("the end", file=sys.stderr)
"""


@pytest.mark.parametrize("profiles", ["", "own"])
def test_a_capture_in_code_prints_nothing(
    tmp_path: Path, profiles: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KINETO_LOG_LEVEL", raising=False)
    (tmp_path / "train.py").write_text(IN_CODE)
    said = []
    for how in ("alone", "captured"):
        done = subprocess.run(
            [sys.executable, "train.py", how, profiles],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout == ""
        said.append(re.sub(r"USDT:\S+ \S+ \d+:\d+", "USDT:", done.stderr))
    assert said[1] == said[0]
    assert said[0].count("profiler_start") == (2 if profiles else 0)
    assert said[0].count("'PATH'") == 3
    (manifest,) = (tmp_path / "captured").glob("rank-0.*[0-9].json")
    assert len(json.loads(manifest.read_text())["windows"]) == 2
