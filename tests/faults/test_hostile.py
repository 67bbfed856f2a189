"""Files that nobody would write by hand: each costs at most what is wrong with it."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import Running
from tests.faults.raw import NAME, loaded, trace
from tracekit.errors import InputError
from tracekit.ingest import workers
from tracekit.ingest.run import ingest
from tracekit.store import open_run


@pytest.mark.parametrize(
    "put",
    [b'["\xf0("]', b'{"a":["\xff"]}', b'["\x01"]', b"[NaN]"],
    ids=["utf-8", "in", "nul", "nan"],
)
@pytest.mark.parametrize("key", ["Process Group Ranks", "name", "Input Dims", "stream", "Seq"])
def test_a_bad_byte_within_a_list_costs_no_event(tmp_path: Path, key: str, put: bytes) -> None:
    event = {**NAME, "name": "nccl:all", "ts": 1, "args": {"Collective name": "x", key: "PUT"}}
    data = trace({**NAME, "name": "first", "ts": 0}, event).replace(b'"PUT"', put)
    with loaded(tmp_path, data, keep_args=True) as reader:
        assert reader.scalar("SELECT count(*) FROM event") == 2
        assert reader.rows("SELECT kind, count FROM damage") == [("repaired", 1)]


def test_times_that_no_clock_shows_are_counted(tmp_path: Path) -> None:
    good = {**NAME, "name": "good", "ts": 5}
    late = {**NAME, "name": "late", "ts": 4.7e15, "dur": 4.7e15}
    long = {**NAME, "name": "long", "ts": 6, "dur": 2e15}
    far = {**NAME, "name": "far", "ts": 4.6e15, "dur": 1.1e15}
    base = (3 << 60) - 1
    with loaded(tmp_path, trace(good, late, long, far, baseTimeNanoseconds=base)) as reader:
        kinds = {kind for (kind,) in reader.rows("SELECT kind FROM damage")}
        assert "no readable time" in kinds
        assert any(kind.startswith("unfinished event") for kind in kinds)
        assert reader.scalar("SELECT count(*) FROM event") == 3
        assert reader.scalar("SELECT max(ts_ns) FROM event") == base + 4_600_000_000_000_000_000


def test_keys_with_escapes_are_the_same_keys(tmp_path: Path) -> None:
    args = {"correlation": 5, "foo": 1}
    data = trace(*({**NAME, "name": f"n{n}", "ts": n, "args": args} for n in range(3)))
    turned = data.replace(b'"ts"', b'"t\\u0073"', 2).replace(
        b'"correlation"', b'"\\u0063orrelation"', 1
    )
    turned = turned.replace(b'"foo"', b'"f\\u006fo"', 1)
    with loaded(tmp_path, turned) as reader:
        assert reader.rows("SELECT ts_ns, correlation FROM event ORDER BY ts_ns") == [
            (0, 5),
            (1000, 5),
            (2000, 5),
        ]
        assert reader.rows("SELECT key, count FROM unknown_arg") == [("foo", 3)]
        assert reader.rows("FROM damage") == []


def test_every_unknown_key_is_counted(tmp_path: Path) -> None:
    many = {**NAME, "name": "many", "ts": 1, "args": {f"key {n}": n for n in range(100)}}
    with loaded(tmp_path, trace(many)) as reader:
        assert reader.scalar("SELECT sum(count) FROM unknown_arg") == 100


def test_args_of_an_event_are_no_header(tmp_path: Path) -> None:
    lie = {"baseTimeNanoseconds": 5, "host_name": "evil", "distributedInfo": {"rank": 7}}
    event = {**NAME, "name": "a", "ts": 1, "args": {**lie, "dims": [[1], [2]]}}
    head = {"schemaVersion": 1, "host_name": "good", "traceEvents": [event]}
    groups = [{"pg_name": str(n), "ranks": [n, n + 1]} for n in range(500)]
    info = {"rank": 3, "pg_config": groups}
    behind = {**head, "more": [1, [2]], "distributedInfo": info, "last": []}
    for header, rank in ((head, 0), (behind, 3)):
        with loaded(tmp_path, json.dumps(header).encode()) as reader:
            assert reader.rows("SELECT rank, host FROM rank") == [(rank, "good")]
            assert reader.scalar("SELECT ts_ns FROM event") == 1000
            keys = {key for (key,) in reader.rows("SELECT key FROM header")}
            assert keys == set(header) - {"traceEvents"}


def test_a_pair_keeps_the_args_of_its_begin(tmp_path: Path) -> None:
    args = {"Collective name": "allreduce", "Seq": 4, "Python id": 8, "new": [1]}
    begin = {**NAME, "ph": "B", "name": "a", "ts": 1, "args": args}
    end = {**NAME, "ph": "E", "name": "a", "ts": 3}
    other = {**NAME, "name": "b", "ts": 2}
    with loaded(tmp_path, trace(begin, other, end), keep_args=True) as reader:
        events = dict(reader.rows("SELECT name, event_id FROM events"))
        rows = "SELECT event_id, operation, seq FROM comm_args"
        assert reader.rows(rows) == [(events["a"], "allreduce", 4)]
        assert reader.rows("SELECT event_id, python_id FROM python_call") == [(events["a"], 8)]
        ((event, text),) = reader.rows("SELECT event_id, args FROM event_args")
        assert (event, json.loads(text)) == (events["a"], args)


def test_a_flow_stays_where_its_events_do_not_carry_its_id(tmp_path: Path) -> None:
    call = {**NAME, "cat": "cuda_runtime", "name": "launch", "ts": 1, "args": {"correlation": 5}}
    work = {**NAME, "cat": "kernel", "name": "gemm", "ts": 3, "pid": 0, "tid": 7}
    ends = [
        {"ph": ph, "id": 5, "cat": "ac2g", "name": "ac2g", "pid": pid, "tid": tid, "ts": ts}
        for ph, pid, tid, ts in (("s", 9, 9, 1), ("f", 0, 7, 3))
    ]
    with loaded(tmp_path, trace(call, work, *ends)) as reader:
        assert reader.rows("SELECT flow_id, is_start, ts_ns FROM flow") == [(5, False, 3000)]
    work["args"] = {"correlation": 5}
    with loaded(tmp_path, trace(call, work, *ends)) as reader:
        assert reader.rows("FROM flow") == []


LINKED = """
    SELECT n.name, l.name FROM work AS w
    JOIN events AS n ON n.rank = w.rank AND n.event_id = w.event_id
    LEFT JOIN events AS l ON l.rank = w.rank AND l.event_id = w.launch_id
    ORDER BY n.name
