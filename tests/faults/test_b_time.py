"""Rows B1 to B3: units, children that outlast their parent, durations below zero. Times in us."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.faults.conftest import Cases
from tests.faults.store import call, compute_ns, line_with
from tests.faults.writing import LAYOUTS, laid, reordered, start_of

US = 1000


def test_b1_the_display_unit_changes_nothing(cases: Cases) -> None:
    files = {}
    for hint in ("ms", "ns", None, "us", 5):
        for dur in ("1000", "1000.0", "1e3", '"1000"'):
            trace = TraceBuilder(distributed=False)
            trace.kernel("gemm", 0, 1000, launch=False)
            content = trace.json("compact").replace(b"1000.000", dur.encode())
            old = b'"displayTimeUnit": "ms"'
            assert old in content
            new = b'"displayTimeUnit": ' + json.dumps(hint).encode()
            content = content.replace(old, b'"x": 1' if hint is None else new)
            files[f"{hint} {dur}"] = content
            files[f"{hint} {dur} first"] = reordered(content, ["displayTimeUnit", "traceEvents"])
            files[f"{hint} {dur} last"] = reordered(content, ["traceEvents", "displayTimeUnit"])
    loaded = cases(files)
    for case in files:
        assert compute_ns(loaded.figures(case)) == 1000 * US, case
    assert loaded.reader.rows("SELECT DISTINCT ts_ns, dur_ns FROM event") == [(0, 1000 * US)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_b2_a_child_that_outlasts_its_parent_costs_no_time(cases: Cases, layout: str) -> None:
    """parent[10.9, 15.9], child[11.0, 15.95]: they cover 5.05, and self times are 0.1 and 4.95."""
    trace = TraceBuilder(distributed=False)
    trace.cpu_op("aten::parent", "10.9", "5.0")
    trace.cpu_op("aten::child", "11.0", "4.95")
    loaded = cases({"cpu": laid(trace, layout)}, device="cpu")
    assert loaded.damage("cpu") == []
    assert loaded.reader.rows("SELECT name, ts_ns, end_ns FROM events ORDER BY ts_ns") == [
        ("aten::parent", 10900, 15900),
        ("aten::child", 11000, 15950),
    ]
    _, breakdown = loaded.figures("cpu")
    assert (breakdown["window_ns"], breakdown["compute_ns"], breakdown["idle_ns"]) == (
        5050,
        5050,
        0,
    )
    assert self_times(loaded.reader) == {"aten::parent": 100, "aten::child": 4950}


def self_times(reader: Any) -> dict[str, int]:
    """Each event less what later, inner ones of its thread cover of it."""
    rows = reader.rows(
        "SELECT any_value(p.name), any_value(p.dur_ns) - coalesce(sum(least(p.end_ns, c.end_ns) "
        "- greatest(p.ts_ns, c.ts_ns)) FILTER (c.ts_ns IS NOT NULL), 0)::BIGINT "
        "FROM events AS p LEFT JOIN events AS c ON p.rank = c.rank AND p.thread_id = c.thread_id "
        "AND (c.ts_ns, -c.dur_ns) > (p.ts_ns, -p.dur_ns) AND c.ts_ns < p.end_ns "
        "GROUP BY p.rank, p.event_id"
    )
    return dict(rows)


@pytest.mark.parametrize(
    ("parent", "child"),
    [(("0", "10"), ("10", "5")), (("5", "0"), ("5", "0")), (("1e15", "0.001"), ("1e15", "9"))],
)
def test_b2_self_time_is_never_below_zero(
    cases: Cases, parent: tuple[str, str], child: tuple[str, str]
) -> None:
    trace = TraceBuilder(distributed=False)
    trace.cpu_op("aten::parent", *parent)
    trace.cpu_op("aten::child", *child, cat="python_function")
    loaded = cases({"cpu": trace}, device="cpu")
    assert min(self_times(loaded.reader).values()) >= 0
    _, breakdown = loaded.figures("cpu")
    assert breakdown["idle_ns"] in (0, None)


BAD_DURATIONS = {
    "-1": "negative duration",
    "-0.001": "negative duration",
    '"-1"': "negative duration",
    "-1e9": "negative duration",
    '"abc"': "no readable duration",
    "null": "no readable duration",
    "[]": "no readable duration",
    "1e300": "no readable duration",
    '""': "no readable duration",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_b3_an_unfinished_event_takes_no_time_away(cases: Cases, layout: str) -> None:
    files = {}
    for dur in BAD_DURATIONS:
        trace = TraceBuilder(distributed=False, flows=False)
        trace.kernel("gemm", 0, 100, launch=False)
        trace.cpu_op("unfinished", 5, "777.777")
        files[dur] = laid(trace, layout).replace(b"777.777", dur.encode())
    loaded = cases(files)
    for dur, why in BAD_DURATIONS.items():
        assert compute_ns(loaded.figures(dur)) == 100 * US, dur
        offset = start_of(files[dur], '"unfinished"')
        assert loaded.damage(dur) == [(f"unfinished event ({why})", offset, 1)], dur
        assert loaded.names(dur) == ["gemm", "unfinished"], dur
    assert loaded.reader.rows("SELECT DISTINCT dur_ns FROM events WHERE name = 'unfinished'") == [
        (0,)
    ]


def test_b3_an_event_without_a_duration_at_all(cases: Cases) -> None:
    trace = TraceBuilder(distributed=False)
    trace.kernel("gemm", 0, 100, launch=False)
    trace.raw({"ph": "X", "cat": "cpu_op", "name": "unfinished", "pid": 1, "tid": 1, "ts": 5})
    loaded = cases({"one": trace})
    assert [kind for kind, _, _ in loaded.damage("one")] == [
        "unfinished event (no readable duration)"
    ]


def test_b3_the_command_says_one_unfinished_event(cases: Cases) -> None:
    trace = TraceBuilder(distributed=False)
    trace.kernel("gemm", 0, 100)
    trace.cpu_op("aten::mm", 5, -1)
    loaded = cases({"one": trace})
    assert "1 unfinished event" in "\n".join(loaded.summary.warnings)
    status, _, err = call(
        "ingest", loaded.database.parent / "cases0", "-o", loaded.database.parent / "again.db"
    )
    assert (status, "1 unfinished event" in err) == (0, True)
    assert line_with(loaded.info(), "unfinished event", "rank0.json")
    assert line_with(loaded.report(), "Damage", 1)


def test_b3_an_unfinished_kernel_is_no_time_either(cases: Cases) -> None:
    trace = TraceBuilder(distributed=False)
    trace.kernel("gemm", 0, 100, launch=False)
    trace.kernel("never ended", 50, -1, launch=False)
    loaded = cases({"one": trace})
    assert compute_ns(loaded.figures("one")) == 100 * US
