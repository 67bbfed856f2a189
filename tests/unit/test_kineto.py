"""Reading trace files: every layout, exact times, and what is kept of damaged ones."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import TraceBuilder
from tests.conftest import Load
from tracekit.errors import InputError, UsageError
from tracekit.ingest.columns import nanoseconds
from tracekit.ingest.kineto import open_trace
from tracekit.ingest.run import ingest


def small() -> TraceBuilder:
    trace = TraceBuilder(rank=3, world_size=4, base_ns=1_700_000_000_000_000_000)
    trace.group("0", "default_pg", [0, 1, 2, 3])
    trace.step(7, "0.001", 100)
    trace.kernel("gemm<[0] x>", "10.125", "5.001")
    trace.collective("allreduce", 12, 30, elems=1024, dtype="Float", seq=4)
    trace.memory(20, 512, 4096, 8192)
    return trace


ROWS = "SELECT rank, cat, name, ts_ns, dur_ns, correlation, external_id, stream FROM events"


@pytest.mark.parametrize("layout", ["kineto", "kineto-2026", "compact", "pretty"])
def test_every_layout_loads_to_the_same_rows(load: Load, layout: str) -> None:
    reader = load(small(), layout=layout)
    reference = load(small(), layout="kineto")
    assert reader.rows(ROWS + " ORDER BY event_id") == reference.rows(ROWS + " ORDER BY event_id")
    assert reader.rows("SELECT rank, world_size FROM rank") == [(3, 4)]
    assert reader.rows("SELECT name, description, size, complete FROM process_group") == [
        ("0", "default_pg", 4, True)
    ]
    assert reader.rows("SELECT bytes, total_allocated, total_reserved FROM memory_event") == [
        (512, 4096, 8192)
    ]
    assert reader.rows("SELECT operation, in_elems, dtype, seq FROM comm_args LIMIT 1") == [
        ("allreduce", 1024, "Float", 4)
    ]
    assert reader.rows("FROM damage") == []


def test_gzip_in_several_members(tmp_path: Path) -> None:
    data = small().json()
    path = tmp_path / "rank3.json.gz"
    path.write_bytes(gzip.compress(data[:500]) + gzip.compress(data[500:]))
    trace = open_trace(path)
    assert sum(len(block) for block in trace.blocks()) > 5
    assert (trace.damage, trace.state) == ([], "whole")


def test_a_bad_event_costs_only_itself(load: Load, tmp_path: Path) -> None:
    data = small().json().replace(b'"gemm<[0] x>"', b'"a raw " quote"', 1)
    path = tmp_path / "rank3.json"
    path.write_bytes(data)
    trace = open_trace(path)
    kept = [event for block in trace.blocks() for event in block]
    clean = open_trace(_written(small(), tmp_path / "clean.json"))
    assert len(kept) == sum(len(block) for block in clean.blocks()) - 1
    (damage,) = trace.damage
    assert damage.kind == "bad event"
    assert damage.byte_offset is not None
    assert b"a raw" in data[damage.byte_offset : damage.byte_offset + 200]


@pytest.mark.parametrize("bad", [b"\x01", b"\xf0\x28"])
def test_forbidden_bytes_are_repaired_and_counted(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "rank3.json"
    path.write_bytes(small().json().replace(b"gemm<", b"ge" + bad + b"mm<", 1))
    trace = open_trace(path)
    names = [event.name for block in trace.blocks() for event in block]
    assert any("�" in name for name in names)
    assert [damage.kind for damage in trace.damage] == ["repaired"]


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_cut_file_keeps_what_came_before(tmp_path: Path, share: float) -> None:
    data = small().json()
    path = tmp_path / "rank3.json"
    path.write_bytes(data[: int(len(data) * share)])
    whole = [e.name for b in open_trace(_written(small(), tmp_path / "w.json")).blocks() for e in b]
    trace = open_trace(path)
    kept = [event.name for block in trace.blocks() for event in block]
    assert kept == whole[: len(kept)]
    assert trace.state == "partial"
    assert [damage.kind for damage in trace.damage] == ["truncated"]


def test_a_gzip_that_ends_early(tmp_path: Path) -> None:
    packed = gzip.compress(small().json())
    path = tmp_path / "rank3.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    trace = open_trace(path)
    list(trace.blocks())
    assert trace.state == "partial"
    assert trace.damage[0].kind == "compression"


def test_an_empty_trace(tmp_path: Path) -> None:
    path = tmp_path / "rank2.json.gz"
    path.write_bytes(gzip.compress(b""))
    trace = open_trace(path)
    assert list(trace.blocks()) == []
    assert trace.state == "empty"


def test_ranks(tmp_path: Path) -> None:
    """Metadata wins over the file's name; two files of one rank are an error that shows both."""
    first, second = tmp_path / "rank8.json", tmp_path / "rank9.json"
    small().write(first)
    trace = small()
    trace.kernel("more", 50, 1)
    trace.write(second)
    with pytest.raises(InputError, match=r"rank 3 is also claimed by .*rank8.json"):
        ingest([tmp_path], tmp_path / "run.db")
    assert not (tmp_path / "run.db").exists()


