"""A program that profiles itself: it is left alone, and what it writes is offered (I4)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.clients.runs import Run, tracekit_run
from tracekit.store import open_run

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPT = """
import sys, torch
from torch.profiler import profile, schedule, tensorboard_trace_handler
folder, plain_steps = sys.argv[1], int(sys.argv[2])
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def step():
    optimizer.zero_grad(); model(torch.randn(4, 8)).sum().backward(); optimizer.step()
for _ in range(plain_steps):
    step()
plan = schedule(wait=0, warmup=1, active=2, repeat=2)
handler = tensorboard_trace_handler(folder + "/tb traces", use_gzip=True)
with profile(schedule=plan, on_trace_ready=handler) as own:
    for _ in range(7):
        step(); own.step()
with torch.autograd.profiler.profile(use_kineto=True) as older:
    step()
older.export_chrome_trace(folder + "/older.json")
print("done")
"""


def run_it(folder: Path, plain_steps: int) -> tuple[Run, list[str]]:
    """The run, and where its manifest says that the program wrote traces."""
    (folder / "train.py").write_text(SCRIPT)
    command = (sys.executable, str(folder / "train.py"), str(folder), str(plain_steps))
    run = tracekit_run(folder, *command)
    assert run.done.returncode == 0, run.done.stderr
    assert run.done.stdout.startswith("done\n")
    (manifest,) = run.manifests()
    written = sorted(map(str, (folder / "tb traces").iterdir()))
    assert manifest["own_traces"] == [*written, str(folder / "older.json")]
    return run, manifest["own_traces"]


def test_its_traces_are_the_run_where_there_are_none_of_ours(tmp_path: Path) -> None:
    run, own = run_it(tmp_path, 0)
    assert f"its own traces are read ({', '.join(own)})" in run.done.stderr
    with open_run(run.database) as reader:
        files = reader.rows("SELECT path FROM file WHERE kind = 'trace' ORDER BY path")
        assert {path for (path,) in files} == set(own)
        assert reader.rows("SELECT step FROM step ORDER BY step") == [(1,), (2,), (4,), (5,)]
        # The manifest is theirs as well: what the rank is, and why it has none of ours.
        ((kind, state),) = reader.rows("SELECT device_kind, capture_state FROM rank")
    assert kind == "cpu"
    assert "the program runs a profiler of its own" in state


def test_its_traces_are_offered_beside_ours(tmp_path: Path) -> None:
    run, own = run_it(tmp_path, 7)
    (manifest,) = run.manifests()
    assert [window["steps"] for window in manifest["windows"]] == [[3, 4, 5]]
    quoted = [f"'{path}'" if " " in path else path for path in own]
    assert f"tracekit ingest -o own.db {' '.join(quoted)}\n" in run.done.stderr
    with open_run(run.database) as reader:
        assert reader.rows("SELECT step FROM step ORDER BY step") == [(3,), (4,), (5,)]


def test_traces_that_are_gone_are_not_offered(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        SCRIPT + "import pathlib, shutil\nshutil.rmtree(folder + '/tb traces')\n"
        "pathlib.Path(folder + '/older.json').unlink()\n"
    )
    command = (sys.executable, str(tmp_path / "train.py"), str(tmp_path), "7")
    run = tracekit_run(tmp_path, *command)
    assert run.done.returncode == 0
    assert "tracekit ingest -o own.db" not in run.done.stderr
    assert "its own traces" not in run.done.stderr
