"""The wrapper around commands that are none of ours: unchanged, and never worse than without."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.clients.runs import TORCHRUN, tracekit_run

DDP = """
import os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
model = DDP(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(16, 32); y = x.sum(1, keepdim=True)
for step in range(8):
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    if len(sys.argv) > 1 and step == int(sys.argv[1]) and dist.get_rank() == 1:
        raise SystemExit(7)
if dist.get_rank() == 0:
    print(f"final {loss.item():.9f}")
dist.destroy_process_group()
# torch 2.13 on its own aborts now and then when gloo's threads meet the end of a short process.
time.sleep(0.2)
"""

ARGV = "import sys; print(sys.argv[1:]); print(sys.stdin.read(), end='')"


def test_arguments_input_and_output_are_the_commands_own(tmp_path: Path) -> None:
    script = tmp_path / "argv.py"
    script.write_text(ARGV)
    arguments = ["-o", "X", "--output_dir", "Y", "-c", 'print("hi")', "--", "-f", ""]
    plain = [sys.executable, str(script), *arguments]
    wrapped = [
        sys.executable, "-m", "tracekit", "run", "-q", "-o", str(tmp_path / "run.db"), "--", *plain
    ]  # fmt: skip
    outputs = [
        subprocess.run(command, input="in\n", capture_output=True, text=True, check=True)
        for command in (plain, wrapped)
    ]
    assert outputs[0].stdout == outputs[1].stdout
    assert outputs[0].stderr == outputs[1].stderr


@pytest.mark.parametrize("status", [0, 1, 7, 255])
def test_the_exit_status_is_the_commands_own(tmp_path: Path, status: int) -> None:
    run = tracekit_run(tmp_path, sys.executable, "-c", f"raise SystemExit({status})")
    assert run.done.returncode == status
    assert "no process of the command stepped a torch optimizer" in run.done.stderr


def test_death_by_a_signal_is_passed_on(tmp_path: Path) -> None:
    run = tracekit_run(tmp_path, sys.executable, "-c", "import os; os.kill(os.getpid(), 15)")
    assert run.done.returncode == -signal.SIGTERM


def test_the_core_dump_is_the_commands_own(tmp_path: Path) -> None:
    """The wrapper dies as the command did, and where it does it may dump none."""
    code = """
import os, resource
from tracekit_collectors import launch
most = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (most, most))
os.kill = lambda pid, number: print(number, *resource.getrlimit(resource.RLIMIT_CORE))
launch.end_like(-11)
print(most)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    said, most = done.stdout.splitlines()
    assert said == f"11 0 {most}"
    if most == "0":
        pytest.skip("this machine lets no process dump its core: the limit says nothing")


