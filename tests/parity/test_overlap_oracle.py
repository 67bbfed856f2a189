"""Real GPU traces against the exact overlap that was worked out apart from this code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Load
from tracekit.analysis.comm_overlap import COMM_OVERLAP

FOLDERS = (
    "alexnet_1gpu",
    "cpu_only",
    "ddp_8xMI300X_rank0",
    "dlrm_8xV100",
    "gloo_300cpu_rank34",
    "megatron_8xB200_rank0",
    "memory_2xV100_rank1",
    "nccl_16xA100_rank0",
    "nccl_2xA100_rank0",
    "nccl_8xA100_rank3",
    "no_distributed_info",
    "rocm_mi250",
    "sampled_128gpu_rank0_1",
)


def test_every_folder_is_held(shared: Path) -> None:
    assert sorted(p.name for p in (shared / "traces").iterdir() if p.is_dir()) == list(FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_overlap_equals_the_oracle_to_the_nanosecond(shared: Path, load: Load, folder: str) -> None:
    oracle = json.loads((shared / "oracles" / "overlap.json").read_text())[folder]
    reader = load.paths([shared / "traces" / folder])  # type: ignore[attr-defined]
    rows = COMM_OVERLAP.run(reader).rows
    assert {str(row.rank) for row in rows} == set(oracle)
    for row in rows:
        exact = oracle[str(row.rank)]
        if exact["kernels"] == 0:
            # No kernel in the file: the oracle's 0 is "not available" here, never a measured 0.
            assert exact["overlap"] is None
            assert (row.overlap, row.comm_ns, row.exposed_ns) == (None, None, None)
            continue
        assert row.comm_ns == exact["comm_ns"]
        assert row.compute_ns == exact["compute_ns"]
        assert row.overlapped_ns == exact["overlapped_ns"]
        assert row.exposed_ns == exact["exposed_ns"]
        if exact["overlap"] is None:
            assert row.overlap is None
        else:
            # The oracle is rounded to six decimals.
            assert row.overlap == pytest.approx(exact["overlap"], abs=5e-7)


def test_no_real_trace_has_an_impossible_event(shared: Path, load: Load) -> None:
    """The rule for impossible events was made for broken ones: real streams must pass it."""
    for folder in FOLDERS:
        reader = load.paths([shared / "traces" / folder])  # type: ignore[attr-defined]
        assert reader.rows("SELECT rank, kind, detail FROM damage") == []
