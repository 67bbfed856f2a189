"""Peaks and memory history of CUDA, against a stand-in for its allocator (see fake_cuda.py)."""

from __future__ import annotations

import gzip
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from tests.clients.runs import tracekit_run  # noqa: E402
from tests.clients.scripts.fake_cuda import FakeCuda, names  # noqa: E402
from tracekit_collectors import cuda_memory, log, memory_history, records  # noqa: E402
from tracekit_collectors.cuda_memory import CudaMemory  # noqa: E402

pytestmark = pytest.mark.torch
SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    for name, function in names(fake).items():
        monkeypatch.setattr(torch._C, name, function, raising=False)
    monkeypatch.setattr(torch.cuda.memory, "is_initialized", lambda: True)
    monkeypatch.setattr(cuda_memory, "_peaks", {})
    return fake


MANIFEST = records.RankManifest(
    rank=0, world_size=1, local_rank=0, host="a", pid=1, device_kind="cuda", device_index=0
)


def started(*collect: str) -> tuple[CudaMemory, records.WindowRecord]:
    memory, record = CudaMemory(), records.WindowRecord()
    memory.start(record, ("memory", *collect), MANIFEST)
    return memory, record


def test_each_step_has_its_own_peak(cuda: FakeCuda) -> None:
    kept = cuda.alloc(100)
    cuda.free(cuda.alloc(900))
    memory, record = started()
    for step, size in enumerate((30, 500, 20)):
        cuda.free(cuda.alloc(size))
        memory.step_ended(step, is_recorded=step > 0)
    # The warm-up step has none; a segment each of 2 MiB, and the block that stays.
    assert record.peaks == {
        "1": {"allocated": 600, "reserved": 4 << 20},
        "2": {"allocated": 120, "reserved": 4 << 20},
    }
    cuda.free(kept)


def test_the_program_reads_the_peaks_that_it_would_read_without_us(cuda: FakeCuda) -> None:
    def answers(traced: bool) -> list[int]:
        """What a program hears that asks after each of some allocations, and resets once."""
        memory, _ = started() if traced else (None, None)
        heard = []
        for step, size in enumerate((700, 30, 500, 20, 900, 10)):
            cuda.free(cuda.alloc(size))
            heard.append(torch.cuda.max_memory_allocated(0))
            heard.append(torch._C._accelerator_getDeviceStats(0)["reserved_bytes"]["all"]["peak"])
            if step == 2:
                torch.cuda.reset_peak_memory_stats(0)
            if memory is not None:
                memory.step_ended(step, is_recorded=True)
        if memory is not None:
            memory.stop(None)
        return [*heard, torch.cuda.max_memory_allocated(0)]

    plain = answers(False)
    assert plain[::2] == [700, 700, 700, 20, 900, 900, 900]
    torch.cuda.reset_peak_memory_stats(0)
    assert answers(True) == plain


def test_a_step_in_which_the_program_resets_the_peaks_keeps_its_own(cuda: FakeCuda) -> None:
    memory, record = started()
    cuda.free(cuda.alloc(800))
    torch.cuda.reset_peak_memory_stats(0)
    cuda.free(cuda.alloc(5))
    memory.step_ended(4, is_recorded=True)
    assert record.peaks["4"]["allocated"] == 800


def test_an_allocator_that_keeps_no_peaks_has_none(cuda: FakeCuda) -> None:
    memory, record = started()
    memory.step_ended(1, is_recorded=True)
    assert record.peaks == {"1": {"missing": "the allocator in use keeps no peaks"}}


def test_the_history_of_the_window_is_written_and_ended(cuda: FakeCuda, tmp_path: Path) -> None:
    cuda.alloc(1)
    memory, record = started()
    cuda.free(cuda.alloc(64))
    path = tmp_path / "rank-0.a.1.memory.pickle.gz"
    write = memory.stop(path)
    assert write is not None
    assert cuda.enabled is None
    assert record.memory == {"missing": "the process ended before it was written"}
    write()
    assert record.memory == {
        "file": path.name, "max_entries": 100_000, "bytes": path.stat().st_size
    }  # fmt: skip
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    snapshot = pickle.loads(gzip.decompress(path.read_bytes()))  # our own, of a moment ago
    actions = [entry["action"] for entry in snapshot["device_traces"][0]]
    assert actions == [
        "segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"
    ]  # fmt: skip
    assert [segment["allocated_size"] for segment in snapshot["segments"]] == [1]
    assert record.cost_ns["snapshot"] > 0


