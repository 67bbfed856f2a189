"""Windows of real runs: which steps they hold, what ends them, and what is kept of them then."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.clients.runs import TORCHRUN, Run, tracekit_run
from tracekit.store import open_run

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

HEAD = """
import os, sys, torch
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
x = torch.randn(4, 8)
def loss():
    return (model(x) ** 2).mean()
"""
PLAIN = (
    HEAD
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for i in range(14):
    optimizer.zero_grad(); loss().backward(); optimizer.step()
"""
)


def captured(folder: Path, script: str, *options: str) -> tuple[Run, dict[str, Any]]:
    (folder / "train.py").write_text(script + "print('done')\n")
    run = tracekit_run(folder, sys.executable, str(folder / "train.py"), options=options)
    (manifest,) = run.manifests()
    return run, manifest


def steps_of(manifest: dict[str, Any]) -> list[list[int]]:
    return [window["steps"] for window in manifest["windows"]]


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        (("--repeat", "2", "--active", "2"), [[3, 4], [7, 8]]),
        (("--every", "5", "--active", "1"), [[5], [10]]),
        # Nothing but the step between them keeps the windows apart.
        (("--wait", "0", "--warmup", "0", "--repeat", "3"), [[1, 2, 3], [5, 6, 7], [9, 10, 11]]),
        (("--at-step", "9", "--at-step", "1", "--active", "2"), [[1, 2], [9, 10]]),
    ],
)
def test_several_windows_are_one_run(
    tmp_path: Path, options: tuple[str, ...], steps: list[list[int]]
) -> None:
    run, manifest = captured(tmp_path, PLAIN, *options)
    assert run.done.returncode == 0
    assert run.done.stdout.startswith("done\n")
    assert manifest["state"] == "finished"
    assert steps_of(manifest) == steps
    assert all(window["cost_ns"]["pack"] > 0 for window in manifest["windows"])
    with open_run(run.database) as reader:
        found = reader.rows("SELECT step FROM step ORDER BY step")
        assert found == [(step,) for window in steps for step in window]
        assert reader.scalar("SELECT count(*) FROM file WHERE kind = 'trace'") == len(steps)
        # A manifest counts for each of its traces, and once.
        assert reader.rows("SELECT rank, capture_state FROM rank") == [(0, "finished")]
        assert reader.scalar("SELECT count(*) FROM model_state WHERE category = 'params'") == 2


def test_a_run_that_ends_before_its_last_window_says_so(tmp_path: Path) -> None:
    _, manifest = captured(tmp_path, PLAIN, "--repeat", "4", "--active", "2", "--no-ingest")
    assert steps_of(manifest) == [[3, 4], [7, 8], [11, 12]]
    assert manifest["state"].endswith("ended in the window before a step was recorded")


def test_what_is_not_to_be_collected_is_not(tmp_path: Path) -> None:
    run, _ = captured(tmp_path, PLAIN, "--collect", "torch,stacks")
    with open_run(run.database) as reader:
        assert reader.scalar("SELECT count(*) FROM memory_event") == 0
        assert reader.scalar("SELECT count(*) FROM event WHERE cat = 'python'") > 0
        assert reader.rows("SELECT value FROM note WHERE key = 'telemetry'") == [("not asked for",)]


