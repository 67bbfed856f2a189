"""Fault cases whose answer is arithmetic: one GPU, a few kernels, times in us."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.conftest import Load
from tracekit.analysis.comm_overlap import COMM_OVERLAP, CommOverlap
from tracekit.analysis.step_breakdown import STEP_BREAKDOWN
from tracekit.store import Reader

US = 1000


def overlap(reader: Reader) -> CommOverlap:
    (row,) = COMM_OVERLAP.run(reader).rows
    assert isinstance(row, CommOverlap)
    return row


def test_c1_a_sync_is_no_work(load: Load) -> None:
    # nccl[0,100], cuda_sync[0,100], gemm[0,20]: 20 of 100 is hidden, the sync hides nothing.
    trace = TraceBuilder()
    trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, 100, stream=20)
    trace.sync(0, 100)
    trace.kernel("gemm", 0, 20)
    row = overlap(load(trace))
    assert (row.comm_ns, row.exposed_ns, row.overlap) == (100 * US, 80 * US, 20 / 100)


def test_c2_an_annotation_is_no_work(load: Load) -> None:
    # gpu_user_annotation nccl:all_reduce[0,100] and its kernel[0,100], gemm[0,30].
    trace = TraceBuilder()
    trace.gpu_annotation("nccl:all_reduce", 0, 100, stream=20)
    trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, 100, stream=20)
    trace.kernel("gemm", 0, 30)
    reader = load(trace)
    row = overlap(reader)
    assert (row.comm_ns, row.overlapped_ns) == (100 * US, 30 * US)
    busy = reader.scalar(
        "WITH w AS (SELECT rank AS key, start_ns, end_ns FROM work) "
        "SELECT sum(end_ns - start_ns) FROM union_of('w')"
    )
    assert busy == 100 * US


def test_c3_unions_never_sums(load: Load) -> None:
    # all-gather[0,60] and reduce-scatter[40,100] cover 100, not 60+60; gemm[50,90] hides 40.
    trace = TraceBuilder()
    trace.kernel("ncclDevKernel_AllGather_RING_LL", 0, 60, stream=20)
    trace.kernel("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", 40, 60, stream=21)
    trace.kernel("gemm", 50, 40)
    row = overlap(load(trace))
    assert (row.comm_ns, row.overlapped_ns) == (100 * US, 40 * US)
    assert row.overlap == 40 / 100


def test_c4_kernels_of_one_stream_may_overlap(load: Load) -> None:
    # A[3,6.776] and B[5,7] on one stream: busy from 3 to 7.
    trace = TraceBuilder()
    trace.kernel("A", 3, "3.776")
    trace.kernel("B", 5, 2)
    reader = load(trace)
    assert overlap(reader).compute_ns == 4 * US
    assert reader.scalar("SELECT count(*) FROM work") == 2


def test_c5_an_impossible_event_is_named_and_left_out(load: Load) -> None:
    # ts 0 dur 1.6 s on a stream that then runs 1000 kernels of 50 us, one every 60 us.
    trace = TraceBuilder()
    trace.kernel("stuck", 0, 1_600_000)
    for number in range(1000):
        trace.kernel("gemm", 100 + 60 * number, 50)
    reader = load(trace)
    assert overlap(reader).compute_ns == 1000 * 50 * US
    assert reader.rows("SELECT rank, kind, count FROM damage") == [(0, "impossible duration", 1)]
    assert "stuck" in reader.scalar("SELECT detail FROM damage")


@pytest.mark.parametrize("over_us", [1, 3])
def test_c5_an_overrun_of_a_few_microseconds_is_not(load: Load, over_us: int) -> None:
    trace = TraceBuilder()
    for number in range(100):
        trace.kernel("gemm", 60 * number, 60 + over_us)
    assert load(trace).rows("FROM damage") == []


def test_c9_no_communication_is_not_available(load: Load) -> None:
    trace = TraceBuilder()
    trace.kernel("gemm", 0, 10)
    result = COMM_OVERLAP.run(load(trace))
    assert [row.overlap for row in result.rows] == [None]
    assert [missing.reason for missing in result.missing] == ["not available: no communication"]
    assert not result.available


def test_communication_on_a_merged_stream_is_not_impossible(load: Load) -> None:
    # One stream for all, as some writers have it: nccl[0,100] over ten gemms of 5 us.
    trace = TraceBuilder()
    trace.kernel("ncclDevKernel_AllReduce", 0, 100)
    for number in range(10):
        trace.kernel("gemm", 10 * number, 5)
    row = overlap(load(trace))
    assert (row.comm_ns, row.overlapped_ns) == (100 * US, 50 * US)


def test_the_same_step_twice_is_the_first_and_a_gap_is_no_step(load: Load) -> None:
    # Steps 1 [0,100) and 2 [100,200), both again at 1000; step 7 [2000,2100).
    trace = TraceBuilder()
    for at in (0, 1000):
        trace.step(1, at, 100)
        trace.step(2, at + 100, 100)
    trace.step(7, 2000, 100)
    trace.kernel("gemm", 2050, 10, launch=2010)
    reader = load(trace)
    rows = reader.rows("SELECT step, end_ns - start_ns FROM step ORDER BY step")
    assert rows == [(1, 100 * US), (2, 100 * US), (7, 100 * US)]
    assert reader.rows("SELECT kind, count FROM damage") == [("step marked twice", 2)]


def test_steps_tile_and_work_counts_where_it_was_launched(load: Load) -> None:
    # Steps [0,100) and [100,200) on the host. A[10,50] launched at 5; B[90,130] launched at 80
    # still belongs to step 0, whose window so ends at 130; C[150,180] launched at 120 to step 1.
    trace = TraceBuilder()
    trace.step(0, 0, 100)
    trace.step(1, 100, 100)
    trace.kernel("A", 10, 40, launch=5)
    trace.kernel("B", 90, 40, launch=80)
    trace.kernel("C", 150, 30, launch=120)
    reader = load(trace)
    windows = reader.rows("SELECT step, start_ns, end_ns FROM step ORDER BY step")
    start = windows[0][1]
    assert [(s, a - start, b - start) for s, a, b in windows] == [
        (0, 0, 130 * US),
        (1, 130 * US, 200 * US),
    ]
    rows = STEP_BREAKDOWN.run(reader, ["step"]).rows
    assert [(row.step, row.compute_ns, row.idle_ns) for row in rows] == [
        (0, 80 * US, 50 * US),
        (1, 30 * US, 40 * US),
    ]


def test_the_exposed_time_of_two_dimensions_goes_to_the_first(load: Load) -> None:
    # tp all-reduce [0,40], dp all-reduce [20,100], gemm[90,120]: tp 40, dp 50, compute 30.
    trace = TraceBuilder(world_size=8)
    trace.group("1", "mesh_tp", [0, 1])
    trace.group("2", "mesh_dp", [0, 2, 4, 6])
    trace.collective("allreduce", 0, 40, group="1", stream=20)
    trace.collective("allreduce", 20, 80, group="2", stream=21)
    trace.kernel("gemm", 90, 30)
    (row,) = STEP_BREAKDOWN.run(load(trace)).rows
    assert (row.exposed_tp_ns, row.exposed_dp_ns, row.compute_ns) == (40 * US, 50 * US, 30 * US)
    assert row.exposed_ns == 90 * US
    assert row.idle_ns == 0
