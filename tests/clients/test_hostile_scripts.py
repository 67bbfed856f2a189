"""Single-process scripts that trip a careless wrapper: each ends as it would without us."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.clients.runs import tracekit_run

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

HEAD = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def step(closure=None):
    optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step(closure)
"""

# name -> (script, the state that the manifest must begin with, steps recorded)
SCRIPTS = {
    "its own profiler in our window": (
        HEAD
        + """
for i in range(8):
    if i == 4:
        with torch.profiler.profile() as own:
            step()
        assert len(own.events()) > 10, len(own.events())
    else:
        step()
""",
        "incomplete: the program started a profiler of its own",
        [3],
    ),
    "ranges for another profiler in our window": (
        HEAD
        + """
for i in range(8):
    if i == 4:
        with torch.autograd.profiler.emit_itt():
            step()
    else:
        step()
""",
        "incomplete: the program started a profiler of its own",
        [3],
    ),
    "the profiler of old in our window": (
        HEAD
        + """
from torch.autograd import profiler_legacy
for i in range(8):
    if i == 4:
        with profiler_legacy.profile() as own:
            step()
        assert len(own.function_events) > 5
    else:
        step()
""",
        "incomplete: the program started a profiler of its own",
        [3],
    ),
    "sparse gradients": (
        """
import torch
model = torch.nn.Embedding(10, 4, sparse=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for i in range(8):
    optimizer.zero_grad(); model(torch.tensor([1, 2])).sum().backward(); optimizer.step()
""",
        "finished",
        [3, 4, 5],
    ),
    "looking for torch before importing it": (
        "import importlib.util\nassert importlib.util.find_spec('torch')\n"
        + HEAD
        + "for i in range(8): step()\n",
        "finished",
        [3, 4, 5],
    ),
    "a step that raises once": (
        HEAD
        + """
def broken():
    raise RuntimeError("once")
try:
    step(broken)
except RuntimeError:
    pass
for i in range(8): step()
""",
        "finished",
        [3, 4, 5],
    ),
    "a new optimizer every step": (
        HEAD
        + """
import gc, weakref
alive = []
for i in range(12):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    alive.append(weakref.ref(optimizer))
    step()
gc.collect()
assert sum(ref() is not None for ref in alive) == 1
""",
        "finished",
        [3, 4, 5],
    ),
    "steps on a new thread each": (
        HEAD
        + """
import threading
for i in range(8):
    thread = threading.Thread(target=step); thread.start(); thread.join()
""",
        "incomplete: the steps change their thread",
        [],
    ),
    "closing every file that it does not know": (
        HEAD
        + """
import os
for i in range(30):
    step()
    if i in (3, 9):  # in the window, and after it
        os.closerange(3, 256)
        files = [os.memfd_create("checkpoint") for _ in range(60)]
        for file in files:
            os.write(file, b"mine" * 100)
from tracekit_collectors import capture
capture.current()._file.tell("is asked", at_once=True)
assert all(os.pread(file, 1000, 0) == b"mine" * 100 for file in files)
""",
        "finished",
        [3, 4, 5],
    ),
    "a fork before the window": (
        HEAD
        + """
import os, sys
step()
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
for i in range(8): step()
""",
        "finished",
        [3, 4, 5],
    ),
}


def test_an_exit_that_was_taken_in_the_window_works_after_it(tmp_path: Path) -> None:
    code = "for i in range(8):\n    step()\n    if i == 3:\n        from os import _exit\n"
    (tmp_path / "train.py").write_text(HEAD + code + "_exit(3)\n")
    run = tracekit_run(
        tmp_path, sys.executable, str(tmp_path / "train.py"), options=("--no-ingest",)
    )
    assert (run.done.returncode, "Error" in run.done.stderr) == (3, False)


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_ends_well_and_the_manifest_says_how(tmp_path: Path, name: str) -> None:
    script, state, steps = SCRIPTS[name]
    (tmp_path / "train.py").write_text(script + "print('done')\n")
    run = tracekit_run(
        tmp_path, sys.executable, str(tmp_path / "train.py"), options=("--no-ingest",)
    )
    assert (run.done.returncode, run.done.stdout) == (0, "done\n"), run.done.stderr
    (manifest,) = run.manifests()
    assert manifest["state"].startswith(state)
    assert [step for window in manifest["windows"] for step in window["steps"]] == steps
    assert any(window["trace"] for window in manifest["windows"]) == bool(steps)


def test_force_deletes_a_run_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "run.run").mkdir()
    (tmp_path / "run.run" / "keep.txt").write_text("mine")
    run = tracekit_run(tmp_path, "true", options=("-f",))
    assert run.done.returncode == 2
    assert "holds what is no run (keep.txt)" in run.done.stderr
    assert (tmp_path / "run.run" / "keep.txt").read_text() == "mine"


def test_force_replaces_a_database_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "run.db").write_text("a letter")
    run = tracekit_run(tmp_path, "true", options=("-f",))
    assert run.done.returncode == 4
    assert "is no database; not replaced" in run.done.stderr
    assert (tmp_path / "run.db").read_text() == "a letter"