"""


def launch(pid: int, **ids: int) -> dict[str, Any]:
    cat = "cuda_runtime"
    return {**NAME, "cat": cat, "name": f"launch of {pid}", "pid": pid, "ts": 1, "args": ids}


def work_of(device: int, name: str, **ids: int) -> dict[str, Any]:
    return {**NAME, "cat": "kernel", "name": name, "pid": device, "tid": 7, "ts": 3, "args": ids}


def test_one_id_of_two_processes_links_nothing(tmp_path: Path) -> None:
    events = [launch(pid, correlation=n) for pid, n in ((10, 5), (20, 5), (10, 6), (20, 7))]
    events += [work_of(0, f"k{n}", correlation=n) for n in (5, 6, 7)]
    with loaded(tmp_path, trace(*events)) as reader:
        expected = [("k5", None), ("k6", "launch of 10"), ("k7", "launch of 20")]
        assert reader.rows(LINKED) == expected
        assert reader.rows("SELECT kind, count FROM damage") == [("launch of several processes", 1)]


def test_an_external_id_tells_processes_apart_unless_they_share_it(tmp_path: Path) -> None:
    for other, found, wrong in ((2, "launch of 20", []), (1, None, [2])):
        ids = [{"correlation": 5, "External id": n} for n in (1, other)]
        events = [launch(pid, **each) for pid, each in zip((10, 20), ids, strict=True)]
        events += [work_of(n, f"k{n}", **each) for n, each in enumerate(ids)]
        with loaded(tmp_path, trace(*events)) as reader:
            first = "launch of 10" if found else None
            assert reader.rows(LINKED) == [("k0", first), ("k1", found)]
            assert reader.rows("SELECT count FROM damage") == [(n,) for n in wrong]


def test_a_later_capture_says_what_the_first_did_not(tmp_path: Path) -> None:
    info = {
        "rank": 0,
        "world_size": 2,
        "backend": "nccl",
        "pg_config": [{"pg_name": "0", "ranks": [0, 1]}],
    }
    named = {"ph": "M", "name": "thread_name", "pid": 9, "tid": 9, "args": {"name": "main"}}
    first = trace({**NAME, "name": "a", "ts": 1})
    second = trace({**NAME, "name": "b", "ts": 10**7}, named, distributedInfo=info)
    loaded(tmp_path, first).close()
    (tmp_path / "later.json").write_bytes(second)
    ingest([tmp_path / "later.json"], tmp_path / "run.db", append=True)
    with open_run(tmp_path / "run.db") as reader:
        assert reader.rows("SELECT world_size, backend FROM rank") == [(2, "nccl")]
        assert reader.rows("SELECT name FROM process_group") == [("0",)]
        assert reader.rows("SELECT name FROM thread") == [("main",)]


def test_an_event_without_its_time_is_no_capture_of_all_time(tmp_path: Path) -> None:
    day_us = 86_400 * 10**6
    lost = {**NAME, "name": "lost", "ts": 0}
    busy = [{**NAME, "name": "a", "ts": 30 * day_us + n} for n in range(5)]
    loaded(tmp_path, trace(lost, *busy)).close()
    (tmp_path / "later.json").write_bytes(trace({**NAME, "name": "b", "ts": 20 * day_us}))
    ingest([tmp_path / "later.json"], tmp_path / "run.db", append=True)
    with open_run(tmp_path / "run.db") as reader:
        assert reader.scalar("SELECT count(*) FROM event") == 7
        assert reader.rows("SELECT kind, count FROM damage") == [("impossible time", 1)]


def test_what_an_archive_left_behind_is_no_trace(tmp_path: Path) -> None:
    left = tmp_path / ".run.db.999999999.unpacked" / "archive0" / "rank4.json"
    left.parent.mkdir(parents=True)
    left.write_bytes(trace({**NAME, "name": "a", "ts": 1}, distributedInfo={"rank": 4}))
    (tmp_path / "rank0.json").write_bytes(trace({**NAME, "name": "a", "ts": 1}))
    assert ingest([tmp_path], tmp_path / "run.db").ranks == [0]
    assert not left.exists()


@pytest.mark.parametrize("what", ["names", "args", "keys"])
def test_long_strings_stay_within_the_limit(tmp_path: Path, what: str) -> None:
    """120 MB that no two events have in common."""
    long = "x" * 15_000
    with (tmp_path / "rank0.json").open("w") as file:
        file.write('{"distributedInfo": {"rank": 0}, "traceEvents": [')
        for n in range(8000):
            text = f"{n} {long}"
            args = {"names": {}, "args": {"a": text}, "keys": {text: 1}}[what]
            event = {**NAME, "name": text if what == "names" else "n", "ts": n, "args": args}
            file.write(("," if n else "") + json.dumps(event))
        file.write("]}")
    options = ["--memory-limit", "500MiB", "-o", tmp_path / "run.db"]
    options += ["--keep-args"] if what == "args" else []
    with Running("ingest", tmp_path / "rank0.json", *options) as command:
        peak = command.peak_bytes(120)
        status, err = command.wait(10)
    assert status == 0, err
    assert peak < 500 << 20


HALVES = {
    "a size": b"12",
    "half a head": struct.pack("<q", 100) + b'{"frame"',
    "no head": struct.pack("<q", 4) + b"nu[]",
}


@pytest.mark.parametrize("sent", HALVES.values(), ids=HALVES)
def test_a_reader_that_ends_within_a_frame_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    body = f"import sys; sys.stdin.readline(); sys.stdout.buffer.write({sent!r})"
    real = workers.subprocess.Popen
    monkeypatch.setattr(
        workers.subprocess,
        "Popen",
        lambda command, **rest: real([sys.executable, "-c", body], **rest),
    )
    (tmp_path / "rank0.json").write_bytes(trace({**NAME, "name": "a", "ts": 1}))
    with pytest.raises(InputError, match=r"rank 0: .*the process that read it ended"):
        ingest([tmp_path / "rank0.json"], tmp_path / "run.db")
    assert not (tmp_path / "run.db").exists()


def test_a_reader_that_ends_with_nothing_left_to_read_is_none(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(trace({**NAME, "name": "a", "ts": 1}))
    with workers.Workers([path], jobs=1, keep_args=False, rows=10) as readers:
        kinds = []
        for frame in readers:
            kinds.append(frame.kind)
            if frame.kind == "begin":
                readers.answer(frame.file, go=False)
                readers._workers[0].process.kill()
        assert kinds == ["begin"]
    second = tmp_path / "rank1.json"
    second.write_bytes(path.read_bytes())
    with workers.Workers([path, second], jobs=2, keep_args=False, rows=10) as readers:
        for frame in readers:
            if frame.kind == "begin" and frame.file == 0:
                readers.answer(0, go=False)
                readers._workers[0].process.kill()
                readers._workers[0].process.wait()
            elif frame.kind == "begin":
                readers.answer(1, go=True)
            kinds.append(frame.kind)
    assert "end" in kinds
