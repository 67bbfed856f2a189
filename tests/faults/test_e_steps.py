"""Rows E4, E5 and E7: what the figures say of slow ranks and of traces without steps."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.faults.conftest import Cases
from tests.faults.store import Loaded, line_with
from tests.faults.writing import laid

US = 1000
SLOW = (93, 293, 93, 93)


def rank_of(rank: int, compute: float, reduce: float, world_size: int, steps: int) -> TraceBuilder:
    """Steps of one kernel and the all-reduce after it."""
    trace = TraceBuilder(rank, world_size, backend="nccl")
    length = 1000
    for step in range(steps):
        trace.step(step, length * step, length)
        start = length * step + 20
        ns = round(compute * US)
        trace.kernel("gemm", ts_ns=start * US, dur_ns=ns)
        trace.collective("allreduce", ts_ns=start * US + ns, dur_ns=round(reduce * US))
    return trace


def straggling(compute: tuple[int, ...], steps: int = 3) -> dict[str, TraceBuilder]:
    """Every rank's all-reduce ends 5 after the slowest rank has come to it."""
    last = max(compute) + 5
    return {
        str(rank): rank_of(rank, each, last - each, len(compute), steps)
        for rank, each in enumerate(compute)
    }


def per_rank(loaded: Loaded, column: str) -> list[Any]:
    printed = json.loads(loaded.report("-a", "step_breakdown", "--by", "rank", "--format", "json"))
    return [row[column] for row in printed["rows"]]


@pytest.mark.parametrize("compute", [SLOW, (93, 93, 93, 93, 93, 93, 93, 493), (100, 101)])
def test_e4_own_time_and_wait_tell_the_slow_rank_from_its_victims(
    cases: Cases, compute: tuple[int, ...]
) -> None:
    """compute 93/293/93/93, all-reduce 205/5/205/205: 200 of each 205 is the wait for rank 1."""
    loaded = cases(straggling(compute))
    assert per_rank(loaded, "compute_ns") == [each * US for each in compute]
    last = max(compute) + 5
    assert per_rank(loaded, "exposed_ns") == [(last - each) * US for each in compute]
    # wait = duration - the shortest duration of the same collective (group, operation, Seq).
    waits = loaded.reader.rows(
        "WITH _each AS (SELECT a.group_name, a.operation, a.seq, w.rank, "
        "w.end_ns - w.start_ns AS ns FROM work AS w JOIN comm_args AS a USING (rank, event_id)), "
        "_wait AS (SELECT rank, ns - min(ns) OVER (PARTITION BY group_name, operation, seq) AS ns "
        "FROM _each) SELECT rank, min(ns), max(ns), count(*) FROM _wait GROUP BY rank ORDER BY 1"
    )
    expected = [(max(compute) - each) * US for each in compute]
    assert waits == [(rank, ns, ns, 3) for rank, ns in enumerate(expected)]
    assert [rank for rank, ns, _, _ in waits if ns == 0] == [compute.index(max(compute))]


@pytest.mark.parametrize("layout", ["kineto", "compact", "list"])
def test_e5_without_step_marks_the_whole_window_counts(cases: Cases, layout: str) -> None:
    # gemm[0,30], nccl[20,60], nothing until memcpy[80,100]: 30 + 30 + 20 idle + 20.
    trace = TraceBuilder(distributed=False)
    trace.kernel("gemm", 0, 30)
    trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 40, stream=20)
    trace.memcpy(80, 20)
    loaded = cases({"one": laid(trace, layout)})
    assert loaded.reader.rows("FROM step") == []
    _, row = loaded.figures("one")
    assert (row["window_ns"], row["compute_ns"], row["exposed_ns"]) == (100 * US, 30 * US, 30 * US)
    assert (row["idle_ns"], row["exposed_memory_ns"]) == (20 * US, 20 * US)
    printed = loaded.report("-a", "step_breakdown", "--by", "rank,step")
    assert line_with(printed, "no step marks in the trace")


@pytest.mark.parametrize("name", ["ProfilerStep", "ProfilerStep#", "ProfilerStep#x", "step 3"])
def test_e5_a_mark_without_a_number_is_no_step(cases: Cases, name: str) -> None:
    trace = TraceBuilder(distributed=False)
    trace.annotation(name, 0, 100)
    trace.kernel("gemm", 20, 30)
    loaded = cases({"one": trace})
    assert loaded.reader.rows("FROM step") == []
    _, row = loaded.figures("one")
    assert (row["window_ns"], row["compute_ns"]) == (30 * US, 30 * US)


def test_e5_a_cpu_run_without_step_marks(cases: Cases) -> None:
    trace = TraceBuilder(distributed=False)
    trace.cpu_op("aten::mm", 0, 30)
    trace.cpu_op("aten::add", 50, 10)
    loaded = cases({"one": trace}, device="cpu")
    _, row = loaded.figures("one")
    assert (row["window_ns"], row["compute_ns"], row["idle_ns"]) == (60 * US, 40 * US, 20 * US)


def test_e5_only_the_rank_without_marks_is_one_window(cases: Cases) -> None:
    marked, bare = (TraceBuilder(rank, 2) for rank in range(2))
    marked.step(4, 0, 100)
    for trace in (marked, bare):
        trace.kernel("gemm", 20, 30)
    loaded = cases({"marked": marked, "bare": bare})
    assert loaded.reader.rows("SELECT rank, step FROM step") == [(0, 4)]
    assert per_rank(loaded, "window_ns") == [100 * US, 30 * US]


@pytest.mark.parametrize("seed", range(3))
def test_e7_balanced_ranks_differ_by_their_noise_only(cases: Cases, seed: int) -> None:
    """2 % of noise a step: no figure of one rank stands out from those of its peers."""
    chance = random.Random(seed)
    traces = {}
    for rank in range(4):
        trace = TraceBuilder(rank, 4)
        for step in range(5):
            trace.step(step, 1000 * step, 1000)
            ns = round(100 * US * chance.uniform(0.98, 1.02))
            trace.kernel("gemm", ts_ns=(1000 * step + 20) * US, dur_ns=ns)
            trace.collective("allreduce", ts_ns=(1000 * step + 20) * US + ns, dur_ns=50 * US)
        traces[str(rank)] = trace
    loaded = cases(traces)
    compute = per_rank(loaded, "compute_ns")
    assert max(compute) / min(compute) < 1.04
    report = loaded.report().lower()
    assert "straggler: rank" not in report
    assert "slow rank" not in report
    assert loaded.reader.rows("FROM damage") == []