def test_files_without_a_rank_are_asked_for(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        trace = TraceBuilder(distributed=False)
        trace.kernel(name, 0, 1)
        trace.write(tmp_path / name)
    with pytest.raises(InputError, match=r"no rank in it or in its name"):
        ingest([tmp_path], tmp_path / "run.db")


def test_the_same_file_twice_counts_once(tmp_path: Path) -> None:
    small().write(tmp_path / "rank3.json")
    small().write(tmp_path / "copy.json")
    summary = ingest([tmp_path], tmp_path / "run.db")
    assert summary.ranks == [3]
    assert "same content" in summary.warnings[0]


def test_a_failed_ingest_leaves_the_database_that_was_there(tmp_path: Path) -> None:
    database = tmp_path / "run.db"
    ingest([_written(small(), tmp_path / "rank3.json")], database)
    before = database.read_bytes()
    with pytest.raises(UsageError, match="exists; give --force"):
        ingest([tmp_path / "rank3.json"], database)
    bad = tmp_path / "bad.json"
    bad.write_bytes(b"not a trace")
    with pytest.raises(InputError):
        ingest([bad], database, force=True)
    assert database.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if "building" in p.name] == []


@given(st.integers(-(10**18), 9 * 10**18))
def test_times_are_exact(ns: int) -> None:
    sign, digits = ("-" if ns < 0 else ""), abs(ns)
    text = f"{sign}{digits // 1000}.{digits % 1000:03d}"
    quoted = msgspec.Raw(f'"{text}"'.encode())
    assert nanoseconds([msgspec.Raw(text.encode()), quoted]).to_pylist() == [ns, ns]


def test_unusual_times() -> None:
    raws = [b"1e3", b"0.0005", b"0.0015", b"12", b""]
    # Half to even below a nanosecond; no time at all is none.
    assert nanoseconds([msgspec.Raw(raw) for raw in raws]).to_pylist() == [
        1_000_000,
        0,
        2,
        12_000,
        None,
    ]


def _written(trace: TraceBuilder, path: Path) -> Path:
    trace.write(path)
    return path


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
    summary = ingest([_written(trace, tmp_path / "rank0.json")], tmp_path / "run.db")
    assert (summary.ranks, summary.events > 0) == ([0], True)


def test_a_group_listed_twice_is_one(load: Load) -> None:
    trace = TraceBuilder(world_size=2)
    trace.group("0", "default_pg", [0, 1])
    trace.group("0", "mesh_dp", [0, 1])
    trace.collective("allreduce", 0, 10, group="0")
    reader = load(trace)
    assert reader.rows("SELECT count(*) FROM process_group") == [(1,)]
    assert reader.rows("SELECT count(*) FROM work") == [(1,)]


def test_two_empty_traces_are_two_ranks(tmp_path: Path) -> None:
    small().write(tmp_path / "rank3.json")
    for rank in (1, 2):
        (tmp_path / f"rank{rank}.json").write_bytes(b"")
    assert ingest([tmp_path], tmp_path / "run.db").ranks == [1, 2, 3]
