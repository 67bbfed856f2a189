"""The reference loops as known ground: what must be measured on them, from real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.runs import Run, loop

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.alone]

# Window: 1 step found, 1 waited, 1 warm-up, 3 recorded.
STEPS = ("--steps", "7")


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_paced_pipeline_is_within_3_points_of_theory(tmp_path: Path, schedule: str) -> None:
    run = loop(
        tmp_path,
        4,
        "pipeline",
        "--schedule",
        schedule,
        "--microbatches",
        "8",
        "--pace",
        "60",
        *STEPS,
    )
    result = run.result("pipeline_bubble")
    assert [row.stage for row in result.rows] == [0, 1, 2, 3]
    for row in result.rows:
        assert (row.schedule, row.microbatches, row.steps) == (schedule, 8, 3)
        assert row.theoretical_ratio == 3 / 11
    mean = sum(row.bubble_ratio for row in result.rows) / 4
    # Sleeping can only add to an action: the measured bubble is never below theory by much.
    assert 3 / 11 - 0.005 < mean < 3 / 11 + 0.03
    assert "Pace      synthetic" in run.done.stdout
    assert f"tracekit tui {run.database}" in run.done.stdout


def test_interleaving_has_less_bubble(tmp_path: Path) -> None:
    run = loop(
        tmp_path, 2, "pipeline", "--schedule", "interleaved", "--microbatches", "4",
        "--virtual-stages", "2", "--pace", "40", *STEPS,
    )  # fmt: skip
    rows = run.result("pipeline_bubble").rows
    # (p-1)/(v m + p - 1) = 1/9 for p=2, v=2, m=4; without interleaving 1/5.
    assert [(row.schedule, row.theoretical_ratio) for row in rows] == [
        ("interleaved-1f1b", 1 / 9)
    ] * 2
    assert all(1 / 9 - 0.01 < row.bubble_ratio < 1 / 5 for row in rows)


def test_1f1b_keeps_fewer_micro_batches_than_gpipe(tmp_path: Path) -> None:
    peaks = {}
    for schedule in ("1f1b", "gpipe"):
        folder = tmp_path / schedule
        folder.mkdir()
        run = loop(folder, 2, "pipeline", "--schedule", schedule, "--microbatches", "8", *STEPS)
        peaks[schedule] = {row.stage: row for row in run.result("stage_memory").rows}
    # 1F1B holds p - stage micro-batches at once, GPipe all 8.
    assert [peaks["1f1b"][stage].in_flight for stage in (0, 1)] == [2, 1]
    assert [peaks["gpipe"][stage].in_flight for stage in (0, 1)] == [8, 8]
    for stage in (0, 1):
        fewer, more = (peaks[name][stage].activations_bytes for name in ("1f1b", "gpipe"))
        assert fewer < more / 2


def overlaps(run: Run) -> list[float]:
    return [row.overlap for row in run.result("comm_overlap").rows]


def test_small_buckets_overlap_and_one_bucket_does_not(tmp_path: Path) -> None:
    small, one = tmp_path / "small", tmp_path / "one"
    small.mkdir()
    one.mkdir()
    assert min(overlaps(loop(small, 2, "data", "--bucket-mb", "4", *STEPS))) > 0.3
    assert max(overlaps(loop(one, 2, "data", "--bucket-mb", "1000", *STEPS))) < 0.1


def parameter_shapes() -> list[tuple[int, ...]]:
    """Shapes of the default model of the data-parallel loops, in the order of its parameters."""
    from tests.clients.shapes import default_shapes

    return default_shapes()


def size(shape: tuple[int, ...]) -> int:
    total = 1
    for length in shape:
        total *= length
    return total


def test_tensor_parallel_splits_and_overlaps_next_to_nothing(tmp_path: Path) -> None:
    run = loop(tmp_path, 2, "tensor", *STEPS)
    assert max(overlaps(run)) < 0.1
    whole = 4 * sum(size(shape) for shape in parameter_shapes())
    for row in run.result("stage_memory").rows:
        assert whole / 2 < row.params_bytes < 0.6 * whole


def test_zero_1_to_the_byte(tmp_path: Path) -> None:
    """fp32: parameters 4P and gradients 4P on each rank; AdamW's 8P split between the two."""
    run = loop(tmp_path, 2, "zero", *STEPS)
    shapes = parameter_shapes()
    whole = 4 * sum(size(shape) for shape in shapes)
    rows = run.result("stage_memory").rows
    assert [(row.params_bytes, row.grads_bytes) for row in rows] == [(whole, whole)] * 2
    # exp_avg and exp_avg_sq, and a step counter of 4 bytes per parameter tensor.
    assert sum(row.optimizer_bytes for row in rows) == 2 * whole + 4 * len(shapes)
    # Whole tensors are dealt out, largest first, to the rank that has least so far.
    shares, counts = [0, 0], [0, 0]
    for elements in sorted((size(shape) for shape in shapes), reverse=True):
        rank = shares.index(min(shares))
        shares[rank] += elements
        counts[rank] += 1
    assert [row.optimizer_bytes for row in rows] == [
        8 * share + 4 * count for share, count in zip(shares, counts, strict=True)
    ]


@pytest.mark.parametrize("stage", ["2", "3"])
def test_fsdp_to_the_byte(tmp_path: Path, stage: str) -> None:
    """fp32 shards: 4P/N, 4P/N and 8P/N; ZeRO-2 holds all 4P gathered from forward to backward."""
    run = loop(tmp_path, 2, "fsdp", "--stage", stage, *STEPS)
    shapes = parameter_shapes()
    whole = 4 * sum(size(shape) for shape in shapes)
    result = run.result("stage_memory")
    for row in result.rows:
        # Sharded by rows: ceil(rows/N) to the first, the rest to the second.
        shard = 4 * sum(size(shape[1:]) * _rows(shape[0], row.rank) for shape in shapes)
        assert (row.params_bytes, row.grads_bytes) == (shard, shard)
        assert row.optimizer_bytes == 2 * shard + 4 * len(shapes)
        if stage == "2":
            assert row.gathered_peak_bytes == whole
        else:
            assert 0 < row.gathered_peak_bytes < whole / 2
        assert row.activations_bytes > 0
    assert overlaps(run) == [0.0, 0.0] or max(overlaps(run)) < 0.02


def _rows(length: int, rank: int) -> int:
    first = -(-length // 2)
    return first if rank == 0 else length - first
