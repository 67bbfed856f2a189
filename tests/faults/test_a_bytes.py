"""Row A1: an event that is no JSON is skipped, counted and located; nothing else is lost."""

from __future__ import annotations

import re

import pytest

from tests.builders import TraceBuilder
from tests.faults.conftest import Cases
from tests.faults.store import call, line_with
from tests.faults.writing import BASE_NS, LAYOUTS, laid, raw, start_of, three

PLACES = (0, 1, 2)
QUOTED = [
    'a raw " quote',
    'say "hi"',
    '"',
    '""',
    'f(",")',
    '<string>(1): {"x": 1}',
    'x":1,"y',
    'open {"a": [',
    "ends in \\",
]


@pytest.mark.parametrize("name", QUOTED)
def test_a1_a_raw_quote_in_a_name_costs_only_its_event(cases: Cases, name: str) -> None:
    files = {
        f"{layout} {place}": raw(laid(three("MARK", place), layout), "MARK", name)
        for layout in LAYOUTS
        for place in PLACES
    }
    loaded = cases(files)
    for case, data in files.items():
        place = int(case[-1])
        assert loaded.names(case) == [f"k{n}" for n in PLACES if n != place], case
        offset = start_of(data, b'"name": "' + name.encode())
        assert loaded.damage(case) == [("bad event", offset, 1)], case
    assert loaded.summary.events == 2 * len(files)
    assert sum("bad event" in warning for warning in loaded.summary.warnings) == len(files)


def test_a1_figures_are_those_of_the_trace_without_the_event(cases: Cases) -> None:
    without = three()
    del without.events[1]
    loaded = cases({"bad": raw(three("MARK").json(), "MARK", 'a " b'), "without": without})
    assert loaded.figures("bad") == loaded.figures("without")
    assert loaded.coverage("bad").damaged == 1


def test_a1_info_and_report_show_where(cases: Cases) -> None:
    data = raw(three("MARK").json(), "MARK", 'a " b')
    loaded = cases({"bad": data})
    offset = start_of(data, 'a " b')
    assert line_with(loaded.info(), "bad event", offset, "rank0.json")
    assert line_with(loaded.report(), "Damage", 1)
    assert line_with("\n".join(loaded.summary.warnings), "rank 0", "bad event", offset)


def test_a1_the_command_names_it(cases: Cases) -> None:
    data = raw(three("MARK").json(), "MARK", 'a " b')
    folder = cases({"bad": data}).database.parent
    status, out, err = call("ingest", folder / "cases0", "-o", folder / "run.db")
    assert (status, out) == (0, "")
    assert line_with(err, "rank0.json", "bad event", start_of(data, 'a " b'))
    assert line_with(err, "1 rank", "2 events")


def test_a1_no_event_left_is_never_silent(cases: Cases) -> None:
    trace = TraceBuilder(distributed=False, flows=False)
    for number in range(3):
        trace.cpu_op(f"MARK{number}", number, 1)
    data = trace.json().replace(b"MARK", b'"')
    loaded = cases({"bad": data})
    offsets = [start_of(data, f'""{n}"') for n in range(3)]
    assert loaded.damage("bad") == [("bad event", offset, 1) for offset in offsets]
    assert (loaded.summary.events, loaded.names("bad")) == (0, [])
    assert "bad event" in loaded.summary.warnings[0]
    assert "not available" in loaded.report("-a", "comm_overlap")


