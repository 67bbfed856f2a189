"""Rows C6 and C7: work is linked to the launch it comes from, to one, or to none. Times in us."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.faults.conftest import Cases
from tests.faults.store import line_with

US = 1000
LINKS = (
    "SELECT w.event_id, n.name, l.ts_ns FROM work AS w "
    "JOIN event AS l ON l.rank = w.rank AND l.event_id = w.launch_id "
    "JOIN name AS n ON n.name_id = l.name_id"
)


def launch(trace: TraceBuilder, ts: int, correlation: int, name: str = "cudaGraphLaunch") -> None:
    """A runtime call of 5 us; the work it launches is up to the test."""
    args = {"External id": correlation + 1000, "cbid": 311, "correlation": correlation}
    trace.raw({"ph": "X", "cat": "cuda_runtime", "name": name, "pid": trace.pid,
               "tid": trace.pid, "ts": ts, "dur": 5, "args": args})  # fmt: skip


def graphs(kernels: int = 50, launches: int = 3) -> TraceBuilder:
    """Graph launches at 0, 1000, ..., of which the first owns all kernels."""
    trace = TraceBuilder(distributed=False, flows=False)
    for number in range(launches):
        launch(trace, 1000 * number, 10 + number)
    for number in range(kernels):
        trace.kernel(f"k{number}", 10 + 6 * number, 5, launch=False, correlation=10)
    return trace


@pytest.mark.parametrize(("kernels", "launches"), [(50, 3), (1, 2), (2, 40)])
def test_c6_a_graph_launch_owns_its_kernels_once(cases: Cases, kernels: int, launches: int) -> None:
    loaded = cases({"graph": graphs(kernels, launches)})
    links = loaded.reader.rows(LINKS)
    assert len(links) == len({event for event, _, _ in links}) == kernels
    assert {(name, ts) for _, name, ts in links} == {("cudaGraphLaunch", 0)}
    assert loaded.reader.scalar("SELECT count(*) FROM work") == kernels
    overlap, _ = loaded.figures("graph")
    assert overlap["compute_ns"] == kernels * 5 * US
    # Launches 2 and 3 own nothing, and are flagged.
    flagged = [(kind, n) for kind, _, n in loaded.damage("graph")]
    assert flagged == [("graph launch without work", launches - 1)]
    assert line_with(loaded.info(), "graph launch without work", launches - 1)


def test_c6_a_launch_that_owns_work_is_not_flagged(cases: Cases) -> None:
    trace = graphs(launches=2)
    trace.kernel("own", 1010, 5, launch=False, correlation=11)
    trace.memset(1020, 5, launch=False, correlation=11)
    loaded = cases({"graph": trace})
    assert loaded.damage("graph") == []
    assert loaded.reader.scalar("SELECT count(*) FROM work") == 52


@pytest.mark.parametrize("name", ["cuGraphLaunch", "hipGraphLaunch"])
def test_c6_graphs_of_other_runtimes(cases: Cases, name: str) -> None:
    trace = graphs(launches=1)
    launch(trace, 5000, 99, name)
    loaded = cases({"graph": trace})
    assert loaded.damage("graph") == [("graph launch without work", None, 1)]


def test_c6_two_calls_of_one_correlation_do_not_double_its_work(cases: Cases) -> None:
    trace = graphs(launches=1)
    launch(trace, 2, 10, "cudaGraphLaunch")
    loaded = cases({"graph": trace})
    assert loaded.reader.scalar("SELECT count(*) FROM work") == 50
    assert loaded.reader.scalar("SELECT count(DISTINCT event_id) FROM work") == 50


def test_c6_ids_of_two_ranks_are_never_joined(cases: Cases) -> None:
    """The same correlation on two ranks: each rank's kernels belong to its own launch."""
    first, second = graphs(launches=1), graphs(launches=1)
    second.events[0]["ts"] = 4
    loaded = cases({"first": first, "second": second})
    rows = loaded.reader.rows(
        "SELECT rank, launch_ns, count(*) FROM work GROUP BY ALL ORDER BY rank"
    )
    assert rows == [(0, 0, 50), (1, 4 * US, 50)]


