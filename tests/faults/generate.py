"""Traces by chance, and what a store must hold of one: worked out from its JSON alone."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from hypothesis import strategies as st

from tests.builders import Event, TraceBuilder, us
from tests.faults.writing import BASE_NS
from tracekit.store import Reader

Row = tuple[Any, ...]

_NASTY = [
    "", '"', "\\", '\\"', "[memory]", "{", "}", "]", "[0] x", "},\n  {", '"traceEvents": [', "\n",
    "\0", "\x7f", "\u2028", "é", "日本", "😀", "a\\u0041", "ProfilerStep#3", "NaN", "null", "/*",
    "tracekit.action F stage=0 chunk=0 mb=0", "aten::mm", "x" * 300,
]  # fmt: skip
NAMES = st.sampled_from(_NASTY) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_PLACES = st.sampled_from([1, 2, "CPU functions", "", -1, "7"])
_SHAPES = st.lists(st.lists(st.integers(0, 2**40), max_size=3), max_size=3)
_NS = st.integers(-(10**6), 10**9)


@st.composite
def _times(draw: st.DrawFn, least: int = 0) -> Any:
    """A time as one writer or another spells it."""
    ns = draw(st.integers(least, 10**9))
    match draw(st.sampled_from(["decimal", "text", "whole", "float", "power"])):
        case "decimal":
            return us(ns)
        case "text":
            return str(us(ns))
        case "whole":
            return ns // 1000
        case "float":
            return ns // 1000 + 0.5
        case _:
            return Decimal(f"{ns // 1000}.5e0")


@st.composite
def _operators(draw: st.DrawFn, cat: str | None = None) -> list[Event]:
    """A slice on the CPU: an operator, a Python call, an overhead, or of no known category."""
    kinds = ["cpu_op", "python_function", "user_annotation", "overhead", "Trace", None, ""]
    kind = draw(st.sampled_from(kinds)) if cat is None else cat
    event = {"ph": "X", "cat": kind, "name": draw(NAMES), "pid": draw(_PLACES)}
    event |= {"tid": draw(_PLACES), "ts": draw(_times()), "dur": draw(_times(-2000))}
    if kind is None:
        del event["cat"]
    args: Event = {"External id": draw(st.integers(0, 2**62)), "Ev Idx": 3}
    if kind == "cpu_op":
        args |= {"Input Dims": draw(_SHAPES), "Input type": ["float"] * draw(st.integers(0, 2))}
        args |= {"Concrete Inputs": draw(st.lists(NAMES, max_size=2))}
    if kind == "python_function":
        args |= {"Python id": draw(st.integers(1, 9)), "Python parent id": None}
    return [event if draw(st.booleans()) else event | {"args": args}]


@st.composite
def _work(draw: st.DrawFn) -> list[Event]:
    """A kernel or a collective with its launch and their flows."""
    trace = TraceBuilder(distributed=False, pid=1, flows=draw(st.booleans()))
    trace._next_id = draw(st.integers(0, 2**60))
    ts = {"ts_ns": draw(_NS), "dur_ns": draw(st.integers(0, 10**6)), "stream": draw(_PLACES)}
    if draw(st.booleans()):
        trace.kernel(draw(NAMES), launch=draw(st.booleans()), **ts)
    else:
        trace.group("0", draw(NAMES), [0, 1])
        trace.collective("allreduce", dtype=draw(NAMES), **ts)
    return trace.events


@st.composite
def _others(draw: st.DrawFn) -> list[Event]:
    """Memory events, instants, links of forward and backward, names of threads, counters."""
    place = {"pid": draw(_PLACES), "tid": draw(_PLACES), "ts": draw(_times())}
    size = st.integers(-(2**40), 2**40)
    args = {"Device Type": 1, "Device Id": 0, "Addr": draw(st.integers(0, 2**64 - 1))}
    args |= {"Bytes": draw(size), "Total Allocated": draw(size), "Total Reserved": draw(size)}
    flow = {"id": draw(st.integers(0, 2**62)), **place, "cat": "fwdbwd", "name": "fwdbwd"}
    memory = {"ph": "i", "name": "[memory]", "cat": "cpu_instant_event", **place, "args": args}
    name = draw(NAMES)
    return draw(
        st.sampled_from(
            [
                [memory],
                [{"name": name.replace("[memory]", ""), "ph": "i", "s": "g", **place}],
                [{"ph": "s", **flow}, {"ph": "f", "bp": "e", **flow}],
                [{"ph": "M", "name": "thread_name", **place, "args": {"name": name}}],
                [{"ph": "C", "name": name, **place, "args": {"v": 1}}],
            ]
        )
    )


@st.composite
def traces(draw: st.DrawFn, most: int = 12) -> TraceBuilder:
    """Events of all kinds in any order; pairs of B and E may hold others between them."""
    trace = TraceBuilder(distributed=False, base_ns=draw(st.sampled_from([None, 0, BASE_NS])))
    trace.metadata = {"traced by": draw(NAMES)}
    items = draw(st.lists(_operators() | _work() | _others(), min_size=1, max_size=most))
    for number, events in enumerate(items):
        ends = draw(st.sampled_from([None, None, "B", "E", "BE"]))
        place = {"cat": "timed", "pid": number, "tid": 0}
        if ends and "B" in ends:
            trace.raw({"name": f"pair {number}", "ph": "B", **place, "ts": us(1000 * number)})
        trace.events += events
        if ends and "E" in ends:
            trace.raw({"name": f"pair {number}", "ph": "E", **place, "ts": us(1000 * number + 7)})
    return trace


def _ns(value: Any) -> int:
    return int((Decimal(str(value)) * 1000).to_integral_value(ROUND_HALF_EVEN))


def expected(events: Sequence[Event], base_ns: int) -> Counter[Row]:
    """The rows of these events: slices, instants, memory events and forward-backward links."""
    found: Counter[Row] = Counter()
    begun: dict[Any, Event] = {}
    for event in events:
        phase, name = event["ph"], str(event["name"])
        place = (str(event["pid"]), str(event["tid"]))
        ts = _ns(event["ts"]) + base_ns
        if phase == "B":
            begun[name, place] = event
        elif phase == "E" and (name, place) in begun:
            start = _ns(begun.pop((name, place))["ts"])
            found["event", name, start + base_ns, ts - base_ns - start, *place] += 1
        elif phase == "i" and name == "[memory]":
            args = event["args"]
            found["memory", ts, args["Bytes"], args["Total Allocated"], args["Addr"]] += 1
        elif phase in "Xi":
            found["event", name, ts, max(0, _ns(event.get("dur", 0))), *place] += 1
        elif phase in "sf" and event["cat"] == "fwdbwd":
            found["flow", event["id"], phase == "s", ts, *place] += 1
    return found


def stored(reader: Reader, rank: int) -> Counter[Row]:
    """The same rows as a store has them; a pair that has no partner does not count."""
    pairs = re.compile(r"pair \d+")
    queries = {
        "event": "SELECT e.name, ts_ns, dur_ns, pid, tid FROM events AS e "
        "JOIN thread AS t USING (rank, thread_id) WHERE e.rank = $1",
        "memory": "SELECT ts_ns, bytes, total_allocated, address FROM memory_event WHERE rank = $1",
        "flow": "SELECT flow_id, is_start, ts_ns, pid, tid FROM flow AS f "
        "JOIN thread AS t USING (rank, thread_id) WHERE f.rank = $1 AND kind = 'fwdbwd'",
    }
    return Counter(
        (kind, *row)
        for kind, sql in queries.items()
        for row in reader.rows(sql, [rank])
        if not (kind == "event" and pairs.fullmatch(row[0]) and row[2] == 0)
    )


def parsed(data: bytes) -> tuple[list[Event], int]:
    """The events of a whole trace, and the base of their times."""
    root = json.loads(data, parse_float=Decimal)
    if isinstance(root, list):
        return root, 0
    return root["traceEvents"], root.get("baseTimeNanoseconds", 0)


def inflated(packed: bytes) -> bytes:
    """What comes out of a gzip of several members that may end early."""
    found = b""
    while packed:
        inflater = zlib.decompressobj(31)
        found += inflater.decompress(packed)
        packed = inflater.unused_data
    return found