def test_a_term_reaches_the_command_once(tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text(
        "import signal, sys, time\n"
        "got = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: got.append(1))\n"
        "print('ready', flush=True)\n"
        "end = time.time() + 20\n"
        "while not got and time.time() < end: time.sleep(0.05)\n"
        "time.sleep(0.5)\n"
        "sys.exit(40 + len(got))\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "tracekit", "run", "-q", "-o", str(tmp_path / "run.db"), "--",
         sys.executable, str(script)], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.terminate()
    assert child.wait(timeout=30) == 41
    child.stdout.close()


def test_what_the_command_leaves_behind_does_not_hold_us(tmp_path: Path) -> None:
    began = time.monotonic()
    code = "import subprocess; subprocess.Popen(['sleep', '30'], stdout=-3, stderr=-3, stdin=-3)"
    assert tracekit_run(tmp_path, sys.executable, "-c", code).done.returncode == 0
    assert time.monotonic() - began < 20


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    run = tracekit_run(tmp_path, "no-such-command-anywhere")
    assert run.done.returncode == 2
    assert "no-such-command-anywhere: cannot be started" in run.done.stderr


def test_the_hooks_stay_out_of_a_python_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys; print([m for m in sys.modules if m.startswith(('tracekit.', 'duckdb', "
        "'textual', 'pyarrow'))], any('inject' in p for p in sys.path))"
    )
    run = tracekit_run(tmp_path, sys.executable, "-c", code)
    assert run.done.stdout == "[] False\n"


def test_the_commands_own_sitecustomize_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import builtins; builtins.mine = 42\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    run = tracekit_run(tmp_path, sys.executable, "-c", "print(mine)")
    assert run.done.stdout == "42\n"


@pytest.mark.torch
class TestPlainDdp:
    """A data-parallel script that has never heard of us."""

    @pytest.fixture(autouse=True)
    def _script(self, tmp_path: Path) -> None:
        pytest.importorskip("torch")
        self.folder = tmp_path
        self.command = [*TORCHRUN, "2", str(tmp_path / "train.py")]
        (tmp_path / "train.py").write_text(DDP)

    def test_it_is_captured_and_its_loss_is_the_same(self) -> None:
        alone = subprocess.run(self.command, capture_output=True, text=True, check=True)
        run = tracekit_run(self.folder, *self.command)
        assert run.done.returncode == 0, run.done.stderr
        assert run.done.stdout.startswith(alone.stdout)
        manifests = run.manifests()
        assert [m["rank"] for m in manifests] == [0, 1]
        for manifest in manifests:
            assert manifest["state"] == "finished"
            assert [w["steps"] for w in manifest["windows"]] == [[3, 4, 5]]
            assert [(d["dim"], d["ranks"]) for d in manifest["mesh"]] == [("dp", [0, 1])]
        rows = run.result("comm_overlap").rows
        assert [row.rank for row in rows] == [0, 1]
        assert all(row.comm_ns > 0 for row in rows)
        # 32*64 + 64 + 64 + 1 parameters of 4 bytes; SGD without momentum keeps no state.
        (params, *_) = {row.params_bytes for row in run.result("stage_memory").rows}
        assert params == 4 * (32 * 64 + 64 + 64 + 1)
        steps = run.result("step_breakdown", "rank", "step").rows
        assert [row.step for row in steps] == [3, 4, 5] * 2
        assert all(row.exposed_dp_ns > 0 for row in steps)

    def test_a_rank_that_fails_in_the_window_keeps_what_it_has(self) -> None:
        alone = subprocess.run([*self.command, "4"], capture_output=True, text=True, check=False)
        run = tracekit_run(self.folder, *self.command, "4")
        assert run.done.returncode == alone.returncode != 0
        failed = run.manifests()[1]
        assert failed["state"] == "incomplete: the process ended in the window"
        assert [w["steps"] for w in failed["windows"]] == [[3, 4]]
        missing = run.result("coverage").missing
        assert any("the process ended in the window" in m.reason for m in missing)

    def test_a_run_that_is_too_short_says_so(self) -> None:
        run = tracekit_run(self.folder, *self.command, options=("--wait", "20"))
        assert run.done.returncode == 0
        for manifest in run.manifests():
            assert "the process ended after 8 steps" in manifest["state"]
        assert "no trace" in run.done.stderr

    def test_a_full_disk_does_not_end_training(self) -> None:
        """The run directory disappears under the ranks: training goes on and ends well."""
        script = self.folder / "train.py"
        script.write_text(
            "import os, shutil\nshutil.rmtree(os.environ['TRACEKIT_RUN_DIR'], "
            "ignore_errors=True)\n" + DDP
        )
        run = tracekit_run(self.folder, *self.command, options=("--no-ingest",))
        assert "final" in run.done.stdout
        assert run.done.returncode == 0, run.done.stderr

    def test_a_script_that_profiles_itself_is_left_alone(self) -> None:
        script = self.folder / "train.py"
        script.write_text(
            DDP.replace(
                "for step in range(8):",
                "from torch.profiler import profile\nprof = profile(); prof.start()\n"
                "for step in range(8):",
            ).replace("if dist.get_rank() == 0:\n    print", "prof.stop()\n"
                      "assert len(prof.events()) > 100\nif dist.get_rank() == 0:\n    print")
        )  # fmt: skip
        run = tracekit_run(self.folder, *self.command)
        assert run.done.returncode == 0, run.done.stderr
        assert "final" in run.done.stdout
        assert all("profiler of its own" in m["state"] for m in run.manifests())

    def test_run_json_says_how_it_ended(self) -> None:
        run = tracekit_run(self.folder, *self.command, "4", options=("--no-ingest",))
        record = json.loads((run.directory / "run.json").read_text())
        assert record["exit_status"] == run.done.returncode
        assert record["command"] == [*self.command, "4"]
        assert "no GPU telemetry" in record["telemetry"] or record["telemetry"] == "sampled"