def steps(unlinked: int = 5, linked: int = 12) -> TraceBuilder:
    """Kernels of 10 us with no launch in the file, within step 1, then those that it launched."""
    trace = TraceBuilder(distributed=False)
    trace.step(1, 0, 1000)
    trace.step(2, 1000, 1000)
    for number in range(unlinked):
        trace.kernel("early", 20 * number, 10, launch=False)
    for number in range(linked):
        trace.kernel("own", 200 + 20 * number, 10, launch=150 + number)
    trace.kernel("next", 1100, 10, launch=1050)
    return trace


def by_step(report: str) -> dict[int, dict[str, Any]]:
    return {row["step"]: row for row in json.loads(report)["rows"]}


@pytest.mark.parametrize(("unlinked", "linked"), [(5, 12), (1, 1), (30, 2)])
def test_c7_work_without_a_launch_belongs_to_no_step(
    cases: Cases, unlinked: int, linked: int
) -> None:
    loaded = cases({"late": steps(unlinked, linked)})
    rows = loaded.reader.rows(
        "SELECT name, step, launch_id IS NULL, count(*) FROM works GROUP BY ALL ORDER BY name"
    )
    assert rows == [
        ("early", None, True, unlinked),
        ("next", 2, False, 1),
        ("own", 1, False, linked),
    ]
    assert loaded.coverage("late").unlinked == unlinked
    overlap = by_step(loaded.report("-a", "comm_overlap", "--by", "step", "--format", "json"))
    assert (overlap[1]["compute_ns"], overlap[2]["compute_ns"]) == (linked * 10 * US, 10 * US)


def test_c7_nor_is_it_charged_to_the_step_in_whose_window_it_runs(cases: Cases) -> None:
    loaded = cases({"late": steps()})
    rows = by_step(loaded.report("-a", "step_breakdown", "--by", "step", "--format", "json"))
    assert rows[1]["compute_ns"] == 12 * 10 * US
    assert rows[2]["compute_ns"] == 10 * US


def test_c7_the_parts_of_a_window_with_unlinked_work(cases: Cases) -> None:
    """Step [0, 100]: unlinked gemm [10, 30] and copy [60, 64]; linked gemm [25, 45]."""
    trace = TraceBuilder(distributed=False)
    trace.step(1, 0, 100)
    trace.kernel("early", 10, 20, stream=8, launch=False)
    trace.memcpy(60, 4, launch=False)
    trace.kernel("gemm", 25, 20, launch=5)
    alone = TraceBuilder(distributed=False)  # the same with no launch at all
    alone.step(1, 0, 100)
    alone.kernel("early", 10, 20, stream=8, launch=False)
    loaded = cases({"one": trace, "no launches": alone})
    _, parts = loaded.figures("one")
    got = [parts[name] for name in ("window_ns", "compute_ns", "unlinked_ns", "idle_ns")]
    assert got == [100 * US, 20 * US, (15 + 4) * US, 61 * US]
    _, parts = loaded.figures("no launches")
    assert (parts["compute_ns"], parts["unlinked_ns"]) == (20 * US, 0)


def test_c7_the_report_says_unlinked(cases: Cases) -> None:
    loaded = cases({"late": steps()})
    coverage = json.loads(loaded.report("-a", "coverage", "--format", "json"))
    assert [row["unlinked"] for row in coverage["rows"]] == [5]
    assert "unlinked" in loaded.report("-a", "coverage")


@pytest.mark.parametrize("kind", ["memcpy", "memset"])
def test_c7_copies_and_sets_too(cases: Cases, kind: str) -> None:
    trace = steps(0, 1)
    getattr(trace, kind)(30, 10, launch=False)
    loaded = cases({"late": trace})
    assert loaded.coverage("late").unlinked == 1
    assert loaded.reader.rows("SELECT step FROM work WHERE class = 'memory'") == [(None,)]


def test_c7_a_correlation_that_only_another_rank_launched_stays_unlinked(cases: Cases) -> None:
    own, other = (TraceBuilder(distributed=False) for _ in range(2))
    own.kernel("gemm", 100, 10, launch=False, correlation=77)
    other.kernel("gemm", 100, 10, correlation=77)
    loaded = cases({"own": own, "other": other})
    assert loaded.reader.rows("SELECT rank, launch_ns FROM work ORDER BY rank") == [
        (0, None),
        (1, 90 * US),
    ]
