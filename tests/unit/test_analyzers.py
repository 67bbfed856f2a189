"""What every analyzer promises: types, groupings, empty stores, no rank dropped."""

from __future__ import annotations

import dataclasses
import types
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from tests.builders import TraceBuilder
from tests.conftest import Load
from tests.synthetic import pipeline_run
from tracekit.analysis.base import Analyzer, Dim, Unit, Value, columns_of
from tracekit.analysis.registry import ANALYZERS
from tracekit.errors import UsageError
from tracekit.store import open_run
from tracekit.store.store import create

EACH = pytest.mark.parametrize("analyzer", ANALYZERS, ids=lambda analyzer: analyzer.name)


def groupings(analyzer: Analyzer) -> list[list[str]]:
    return [[], *([dim] for dim in analyzer.by), list(analyzer.by)]


@EACH
def test_an_empty_store_gives_no_figure(tmp_path: Path, analyzer: Analyzer) -> None:
    with create(tmp_path / "run.db"):
        pass
    with open_run(tmp_path / "run.db") as reader:
        for by in groupings(analyzer):
            result = analyzer.run(reader, by)
            assert not result.available


@EACH
def test_the_query_returns_the_types_of_the_row(
    tmp_path: Path, load: Load, analyzer: Analyzer
) -> None:
    pipeline_run(tmp_path / "traces", schedule="1f1b", p=2, m=2)
    reader = load.paths([tmp_path / "traces"])  # type: ignore[attr-defined]
    hints = get_type_hints(analyzer.row)
    for by in groupings(analyzer):
        for row in analyzer.run(reader, by).rows:
            for name, hint in hints.items():
                kinds = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
                value = getattr(row, name)
                assert type(value) in kinds, f"{name} = {value!r}"


@EACH
def test_columns_are_named_by_their_unit(analyzer: Analyzer) -> None:
    names = [column.name for column in analyzer.columns]
    assert analyzer.headline in names
    assert set(analyzer.by) <= {c.name for c in analyzer.columns if c.is_dim}
    for column in analyzer.columns:
        assert column.name.isascii()
        assert column.doc.endswith(".")
        assert column.name.endswith("_ns") == (column.unit is Unit.NS)
        assert column.name.endswith("_bytes") == (column.unit is Unit.BYTES)


@EACH
def test_an_unknown_grouping_is_refused(load: Load, analyzer: Analyzer) -> None:
    trace = TraceBuilder()
    trace.kernel("gemm", 0, 1)
    with pytest.raises(UsageError, match="cannot be grouped by 'colour'"):
        analyzer.run(load(trace), ["colour"])


@pytest.mark.parametrize("name", ["comm_overlap", "step_breakdown", "stage_memory", "coverage"])
def test_no_rank_drops_out(load: Load, name: str) -> None:
    """A rank with nothing to measure keeps its row, and says why it is empty."""
    busy, idle = TraceBuilder(rank=0, world_size=2), TraceBuilder(rank=1, world_size=2)
    busy.kernel("gemm", 0, 1)
    idle.cpu_op("aten::mm", 0, 1)
    (analyzer,) = (a for a in ANALYZERS if a.name == name)
    result = analyzer.run(load(busy, idle))
    assert [row.rank for row in result.rows] == [0, 1]


def test_a_group_with_a_blind_rank_is_no_whole_figure(load: Load) -> None:
    busy, idle = TraceBuilder(rank=0, world_size=2), TraceBuilder(rank=1, world_size=2)
    busy.kernel("ncclDevKernel_AllReduce", 0, 10, stream=20)
    idle.cpu_op("aten::mm", 0, 1)
    (analyzer,) = (a for a in ANALYZERS if a.name == "comm_overlap")
    (row,) = analyzer.run(load(busy, idle), []).rows
    assert (row.overlap, row.comm_ns) == (None, None)


def test_missing_ranks_are_named(load: Load) -> None:
    traces = [TraceBuilder(rank=rank, world_size=16) for rank in (0, 1, 5)]
    for trace in traces:
        trace.kernel("gemm", 0, 1)
    (analyzer,) = (a for a in ANALYZERS if a.name == "coverage")
    (missing,) = (m for m in analyzer.run(load(*traces)).missing if "not in the run" in m.reason)
    assert missing.where == {"rank": [2, 3, 4, *range(6, 16)]}


def test_a_field_without_a_mark_is_an_error() -> None:
    @dataclasses.dataclass
    class Row:
        rank: Annotated[int, Dim("Rank.")]
        bare: int

    with pytest.raises(TypeError, match="bare needs one Dim or Value"):
        columns_of(Row)
    assert get_origin(Annotated[int, Value("x.", Unit.COUNT)]) is Annotated


def as_dict(row: Any) -> dict[str, Any]:
    return dataclasses.asdict(row)


@pytest.mark.parametrize("shift_ns", [0, 12_345_678_901])
def test_a_shift_in_time_changes_no_figure(tmp_path: Path, load: Load, shift_ns: int) -> None:
    base = 1_750_000_000_000_000_000
    results = []
    for at in (base, base + shift_ns):
        folder = tmp_path / str(len(results))
        pipeline_run(folder, schedule="1f1b", p=2, m=4, base_ns=at)
        reader = load.paths([folder])  # type: ignore[attr-defined]
        results.append([[as_dict(row) for row in a.run(reader).rows] for a in ANALYZERS])
    assert results[0] == results[1]


def test_claims_that_no_run_can_make_cost_no_memory(load: Load) -> None:
    """A world of two thousand million ranks, and actions of stages that no pipeline has."""
    trace = TraceBuilder(rank=0, world_size=2_000_000_000)
    trace.group("0", "mesh_pp", [0], size=2_000_000_000)
    trace.step(0, 0, 100)
    for number, stage in enumerate(("0", "99999999999", "2000000000")):
        at = 10 * number
        trace.annotation(f"tracekit.action F stage={stage} chunk=0 vstage=0 mb=0", at, 5)
        trace.annotation(f"PP:{stage}F0", at + 6, 2)
        trace.kernel("gemm", at, 5, launch=at + 1)
    reader = load(trace)
    assert reader.rows("SELECT DISTINCT stage FROM action") == [(0,)]
    reasons = [m.reason for a in ANALYZERS for m in a.run(reader).missing]
    assert "not in the run: 1999999999 of 2000000000 ranks" in reasons
    assert any("stages are here" in reason for reason in reasons)
