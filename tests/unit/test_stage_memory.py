"""Memory per stage, worked by hand from a few [memory] events and a manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.conftest import Load
from tracekit.analysis.stage_memory import STAGE_MEMORY
from tracekit_collectors import records

P = 1000  # bytes of parameters


def write_run(
    folder: Path, trace: TraceBuilder, *, device: str, **fields: object
) -> records.RankManifest:
    folder.mkdir()
    manifest = records.RankManifest(
        rank=0, world_size=1, local_rank=0, host="a", pid=1, device_kind=device,
        state="finished", windows=[records.WindowRecord([0], "rank-0.a.1.trace.json.gz")], **fields,
    )  # type: ignore[arg-type]  # fmt: skip
    records.write_manifest(folder, "rank-0.a.1", manifest)
    trace.write(folder / "rank-0.a.1.trace.json")
    return manifest


def state(**categories: int) -> list[records.StateBytes]:
    return [
        records.StateBytes(moment, name, "float32", size // 4, size)
        for moment in ("start", "end")
        for name, size in categories.items()
    ]


def events(trace: TraceBuilder, device_type: int, *changes: tuple[int, int, int]) -> None:
    """(time in us, bytes, address): the total is the running sum."""
    total = 0
    for at, size, address in changes:
        total += size
        trace.memory(at, size, total, 0, device_type=device_type, Addr=address)


def test_cpu_peak_adds_the_state_that_was_there(tmp_path: Path, load: Load) -> None:
    # Before: params 1000, optimizer 2000. In the step: activations +700, gradients +1000 in
    # 0x20, -700. So the peak is 1000 + 2000 + 700 + 1000 = 4700, its activations 700.
    trace = TraceBuilder()
    trace.step(0, 0, 100)
    events(trace, 0, (10, 700, 0x10), (20, P, 0x20), (30, -700, 0x10))
    write_run(
        tmp_path / "run", trace, device="cpu",
        model_state=state(params=P, grads=P, optimizer=2 * P),
        grads={"0": [[0x20, P]]},
    )  # fmt: skip
    result = STAGE_MEMORY.run(load.paths([tmp_path / "run"]))  # type: ignore[attr-defined]
    (row,) = result.rows
    assert row.peak_allocated_bytes == 4 * P + 700
    assert (row.params_bytes, row.grads_bytes, row.optimizer_bytes) == (P, P, 2 * P)
    assert (row.grads_at_peak_bytes, row.activations_bytes) == (P, 700)
    assert row.peak_step == 0
    assert result.missing[0].reason.startswith("estimated: recorded model state")


def test_gradients_that_come_after_the_peak_are_not_in_it(tmp_path: Path, load: Load) -> None:
    # +900 and -900 before the gradients: the peak holds params, optimizer and 900.
    trace = TraceBuilder()
    trace.step(0, 0, 100)
    events(trace, 0, (10, 900, 0x20), (20, -900, 0x20), (30, 500, 0x20))
    write_run(
        tmp_path / "run", trace, device="cpu", model_state=state(params=P, grads=500, optimizer=0),
        grads={"0": [[0x20, 500]]},
    )  # fmt: skip
    (row,) = STAGE_MEMORY.run(load.paths([tmp_path / "run"])).rows  # type: ignore[attr-defined]
    assert (row.peak_allocated_bytes, row.grads_at_peak_bytes) == (P + 900, 0)
    assert row.activations_bytes == 900


def test_persistent_gradients_belong_to_the_base(tmp_path: Path, load: Load) -> None:
    # No event allocates 0x20: it was there before (bucket views): 1000 + 1000 + 300.
    trace = TraceBuilder()
    trace.step(0, 0, 100)
    events(trace, 0, (10, 300, 0x10), (20, -300, 0x10))
    write_run(
        tmp_path / "run", trace, device="cpu", model_state=state(params=P, grads=P, optimizer=0),
        grads={"0": [[0x20, P]]},
    )  # fmt: skip
    (row,) = STAGE_MEMORY.run(load.paths([tmp_path / "run"])).rows  # type: ignore[attr-defined]
    assert (row.peak_allocated_bytes, row.grads_at_peak_bytes) == (2 * P + 300, P)
    assert row.activations_bytes == 300


def test_gathered_parameters_are_no_activations(tmp_path: Path, load: Load) -> None:
    # 4000 are gathered at 10 us and gone at 40; the peak at 20 is params 1000 + 4000 + 100.
    base = 1_700_000_000_000_000_000
    trace = TraceBuilder(base_ns=base)
    trace.step(0, 0, 100)
    events(trace, 0, (10, 4000, 0x10), (20, 100, 0x20), (30, -100, 0x20), (40, -4000, 0x10))
    write_run(
        tmp_path / "run", trace, device="cpu", model_state=state(params=P, optimizer=0),
        gathered=[[base + 11_000, 4000], [base + 39_000, 0]],
    )  # fmt: skip
    (row,) = STAGE_MEMORY.run(load.paths([tmp_path / "run"])).rows  # type: ignore[attr-defined]
    assert row.peak_allocated_bytes == P + 4100
    assert (row.gathered_at_peak_bytes, row.gathered_peak_bytes) == (4000, 4000)
    assert row.activations_bytes == 100


def test_padding_is_stated(tmp_path: Path, load: Load) -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 100)
    events(trace, 0, (10, 50, 0x10))
    write_run(
        tmp_path / "run", trace, device="cpu", model_state=state(params=P, optimizer=0, padding=24)
    )
    (row,) = STAGE_MEMORY.run(load.paths([tmp_path / "run"])).rows  # type: ignore[attr-defined]
    assert (row.padding_bytes, row.activations_bytes) == (24, 50)
    assert row.peak_allocated_bytes == P + 24 + 50


def test_gpu_totals_are_absolute_and_cpu_events_are_not_its_memory(load: Load) -> None:
    # G4: +100 and -60 with totals 500 and 440: the peak is 500. A CPU event of 10^9 is not.
    trace = TraceBuilder()
    trace.step(0, 0, 100)
    trace.kernel("gemm", 5, 1)
    trace.memory(10, 100, 500, 800, device_type=1)
    trace.memory(15, 10**9, 10**9, 0, device_type=0)
    trace.memory(20, -60, 440, 800, device_type=1)
    result = STAGE_MEMORY.run(load(trace))
    (row,) = result.rows
    assert (row.peak_allocated_bytes, row.peak_reserved_bytes) == (500, 800)
    assert (row.params_bytes, row.activations_bytes) == (None, None)
    assert result.missing[0].reason == "model state and activations not available: not recorded"


def test_in_flight_at_the_peak(load: Load) -> None:
    # F0 F1 F2 B0 ...: at 35 us, within B0, three have been forwarded and none is backwarded.
    trace = TraceBuilder()
    trace.step(0, 0, 100)
    trace.kernel("gemm", 5, 1)
    for number, kind, mb in ((0, "F", 0), (1, "F", 1), (2, "F", 2), (3, "B", 0), (4, "B", 1)):
        trace.annotation(f"tracekit.action {kind} stage=0 chunk=0 vstage=0 mb={mb}", 10 * number, 9)
    trace.memory(35, 700, 700, 1000, device_type=1)
    trace.memory(36, -700, 0, 1000, device_type=1)
    (row,) = STAGE_MEMORY.run(load(trace)).rows
    assert (row.peak_in, row.in_flight) == ("B mb 0", 3)


@pytest.mark.parametrize("by", [["rank"], ["stage"], ["step"], []])
def test_without_events_the_peak_is_not_available(load: Load, by: list[str]) -> None:
    trace = TraceBuilder()
    trace.kernel("gemm", 0, 1)
    result = STAGE_MEMORY.run(load(trace), by)
    assert not result.available
    assert "no memory events" in result.missing[0].reason


def test_the_spread_is_of_ranks_and_not_of_steps(load: Load) -> None:
    # Peaks by step 50 and 100 on rank 0, 150 and 200 on rank 1: the ranks differ by 100.
    traces = []
    for rank, peaks in enumerate(((50, 100), (150, 200))):
        trace = TraceBuilder(rank=rank, world_size=2)
        trace.kernel("gemm", 5, 1)
        for step, peak in enumerate(peaks):
            trace.step(step, 100 * step, 100)
            trace.memory(100 * step + 10, peak, peak, 0, device_type=1)
        traces.append(trace)
    reader = load(*traces)
    (row,) = STAGE_MEMORY.run(reader, ["stage"]).rows
    assert (row.peak_allocated_bytes, row.spread_bytes) == (200, 100)
    assert [r.spread_bytes for r in STAGE_MEMORY.run(reader, ["step"]).rows] == [100, 100]


def test_a_peak_outside_the_steps_is_the_ranks_peak(load: Load) -> None:
    trace = TraceBuilder()
    trace.kernel("gemm", 5, 1)
    trace.memory(1, 900, 900, 0, device_type=1)
    trace.memory(2, -890, 10, 0, device_type=1)
    trace.step(0, 3, 100)
    trace.memory(50, 10, 20, 0, device_type=1)
    reader = load(trace)
    (row,) = STAGE_MEMORY.run(reader).rows
    assert (row.peak_allocated_bytes, row.peak_step) == (900, None)
    (row,) = STAGE_MEMORY.run(reader, ["step"]).rows
    assert (row.step, row.peak_allocated_bytes) == (0, 20)
