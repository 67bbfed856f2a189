"""Reading whole trace files: what lands in which table, and what a strange file costs.

Damage of each kind, layouts and ranks are in ``tests/faults``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.conftest import Load
from tracekit.errors import InputError, UsageError
from tracekit.ingest.run import ingest

BASE_NS = 1_700_000_000_000_000_000


def small() -> TraceBuilder:
    trace = TraceBuilder(rank=3, world_size=4, base_ns=BASE_NS)
    trace.group("0", "default_pg", [0, 1, 2, 3])
    trace.step(7, "0.001", 100)
    trace.kernel("gemm<[0] x>", "10.125", "5.001")
    trace.collective("allreduce", 12, 30, elems=1024, dtype="Float", seq=4)
    trace.memory(20, 512, 4096, 8192)
    return trace


def written(trace: TraceBuilder, path: Path) -> Path:
    trace.write(path)
    return path


@pytest.mark.parametrize("layout", ["kineto", "kineto-2026", "compact", "pretty"])
def test_each_thing_lands_in_its_table(load: Load, layout: str) -> None:
    reader = load(small(), layout=layout)
    assert reader.rows("SELECT rank, world_size FROM rank") == [(3, 4)]
    assert reader.rows("SELECT name, description, size, complete FROM process_group") == [
        ("0", "default_pg", 4, True)
    ]
    # [10.125, 15.126) us after the base.
    assert reader.rows("SELECT cat, ts_ns, dur_ns FROM events WHERE name = 'gemm<[0] x>'") == [
        ("kernel", BASE_NS + 10_125, 5_001)
    ]
    assert reader.rows("SELECT step, host_start_ns FROM step") == [(7, BASE_NS + 1)]
    assert reader.rows(
        "SELECT ts_ns, bytes, total_allocated, total_reserved FROM memory_event"
    ) == [(BASE_NS + 20_000, 512, 4096, 8192)]
    # On the kernel and on the record_param_comms that issued it.
    assert reader.rows("SELECT DISTINCT operation, in_elems, dtype, seq FROM comm_args") == [
        ("allreduce", 1024, "Float", 4)
    ]
    assert reader.rows("FROM damage") == []


def test_the_same_file_twice_counts_once(tmp_path: Path) -> None:
    small().write(tmp_path / "rank3.json")
    small().write(tmp_path / "copy.json")
    summary = ingest([tmp_path], tmp_path / "run.db")
    assert summary.ranks == [3]
    (warning,) = summary.warnings
    assert "same content" in warning


def test_two_empty_traces_are_two_ranks(tmp_path: Path) -> None:
    """Their content is the same; they are no copies of one another."""
    small().write(tmp_path / "rank3.json")
    for rank in (1, 2):
        (tmp_path / f"rank{rank}.json").write_bytes(b"")
    assert ingest([tmp_path], tmp_path / "run.db").ranks == [1, 2, 3]


def test_a_failed_ingest_leaves_the_database_that_was_there(tmp_path: Path) -> None:
    database = tmp_path / "run.db"
    ingest([written(small(), tmp_path / "rank3.json")], database)
    before = database.read_bytes()
    with pytest.raises(UsageError, match="exists; give --force"):
        ingest([tmp_path / "rank3.json"], database)
    with pytest.raises(InputError):
        ingest([tmp_path / "nothing.json"], database, force=True)
    assert database.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank3.json", "run.db"]


@pytest.mark.parametrize(
    "hostile",
    [
        {"deviceProperties": [None]},
        {"deviceProperties": [{"name": 5, "totalGlobalMem": "much"}]},
        {"distributedInfo": {"rank": True, "world_size": 10**12, "backend": ["nccl"]}},
        {"distributedInfo": {"rank": "0", "pg_config": [{"pg_name": "0", "ranks": 5}, 7]}},
        {"distributedInfo": {"rank": 2**40, "pg_config": {"pg_name": "0"}}},
        {"baseTimeNanoseconds": 2**63 - 1},
        {"host_name": ["a"]},
    ],
    ids=str,
)
def test_a_hostile_header_costs_its_own_value_only(
    tmp_path: Path, hostile: dict[str, object]
) -> None:
    trace = TraceBuilder(distributed=False, metadata=hostile)
    trace.kernel("gemm", 0, 10)
    summary = ingest([written(trace, tmp_path / "rank0.json")], tmp_path / "run.db")
    assert (summary.ranks, summary.events > 0) == ([0], True)


def test_a_group_listed_twice_is_one(load: Load) -> None:
    trace = TraceBuilder(world_size=2)
    trace.group("0", "default_pg", [0, 1])
    trace.group("0", "mesh_dp", [0, 1])
    trace.collective("allreduce", 0, 10, group="0")
    reader = load(trace)
    assert reader.rows("SELECT count(*) FROM process_group") == [(1,)]
    assert reader.rows("SELECT count(*) FROM work") == [(1,)]
