"""The collectors' parts that need no torch: records, notes, telemetry, hooks."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Load
from tracekit_collectors import log, note, notes, records
from tracekit_collectors.nvml import Sampler, read


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"PATH": "", **environment},
    )  # fmt: skip
    return done.stdout


def test_importing_the_collectors_loads_nothing() -> None:
    heavy = "('torch', 'duckdb', 'textual', 'pyarrow', 'rich', 'pynvml', 'tracekit')"
    code = f"import sys, tracekit_collectors; print([m for m in {heavy} if m in sys.modules])"
    assert run_python(code) == "[]\n"


def test_a_note_outside_a_capture_is_only_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "_notes", {})
    note("pace_ms", 60)
    assert notes.stated() == {"pace_ms": 60}


def test_a_manifest_comes_back_as_it_was(tmp_path: Path) -> None:
    manifest = records.RankManifest(
        rank=3, world_size=4, local_rank=1, host="a", pid=7, device_kind="cpu",
        notes={"pace_ms": 60}, mesh=[records.MeshDim("pp", 3, 4, [0, 1, 2, 3])],
        model_state=[records.StateBytes("end", "params", "float32", 10, 40)],
        grads={"5": [[2**63 + 8, 40]]}, gathered=[[1, 2]],
    )  # fmt: skip
    records.write_manifest(tmp_path, "rank-3.a.7", manifest)
    assert records.read_manifest(tmp_path / "rank-3.a.7.json") == manifest
    assert [p.name for p in tmp_path.iterdir()] == ["rank-3.a.7.json"]


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 99, "rank": 0}', "nonsense"])
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "rank-0.a.1.json").write_text(text)
    with pytest.raises(ValueError, match=r"."):
        records.read_manifest(tmp_path / "rank-0.a.1.json")


def test_a_log_that_cannot_be_written_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_RUN_DIR", "/nonexistent/folder")
    log.write("nothing happens")
    monkeypatch.delenv("TRACEKIT_RUN_DIR")
    log.write("nothing happens")
    assert not Path("/nonexistent").exists()


class FakeError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


LOST, UNSUPPORTED = 15, 3


def fake_nvml(answers: dict[str, Any], gpus: int = 1) -> types.ModuleType:
    """Just enough of pynvml. An answer that is an error is raised."""
    module = types.ModuleType("pynvml")

    def answering(name: str) -> Any:
        def function(handle: object, *args: object) -> Any:
            answer = answers.get((name, handle), answers.get(name, 7))
            if isinstance(answer, Exception):
                raise answer
            return answer

        return function

    names = (
        "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUUID",
        "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetClockInfo", "nvmlDeviceGetTemperature",
        "nvmlDeviceGetCurrentClocksEventReasons",
    )  # fmt: skip
    members: dict[str, Any] = {name: answering(name) for name in names}
    members |= {
        "NVMLError": FakeError, "NVML_ERROR_GPU_IS_LOST": LOST, "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2, "NVML_TEMPERATURE_GPU": 0, "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None, "nvmlDeviceGetCount": lambda: gpus,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
    }  # fmt: skip
    for name, member in members.items():
        setattr(module, name, member)
    return module


RATES = {
    "nvmlDeviceGetUtilizationRates": types.SimpleNamespace(gpu=80),
    "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(used=4096),
    "nvmlDeviceGetUUID": "GPU-1",
}


def test_what_a_gpu_does_not_support_is_null() -> None:
    nvml = fake_nvml({**RATES, "nvmlDeviceGetMemoryInfo": FakeError(UNSUPPORTED)})
    sample = read(nvml, 0)
    assert (sample["memory_used_bytes"], sample["utilization"], sample["power_mw"]) == (None, 80, 7)


def test_a_lost_gpu_ends_its_own_samples_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Load
) -> None:
    answers = {**RATES, ("nvmlDeviceGetUtilizationRates", 1): FakeError(LOST)}
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(answers, gpus=2))
    sampler = Sampler(tmp_path, interval=0.01)
    assert sampler.start()
    path = records.nvml_path(tmp_path)
    while not path.exists() or len(path.read_text().splitlines()) < 6:
        pass
    sampler.stop()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum("lost" in line for line in lines) == 1
    assert {line["gpu"] for line in lines if "lost" not in line} == {0}
    assert sampler.problem == "GPU 1 lost: error 15"


def test_no_driver_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_nvml({})
    module.nvmlInit = lambda: (_ for _ in ()).throw(FakeError(12))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynvml", module)
    sampler = Sampler(tmp_path)
    assert not sampler.start()
    assert sampler.problem == "no GPU telemetry: error 12"
    sampler.stop()


def test_telemetry_reaches_the_store(tmp_path: Path, load: Load) -> None:
    from tests.builders import TraceBuilder

    trace = TraceBuilder()
    trace.kernel("gemm", 0, 1)
    trace.write(tmp_path / "rank0.json")
    good = {"host": "a", "gpu": 0, "uuid": "GPU-1", "ts_ns": 5, "power_mw": 300_000}
    (tmp_path / "nvml.a.1.jsonl").write_text(json.dumps(good) + '\n{"host": "a", "gp')
    reader = load.paths([tmp_path])  # type: ignore[attr-defined]
    rows = reader.rows("SELECT host, gpu, ts_ns, power_mw, utilization FROM nvml_sample")
    assert rows == [("a", 0, 5, 300_000, None)]
