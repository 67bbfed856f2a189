"""Rows E1 to E3 and E6: which rank a file is of, two files of one rank, ranks that are missing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.faults.store import call, line_with, printed
from tracekit.analysis.comm_overlap import COMM_OVERLAP
from tracekit.analysis.step_breakdown import STEP_BREAKDOWN
from tracekit.errors import InputError
from tracekit.ingest.run import ingest
from tracekit.store import open_run

US = 1000


def trace(name: str, at: int = 0, rank: int | None = None, world_size: int = 1) -> TraceBuilder:
    """One kernel of 10 us; without a rank the trace names none."""
    found = TraceBuilder(rank or 0, world_size, distributed=rank is not None)
    found.kernel(name, at, 10)
    return found


def owners(database: Path) -> dict[str, int]:
    """Which rank each kernel came to."""
    with open_run(database) as reader:
        return dict(reader.rows("SELECT name, rank FROM events WHERE cat = 'kernel'"))


@pytest.mark.parametrize(
    "names",
    [
        ("rank0.json", "rank1.json"),
        ("rank_0.json", "rank_1.json"),
        ("trace-rank0.json", "trace-rank1.json"),
        ("worker0_step_12.1694128201545.pt.trace.json", "worker1_step_12.1694128201556.json"),
        ("node3.r0.json", "node3.r1.json"),
        ("r0-a.json", "r1-b.json"),
        ("RANK0.json", "Rank1.json"),
        ("rank00.json", "rank01.json"),
    ],
)
def test_e1_an_unambiguous_name_gives_the_rank(tmp_path: Path, names: tuple[str, str]) -> None:
    for number, name in enumerate(names):
        trace(f"of {number}").write(tmp_path / "traces" / name)
    summary = ingest([tmp_path / "traces"], tmp_path / "run.db")
    assert summary.ranks == [0, 1]
    assert owners(tmp_path / "run.db") == {"of 0": 0, "of 1": 1}


@pytest.mark.parametrize(
    "names",
    [
        ("a.json", "b.json"),
        ("trace (1).json", "trace (2).json"),
        ("rank0_of_rank1.json", "other.json"),
        ("host_1234.1694128201545.pt.trace.json", "host_1235.1694128201545.pt.trace.json"),
        ("param0.json", "param1.json"),
        ("rank0.json", "b.json"),
    ],
)
def test_e1_otherwise_a_mapping_is_asked_for(tmp_path: Path, names: tuple[str, str]) -> None:
    for number, name in enumerate(names):
        trace(f"of {number}").write(tmp_path / "traces" / name)
    status, out, err = call("ingest", tmp_path / "traces", "-o", tmp_path / "run.db")
    assert (status, out) == (3, "")
    assert line_with(err, "--rank-map")
    assert any(name in err for name in names)
    assert not (tmp_path / "run.db").exists()


def test_e1_the_mapping_that_is_asked_for_is_taken(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        trace(f"of {name}").write(tmp_path / "traces" / name)
    (tmp_path / "ranks.txt").write_text("a.json 5\nb.json 2\n")
    summary = ingest([tmp_path / "traces"], tmp_path / "run.db", rank_map=tmp_path / "ranks.txt")
    assert summary.ranks == [2, 5]
    assert owners(tmp_path / "run.db") == {"of a.json": 5, "of b.json": 2}


def test_e1_a_single_file_is_rank_0_with_a_warning(tmp_path: Path) -> None:
    trace("gemm").write(tmp_path / "trace.json")
    status, _, err = call("ingest", tmp_path / "trace.json", "-o", tmp_path / "run.db")
    assert status == 0
    assert line_with(err, "trace.json", "rank 0")
    assert owners(tmp_path / "run.db") == {"gemm": 0}


def test_e2_metadata_wins_over_the_name(tmp_path: Path) -> None:
    """Four files called r0-*.json whose metadata say ranks 0 to 3."""
    for rank in range(4):
        trace(f"of {rank}", 0, rank, 4).write(tmp_path / "traces" / f"r0-{rank * 7 % 5}abc.json")
    summary = ingest([tmp_path / "traces"], tmp_path / "run.db")
    assert summary.ranks == [0, 1, 2, 3]
    assert owners(tmp_path / "run.db") == {f"of {rank}": rank for rank in range(4)}


@pytest.mark.parametrize("names", [("rank8.json", "rank9.json"), ("a/rank0.json", "b/rank0.json")])
@pytest.mark.parametrize("stated", [True, False])
def test_e2_two_files_of_one_rank_are_an_error_that_shows_both(
    tmp_path: Path, names: tuple[str, str], stated: bool
) -> None:
    if not stated:
        names = ("a/rank0.json", "b/rank0.json")
    for number, name in enumerate(names):
        trace(f"of {number}", number, 0 if stated else None).write(tmp_path / "traces" / name)
    with pytest.raises(InputError) as caught:
        ingest([tmp_path / "traces"], tmp_path / "run.db")
    for part in ("rank 0", *names):
        assert part in str(caught.value)
    assert not (tmp_path / "run.db").exists()


def test_e2_one_of_many_files_twice(tmp_path: Path) -> None:
    for rank in range(6):
        trace("gemm", 0, rank, 6).write(tmp_path / "traces" / f"rank{rank}.json")
    trace("other", 5, 4, 6).write(tmp_path / "traces" / "copy.json")
    status, _, err = call("ingest", tmp_path / "traces", "-o", tmp_path / "run.db")
    assert status == 3
    assert line_with(err, "rank 4", "copy.json", "rank4.json")


def eight_of_sixteen(folder: Path, ranks: range | list[int], world_size: int = 16) -> Path:
    for rank in ranks:
        busy = trace("gemm", 0, rank, world_size)
        busy.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 5, 20, stream=20)
        busy.write(folder / f"rank{rank}.json")
    ingest([folder], folder.parent / "run.db")
    return folder.parent / "run.db"


@pytest.mark.parametrize(
    ("ranks", "world_size", "covered", "missing"),
    [
        (range(8), 16, "8/16", "missing 8-15"),
        ([0, 1, 3], 4, "3/4", "missing 2"),
        ([1, 2, 5], 8, "3/8", "missing 0, 3-4, 6-7"),
    ],
)
def test_e3_missing_ranks_are_named(
    tmp_path: Path, ranks: list[int], world_size: int, covered: str, missing: str
) -> None:
    database = eight_of_sixteen(tmp_path / "traces", ranks, world_size)
    assert line_with(printed("report", database), covered, missing)
    assert line_with(printed("info", database), covered, missing)


def test_e3_figures_of_the_whole_job_say_so(tmp_path: Path) -> None:
    database = eight_of_sixteen(tmp_path / "traces", range(8))
    with open_run(database) as reader:
        for analyzer in (COMM_OVERLAP, STEP_BREAKDOWN):
            whole = analyzer.run(reader, [])
            assert any("8/16" in missing.reason for missing in whole.missing), analyzer.name
            # A row of one rank is whole, whoever else is missing.
            each = analyzer.run(reader, ["rank"])
            assert [row.rank for row in each.rows] == list(range(8))
            assert not any("rank" in missing.where for missing in each.missing)


def test_e3_a_complete_run_says_nothing(tmp_path: Path) -> None:
    database = eight_of_sixteen(tmp_path / "traces", range(4), 4)
    assert not re.search(r"missing \d|not in the run", printed("report", database))
    with open_run(database) as reader:
        assert COMM_OVERLAP.run(reader, []).missing == []


def test_e6_two_captures_of_one_rank(tmp_path: Path) -> None:
    """Two files a worker: of worker 0 one is empty, of worker 1 one holds the validation only."""
    folder = tmp_path / "traces"
    trace("train 0", 0, 0, 2).write(folder / "fit-0.json")
    empty = TraceBuilder(0, 2)
    empty.write(folder / "validate-0.json")
    trace("train 1", 0, 1, 2).write(folder / "fit-1.json")
    trace("validate 1", 5000, 1, 2).write(folder / "validate-1.json")
    summary = ingest([folder], tmp_path / "run.db")
    assert summary.ranks == [0, 1]
    assert owners(tmp_path / "run.db") == {"train 0": 0, "train 1": 1, "validate 1": 1}
    with open_run(tmp_path / "run.db") as reader:
        assert reader.rows("SELECT rank FROM rank ORDER BY rank") == [(0,), (1,)]
        assert reader.rows("SELECT rank, count(*) FROM file GROUP BY rank ORDER BY rank") == [
            (0, 2),
            (1, 2),
        ]
        rows = reader.rows("SELECT rank, count(*) FROM work GROUP BY rank ORDER BY rank")
        assert rows == [(0, 1), (1, 2)]
        assert reader.rows("SELECT count(*), count(DISTINCT (rank, event_id)) FROM event") == [
            (6, 6)
        ]
    coverage = json.loads(
        printed("report", tmp_path / "run.db", "-a", "coverage", "--format", "json")
    )
    assert [row["rank"] for row in coverage["rows"]] == [0, 1]
    assert [row["events"] for row in coverage["rows"]] == [2, 4]


@pytest.mark.parametrize("empty", [b"", b"[]", b'{"traceEvents": []}'])
def test_e6_an_empty_file_beside_a_good_one(tmp_path: Path, empty: bytes) -> None:
    for name in ("worker0_fit.json", "worker0_validate.json"):
        (tmp_path / "traces").mkdir(exist_ok=True)
        (tmp_path / "traces" / name).write_bytes(empty)
    trace("gemm").write(tmp_path / "traces" / "worker0_fit.json")
    summary = ingest([tmp_path / "traces"], tmp_path / "run.db")
    assert summary.ranks == [0]
    assert owners(tmp_path / "run.db") == {"gemm": 0}


def test_e6_the_ids_of_two_captures_are_kept_apart(tmp_path: Path) -> None:
    """Correlations begin again in each capture: work belongs to a launch of its own file."""
    folder = tmp_path / "traces"
    for number, at in enumerate((100, 9000)):
        capture = TraceBuilder(0, 1)
        capture.kernel(f"gemm {number}", at, 10, launch=at - 50, correlation=7)
        capture.write(folder / f"part{number}.json")
    ingest([folder], tmp_path / "run.db")
    with open_run(tmp_path / "run.db") as reader:
        rows = reader.rows("SELECT name, launch_ns FROM works ORDER BY name")
        assert rows == [("gemm 0", 50 * US), ("gemm 1", 8950 * US)]
        assert reader.rows("SELECT kind FROM damage") == []


def test_e6_captures_that_overlap_are_two_files_of_one_rank(tmp_path: Path) -> None:
    first, second = trace("a", 0, 0), trace("b", 5, 0)
    first.kernel("late", 100, 10)
    first.write(tmp_path / "traces" / "fit.json")
    second.write(tmp_path / "traces" / "validate.json")
    with pytest.raises(InputError, match="rank 0") as caught:
        ingest([tmp_path / "traces"], tmp_path / "run.db")
    assert "fit.json" in str(caught.value)
    assert "validate.json" in str(caught.value)
