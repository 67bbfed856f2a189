"""Telemetry files that nobody would write by hand, and samplers that the disk fails."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.builders import TraceBuilder
from tracekit.errors import DamageError
from tracekit.ingest.run import ingest
from tracekit.ingest.telemetry_file import DamagedError, Reader, open_sink, schema
from tracekit.store import open_run
from tracekit_collectors import gpus, log, records
from tracekit_collectors.nvml import Sampler
from tracekit_collectors.nvml_calls import READ, READ_SLOWLY
from tracekit_collectors.telemetry import PROCESSES, VALUES, GpuFacts

NAME = "nvml.a.1.arrows"


def sample(ts_ns: int, gpu: int = 0, **values: Any) -> dict[str, Any]:
    return {"gpu": gpu, "ts_ns": ts_ns, **values}


def written(path: Path, *batches: list[dict[str, Any]]) -> bytes:
    """A stream, one batch a list, of a sampler that was killed after them."""
    sink = open_sink(path, "a")
    for batch in batches:
        sink.write(batch)
    data = path.read_bytes()
    sink.close()
    return data


def loaded(folder: Path, data: bytes, *, append: bool = False, strict: bool = False) -> list[str]:
    """Ingest a run with this file; the warnings that name it."""
    run = folder / "run"
    trace = TraceBuilder()
    trace.kernel("gemm", 0, 1)
    trace.write(run / "rank0.json")
    (run / NAME).write_bytes(data)
    summary = ingest(
        [run], folder / "run.db", append=append, force=not append, strict=strict, jobs=1
    )
    return [text for text in summary.warnings if NAME in text]


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_run(folder / "run.db") as store:
        return store.rows(sql)


GOOD = [sample(5, power_mw=300_000, processes=[{"pid": 7, "used_bytes": None}]), sample(6)]


def test_every_column_has_one_call_that_fills_it() -> None:
    filled = [name for names, _ in (*READ, *READ_SLOWLY) for name in names]
    assert sorted(filled) == sorted((*VALUES, PROCESSES))


def test_a_stream_without_its_end_is_whole(tmp_path: Path) -> None:
    data = written(tmp_path / "x", GOOD)
    assert loaded(tmp_path, data) == []
    assert rows(tmp_path, "SELECT host, gpu, ts_ns, power_mw, utilization FROM nvml_sample") == [
        ("a", 0, 5, 300_000, None),
        ("a", 0, 6, None, None),
    ]
    assert rows(tmp_path, "FROM nvml_process") == [("a", 0, 5, 7, None)]
    assert rows(tmp_path, "SELECT events, state FROM file WHERE kind = 'nvml'") == [(2, "whole")]
    assert loaded(tmp_path, (tmp_path / "x").read_bytes()) == []  # with its end


def test_a_stream_that_grew_is_read_again_and_stored_once(tmp_path: Path) -> None:
    first = written(tmp_path / "x", GOOD)
    both = written(tmp_path / "y", GOOD, [sample(7), sample(7, gpu=1)])
    assert loaded(tmp_path, first) == []
    for _ in range(2):
        assert loaded(tmp_path, both, append=True) == []
        found = rows(tmp_path, "SELECT gpu, ts_ns FROM nvml_sample ORDER BY gpu, ts_ns")
        assert found == [(0, 5), (0, 6), (0, 7), (1, 7)]
        assert len(rows(tmp_path, "FROM nvml_process")) == 1
        assert rows(tmp_path, "SELECT events FROM file WHERE kind = 'nvml'") == [(4,)]


def test_what_stands_before_a_cut_is_kept(tmp_path: Path) -> None:
    one = written(tmp_path / "x", GOOD)
    two = written(tmp_path / "y", GOOD, [sample(7)])
    for end in (len(one) + 1, len(one) + 100, len(two) - 1):
        (said,) = loaded(tmp_path, two[:end])
        assert "ends early, or is damaged" in said
        assert rows(tmp_path, "SELECT ts_ns FROM nvml_sample ORDER BY 1") == [(5,), (6,)]
        assert rows(tmp_path, "SELECT state FROM file WHERE kind = 'nvml'") == [("partial",)]
    with pytest.raises(DamageError, match="ends early"):
        loaded(tmp_path, two[:-1], strict=True)


def other_schema(*, metadata: dict[bytes, bytes] | None = None, kind: Any = None) -> bytes:
    ours = schema("a")
    if kind is not None:
        ours = ours.set(1, pa.field("ts_ns", kind))
    if metadata is not None:
        ours = ours.with_metadata(metadata)
    return bytes(ours.serialize())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 64,
        b"garbage" * 99,
        b'{"host": "a", "gpu": 0}\n',
        b"\xff\xff\xff\xff\xff\xff\xff\x7f" + b"x" * 99,
        other_schema(kind=pa.string()),
        other_schema(kind=pa.dictionary(pa.int32(), pa.int64())),
        other_schema(metadata={}),
        other_schema(metadata={b"tracekit.format": b"9", b"tracekit.host": b"a"}),
        other_schema(metadata={b"tracekit.format": b"1", b"tracekit.host": b"\xff"}),
        bytes(pa.schema([("a", pa.int8())]).serialize()),
    ],
)
def test_what_is_no_telemetry_is_a_line(tmp_path: Path, data: bytes) -> None:
    (said,) = loaded(tmp_path, data)
    assert "cannot be read: no " in said
    assert rows(tmp_path, "FROM nvml_sample") == []


def test_numbers_that_cannot_be_true_cost_their_sample(tmp_path: Path) -> None:
    bad = [
        sample(-1),
        sample(1 << 62),
        sample(8, gpu=-1),
        sample(8, gpu=1 << 31),
        sample(8, power_mw=-1),
        sample(8, nvlink_tx_bytes=(1 << 63) - 1),
        {"ts_ns": 8},
        {"gpu": 0},
    ]
    processes = [{"pid": -1, "used_bytes": 1}, {"used_bytes": 1}, {"pid": 1, "used_bytes": -1}]
    good = sample(9, processes=[*processes, {"pid": 2, "used_bytes": 3}])
    (said,) = loaded(tmp_path, written(tmp_path / "x", bad, [good]))
    assert said.endswith("8 samples that cannot be true are left out")
    assert rows(tmp_path, "SELECT gpu, ts_ns FROM nvml_sample") == [(0, 9)]
    assert rows(tmp_path, "SELECT pid, used_bytes FROM nvml_process") == [(2, 3)]


def test_a_byte_that_is_not_as_it_was_raises_nothing_else(tmp_path: Path) -> None:
    data = written(tmp_path / "x", GOOD, [sample(7)])
    chance = random.Random(7)
    for _ in range(400):
        turned = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            turned[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        path = tmp_path / "turned"
        path.write_bytes(turned)
        try:
            reader = Reader(path)
        except DamagedError:
            continue
        try:
            assert sum(batch.num_rows for batch in reader.batches()) >= 0
        except DamagedError:
            pass
        finally:
            reader.close()


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "[]",
        '{"format": 9}',
        '{"format": 1, "host": 7, "start_ns": 1}',
        '{"format": 1, "host": "a", "start_ns": -1}',
        "[" * 100_000,
    ],
)
def test_facts_that_are_none_are_a_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "nvml.a.1.json").write_text(text)
    trace = TraceBuilder()
    trace.kernel("gemm", 0, 1)
    trace.write(tmp_path / "run" / "rank0.json")
    (said,) = ingest([tmp_path / "run"], tmp_path / "run.db").warnings
    assert "nvml.a.1.json: cannot be read" in said


def test_facts_keep_what_can_be_true(tmp_path: Path) -> None:
    odd = {"gpu": 1, "uuid": 7, "memory_bytes": 1 << 70, "lost_ns": "x", "parent": [0], "mig": -1,
           "is_divided": "yes", "unsupported": {"power_mw": "why", "energy_mj": 5}}  # fmt: skip
    listed = [3, {}, {"gpu": -1}, {"gpu": 1, "uuid": "GPU-\ud800"}, odd]
    facts = {"format": 1, "host": "a", "start_ns": 5, "driver": "580.1", "gpus": listed}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "nvml.a.1.json").write_text(json.dumps(facts))
    earlier = {**facts, "start_ns": 4, "gpus": [{"gpu": 0}]}
    (tmp_path / "run" / "nvml.a.2.json").write_text(json.dumps(earlier))
    assert loaded(tmp_path, written(tmp_path / "x", GOOD)) == []
    found = "SELECT gpu, uuid, memory_bytes, driver, lost_ns, parent, mig, is_divided FROM gpu"
    assert rows(tmp_path, found) == [(1, None, None, "580.1", None, None, None, None)]
    assert rows(tmp_path, "SELECT unsupported FROM gpu") == [({"power_mw": "why"},)]


class Broken:
    """A sink on a disk that is full from the second batch on."""

    def __init__(self) -> None:
        self.batches = 0

    def write(self, samples: Sequence[Any]) -> None:
        self.batches += 1
        if self.batches > 1:
            raise OSError(28, "No space left on device")

    def close(self) -> None:
        raise OSError(28, "No space left on device")


@pytest.fixture
def pynvml(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A driver that answers nothing that it is asked, of one GPU."""
    module = types.ModuleType("pynvml")
    members: dict[str, Any] = {"NVML_CLOCK_SM": 1, "NVML_ERROR_GPU_IS_LOST": 15}
    members |= {"nvmlInit": lambda: None, "nvmlShutdown": lambda: None, "NVMLError": KeyError}
    members |= {"nvmlDeviceGetCount": lambda: 1, "nvmlDeviceGetHandleByIndex": lambda index: index}
    for name, member in members.items():
        setattr(module, name, member)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_a_disk_that_is_full_is_a_line(
    tmp_path: Path, pynvml: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracekit_collectors.nvml._BATCH_S", 0)
    sampler = Sampler(tmp_path, lambda path, host: Broken(), interval=0.001)
    sampler.start()
    assert sampler._thread is not None
    sampler._thread.join(10)
    sampler.stop()
    assert sampler.problem is not None
    assert sampler.problem.startswith("GPU telemetry ended: ")
    assert "No space left on device" in sampler.problem


def test_an_error_that_nobody_expects_is_logged_once(
    tmp_path: Path, pynvml: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fail(self: gpus.Gpu) -> None:
        asked.append(self)
        raise RuntimeError("what is this")

    monkeypatch.setattr(gpus.Gpu, "sample", fail)
    log.write_to(tmp_path)
    sampler = Sampler(tmp_path, open_sink, interval=0.001)
    sampler.start()
    deadline = time.monotonic() + 10
    while len(asked) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    sampler.stop()
    log.write_to(None)
    assert sampler.problem is None
    lines = (tmp_path / records.LOG_FILE).read_text().splitlines()
    assert [line.partition(": ")[2] for line in lines if "RuntimeError" in line] == [
        "GPU telemetry: GPU 0: RuntimeError: what is this"
    ]


def test_a_driver_that_does_not_answer_holds_nobody(
    tmp_path: Path, pynvml: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(pynvml, "nvmlInit", answers.wait)
    monkeypatch.setattr("tracekit_collectors.nvml._PATIENCE_S", 0.05)
    sampler = Sampler(tmp_path, open_sink)
    sampler.start()
    sampler.stop()
    assert sampler.problem == "GPU telemetry ended: the driver does not answer"
    answers.set()
    assert sampler._thread is not None
    sampler._thread.join(10)


def test_a_driver_that_knows_nothing_gives_reasons(
    tmp_path: Path, pynvml: types.ModuleType
) -> None:
    (gpu,) = gpus.find(pynvml)
    found = gpu.sample()
    assert all(found[name] is None for name in VALUES if "pcie" not in name)
    assert "nvmlDeviceGetPowerUsage" in gpu.facts.unsupported["power_mw"]
    assert isinstance(gpu.facts, GpuFacts)


def test_without_the_package_it_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    sampler = Sampler(tmp_path, open_sink)
    sampler.start()
    sampler.stop()
    assert sampler.problem is not None
    assert "no GPU telemetry: the package nvidia-ml-py is not there" in sampler.problem
