"""Real clients on two ranks, unmodified: the right steps, a trace a rank, and the same result."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.clients.environment import frameworks
from tests.clients.runs import TORCHRUN, Run, tracekit_run
from tracekit.store import open_run

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPTS = Path(__file__).parent / "scripts"


def losses(output: str) -> list[str]:
    """What rank 0 prints last: ``final NAME LOSS`` of each training."""
    return [line for line in output.splitlines() if line.startswith("final ")]


def alone(*command: str) -> list[str]:
    """The losses of the command without us."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = losses(done.stdout)
    assert found, "it printed no loss: there is nothing to compare"
    return found


def wrapped(folder: Path, *command: str, loss: list[str], source: str) -> Run:
    """The same under the wrapper: nothing differs, and each rank has been captured."""
    run = tracekit_run(folder, *command)
    assert run.done.returncode == 0, run.done.stderr[-3000:]
    assert losses(run.done.stdout) == loss
    manifests = run.manifests()
    assert [m["rank"] for m in manifests] == [0, 1]
    for manifest in manifests:
        assert manifest["state"] == "finished"
        assert manifest["step_source"].startswith(source)
        assert manifest["steps_seen"] == 10
        assert [w["steps"] for w in manifest["windows"]] == [[3, 4, 5]]
        assert ("dp", [0, 1]) in [(d["dim"], d["ranks"]) for d in manifest["mesh"]]
    with open_run(run.database) as reader:
        talks = reader.rows("""
            SELECT s.rank, s.step, count(w.rank) > 0 FROM step AS s LEFT JOIN work AS w
            ON w.rank = s.rank AND w.step = s.step AND w.class = 'communication'
            GROUP BY ALL ORDER BY ALL
        """)
    assert talks == [(rank, step, True) for rank in (0, 1) for step in (3, 4, 5)]
    return run


class TestPlainTorch:
    """Scripts that use nothing but torch."""

    # Kind of training -> backward passes a step: of each micro-batch, or of both networks.
    PASSES = {"plain": 1, "accumulate": 3, "two": 2, "scaler": 1}

    @pytest.fixture(scope="class")
    def expected(self) -> dict[str, str]:
        found = alone(*TORCHRUN, "2", str(SCRIPTS / "ddp.py"), *self.PASSES)
        return dict(zip(self.PASSES, found, strict=True))

    @pytest.mark.parametrize("kind", PASSES)
    def test_data_parallel(self, tmp_path: Path, expected: dict[str, str], kind: str) -> None:
        source = "optimizer SGD" if kind == "two" else "optimizer AdamW"
        command = (*TORCHRUN, "2", str(SCRIPTS / "ddp.py"), kind)
        run = wrapped(tmp_path, *command, loss=[expected[kind]], source=source)
        with open_run(run.database) as reader:
            passes = reader.rows("""
                SELECT count(*) FROM events AS e JOIN step AS s ON s.rank = e.rank
                    AND e.ts_ns BETWEEN s.host_start_ns AND s.host_end_ns - 1
                WHERE e.name = 'MeanBackward0' GROUP BY s.rank, s.step
            """)
        assert passes == [(self.PASSES[kind],)] * 6

    def test_nothing_is_trained(self, tmp_path: Path) -> None:
        run = tracekit_run(tmp_path, *TORCHRUN, "2", str(SCRIPTS / "ddp.py"), "nothing")
        assert run.done.returncode == 0
        assert losses(run.done.stdout) == ["final nothing 0.000000000"]
        assert run.manifests() == []
        assert "no rank was captured" in run.done.stderr

    def test_fully_sharded(self, tmp_path: Path) -> None:
        command = (*TORCHRUN, "2", str(SCRIPTS / "fsdp2.py"))
        wrapped(tmp_path, *command, loss=alone(*command), source="optimizer AdamW")


class TestFrameworks:
    """Trainers that own the loop, by their own launchers."""

    @pytest.fixture(scope="class")
    def tools(self) -> Path:
        return frameworks()

    def test_hugging_face_under_torchrun_and_accelerate(self, tmp_path: Path, tools: Path) -> None:
        script = str(SCRIPTS / "hf_trainer.py")
        torchrun = (str(tools / "python"), *TORCHRUN[1:], "2", script)
        accelerate = (
            str(tools / "accelerate"), "launch", "--multi_gpu", "--num_processes", "2",
            "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", script,
        )  # fmt: skip
        loss = alone(*torchrun)
        for name, command in (("torchrun", torchrun), ("accelerate", accelerate)):
            (tmp_path / name).mkdir()
            wrapped(tmp_path / name, *command, loss=loss, source="optimizer AdamW")

    def test_lightning(self, tmp_path: Path, tools: Path) -> None:
        command = (str(tools / "python"), str(SCRIPTS / "lightning_ddp.py"))
        wrapped(tmp_path, *command, loss=alone(*command), source="optimizer AdamW")

    def test_deepspeed(self, tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DS_ACCELERATOR", "cpu")
        monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
        command = (
            str(tools / "deepspeed"), "--num_gpus", "2", str(SCRIPTS / "deepspeed_zero.py")
        )  # fmt: skip
        for stage, loss in zip("123", alone(*command, *"123"), strict=True):
            folder = tmp_path / stage
            folder.mkdir()
            wrapped(folder, *command, stage, loss=[loss], source="DeepSpeed's engine")