def test_nothing_of_the_ranks(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    command = (sys.executable, str(tmp_path / "train.py"))
    run = tracekit_run(tmp_path, *command, options=("--collect", "nvml", "--no-ingest"))
    assert (run.done.returncode, run.manifests()) == (0, [])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--every", "2"), "every step would be recorded"),
        (("--every", "9", "--at-step", "3"), "not both"),
        (("--collect", "torch,stack"), "nothing is called 'stack'"),
        (("--nvml-interval", "10"), "'10' is no interval"),
    ],
)
def test_options_that_make_no_window(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    run = tracekit_run(tmp_path, "true", options=options)
    assert run.done.returncode == 2
    assert said in run.done.stderr
    assert not run.directory.exists()


TURNS = (
    HEAD
    + """
first = torch.optim.SGD(model[0].parameters(), lr=0.01)
second = torch.optim.Adam(model[2].parameters(), lr=0.01)
for i in range(8):
    loss().backward(); first.step(); second.step()
    first.zero_grad(); second.zero_grad()
"""
)
WITHIN = (
    HEAD
    + """
optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}
def hook(p):
    optimizers[p].step(); optimizers[p].zero_grad()
for p in model.parameters():
    p.register_post_accumulate_grad_hook(hook)
for i in range(8):
    loss().backward()
"""
)
SAID = (
    "import tracekit\n"
    + HEAD
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
tracekit.step()
for i in range(8):
    for micro in range(3):
        loss().backward(); optimizer.step()
    tracekit.step()
"""
)


@pytest.mark.parametrize(
    ("script", "source", "each"),
    [(TURNS, "optimizer Adam", 1), (WITHIN, "backward passes", 1), (SAID, "tracekit.step()", 3)],
    ids=["two optimizers", "optimizers within backward", "the program says it"],
)
def test_a_step_is_what_the_program_takes_it_for(
    tmp_path: Path, script: str, source: str, each: int
) -> None:
    run, manifest = captured(tmp_path, script)
    assert run.done.returncode == 0, run.done.stderr
    assert manifest["state"] == "finished"
    assert manifest["step_source"].startswith(source)
    with open_run(run.database) as reader:
        marks = reader.rows("""
            SELECT s.step, count(e.name) FROM step AS s LEFT JOIN events AS e
            ON e.name = 'aten::relu' AND e.ts_ns BETWEEN s.host_start_ns AND s.host_end_ns - 1
            GROUP BY s.step ORDER BY s.step
        """)
    # Each holds the whole of its own forward passes, and none of another's.
    assert marks == [(3, each), (4, each), (5, each)]


ENDS = PLAIN.replace("optimizer.step()\n", "optimizer.step()\n    if i == 4:\n        {}\n")
SLEEPS = "import ctypes; ctypes.CDLL(None).sleep(60)"


@pytest.mark.parametrize(
    ("how", "status", "state", "steps"),
    [
        ("os.kill(os.getpid(), 15)", -signal.SIGTERM, "SIGTERM came in the window", [3, 4]),
        ("os._exit(3)", 3, "os._exit came in the window", [3, 4]),
        ("raise SystemExit(5)", 5, "the process ended in the window", [3, 4]),
        ("os.abort()", -signal.SIGABRT, "the process ended by a signal", []),
        ("os.kill(os.getpid(), 9)", 128 + signal.SIGKILL, "the process ended by a signal", []),
    ],
)
def test_what_ends_a_process_in_its_window(
    tmp_path: Path, how: str, status: int, state: str, steps: list[int]
) -> None:
    """I3: it ends as it would have, and what can be kept is kept."""
    run, manifest = captured(tmp_path, ENDS.format(how))
    assert run.done.returncode == status, run.done.stderr
    assert "done" not in run.done.stdout
    assert manifest["state"].startswith(f"incomplete: {state}")
    assert [step for window in steps_of(manifest) for step in window] == steps
    if steps:
        with open_run(run.database) as reader:
            assert reader.rows("SELECT step FROM step ORDER BY step") == [(s,) for s in steps]


def test_a_term_ends_a_rank_that_hangs(tmp_path: Path) -> None:
    """A main thread that waits in C never comes to a handler of Python's."""
    script = ENDS.format(
        "import threading; threading.Timer(0.3, os.kill, (os.getpid(), 15)).start(); " + SLEEPS
    )
    run, manifest = captured(tmp_path, script.replace("sleep(60)", "pause()"), "--no-ingest")
    assert run.done.returncode == -signal.SIGTERM
    assert manifest["state"].startswith("incomplete: ")


FORKS = ENDS.format(
    """child = os.fork()
        if child == 0:
            import time; time.sleep(30); os._exit(0)
        os.kill(child, 15)
        assert os.waitpid(child, 0)[1] == 15
        import time; time.sleep(2.5)"""
)


def test_a_term_to_a_fork_of_the_rank_is_the_forks(tmp_path: Path) -> None:
    run, manifest = captured(tmp_path, FORKS, "--no-ingest")
    assert run.done.returncode == 0, run.done.stderr
    assert (manifest["state"], steps_of(manifest)) == ("finished", [[3, 4, 5]])


OWN = ENDS.format("os.kill(os.getpid(), 15)").replace(
    "for i in", "import signal\nsignal.signal(15, lambda *_: print('mine'))\nfor i in"
)


def test_a_handler_of_the_programs_own_is_left_alone(tmp_path: Path) -> None:
    run, manifest = captured(tmp_path, OWN, "--no-ingest")
    assert (run.done.returncode, run.done.stdout) == (0, "mine\ndone\n")
    assert manifest["state"] == "finished"


IN_CODE = """
import torch, torch.distributed as dist, tracekit
dist.init_process_group("gloo")
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
tracekit.declare_mesh(pp=2, dp=1)
tracekit.note("tokens_per_step", 4)
rank = dist.get_rank()
with tracekit.capture("captured", wait=0, active=2) as cap:
    for i in range(6):
        with tracekit.annotate("batch [i]"):
            x = torch.randn(4, 8)
        with tracekit.pipeline_action("F", stage=rank, microbatch=0, stages=2):
            loss = model(x).sum()
        with tracekit.pipeline_action("B", stage=rank, microbatch=0):
            loss.backward()
        dist.all_reduce(loss.detach())
        cap.step()
print("done" if "duckdb" not in __import__("sys").modules else "loaded")
dist.destroy_process_group()
import time; time.sleep(0.2)
"""


def test_a_capture_in_code(tmp_path: Path) -> None:
    from tracekit.ingest.run import ingest

    (tmp_path / "train.py").write_text(IN_CODE)
    done = subprocess.run(
        [*TORCHRUN, "2", "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    # Two processes print: the ends of their lines may come together.
    assert (done.returncode, done.stdout.split("done")[0]) == (0, ""), done.stderr
    assert (done.stdout.count("done"), len(done.stdout)) == (2, len("done\n") * 2)
    ingest([tmp_path / "captured"], tmp_path / "run.db")
    with open_run(tmp_path / "run.db") as reader:
        assert reader.rows("SELECT rank, dim, coord, size FROM mesh ORDER BY rank, dim") == [
            (0, "dp", 0, 1), (0, "pp", 0, 2), (1, "dp", 0, 1), (1, "pp", 1, 2)
        ]  # fmt: skip
        assert reader.rows("SELECT DISTINCT stages FROM rank") == [(2,)]
        actions = reader.rows("SELECT rank, step, kind, stage FROM action ORDER BY ALL")
        assert actions == [(r, s, k, r) for r in (0, 1) for s in (2, 3) for k in "BF"]
        assert reader.scalar("SELECT count(*) FROM event JOIN name USING (name_id) "
                             "WHERE name = 'batch [i]'") == 4  # fmt: skip
        assert reader.scalar("SELECT count(*) FROM note WHERE key = 'tokens_per_step'") == 2


LONG_MARKS = (
    HEAD
    + """
import gc
gc.disable()
from torch.profiler import record_function
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(4):
    with record_function(f"epoch {epoch}"):
        for i in range(4):
            optimizer.zero_grad(); loss().backward(); optimizer.step()
print(sum(isinstance(o, torch.autograd.profiler.profile) for o in gc.get_objects()), "held")
"""
)


def test_marks_that_outlive_a_window_end_with_it(tmp_path: Path) -> None:
    """Ended in the next window, torch would write into what it has freed (a crash, in time)."""
    windows = ("--at-step", "3", "--at-step", "7", "--at-step", "11", "--warmup", "0")
    run, manifest = captured(tmp_path, LONG_MARKS, *windows, "--active", "2")
    assert (run.done.returncode, run.done.stdout.split("\n")[0]) == (0, "0 held")
    assert steps_of(manifest) == [[3, 4], [7, 8], [11, 12]]
    with open_run(run.database) as reader:
        inside = reader.rows(
            "SELECT name, s.step FROM event e JOIN name USING (name_id) JOIN step s "
            "ON e.ts_ns >= s.start_ns AND e.ts_ns + e.dur_ns <= s.end_ns "
            "WHERE name LIKE 'epoch%' ORDER BY e.ts_ns"
        )
    assert inside == [("epoch 1", 4), ("epoch 2", 8), ("epoch 3", 12)]