def test_the_history_is_bounded_and_has_the_stacks_that_are_wanted(cuda: FakeCuda) -> None:
    for collect, context in (((), "state"), (("stacks",), "alloc")):
        memory, _ = started(*collect)
        assert cuda.calls[-1][:4] == ("all", context, "python", memory_history.MAX_ENTRIES)
        memory.stop(None)


@pytest.mark.parametrize("before", [True, False])
def test_a_history_of_the_programs_own_is_left_alone(
    cuda: FakeCuda, tmp_path: Path, before: bool
) -> None:
    untouched = torch._C._cuda_record_memory_history
    if before:
        torch.cuda.memory._record_memory_history(max_entries=77)
    memory, record = started()
    if not before:
        torch.cuda.memory._record_memory_history(max_entries=77)
    assert memory.stop(tmp_path / "none") is None
    assert cuda.enabled is not None
    assert cuda.enabled[3] == 77
    assert record.memory is not None
    assert "the program" in record.memory["missing"]
    assert torch._C._cuda_record_memory_history == untouched


def test_what_fails_is_missing_and_nothing_more(
    cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access")

    log.write_to(tmp_path)
    for name in ("_cuda_memorySnapshot", "_cuda_memoryStats"):
        monkeypatch.setattr(torch._C, name, fails)
    memory, record = started()
    memory.step_ended(3, is_recorded=True)
    assert memory.stop(tmp_path / "none") is None
    assert record.memory == {"missing": "it failed: see tracekit.log"}
    assert record.peaks == {}
    assert cuda.enabled is None
    said = (tmp_path / "tracekit.log").read_text()
    assert "peak memory: RuntimeError: CUDA error: an illegal" in said
    assert "memory history: RuntimeError: CUDA error: an illegal" in said


def test_nothing_is_touched_where_nothing_is_wanted(cuda: FakeCuda) -> None:
    before = dict(names(cuda))
    for collect, manifest in (
        (("torch",), MANIFEST),
        (("memory",), records.RankManifest(0, 1, 0, "a", 1, "cpu")),
    ):
        memory, record = CudaMemory(), records.WindowRecord()
        memory.start(record, collect, manifest)
        memory.step_ended(1, is_recorded=True)
        assert memory.stop(Path("none")) is None
        assert (record.memory, record.peaks, cuda.calls) == (None, {}, [])
    assert torch._C._cuda_memoryStats == before["_cuda_memoryStats"]


TRAIN = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import fake_cuda
cuda = fake_cuda.install()
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
cuda.alloc(1000)
for i in range(8):
    block = cuda.alloc(100 * (i + 1))
    optimizer.zero_grad(); model(torch.randn(4, 8)).sum().backward()
    cuda.free(block)
    optimizer.step()
print("peak", torch.cuda.max_memory_allocated(0), "recording", cuda.enabled)
"""


def test_a_run_has_both_in_its_directory(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    command = (sys.executable, str(tmp_path / "train.py"), str(SCRIPTS))
    run = tracekit_run(tmp_path, *command, options=("--active", "2"))
    assert run.done.returncode == 0, run.done.stderr
    assert run.done.stdout.startswith("peak 1800 recording None\n")
    (manifest,) = run.manifests()
    (window,) = manifest["windows"]
    assert window["peaks"] == {
        "3": {"allocated": 1400, "reserved": 4 << 20},
        "4": {"allocated": 1500, "reserved": 4 << 20},
    }
    file = run.directory / window["memory"]["file"]
    assert file.stat().st_size == window["memory"]["bytes"]
    assert len(pickle.loads(gzip.decompress(file.read_bytes()))["device_traces"][0]) > 10
