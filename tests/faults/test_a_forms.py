"""Rows A6 to A9: forms that other writers use, all of them valid JSON."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.faults.conftest import Cases
from tests.faults.store import line_with
from tests.faults.writing import laid, start_of, three

US = 1000


def op(name: str | None, ts: object, dur: object, **keys: Any) -> dict[str, Any]:
    event = {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": {}, **keys}
    return {key: value for key, value in event.items() if value is not None}


def as_list(*events: object, indent: int | None = None) -> bytes:
    return json.dumps(list(events), indent=indent).encode()


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("pid", ["CPU functions", "", "[CPU] 0"])
def test_a6_a_list_without_categories(cases: Cases, indent: int | None, pid: str) -> None:
    """As autograd's own profiler wrote it: no GPU figure can be made of it, and none is shown."""
    flow = {"name": "x", "ph": "s", "ts": 2, "tid": 1, "pid": pid, "id": 7, "cat": "cpu_to_cuda"}
    events = [op("aten::mm", 1.5, 2.25, pid=pid), flow, op("aten::add", 4, 1, pid=pid, tid="t")]
    loaded = cases({"old": as_list(*events, indent=indent)})
    assert loaded.reader.rows("SELECT name, cat, ts_ns, dur_ns FROM events ORDER BY ts_ns") == [
        ("aten::mm", "other", 1500, 2250),
        ("aten::add", "other", 4000, 1000),
    ]
    assert loaded.reader.rows("SELECT pid, tid FROM thread ORDER BY tid") == [
        (pid, "1"),
        (pid, "t"),
    ]
    assert loaded.reader.rows("FROM damage WHERE severity = 'damage'") == []
    for figures in loaded.figures("old"):
        timed = {k: v for k, v in figures.items() if k.endswith(("_ns", "_ratio", "overlap"))}
        assert set(timed.values()) == {None}
    for name in ("comm_overlap", "step_breakdown"):
        printed = loaded.report("-a", name)
        assert line_with(printed, "not available")
        assert not re.search(r"(?<![\d.])0(\.0+)? (ns|us|ms|s|%)", printed)


def test_a6_pids_and_tids_of_every_type_are_threads_of_their_own(cases: Cases) -> None:
    places = [(1, 1), ("1", "x"), ("CPU functions", 0), (-1, "stream 7"), ("é\n", 2**40)]
    events = [op(f"op{n}", n, 1, pid=pid, tid=tid) for n, (pid, tid) in enumerate(places)]
    loaded = cases({"list": as_list(*events)})
    rows = loaded.reader.rows(
        "SELECT t.pid, t.tid FROM events AS e JOIN thread AS t USING (rank, thread_id) "
        "ORDER BY e.ts_ns"
    )
    assert rows == [(str(pid), str(tid)) for pid, tid in places]


BIG = [2**53 + 1, 2**53 + 3, 2**62 + 1, 2**63 - 1]


def numeric(base: str = "1715600000000000") -> TraceBuilder:
    """Fractions of a microsecond at an absolute time, and ids that no float holds."""
    trace = TraceBuilder(distributed=False)
    trace.cpu_op("op", f"{base}.123", "7.001", external_id=BIG[0])
    trace.kernel("gemm", f"{base}.999", "5.125", correlation=BIG[1], external_id=BIG[0])
    trace.kernel("add", f"{int(base) + 7}.001", "0.001", correlation=BIG[1] + 1)
    for phase, at in (("s", "0.123"), ("f", "6.500")):
        ts = f"{int(base) + int(at[0])}{at[1:]}"
        for flow in BIG:
            trace.raw({"ph": phase, "id": flow, "pid": 4000, "tid": 4000, "ts": ts,
                       "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"})  # fmt: skip
    return trace


