"""Rows A2 and A3: bytes that JSON forbids inside a text are replaced, counted and located."""

from __future__ import annotations

import gzip
import re

import pytest

from tests.builders import TraceBuilder
from tests.faults.conftest import Cases
from tests.faults.store import line_with
from tests.faults.writing import LAYOUTS, laid, raw, start_of, three

PLACES = (0, 1, 2)
NAMED = ("event", "python_call", "damage")  # tables that hold the name, or what was wrong with it


@pytest.mark.parametrize("byte", [0x00, 0x01, 0x09, 0x0A, 0x0D, 0x1F], ids=hex)
def test_a2_a_raw_control_byte_in_a_name_is_replaced(cases: Cases, byte: int) -> None:
    files = {
        f"{layout} {place}": raw(laid(three("MARK", place), layout), "MARK", b"a" + bytes([byte]))
        for layout in LAYOUTS
        for place in PLACES
    }
    loaded = cases(files)
    for case, data in files.items():
        (name,) = (n for n in loaded.names(case) if not n.startswith("k"))
        # A blank that must be escaped may stay a blank; anything else shows that it was there.
        assert name in ({"a�"} if byte not in (9, 10, 13) else {"a�", "a ", f"a{byte:c}"})
        assert len(loaded.names(case)) == 3
        assert loaded.damage(case) == [("repaired", start_of(data, b"a" + bytes([byte])), 1)], case


def test_a2_counted_once_for_each_event(cases: Cases) -> None:
    trace = TraceBuilder(distributed=False, flows=False)
    trace.cpu_op("MARK1", 0, 1, **{"Concrete Inputs": ["MARK1"]})
    trace.cpu_op("good", 10, 1)
    trace.cpu_op("MARK2", 20, 1)
    data = trace.json().replace(b"MARK", b"\x01\x02")
    loaded = cases({"bad": data})
    places = [start_of(data, b"\x01\x021"), start_of(data, b"\x01\x022")]
    assert loaded.damage("bad") == [("repaired", at, 1) for at in places]
    assert loaded.names("bad") == ["��1", "good", "��2"]
    assert line_with(loaded.info(), "repaired", places[1])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a2_a_number_that_json_has_not(cases: Cases, layout: str) -> None:
    """NaN and infinity, as %f prints them, are none; the event stays."""
    texts = ["nan", "-nan", "inf", "-inf", "NaN", "Infinity", "-Infinity"]
    files = {}
    for text in texts:
        trace = three()
        trace.events[1]["args"] |= {"bytes": 123456, "est. achieved occupancy %": 0}
        files[text] = raw(laid(trace, layout), "123456", text)
    loaded = cases(files)
    for text, data in files.items():
        assert loaded.names(text) == ["k0", "middle", "k2"]
        assert loaded.damage(text) == [("repaired", start_of(data, '"middle"'), 1)], text
    assert loaded.reader.rows("SELECT DISTINCT bytes FROM events WHERE name = 'middle'") == [
        (None,)
    ]


INVALID = {
    "f0 28": b"\xf0\x28",
    "cut short": b"\xe2\x82",
    "continuation": b"\x80",
    "latin-1": b"\xe9",
    "overlong": b"\xc0\xaf",
    "surrogate": b"\xed\xa0\x80",
    "beyond": b"\xf5\x80\x80\x80",
    "ff": b"\xff",
    "before the quote": b"x\xf0",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a3_bytes_that_are_no_utf8_change_no_figure(cases: Cases, layout: str) -> None:
    files = {}
    for case, bad in {"clean": b"MARK", **INVALID}.items():
        trace = TraceBuilder(distributed=False)
        trace.cpu_op("MARK", 5, 90, cat="python_function")
        trace.kernel("gemm", 10, 20)
        trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 40, stream=20)
        trace.kernel("add", 70, 5)
        files[case] = raw(laid(trace, layout), "MARK", bad)
    loaded = cases(files)
    for case, bad in INVALID.items():
        assert loaded.figures(case) == loaded.figures("clean"), case
        assert loaded.tables(case, NAMED) == loaded.tables("clean", NAMED), case
        (name,) = (n for n in loaded.names(case) if "�" in n)
        # How many marks stand for a bad sequence is a matter of taste; that they do is not.
        assert re.sub("�+", "�", name) == re.sub("�+", "�", bad.decode("utf-8", "replace"))
        offset = start_of(files[case], b'"name": "' + bad)
        assert loaded.damage(case) == [("repaired", offset, 1)], case
    assert loaded.damage("clean") == []


def test_a3_in_gzip_the_offset_counts_what_comes_out_of_it(cases: Cases) -> None:
    data = raw(three("MARK").json(), "MARK", b"\xf0\x28")
    loaded = cases({"bad": gzip.compress(data)}, suffix=".json.gz")
    assert loaded.damage("bad") == [("repaired", start_of(data, b"\xf0\x28"), 1)]


def test_a3_half_of_a_surrogate_pair(cases: Cases) -> None:
    """Allowed by JSON as an escape, and still no character."""
    names = {"first": "a\\ud83d", "second": "\\ude00a", "swapped": "\\ude00\\ud83d"}
    loaded = cases({case: raw(three("MARK").json(), "MARK", n) for case, n in names.items()})
    for case in names:
        (name,) = (n for n in loaded.names(case) if not n.startswith("k"))
        assert "�" in name
        assert len(loaded.names(case)) == 3


@pytest.mark.parametrize("layout", ["kineto", "kineto-2026", "compact", "pretty"])
def test_a3_in_the_header_it_costs_no_key(cases: Cases, layout: str) -> None:
    trace = TraceBuilder(rank=0, world_size=4, metadata={"host_name": "MARK"})
    trace.kernel("gemm", 0, 10)
    loaded = cases({"bad": raw(laid(trace, layout), "MARK", b"node\xf0\x28")})
    assert loaded.reader.rows("SELECT world_size, host FROM rank") == [(4, "node�(")]
    assert [(kind, count) for kind, _, count in loaded.damage("bad")] == [("repaired", 1)]
