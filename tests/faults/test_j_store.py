"""Rows J3 and J6: any size within a memory limit; a reader process that dies is named."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.faults import bulk
from tests.faults.processes import Running
from tests.faults.store import line_with
from tracekit.ingest.run import ingest
from tracekit.store import open_run

MIB = 1 << 20
GIB = 1 << 30


def ingested(database: Path, paths: list[Path], limit_bytes: int, *options: object) -> None:
    """Ingest, with an eye on the memory of all its processes."""
    limit = f"{limit_bytes >> 20}MiB" if limit_bytes % GIB else f"{limit_bytes // GIB}GiB"
    with Running("ingest", *paths, "-o", database, "--memory-limit", limit, *options) as command:
        peak = command.peak_bytes(240)
        status, err = command.wait(10)
    assert status == 0, err
    assert peak < limit_bytes, f"{peak / MIB:.0f} MiB"
    assert peak > 20 * MIB, "too quick to be seen"


def test_j3_a_trace_of_1_7_gb_within_a_gib(tmp_path: Path) -> None:
    size = 1_700_000_000
    trace = bulk.write(tmp_path / "rank0.json.gz", 0, size)
    ingested(tmp_path / "run.db", [trace], GIB)
    count = bulk.stretches(0, size)
    with open_run(tmp_path / "run.db") as reader:
        assert reader.rows("SELECT state, events FROM file") == [("whole", bulk.EVENTS * count)]
        assert reader.rows("FROM damage") == []
        assert reader.scalar("SELECT count(*) FROM event") == bulk.EVENTS * count
        assert reader.scalar("SELECT count(*) FROM memory_event") == 4 * count
        work = reader.rows("SELECT count(*), count(launch_id), min(end_ns - start_ns) FROM work")
        assert work == [(20 * count, 20 * count, 30_000)]
        span = reader.rows("SELECT min(ts_ns), max(ts_ns) FROM event")
        assert span == [(10**12, (10**6 + count - 1) * 10**6 + 965_000)]


def test_j3_several_files_at_once_within_a_limit(tmp_path: Path) -> None:
    files = [bulk.write(tmp_path / f"rank{rank}.json", rank, 100 * 10**6) for rank in range(4)]
    ingested(tmp_path / "run.db", files, 700 * MIB, "-j", 4)
    with open_run(tmp_path / "run.db") as reader:
        rows = reader.rows("SELECT rank, events FROM file ORDER BY rank")
    assert rows == [(rank, bulk.EVENTS * bulk.stretches(rank, 100 * 10**6)) for rank in range(4)]


def test_j3_one_line_of_any_length(tmp_path: Path) -> None:
    size = 300 * 10**6
    with (tmp_path / "rank0.json").open("wb") as file:
        file.writelines(piece.replace(b"\n", b" ") for piece in bulk.pieces(0, size))
    ingested(tmp_path / "run.db", [tmp_path / "rank0.json"], 640 * MIB)
    with open_run(tmp_path / "run.db") as reader:
        assert reader.scalar("SELECT events FROM file") == bulk.EVENTS * bulk.stretches(0, size)


def many_names(count: int) -> Iterator[bytes]:
    """Every name another, as Python functions with addresses in theirs are."""
    yield b'[{"ph": "X", "cat": "cpu_op", "name": "x", "pid": 1, "tid": 1, "ts": 0, "dur": 1}'
    for first in range(0, count, 10_000):
        yield b"".join(
            b',\n{"ph": "X", "cat": "python_function", "name": "<built-in method _scaled_dot_'
            b'product_attention of type object at 0x7f%010x>", "pid": 1, "tid": 1, "ts": %d.125,'
            b' "dur": 0.5}' % (number, number)
            for number in range(first, first + 10_000)
        )
    yield b"]"


def test_j3_names_that_never_repeat(tmp_path: Path) -> None:
    with (tmp_path / "rank0.json").open("wb") as file:
        file.writelines(many_names(600_000))
    ingested(tmp_path / "run.db", [tmp_path / "rank0.json"], 768 * MIB)
    with open_run(tmp_path / "run.db") as reader:
        assert reader.scalar("SELECT count(DISTINCT name) FROM events") == 600_001


def test_j3_a_limit_that_is_too_low_is_an_error(tmp_path: Path) -> None:
    trace = bulk.write(tmp_path / "rank0.json", 0, 10**6)
    for limit in ("1KiB", "8MiB", "0", "-1", "much"):
        arguments = ("ingest", trace, "-o", tmp_path / "run.db", f"--memory-limit={limit}")
        with Running(*arguments) as command:
            status, err = command.wait(30)
        assert status == 2, (limit, err)
        assert "memory-limit" in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rank0.json"]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Ranks that each take a while to read."""
    folder = tmp_path_factory.mktemp("ranks")
    return [bulk.write(folder / f"rank{rank}.json.gz", rank, 150 * 10**6) for rank in range(4)]


def earlier(database: Path) -> bytes:
    """A database that is there already."""
    trace = TraceBuilder(7, 8)
    trace.kernel("earlier", 0, 10)
    ingest([trace.write(database.with_name("earlier") / "rank7.json")], database)
    return database.read_bytes()


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("option", [None, "--force", "--append"])
def test_j6_a_killed_worker_is_an_error_that_names_its_file(
    tmp_path: Path, ranks: list[Path], jobs: int, option: str | None
) -> None:
    database = tmp_path / "run.db"
    before = earlier(database) if option else None
    there = sorted(p.name for p in tmp_path.iterdir())
    arguments = [*ranks, "-o", database, "-j", jobs, *([option] if option else [])]
    with Running("ingest", *arguments) as command:
        worker, file = command.worker_that_reads(ranks)
        os.kill(worker, signal.SIGKILL)
        status, err = command.wait(15)
        assert command.session_ends()
    assert status == 3
    assert line_with(err, file.name)
    assert "Traceback" not in err
    assert sorted(p.name for p in tmp_path.iterdir()) == there
    assert (database.read_bytes() if database.exists() else None) == before


def test_j6_a_worker_that_stops_answering_does_not_outlive_its_parent(
    tmp_path: Path, ranks: list[Path]
) -> None:
    with Running("ingest", *ranks, "-o", tmp_path / "run.db", "-j", 2) as command:
        worker, _ = command.worker_that_reads(ranks)
        os.kill(worker, signal.SIGSTOP)
        os.kill(command.pid, signal.SIGINT)
        status, err = command.wait(15)
        assert command.session_ends()
    assert status == 130, err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT])
def test_j6_however_it_dies(tmp_path: Path, ranks: list[Path], number: signal.Signals) -> None:
    with Running("ingest", *ranks, "-o", tmp_path / "run.db", "-j", 2) as command:
        worker, file = command.worker_that_reads(ranks)
        os.kill(worker, number)
        status, err = command.wait(15)
    assert status == 3
    assert line_with(err, file.name, number.name)
    assert list(tmp_path.iterdir()) == []
