"""GPU telemetry of real runs: the real pynvml, on a library of ours (fake_nvml.c) or on none."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.clients.environment import library
from tests.clients.runs import Run, tracekit_run
from tracekit.ingest.run import ingest
from tracekit.ingest.telemetry_file import Reader
from tracekit.store import Reader as Store
from tracekit.store import open_run
from tracekit_collectors import records
from tracekit_collectors.telemetry import PROCESSES, VALUES

GIB = 1 << 30
HOST = socket.gethostname()
COMMAND = ("sh", "-c", "echo out; echo err >&2; sleep 0.8; exit 3")

Driver = Callable[[str], None]


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libnvidia-ml.so.1 of ours."""
    folder = tmp_path_factory.mktemp("driver")
    library("fake_nvml.c", folder / "libnvidia-ml.so.1")
    return folder


@pytest.fixture
def driver(fake: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """``driver("gpus=2")``: what the processes of a test find; see fake_nvml.c."""

    def script(words: str) -> None:
        monkeypatch.setenv("LD_LIBRARY_PATH", str(fake))
        monkeypatch.setenv("FAKE_NVML", words)

    return script


def sampled(folder: Path, *, interval: str = "10ms", command: tuple[str, ...] = COMMAND) -> Run:
    """The command beside a sampler; its output and status are its own."""
    options = ("--collect", "nvml", "--no-ingest", "--nvml-interval", interval)
    run = tracekit_run(folder, *command, options=options)
    assert (run.done.returncode, run.done.stdout) == (3, "out\n")
    assert run.done.stderr.startswith("err\n")
    assert "Traceback" not in run.done.stderr
    return run


def telemetry(run: Run) -> str:
    return str(json.loads((run.directory / "run.json").read_text())["telemetry"])


def add_rank(run: Run, rank: int = 0, **says: Any) -> None:
    """A trace of a rank that ran on this host, and its manifest."""
    name = records.stem(rank)
    trace = TraceBuilder(rank=rank, world_size=4, host=HOST)
    trace.kernel("gemm", 100, 50)
    trace.write(run.directory / f"{name}.trace.json.gz")
    manifest = records.RankManifest(
        rank=rank, world_size=4, local_rank=rank, host=HOST, pid=7, device_kind="cuda",
        windows=[records.WindowRecord(trace=f"{name}.trace.json.gz")], **says,
    )  # fmt: skip
    records.write_manifest(run.directory, name, manifest)


@contextlib.contextmanager
def stored(run: Run, **rank: Any) -> Any:
    add_rank(run, **rank)
    summary = ingest([run.directory], run.database)
    assert summary.warnings == []
    with open_run(run.database) as store:
        yield store


def unsupported(store: Store, gpu: int) -> dict[str, str]:
    found = store.scalar("SELECT unsupported FROM gpu WHERE gpu = $1", [gpu])
    assert isinstance(found, dict)
    return found


def test_every_column_is_what_the_driver_says(tmp_path: Path, driver: Driver) -> None:
    driver("gpus=2")
    began_ns = time.time_ns()
    run = sampled(tmp_path)
    ended_ns = time.time_ns()
    assert telemetry(run) == "sampled"
    with stored(run) as store:
        facts = (
            "SELECT gpu, uuid, pci_bus_id, name, memory_bytes, sm_clock_max_mhz, driver "
            "FROM gpu ORDER BY gpu"
        )
        assert store.rows(facts) == [
            (gpu, f"GPU-000000a{gpu}-0000-0000-0000-000000000000", f"00000000:1{7 + gpu}:00.0",
             "Fake H200", 141 * GIB, 1980, "580.1")
            for gpu in (0, 1)
        ]  # fmt: skip
        where = "SELECT is_divided, parent, lost_ns, interval_ns, unsupported FROM gpu"
        assert store.rows(where) == [(False, None, None, 10_000_000, {})] * 2
        first, last, count = store.rows(
            "SELECT min(ts_ns), max(ts_ns), count(*) FROM nvml_sample WHERE host = $1", [HOST]
        )[0]
        assert began_ns < first < last < ended_ns
        assert last - first > 200_000_000  # the command slept for 800 ms
        assert count > 20
        plain = (
            "SELECT DISTINCT gpu, utilization, memory_utilization, memory_used_bytes, power_mw, "
            "power_limit_mw, sm_clock_mhz, memory_clock_mhz, temperature_c, throttle_reasons, "
            "nvlink_tx_bytes, nvlink_rx_bytes FROM nvml_sample ORDER BY gpu"
        )
        assert store.rows(plain) == [
            (gpu, 50 + gpu, 20 + gpu, (1 + gpu) * GIB, 300_000 + gpu, 700_000, 1755, 3201, 40 + gpu,
             4, 7 * 1024, 9 * 1024)
            for gpu in (0, 1)
        ]  # fmt: skip
        # Past 32 bits, and one more at each sample.
        energy = store.rows("SELECT energy_mj FROM nvml_sample WHERE gpu = 0 ORDER BY ts_ns")
        assert energy == [(5_000_000_000 + n,) for n in range(1, len(energy) + 1)]


def test_what_takes_long_is_read_once_a_second(tmp_path: Path, driver: Driver) -> None:
    driver("gpus=2")
    run = sampled(tmp_path)  # of less than a second
    with stored(run) as store:
        seen = "SELECT gpu, pcie_tx_bytes_s, pcie_rx_bytes_s FROM nvml_sample"
        found = store.rows(f"{seen} WHERE pcie_tx_bytes_s IS NOT NULL ORDER BY gpu")
        assert found == [(0, 1_000_000, 2_000_000), (1, 1_000_000, 2_000_000)]
        processes = "SELECT gpu, pid, used_bytes FROM nvml_process ORDER BY gpu, pid"
        assert store.rows(processes) == [
            (gpu, *process)
            for gpu in (0, 1)
            for process in ((4000 + gpu, GIB // 2), (5000 + gpu, None))
        ]
        joined = "SELECT count(*) FROM nvml_process JOIN nvml_sample USING (host, gpu, ts_ns)"
        assert store.scalar(joined) == 4


def test_h1_a_lost_gpu_ends_its_own_samples(tmp_path: Path, driver: Driver) -> None:
    driver("gpus=2 lost=1 after=3")
    run = sampled(tmp_path)
    assert telemetry(run) == "GPU 1 lost: GPU is lost"
    assert "GPU 1 lost: GPU is lost\n" in run.done.stderr
    with stored(run) as store:
        samples = dict(store.rows("SELECT gpu, count(*) FROM nvml_sample GROUP BY gpu"))
        assert samples[1] == 3
        assert samples[0] > 10
        lost = "SELECT gpu, lost_reason, lost_ns > (SELECT max(ts_ns) FROM nvml_sample AS s WHERE "
        assert store.rows(f"{lost} s.gpu = gpu.gpu) FROM gpu ORDER BY gpu") == [
            (0, None, None),
            (1, "GPU is lost", True),
        ]


def test_h1_a_gpu_may_be_lost_before_we_begin(tmp_path: Path, driver: Driver) -> None:
    driver("gpus=2 lost=0 after=-1")
    run = sampled(tmp_path)
    assert telemetry(run) == "GPU 0 lost: GPU is lost"
    with stored(run) as store:
        assert store.rows("SELECT DISTINCT gpu FROM nvml_sample") == [(1,)]
        assert store.rows("SELECT gpu, lost_reason FROM gpu WHERE lost_ns IS NOT NULL") == [
            (0, "GPU is lost")
        ]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (18, "the NVIDIA driver that is loaded and its library are of different versions"),
        (9, "the NVIDIA driver is not loaded"),
        (999, "Unknown Error"),
    ],
)
def test_h2_a_driver_that_does_not_begin_is_one_line(
    tmp_path: Path, driver: Driver, code: int, said: str
) -> None:
    driver(f"init={code}")
    run = sampled(tmp_path)
    assert telemetry(run).startswith(f"no GPU telemetry: {said}")
    (line,) = [each for each in run.done.stderr.splitlines() if "telemetry" in each]
    assert said in line
    assert list(run.directory.glob("nvml.*")) == []


def test_no_driver_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A machine that has one does not show it here: the first file of that name is no library.
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    run = sampled(tmp_path)
    said = "no GPU telemetry: no NVIDIA driver: libnvidia-ml.so.1 is not there"
    assert telemetry(run) == said
    assert run.done.stderr.count("telemetry") == 1
    assert list(run.directory.glob("nvml.*")) == []


def test_no_gpu(tmp_path: Path, driver: Driver) -> None:
    driver("gpus=0")
    assert telemetry(sampled(tmp_path)) == "no GPU telemetry: no GPU"


def test_h3_mig_devices_are_rows_of_their_own(tmp_path: Path, driver: Driver) -> None:
    driver("gpus=2 mig=0")
    run = sampled(tmp_path)
    says = {"device_index": 0, "visible_devices": "MIG-000000a0-0000-0000-0000-000000000003"}
    with stored(run, **says) as store:
        facts = (
            "SELECT gpu, uuid, is_divided, parent, mig, gpu_instance, compute_instance, "
            "memory_bytes FROM gpu ORDER BY gpu"
        )
        assert store.rows(facts) == [
            (0, "GPU-000000a0-0000-0000-0000-000000000000", True, *[None] * 4, 141 * GIB),
            (1, "GPU-000000a1-0000-0000-0000-000000000000", False, *[None] * 4, 141 * GIB),
            (2, "MIG-000000a0-0000-0000-0000-000000000001", False, 0, 0, 7, 0, 18 * GIB),
            (3, "MIG-000000a0-0000-0000-0000-000000000003", False, 0, 2, 9, 0, 18 * GIB),
        ]
        seen = "SELECT DISTINCT gpu, utilization, memory_used_bytes FROM nvml_sample ORDER BY gpu"
        assert store.rows(seen) == [
            (0, None, GIB),
            (1, 51, 2 * GIB),
            (2, None, GIB),
            (3, None, GIB),
        ]
        assert unsupported(store, 0)["utilization"] == "Not Supported"
        assert unsupported(store, 2)["utilization"] == "Not Supported"
        assert unsupported(store, 1) == {}
        assert store.scalar("SELECT gpu FROM rank") == 3


def test_h4_memory_that_is_not_told_is_null(tmp_path: Path, driver: Driver) -> None:
    driver("no=memory,pcie,throttle,processes")
    with stored(sampled(tmp_path)) as store:
        seen = "SELECT DISTINCT utilization, memory_used_bytes, throttle_reasons FROM nvml_sample"
        assert store.rows(seen) == [(50, None, None)]
        assert store.scalar("SELECT memory_bytes FROM gpu") is None
        names = ("memory_used_bytes", "memory_bytes", "pcie_tx_bytes_s", "pcie_rx_bytes_s")
        why = dict.fromkeys((*names, "throttle_reasons", "processes"), "Not Supported")
        assert unsupported(store, 0) == why
        assert store.scalar("SELECT count(*) FROM nvml_process") == 0


def test_an_error_that_passes_costs_one_value(tmp_path: Path, driver: Driver) -> None:
    driver("fails=power")
    run = sampled(tmp_path)
    assert telemetry(run) == "sampled"
    with stored(run) as store:
        powers = store.rows("SELECT power_mw, utilization FROM nvml_sample ORDER BY ts_ns")
        assert powers[:4] == [(300_000, 50), (None, 50)] * 2
        assert unsupported(store, 0) == {"power_mw": "Unknown Error"}


def test_ranks_are_on_the_gpus_that_they_say(tmp_path: Path, driver: Driver) -> None:
    driver("gpus=2")
    run = sampled(tmp_path)
    add_rank(run, 1, device_index=0, device_uuid="000000a1-0000-0000-0000-000000000000")
    add_rank(run, 2, device_index=0, device_pci="00000000:18:00.0")
    add_rank(run, 3, device_index=2, visible_devices="1,0")
    with stored(run, rank=0, device_index=0, visible_devices="1,0") as store:
        assert store.rows("SELECT rank, gpu FROM rank ORDER BY rank") == [
            (0, 1), (1, 1), (2, 1), (3, None)
        ]  # fmt: skip
        notes = store.rows("SELECT rank, value FROM note WHERE key = 'GPU unknown'")
        assert notes == [
            (3, "device 2 of the rank is not among CUDA_VISIBLE_DEVICES='1,0', which shows 2")
        ]


def test_a_run_in_progress_can_be_followed(tmp_path: Path, driver: Driver) -> None:
    driver("gpus=1")
    directory, database = tmp_path / "run.run", tmp_path / "run.db"
    child = subprocess.Popen(
        [sys.executable, "-m", "tracekit", "run", "-q", "-o", str(database), "--collect", "nvml",
         "--no-ingest", "--nvml-interval", "20ms", "--", "cat"], stdin=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdin is not None
    try:
        add_rank(Run(subprocess.CompletedProcess([], 0), database, wait_for(directory)))
        counts = []
        for turn in range(2):
            while samples(directory) <= (counts[-1] if counts else 0):
                time.sleep(0.05)
            summary = ingest([directory], database, append=turn > 0)
            assert [text for text in summary.warnings if "nvml" in text] == []
            with open_run(database) as store:
                counts.append(store.scalar("SELECT count(*) FROM nvml_sample"))
                distinct = "SELECT count(DISTINCT (host, gpu, ts_ns)) FROM nvml_sample"
                assert store.scalar(distinct) == counts[-1]
                pids = "SELECT count(*), count(DISTINCT (ts_ns, pid)) FROM nvml_process"
                assert len(set(store.rows(pids)[0])) == 1
                assert store.scalar("SELECT count(*) FROM file WHERE kind = 'nvml'") == 1
        assert counts[1] > counts[0] > 10
    finally:
        child.kill()  # SIGKILL: what is there of its file stays readable
        child.wait()
        child.stdin.close()  # which ends the command
    assert samples(directory) >= counts[1]


def wait_for(directory: Path) -> Path:
    while not list(directory.glob("nvml.*.arrows")):
        time.sleep(0.02)
    return directory


def samples(directory: Path) -> int:
    (path,) = directory.glob("nvml.*.arrows")
    if not path.stat().st_size:
        return 0
    reader = Reader(path)
    assert reader.host == HOST
    try:
        return sum(batch.num_rows for batch in reader.batches())
    finally:
        reader.close()


def test_the_columns_are_those_of_the_store(tmp_path: Path, driver: Driver) -> None:
    driver("gpus=1")
    with stored(sampled(tmp_path)) as store:
        names, _ = store.table("FROM nvml_sample", most=0)
        assert names == ["host", "gpu", "ts_ns", *VALUES]
    assert PROCESSES not in VALUES