def test_a1_places_past_the_first_20_are_counted(cases: Cases) -> None:
    trace = TraceBuilder(distributed=False, flows=False)
    for number in range(30):
        trace.cpu_op("MARK" if number % 6 else f"good{number}", number, 1)
    data = trace.json().replace(b"MARK", b'a " b')
    loaded = cases({"bad": data})
    offsets = [
        m.start() for m in re.finditer(rb'\{\s*"ph": "X", "cat": "cpu_op", "name": "a', data)
    ]
    assert len(offsets) == 25
    counts = [1] * 19 + [6]
    assert loaded.damage("bad") == [
        ("bad event", offset, count) for offset, count in zip(offsets[:20], counts, strict=True)
    ]
    assert loaded.names("bad") == [f"good{n}" for n in range(0, 30, 6)]
    assert loaded.coverage("bad").damaged == 25


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a1_a_raw_quote_anywhere_in_an_event(cases: Cases, layout: str) -> None:
    """In args, in a category, in the name of a kernel, in a thread's name, in a flow."""
    bad = {
        "args": {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 1, "dur": 1,
                 "args": {"External id": 5, "Call stack": "MARK", "Ev Idx": 1}},
        "list": {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 1, "dur": 1,
                 "args": {"Concrete Inputs": ["", "MARK", "[1, 2]"], "Ev Idx": 1}},
        "cat": {"ph": "X", "cat": "MARK", "name": "op", "pid": 1, "tid": 1, "ts": 1, "dur": 1},
        "kernel": {"ph": "X", "cat": "kernel", "name": "MARK", "pid": 0, "tid": 7, "ts": 1,
                   "dur": 1, "args": {"device": 0, "stream": 7, "correlation": 3}},
        "thread": {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "ts": 0,
                   "args": {"name": "MARK"}},
        "flow": {"ph": "s", "id": 4, "pid": 1, "tid": 1, "ts": 1, "cat": "fwdbwd",
                 "name": "MARK"},
    }  # fmt: skip
    files = {}
    for case, event in bad.items():
        trace = TraceBuilder(distributed=False, flows=False)
        trace.kernel("before", 0, 10, launch=False)
        trace.raw(event)
        trace.kernel("after", 20, 10, launch=False)
        files[case] = raw(laid(trace, layout), "MARK", 'a "b" {c')
    loaded = cases(files)
    for case, data in files.items():
        assert loaded.names(case) == ["before", "after"], case
        assert loaded.damage(case) == [("bad event", start_of(data, 'a "b" {c'), 1)], case


BROKEN = {
    '"ts": 20.000': ['"ts": 20.000.1', '"ts": ', '"ts" 20.000', '"ts": 20.000 5'],
    '"python_function",': ['"python_function"', '"python_function",,', "python_function,"],
    '"Python id": 1': [
        '"Python id": [1',
        '"Python id": tru',
        '"Python id": 0x1',
        "'Python id': 1",
        "Python id: 1",
        '"Python id": {"a"}',
    ],
    '"middle"': ['"middle\\q"', '"C:\\users\\x"', "middle"],
}


@pytest.mark.parametrize(
    ("marker", "broken"), [(marker, text) for marker, texts in BROKEN.items() for text in texts]
)
def test_a1_an_event_that_is_no_json_costs_only_itself(
    cases: Cases, marker: str, broken: str
) -> None:
    clean = {layout: laid(three(), layout) for layout in LAYOUTS}
    loaded = cases({case: raw(data, marker, broken) for case, data in clean.items()})
    for case, data in clean.items():
        assert [n for n in loaded.names(case) if n.startswith("k")] == ["k0", "k2"], case
        ((kind, offset, count),) = loaded.damage(case)
        assert (offset, count) == (start_of(data, marker), 1), case
        # A path whose backslashes are not escaped may be understood: the event stays, repaired.
        understood = "\\" in broken and len(loaded.names(case)) == 3
        assert kind == ("repaired" if understood else "bad event"), case


@pytest.mark.parametrize("text", ['closed "}]}', 'x"}, {"ph": "X"', '"}', 'a"}]', '"]}, {"'])
def test_a1_text_that_ends_the_event_is_never_silent(cases: Cases, text: str) -> None:
    files = {layout: raw(laid(three("MARK"), layout), "MARK", text) for layout in LAYOUTS}
    loaded = cases(files)
    for case in files:
        names = loaded.names(case)
        assert names[0] == "k0", case
        assert loaded.damage(case), case
        lost = 3 - len(names)
        assert sum(count for _, _, count in loaded.damage(case)) >= lost
        assert "k2" in names or loaded.state(case) == "partial", case


@pytest.mark.parametrize("where", ["before", "after"])
def test_a1_a_bad_header_costs_no_event(cases: Cases, where: str) -> None:
    """A Windows path, unescaped: the events and the base of their times are still there."""
    files = {}
    for layout in ("kineto", "kineto-2026", "compact", "pretty"):
        trace = three()
        trace.base_ns, trace.metadata = BASE_NS, {"log": "log.json"}
        files[layout] = laid(trace, layout)
        value = "log.json" if where == "before" else "trace.json"
        files[f"bad {layout}"] = raw(files[layout], f'"{value}"', '"C:\\new\\x.json"')
    loaded = cases(files)
    for layout in list(files)[::2]:
        assert [kind for kind, _, _ in loaded.damage(f"bad {layout}")] == ["header"], layout
        assert loaded.damage(layout) == []
        bad, clean = (loaded.tables(case, ["damage"]) for case in (f"bad {layout}", layout))
        assert bad == clean, layout
