"""One trace in every layout gives the same rows, and nothing of it is thrown away silently."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.faults.conftest import Cases
from tests.faults.writing import (
    BASE_NS,
    LAYOUTS,
    in_members,
    laid,
    reordered,
    unescaped,
    with_gzip_fields,
)

US = 1000


def rich() -> TraceBuilder:
    """A bit of everything that torch writes."""
    trace = TraceBuilder(rank=0, world_size=4, base_ns=BASE_NS, metadata={"with_stack": 1})
    trace.group("0", "default_pg", [0, 1, 2, 3])
    trace.step(7, "0.001", 1000)
    shapes = {"Input Dims": [[2, 3], [], [[1], [2]]], "Input type": ["float", "", "c10::é"]}
    op = trace.cpu_op("aten::mm", 1, 20, **shapes, **{"Concrete Inputs": ["", "[1, 2]", "\n"]})
    trace.cpu_op("aten::mm", 22, 20, **shapes, **{"Sequence number": 5, "Fwd thread id": 1})
    trace.kernel("gemm<[0] x>", "100.125", "5.001", launch=10, external_id=op)
    trace.memcpy(110, "3.5", nbytes=2**33)
    trace.memset(120, 1, nbytes=0)
    trace.sync(130, 5)
    trace.gpu_annotation("nccl:all_reduce é", 100, 60)
    trace.collective("allreduce", 150, 30, elems=1024, dtype="Float", seq=4)
    trace.collective("send", 190, 3, dst=1)
    trace.memory(20, 512, 4096, 8192)
    trace.memory(20, -512, 3584, 8192, device_type=0)
    for number, name in enumerate(
        ("torch/nn/module.py(1): _call", "<built-in 'x'>", "日本 \U0001f600")
    ):
        ids = {"Python id": number + 1, "Python parent id": number or None, "Python module id": 0}
        trace.cpu_op(name, 30 + number, 9 - number, cat="python_function", **ids)
    for phase, at in (("s", 22), ("f", 60)):
        trace.raw({"ph": phase, "id": 3, "pid": trace.pid, "tid": trace.pid, "ts": at,
                   "cat": "fwdbwd", "name": "fwdbwd"})  # fmt: skip
    trace.raw({"ph": "M", "name": "thread_name", "ts": 0, "pid": trace.pid, "tid": trace.pid,
               "args": {"name": "thread 1 (pt_main_thread)"}})  # fmt: skip
    trace.raw({"ph": "M", "name": "process_sort_index", "ts": 0, "pid": trace.pid, "tid": 0,
               "args": {"sort_index": 5}})  # fmt: skip
    trace.raw({"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 900})
    place = {"pid": "Spans", "tid": "PyTorch Profiler", "ts": 0, "dur": 900}
    trace.raw({"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", **place,
               "args": {"Op count": 0}})  # fmt: skip
    return trace


def bare() -> TraceBuilder:
    """The same without what a list of events cannot hold."""
    trace = rich()
    trace.base_ns, trace.distributed, trace.metadata = None, False, {}
    return trace


def shuffled(trace: TraceBuilder, turn: int) -> TraceBuilder:
    """The keys of each event, and of its args, in another order."""
    trace.events = [turned(event, turn + n) for n, event in enumerate(trace.events)]
    return trace


def turned(event: dict[str, Any], by: int) -> dict[str, Any]:
    keys = list(event)[::-1] if by % 2 else list(event)
    keys = keys[by % len(keys) :] + keys[: by % len(keys)]
    return {k: turned(event[k], by) if k == "args" and event[k] else event[k] for k in keys}


def variants(trace: TraceBuilder) -> dict[str, bytes]:
    """The trace as different writers would have written it."""
    files = {layout: laid(trace, layout) for layout in LAYOUTS if layout != "list"}
    files |= {f"{layout}, utf-8": unescaped(data) for layout, data in files.items()}
    compact, kineto = files["compact"], files["kineto"]
    keys = ["baseTimeNanoseconds", "distributedInfo", "traceEvents"]
    files["base last"] = reordered(compact, ["traceEvents", *keys[:2]])
    files["base first"] = reordered(kineto, keys)
    files["events first"] = reordered(
        kineto, ["traceEvents", "schemaVersion", "displayTimeUnit", *keys[:2]]
    )
    files["no blanks"] = json.dumps(
        json.loads(compact, parse_float=str), separators=(",", ":")
    ).encode()
    files["a byte order mark"] = b"\xef\xbb\xbf" + kineto
    files["windows lines"] = kineto.replace(b"\n", b"\r\n")
    files["tabs"] = files["pretty"].replace(b"    ", b"\t")
    files["blanks at the ends"] = b" \n\t" + compact + b"\n\n "
    files["slashes"] = kineto.replace(b"/", b"\\/")
    files |= {f"keys turned by {n}": laid(shuffled(rich(), n), "compact") for n in (1, 2, 5)}
    files |= {f"keys turned, kineto {n}": shuffled(rich(), n).json() for n in (1, 3)}
    return files


def test_every_layout_gives_the_same_rows(tmp_path: Path, cases: Cases) -> None:
    """Each file states rank 0, so the map tells them apart."""
    files = variants(rich())
    (tmp_path / "ranks").write_text("".join(f"rank{n}.json {n}\n" for n in range(len(files))))
    loaded = cases(files, rank_map=tmp_path / "ranks")
    expected = loaded.tables("kineto")
    assert len(expected["event"]) == 23
    assert len(expected["memory_event"]) == len(expected["flow"]) == 2
    assert len(expected["comm_args"]) == 4
    assert len(expected["python_call"]) == 3
    assert expected["damage"] == []
    for case in files:
        assert loaded.tables(case) == expected, case
    assert loaded.reader.rows("SELECT DISTINCT world_size, backend FROM rank") == [(4, "nccl")]


def test_a_list_root_gives_the_same_events(cases: Cases) -> None:
    files = {layout: laid(bare(), layout) for layout in LAYOUTS}
    files["list, kineto's lines"] = files["kineto"][files["kineto"].index(b'[\n  {\n    "ph"') :]
    files["list, kineto's lines"] = files["list, kineto's lines"].rpartition(b"]")[0] + b"]"
    loaded = cases(files)
    expected = loaded.tables("kineto")
    assert len(expected["event"]) == 23
    for case in files:
        assert loaded.tables(case) == expected, case


def test_gzip_of_every_kind_gives_the_same_rows(cases: Cases) -> None:
    data = bare().json()
    middle = data.index(b'"name"', len(data) // 2) + 3
    files = {
        "plain in a .gz": data,
        "one": gzip.compress(data),
        "level 0": gzip.compress(data, 0),
        "two": in_members(data, [len(data) // 2]),
        "many": in_members(data, range(100, len(data), 331)),
        "within a word": in_members(data, [middle, middle + 1, middle + 2]),
        "empty members": in_members(data, [0, 0, middle, middle, len(data)]),
        "fields": with_gzip_fields(data),
        "fields in each": with_gzip_fields(data[:middle]) + with_gzip_fields(data[middle:]),
        "padded": gzip.compress(data) + b"\0" * 1024,
    }
    loaded = cases(files, suffix=".json.gz")
    expected = loaded.tables("one")
    assert len(expected["event"]) == 23
    for case in files:
        assert loaded.tables(case) == expected, case
        assert (loaded.state(case), loaded.damage(case)) == ("whole", []), case


def test_a_gzip_is_known_by_its_bytes_and_not_by_its_name(cases: Cases) -> None:
    loaded = cases({"packed": gzip.compress(bare().json()), "plain": bare().json()})
    assert loaded.tables("packed") == loaded.tables("plain")


def test_shapes_are_one_text_in_every_layout(cases: Cases) -> None:
    """Ranks may be written by different tools, and calls are grouped by their shapes."""
    loaded = cases({layout: laid(bare(), layout) for layout in LAYOUTS})
    rows = loaded.reader.rows(
        "SELECT DISTINCT signature_id FROM events WHERE signature_id IS NOT NULL "
        "AND name_id IN (SELECT name_id FROM name WHERE name = 'aten::mm')"
    )
    assert len(rows) == 2
    texts = loaded.reader.rows("SELECT DISTINCT input_dims FROM signature WHERE input_dims <> ''")
    assert [json.loads(text) for (text,) in texts] == [[[2, 3], [], [[1], [2]]]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_args_are_kept_on_demand(cases: Cases, layout: str) -> None:
    trace = bare()
    loaded = cases({"one": laid(trace, layout)}, keep_args=True)
    rows = loaded.reader.rows(
        "SELECT name, ts_ns, args FROM event_args JOIN events USING (rank, event_id)"
    )
    found = sorted((name, ts, json.dumps(json.loads(args))) for name, ts, args in rows)
    expected = sorted(
        (e["name"], int(float(e["ts"]) * US + 0.5), json.dumps(e["args"], default=float))
        for e in trace.events
        if e["ph"] == "X" and e.get("args")
    )
    assert found == expected


def test_without_the_demand_they_are_only_counted(cases: Cases) -> None:
    trace = TraceBuilder(distributed=False)
    for number in range(3):
        trace.kernel("gemm", 20 * number, 10, launch=False, **{"a new key": {"x": [1, number]}})
    trace.cpu_op("op", 0, 1, **{"another": None})
    loaded = cases({"one": trace})
    assert loaded.reader.rows("FROM event_args") == []
    rows = loaded.reader.rows("SELECT rank, key, count FROM unknown_arg ORDER BY key")
    assert ("a new key", 3) in [row[1:] for row in rows]
    assert ("another", 1) in [row[1:] for row in rows]
    known = {"External id", "correlation", "stream", "device"}
    assert not known & {key for _, key, _ in rows}
    assert "a new key" in loaded.info()


@pytest.mark.parametrize("layout", ["kineto", "kineto-2026", "compact", "pretty"])
def test_every_key_of_the_header_is_kept(cases: Cases, layout: str) -> None:
    trace = rich()
    trace.metadata |= {"my run": {"lr": 0.1, "tags": ["a", None]}, "é": "\n"}
    loaded = cases({"one": laid(trace, layout)})
    found = {
        key: json.loads(value) for key, value in loaded.reader.rows("SELECT key, value FROM header")
    }
    expected = json.loads(laid(trace, "compact"))
    del expected["traceEvents"]
    assert found == expected
