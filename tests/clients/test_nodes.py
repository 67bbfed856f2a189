"""Several nodes: wrappers of one job, on machines of different names as far as they can tell.

Every process of a node finds the name that the node has been given (fake_host.c).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.environment import frameworks, library
from tests.faults.store import call
from tracekit.store import open_run
from tracekit_collectors import records

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

NODES = ("node-a", "node-b")

# Each rank writes down where it is; in tasks of Slurm they find each other by a file.
TRAIN = """
import os, pathlib, socket, sys, time, torch, torch.distributed as dist
here = pathlib.Path(__file__).parent
if "RANK" in os.environ:
    dist.init_process_group("gloo")
else:
    rank, world = (int(os.environ["SLURM_" + name]) for name in ("PROCID", "NTASKS"))
    dist.init_process_group("gloo", init_method=f"file://{here}/met", rank=rank, world_size=world)
torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(8):
    optimizer.zero_grad(); model(torch.ones(4, 8)).sum().backward(); optimizer.step()
local = os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID"))
(here / f"at-{dist.get_rank()}").write_text(f"{socket.gethostname()} {local}")
dist.barrier()
dist.destroy_process_group()
time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def fake_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("host") / "fake_host.so"
    library("fake_host.c", path)
    return path


@pytest.fixture
def port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


class Job:
    """The wrappers of a job, each started on a node."""

    def __init__(self, folder: Path, fake_host: Path) -> None:
        self.folder = folder
        self.script = str(folder / "train.py")
        (folder / "train.py").write_text(TRAIN)
        self._preload = str(fake_host)
        self._running: list[subprocess.Popen[str]] = []

    def start(self, node: str, options: list[str], *command: str, **environment: str) -> None:
        outer = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SLURM_", "RANK", "WORLD_SIZE", "LOCAL_RANK"))
        }
        # gloo would look the name up, and nobody knows it.
        ours = {"LD_PRELOAD": self._preload, "FAKE_HOST": node, "GLOO_SOCKET_IFNAME": "lo"}
        self._running.append(
            subprocess.Popen(
                [sys.executable, "-m", "tracekit", "run", *options, "--", *command],
                cwd=self.folder, stderr=subprocess.PIPE, text=True,
                env={**outer, **ours, **environment},
            )
        )  # fmt: skip

    def end(self, *directories: str, ranks: int) -> None:
        """All of it succeeds, and the store says of each rank what the rank has said itself."""
        for wrapper in self._running:
            _, err = wrapper.communicate(timeout=200)
            assert wrapper.returncode == 0, err[-3000:]
        database = self.folder / "run.db"
        paths = [self.folder / name for name in directories]
        assert call("ingest", *paths, "-o", database, "-q")[0] == 0
        said = [(self.folder / f"at-{rank}").read_text().split() for rank in range(ranks)]
        assert {host for host, _ in said} == set(NODES)
        with open_run(database) as reader:
            found = reader.rows("SELECT rank, host, local_rank FROM rank ORDER BY rank")
            assert found == [(rank, host, int(at)) for rank, (host, at) in enumerate(said)]
            assert reader.rows("""
                SELECT DISTINCT world_size, capture_state, count(step) FROM rank LEFT JOIN step
                USING (rank) GROUP BY rank, world_size, capture_state
            """) == [(ranks, "finished", 3)]  # fmt: skip
            mesh = reader.rows("SELECT rank, dim, coord, ranks FROM mesh ORDER BY rank")
            assert mesh == [(rank, "dp", rank, list(range(ranks))) for rank in range(ranks)]

    def ended(self, directory: str, *fields: str) -> list[tuple[str, ...]]:
        """What the wrappers that used a directory have written, the node first."""
        files = [p for p in (self.folder / directory).iterdir() if records.is_run_file(p.name)]
        found = [json.loads(path.read_text()) for path in files]
        return sorted(tuple(str(one[name]) for name in ("host", *fields)) for one in found)


@pytest.fixture
def job(tmp_path: Path, fake_host: Path) -> Job:
    return Job(tmp_path, fake_host)


SHARED = ["--shared", "--run-dir", "shared"]


def own(node: str) -> list[str]:
    return ["--no-ingest", "--run-dir", node]


def test_torchrun_on_nodes_that_share_a_folder(job: Job, port: str) -> None:
    command = (
        sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2",
        "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "7",
        "--local-addr", "127.0.0.1", job.script,
    )  # fmt: skip
    for node in NODES:
        job.start(node, SHARED, *command)
    job.end("shared", ranks=4)
    assert job.ended("shared", "exit_status") == [("node-a", "0"), ("node-b", "0")]


def test_accelerate_on_nodes_that_share_a_folder(job: Job, port: str) -> None:
    for number, node in enumerate(NODES):
        job.start(
            node, SHARED, str(frameworks() / "accelerate"), "launch", "--multi_gpu",
            "--num_machines", "2", "--num_processes", "2", "--machine_rank", str(number),
            "--main_process_ip", "127.0.0.1", "--main_process_port", port,
            "--mixed_precision", "no", "--dynamo_backend", "no", job.script,
        )  # fmt: skip
    job.end("shared", ranks=2)


def test_deepspeed_on_nodes_with_a_folder_each(job: Job, port: str) -> None:
    """Its ssh would not hand our part of the environment on: it is started on each node."""
    (job.folder / "hostfile").write_text("".join(f"{node} slots=1\n" for node in NODES))
    tools = frameworks()
    for number, node in enumerate(NODES):
        job.start(
            node, own(node), str(tools / "deepspeed"), "--hostfile", "hostfile", "--no_ssh",
            "--node_rank", str(number), "--master_addr", "127.0.0.1", "--master_port", port,
            job.script, DS_ACCELERATOR="cpu", PATH=f"{tools}{os.pathsep}{os.environ['PATH']}",
        )  # fmt: skip
    job.end(*NODES, ranks=2)
    assert [job.ended(node) for node in NODES] == [[("node-a",)], [("node-b",)]]


def test_a_task_of_slurm_for_each_rank(job: Job, fake_host: Path) -> None:
    """A wrapper each, two on a node, and nothing but Slurm's variables. One of them samples."""
    driver = fake_host.parent
    library("fake_nvml.c", driver / "libnvidia-ml.so.1")
    for rank in range(4):
        job.start(
            NODES[rank // 2], SHARED, sys.executable, job.script,
            SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank % 2), SLURM_NTASKS="4",
            LD_LIBRARY_PATH=str(driver), FAKE_NVML="gpus=2",
        )  # fmt: skip
    job.end("shared", ranks=4)
    left = "left to task 0 of this node, this is task 1"
    assert job.ended("shared", "telemetry") == [
        (node, said) for node in NODES for said in (left, "sampled")
    ]
    with open_run(job.folder / "run.db") as reader:
        gpus = reader.rows("SELECT host, gpu FROM gpu ORDER BY ALL")
    assert gpus == [(node, gpu) for node in NODES for gpu in range(2)]


def test_a_rank_that_slurm_alone_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    from tracekit_collectors.rank import where

    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("PROCID", "5"), ("NTASKS", "8"), ("LOCALID", "1")):
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert where() == (5, 8, 1)
