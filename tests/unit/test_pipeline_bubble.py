"""Pipeline bubble against runs whose truth was declared, and against hand-worked actions."""

from __future__ import annotations

import gzip
import re
from fractions import Fraction
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.conftest import Load
from tests.synthetic import pipeline_run
from tracekit.analysis.pipeline_bubble import PIPELINE_BUBBLE
from tracekit.store import Reader

US = 1000


def bubble(reader: Reader, by: list[str] | None = None) -> list[Fraction]:
    result = PIPELINE_BUBBLE.run(reader, by)
    return [Fraction(row.bubble_ns, row.window_ns) for row in result.rows]


@pytest.mark.parametrize("receive_waits", [False, True])
@pytest.mark.parametrize("autograd_thread", [False, True])
@pytest.mark.parametrize("offsets", [None, (0, 7_123_457)], ids=["one clock", "two hosts"])
@pytest.mark.parametrize(
    ("schedule", "v", "name", "exact"),
    [
        ("1f1b", 1, "1f1b", Fraction(3, 11)),
        ("gpipe", 1, "gpipe", Fraction(3, 11)),
        ("interleaved", 2, "interleaved-1f1b", Fraction(3, 19)),
    ],
)
def test_uniform_schedules_are_exact(
    tmp_path: Path,
    load: Load,
    schedule: str,
    v: int,
    name: str,
    exact: Fraction,
    offsets: tuple[int, ...] | None,
    autograd_thread: bool,
    receive_waits: bool,
) -> None:
    folder = tmp_path / "traces"
    truth = pipeline_run(
        folder, schedule=schedule, p=4, m=8, v=v, receive_waits=receive_waits,
        host_offsets_ns=offsets, hosts=None if offsets is None else ("a", "a", "b", "b"),
        autograd_thread=autograd_thread,
    )  # fmt: skip
    reader = load.paths([folder])  # type: ignore[attr-defined]
    result = PIPELINE_BUBBLE.run(reader, ["stage", "step"])
    assert [missing.reason for missing in result.missing] == []
    assert len(result.rows) == 4 * 2
    for row in result.rows:
        assert Fraction(row.bubble_ns, row.window_ns) == exact
        assert row.bubble_ratio == float(exact)
        assert row.bubble_overhead == pytest.approx(float(exact / (1 - exact)), rel=1e-15)
        assert row.theoretical_ratio == float(exact)
        assert (row.schedule, row.microbatches) == (name, 8)
        assert row.bubble_ns == row.warmup_ns + row.steady_ns + row.cooldown_ns
    assert truth.bubble_ratio(0, 0) == exact
    if offsets is not None:
        found = reader.rows("SELECT offset_ns, aligned FROM clock ORDER BY rank")
        assert found == [(0, True)] * 2 + [(7_123_457, True)] * 2


@pytest.mark.parametrize("receive_waits", [False, True])
def test_uneven_stages_and_transfers_are_recovered(
    tmp_path: Path, load: Load, receive_waits: bool
) -> None:
    folder = tmp_path / "traces"
    truth = pipeline_run(
        folder, schedule="1f1b", p=4, m=6, f_ns=(900_000, 1_100_000, 1_300_000, 700_000),
        b_ns=2_000_000, p2p_ns=120_000, steps=3, receive_waits=receive_waits,
    )  # fmt: skip
    reader = load.paths([folder])  # type: ignore[attr-defined]
    rows = {(r.stage, r.step): r for r in PIPELINE_BUBBLE.run(reader, ["stage", "step"]).rows}
    stages = {(t.stage, t.step): t for t in truth.stages}
    steps = sorted({step for _, step in rows})
    for (stage, step), row in rows.items():
        exact = stages[stage, sorted({s for _, s in stages})[steps.index(step)]]
        assert row.window_ns == exact.window_ns
        assert row.busy_ns == exact.busy_ns
        assert row.transfer_ns == exact.transfer_ns
        assert row.bubble_ns == exact.bubble_ns


def test_two_replicas_have_a_window_each(tmp_path: Path, load: Load) -> None:
    folder = tmp_path / "traces"
    pipeline_run(folder, schedule="1f1b", p=4, m=8, dp=2)
    reader = load.paths([folder])  # type: ignore[attr-defined]
    result = PIPELINE_BUBBLE.run(reader, ["pipeline", "stage"])
    assert [row.pipeline for row in result.rows] == [0] * 4 + [1] * 4
    assert bubble(reader, ["pipeline", "stage"]) == [Fraction(3, 11)] * 8


@pytest.mark.parametrize(("schedule", "v", "exact"), [
    ("1f1b", 1, Fraction(3, 11)), ("interleaved", 2, Fraction(3, 19)),
])  # fmt: skip
def test_torchs_own_action_names_on_the_device(
    tmp_path: Path, load: Load, schedule: str, v: int, exact: Fraction
) -> None:
    """A trace that was not taken by our wrapper: PP:{virtual stage}{kind}{micro-batch}."""
    folder = tmp_path / "traces"
    pipeline_run(folder, schedule=schedule, p=4, m=8, v=v, receive_waits=True)
    ours = rb"tracekit\.action ([FB]) stage=\d+ chunk=\d+ vstage=(\d+) mb=(\d+)"
    for path in folder.glob("*.gz"):
        data = re.sub(ours, rb"PP:\2\1\3", gzip.decompress(path.read_bytes()))
        assert b"PP:" in data
        path.write_bytes(gzip.compress(data))
    reader = load.paths([folder])  # type: ignore[attr-defined]
    assert bubble(reader, ["stage", "step"]) == [exact] * 8