def quoted(event: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """The event with these values in quotes, its own or those of its args."""
    return {
        key: quoted(value, keys)
        if isinstance(value, dict)
        else f"{value}"
        if key in keys
        else value
        for key, value in event.items()
    }


QUOTED = {
    "numbers": (),
    "times": ("ts", "dur"),
    "flow ids": ("id",),
    "correlations": ("correlation", "External id"),
    "places": ("pid", "tid", "device", "stream"),
    "all": ("ts", "dur", "id", "correlation", "External id", "pid", "tid", "device", "stream"),
}


@pytest.mark.parametrize("layout", ["kineto", "compact", "list"])
def test_a7_numbers_in_quotes_are_the_same_numbers(cases: Cases, layout: str) -> None:
    files = {}
    for case, keys in QUOTED.items():
        trace = numeric()
        trace.events = [quoted(event, keys) for event in trace.events]
        files[case] = laid(trace, layout)
    loaded = cases(files)
    twin = loaded.tables("numbers")
    assert len(twin["event"]) == 5
    assert len(twin["flow"]) == 8
    for case in QUOTED:
        assert loaded.tables(case) == twin, case


def test_a7_fractions_and_ids_are_exact(cases: Cases) -> None:
    loaded = cases({"numbers": numeric()})
    base = 1715600000000000
    assert loaded.reader.rows(
        "SELECT ts_ns, dur_ns, correlation, external_id FROM events "
        "WHERE cat IN ('cpu_op', 'kernel') ORDER BY ts_ns"
    ) == [
        (base * US + 123, 7001, None, BIG[0]),
        (base * US + 999, 5125, BIG[1], BIG[0]),
        (base * US + 7001, 1, BIG[1] + 1, BIG[1] + 1),
    ]
    assert loaded.reader.rows("SELECT DISTINCT flow_id FROM flow ORDER BY 1") == [
        (flow,) for flow in BIG
    ]
    # Two correlations that are one float are two launches.
    assert loaded.reader.scalar("SELECT count(DISTINCT launch_id) FROM work") == 2


@pytest.mark.parametrize(
    ("text", "ns"),
    [("1e3", 1_000_000), ("1.5E+2", 150_000), ("12", 12_000), ("0.0005", 0), ("0.0015", 2),
     ("1715600000000000.1234", 1715600000000000123), ("-3.001", -3001), ("1.0", 1000)],
)  # fmt: skip
def test_a7_a_time_is_a_decimal(cases: Cases, text: str, ns: int) -> None:
    """As a number and in quotes; below a nanosecond half goes to even."""
    files = {}
    for case, ts in (("number", text), ("string", f'"{text}"')):
        files[case] = as_list(op("op", 123, 1)).replace(b"123", ts.encode())
    loaded = cases(files)
    assert loaded.reader.rows("SELECT ts_ns FROM event") == [(ns,), (ns,)]


def test_a8_an_empty_object_is_skipped_and_a_slice_without_a_name_kept(cases: Cases) -> None:
    trace = three("")
    trace.raw({})
    files = {layout: laid(trace, layout) for layout in ("compact", "indent-2", "pretty", "list")}
    kineto = laid(three(""), "kineto")
    files["kineto"] = kineto.replace(b"\n  }\n  ]", b"\n  },\n  {\n  }\n  ]")
    files["bare"] = kineto.replace(b"\n  }\n  ]", b"\n  },\n  {}\n  ]")
    loaded = cases(files)
    for case, data in files.items():
        assert loaded.names(case) == ["k0", "", "k2"], case
        at = max(data.rfind(b"{}"), data.rfind(b"{\n  }"))
        assert loaded.damage(case) == [("not an event", at, 1)], case
        assert loaded.state(case) == "whole", case
    assert loaded.reader.rows("SELECT DISTINCT severity FROM damage") == [("skipped",)]
    assert line_with(loaded.info(), "not an event")


@pytest.mark.parametrize("item", ["{}", "null", "[]", "5", '"text"', "[1, {}]", "true"])
@pytest.mark.parametrize("indent", [None, 2])
def test_a8_what_is_no_event_is_skipped_anywhere(
    cases: Cases, item: str, indent: int | None
) -> None:
    good = [op(f"op{n}", n, 1) for n in range(2)]
    files = {}
    for place in range(3):
        events: list[object] = [*good[:place], "MARK", *good[place:]]
        files[str(place)] = as_list(*events, indent=indent).replace(b'"MARK"', item.encode())
    loaded = cases(files)
    for case in files:
        assert loaded.names(case) == ["op0", "op1"], case
        assert [(kind, count) for kind, _, count in loaded.damage(case)] == [("not an event", 1)]


@pytest.mark.parametrize("name", ["", None, "\0", " ", "é", "[memory]", "{}"])
def test_a8_any_name_is_a_name(cases: Cases, name: str | None) -> None:
    loaded = cases({"list": as_list(op("before", 0, 1), op(name, 1, 1), op("after", 2, 1))})
    assert loaded.names("list") == ["before", name or "", "after"]
    assert loaded.damage("list") == []


def pair(phase: str, name: str | None, ts: float, tid: object = 0, **keys: Any) -> dict[str, Any]:
    event = {"ph": phase, "cat": "dynamo_timed", "ts": ts, "tid": tid, "pid": 0, **keys}
    return event if name is None else {"name": name, **event}


def test_a9_pairs_become_slices(cases: Cases) -> None:
    # outer[100,200] holds inner[110,150] and the unnamed end of x[160,170]; t[105,195] beside.
    events = [
        pair("B", "outer", 100, args={"compile_id": "0/0"}),
        pair("B", "t", 105, tid="other"),
        pair("B", "inner", 110),
        pair("E", "inner", 150, args={"fn": "f"}),
        pair("B", "x", 160.5),
        pair("E", None, 170.75),
        pair("E", "t", 195, tid="other"),
        pair("E", "outer", 200),
        op("plain", 300, 5),
    ]
    loaded = cases({"one": as_list(*events), "two": as_list(*events, indent=1)})
    for case in ("one", "two"):
        rows = loaded.reader.rows(
            "SELECT name, ts_ns, dur_ns FROM events WHERE rank = $1 ORDER BY ts_ns",
            [loaded.ranks[case]],
        )
        assert rows == [
            ("outer", 100 * US, 100 * US),
            ("t", 105 * US, 90 * US),
            ("inner", 110 * US, 40 * US),
            ("x", 160_500, 10_250),
            ("plain", 300 * US, 5 * US),
        ]
        assert loaded.damage(case) == []


def test_a9_what_has_no_partner_is_counted(cases: Cases) -> None:
    events = [
        pair("E", "early", 50),
        pair("B", "a", 100),
        pair("B", "open", 110),
        pair("E", "a", 200),
        pair("B", "tail", 300, tid="other"),
        pair("E", "elsewhere", 400, tid="third"),
    ]
    data = as_list(*events, indent=2)
    loaded = cases({"list": data})
    at = {name: data.rindex(b"{", 0, data.index(f'"{name}"'.encode())) for name in
          ("early", "open", "tail", "elsewhere")}  # fmt: skip
    assert sorted(loaded.damage("list")) == sorted([
        ("unmatched E", at["early"], 1),
        ("unmatched B", at["open"], 1),
        ("unmatched B", at["tail"], 1),
        ("unmatched E", at["elsewhere"], 1),
    ])  # fmt: skip
    rows = loaded.reader.rows("SELECT ts_ns, dur_ns FROM events WHERE name = 'a'")
    assert rows == [(100 * US, 100 * US)]
    info = loaded.info()
    assert line_with(info, "unmatched B", at["open"])
    assert line_with(info, "unmatched E", at["early"])


def test_a9_pairs_among_kineto_events(cases: Cases) -> None:
    trace = three()
    trace.raw(pair("B", "span", "1.001"))
    trace.raw(pair("E", "span", "2.003"))
    loaded = cases({layout: laid(trace, layout) for layout in ("kineto", "compact", "list")})
    for case in loaded.ranks:
        assert loaded.names(case) == ["k0", "span", "middle", "k2"]
    rows = loaded.reader.rows("SELECT DISTINCT ts_ns, dur_ns FROM events WHERE name = 'span'")
    assert rows == [(1001, 1002)]


def test_a9_start_of_finds_an_event() -> None:
    data = as_list({"ph": "X", "name": "a"}, {"ph": "X", "name": "b"})
    assert start_of(data, '"b"') == data.rindex(b"{")