def test_hand_worked_two_stages(load: Load) -> None:
    # Stage 0: F[0,10] B[40,60]; stage 1: F[10,20] B[20,40]. Window 60: bubbles 30 and 30.
    # Stage 0 waits from 10 to 40, after its last F and before its first B: steady. Stage 1 waits
    # 10 before its first F (warm-up) and 20 after its last B (cool-down).
    traces = []
    for rank, spans in enumerate(([(0, 10), (40, 20)], [(10, 10), (20, 20)])):
        trace = TraceBuilder(rank=rank, world_size=2, host="a")
        trace.step(0, 0, 100)
        for kind, (start, length) in zip("FB", spans, strict=True):
            trace.annotation(
                f"tracekit.action {kind} stage={rank} chunk=0 vstage={rank} mb=0", start, 1
            )
            trace.kernel("gemm", start, length, launch=start)
        traces.append(trace)
    rows = PIPELINE_BUBBLE.run(load(*traces)).rows
    assert [(r.window_ns, r.busy_ns, r.bubble_ns) for r in rows] == [
        (60 * US, 30 * US, 30 * US)
    ] * 2
    assert [r.bubble_ratio for r in rows] == [30 / 60] * 2
    assert [r.bubble_overhead for r in rows] == [30 / 30] * 2
    assert [(r.warmup_ns, r.steady_ns, r.cooldown_ns) for r in rows] == [
        (0, 30 * US, 0),
        (10 * US, 0, 20 * US),
    ]


def test_hand_worked_collective_inside_an_action_is_no_bubble(load: Load) -> None:
    # One stage: F launches gemm[0,10], a tp all-reduce [10,15], gemm[15,20]; B gemm[30,50].
    # Window 50: gemms 10 + 5 + 20 = 35 busy, collective 5, bubble the other 10.
    trace = TraceBuilder(world_size=2, host="a")
    trace.group("1", "mesh_tp", [0, 1])
    trace.step(0, 0, 100)
    trace.annotation("tracekit.action F stage=0 chunk=0 vstage=0 mb=0", 0, 3)
    trace.kernel("gemm", 0, 10, launch=0)
    trace.collective("allreduce", 10, 5, group="1", launch=1)
    trace.kernel("gemm", 15, 5, launch=2)
    trace.annotation("tracekit.action B stage=0 chunk=0 vstage=0 mb=0", 3, 2)
    trace.kernel("gemm", 30, 20, launch=4)
    (row,) = PIPELINE_BUBBLE.run(load(trace)).rows
    assert (row.window_ns, row.busy_ns) == (50 * US, 35 * US)
    assert (row.other_comm_ns, row.bubble_ns) == (5 * US, 10 * US)


def test_a_missing_stage_is_said(tmp_path: Path, load: Load) -> None:
    folder = tmp_path / "traces"
    pipeline_run(folder, schedule="1f1b", p=4, m=8)
    sorted(folder.glob("rank1*"))[0].unlink()
    result = PIPELINE_BUBBLE.run(load.paths([folder]))  # type: ignore[attr-defined]
    assert [m.where["stage"] for m in result.missing if "stages are here" in m.reason] == [[1]]


def test_no_pipeline(load: Load) -> None:
    trace = TraceBuilder()
    trace.kernel("gemm", 0, 10)
    result = PIPELINE_BUBBLE.run(load(trace))
    assert result.rows == []
    assert [m.reason for m in result.missing] == ["not available: no pipeline action in this run"]


def test_a_stage_whose_work_is_lost_is_said_and_gives_no_zero_theory(load: Load) -> None:
    """Stage 1 has its actions but no kernels of them: p is still 2, and its stage is missing."""
    traces = []
    for rank in (0, 1, 2):
        trace = TraceBuilder(rank=rank, world_size=3, host="a")
        trace.step(0, 0, 100)
        if rank < 2:
            for number, kind in enumerate("FB"):
                trace.annotation(
                    f"tracekit.action {kind} stage={rank} chunk=0 vstage={rank} mb=0",
                    20 * number, 5,
                )  # fmt: skip
                if rank == 0:
                    trace.kernel("gemm", 20 * number, 10, launch=20 * number + 1)
        trace.kernel("unrelated", 90, 1, launch=89)
        traces.append(trace)
    reader = load(*traces)
    result = PIPELINE_BUBBLE.run(reader)
    assert [(row.stage, row.theoretical_ratio) for row in result.rows] == [(0, 1 / 2)]
    (missing,) = (m for m in result.missing if "stages are here" in m.reason)
    assert (missing.where["stage"], missing.reason[:16]) == ([1], "only 1 of 2 stag")
    by_rank = PIPELINE_BUBBLE.run(reader, ["rank"])
    assert [(row.rank, row.bubble_ratio is None) for row in by_rank.rows] == [
        (0, False), (1, True), (2, True),
    ]  # fmt: skip


def test_without_step_marks_the_pipeline_is_one_window(load: Load) -> None:
    trace = TraceBuilder(host="a")
    for number, kind in enumerate("FB"):
        at = 20 * number
        trace.annotation(f"tracekit.action {kind} stage=0 chunk=0 vstage=0 mb=0", at, 5)
        trace.kernel("gemm", at, 10, launch=at + 1)
    result = PIPELINE_BUBBLE.run(load(trace), ["stage", "step"])
    # F [0,10], B [20,30]: 10 of 30.
    assert [(row.step, row.bubble_ns, row.window_ns) for row in result.rows] == [
        (None, 10 * US, 30 * US)
    ]
    assert any("no step marks" in m.reason for m in result.missing)
