"""Files that nobody would write by hand: each costs at most what is wrong with it."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import Running
from tracekit.errors import DamageError, InputError, StoreError, UsageError
from tracekit.ingest import workers
from tracekit.ingest.run import ingest
from tracekit.store import Reader, open_run

NAME = {"ph": "X", "cat": "cpu_op", "pid": 9, "tid": 9, "dur": 1}


def trace(*events: dict[str, Any], **header: Any) -> bytes:
    header.setdefault("distributedInfo", {"rank": 0})
    return json.dumps({**header, "traceEvents": list(events)}).encode()


def loaded(folder: Path, data: bytes, **options: Any) -> Reader:
    (folder / "rank0.json").write_bytes(data)
    ingest([folder / "rank0.json"], folder / "run.db", force=True, **options)
    return open_run(folder / "run.db")


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


@pytest.mark.parametrize("many", [1, 300_000], ids=["short", "long"])
def test_what_follows_a_trace_gives_it_neither_base_nor_device(tmp_path: Path, many: int) -> None:
    event = {**NAME, "name": "a", "ts": 1}
    first = {"distributedInfo": {"rank": 0}, "traceEvents": [event], "baseTimeNanoseconds": 7000}
    other = {
        "deviceProperties": [{"name": "Other"}],
        "host_name": "other",
        "baseTimeNanoseconds": 1,
    }
    second = {**other, "distributedInfo": {"rank": 0}, "traceEvents": [event] * many}
    data = json.dumps(first).encode() + json.dumps(second).encode()
    with loaded(tmp_path, data) as reader:
        assert reader.rows("SELECT ts_ns, name FROM events") == [(8000, "a")]
        assert reader.rows("SELECT host, device_name FROM rank") == [(None, None)]
        assert reader.rows("SELECT kind FROM damage") == [("trailing",)]


def test_two_traces_in_a_file_that_name_two_ranks_at_their_ends(tmp_path: Path) -> None:
    """The rank of such a file is looked for at its end, which is another's."""
    ranks = [
        json.dumps(
            {"traceEvents": [{**NAME, "name": "a", "ts": 1}], "distributedInfo": {"rank": r}}
        )
        for r in (0, 1)
    ]
    with pytest.raises(InputError, match="says rank 0, and at its end rank 1: two traces"):
        loaded(tmp_path, "".join(ranks).encode())


def test_a_base_that_was_cut_off_is_missed(tmp_path: Path) -> None:
    events = [{**NAME, "name": f"n{n}", "ts": n} for n in range(9)]
    base = 1_716_423_322_000_000_000
    whole = json.dumps({"traceEvents": events, "baseTimeNanoseconds": base}).encode()
    for data, missed in ((whole, 0), (whole[:-4], 1), (whole[:300], 1)):
        with loaded(tmp_path, data) as reader:
            said = "SELECT count(*) FROM damage WHERE detail LIKE '%base of its times%'"
            assert reader.scalar(said) == missed
            assert (reader.scalar("SELECT min(ts_ns) FROM event") == base) == (not missed)
    early = trace(*events, baseTimeNanoseconds=base)[:300]
    with loaded(tmp_path, early) as reader:
        assert reader.rows("SELECT kind, detail LIKE '%base%' FROM damage") == [
            ("truncated", False)
        ]


@pytest.mark.parametrize("behind", [False, True])
def test_a_header_on_one_long_line_is_read_at_once(tmp_path: Path, behind: bool) -> None:
    """As the process groups of thousands of ranks make it."""
    groups = [{"pg_name": str(n), "ranks": list(range(2000))} for n in range(400)]
    header = {"distributedInfo": {"rank": 0, "pg_config": groups}, "baseTimeNanoseconds": 5}
    root = {"traceEvents": [{**NAME, "name": "a", "ts": 1}], **header}
    order = reversed(root) if not behind else root
    started = time.monotonic()
    with loaded(tmp_path, json.dumps({key: root[key] for key in order}).encode()) as reader:
        assert reader.scalar("SELECT count(*) FROM damage") == 0
        assert reader.scalar("SELECT ts_ns FROM event") == 1005
    assert time.monotonic() - started < 60, "it took hours when each byte was looked at from each"


@pytest.mark.parametrize("at", ["header", "between", "in a header"])
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_a_damaged_archive_is_damage(tmp_path: Path, at: str, suffix: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for rank in range(3):
            data = trace({**NAME, "name": "a", "ts": 1}, distributedInfo={"rank": rank})
            member = tarfile.TarInfo(f"rank{rank}.json")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    third = 2 * 1024  # a member takes a block of 512 bytes and one for its header
    content = bytearray(packed.getvalue())
    if at == "header":
        content[third + 150] ^= 0x10  # of its checksum
    else:
        del content[third + (200 if at == "in a header" else 0) :]
    path = tmp_path / f"traces{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else bytes(content))
    with pytest.raises(DamageError, match="damaged archive"):
        ingest([path], tmp_path / "run.db", strict=True)
    summary = ingest([path], tmp_path / "run.db")
    assert summary.ranks == [0, 1]
    assert any("damaged archive" in warning for warning in summary.warnings)
    with open_run(tmp_path / "run.db") as reader:
        notes = reader.rows("SELECT value FROM note WHERE key = 'problem'")
        assert "damaged archive" in str(notes[0][0])


def test_two_at_once_lose_no_rank(tmp_path: Path) -> None:
    """The later one of two that began with the same database would undo the earlier."""
    for rank in range(3):
        data = trace({**NAME, "name": "a", "ts": rank}, distributedInfo={"rank": rank})
        (tmp_path / f"rank{rank}.json").write_bytes(data)
    database = tmp_path / "run.db"
    ingest([tmp_path / "rank0.json"], database)
    done = []

    def other(at: object) -> None:
        if not done:
            done.append(True)
            command = ["ingest", tmp_path / "rank1.json", "-o", database, "--append"]
            subprocess.run([sys.executable, "-m", "tracekit", *map(str, command)], check=True)

    with pytest.raises(StoreError, match="changed by another program in the meantime"):
        ingest([tmp_path / "rank2.json"], database, append=True, progress=other)
    ingest([tmp_path / "rank2.json"], database, append=True)
    with open_run(database) as reader:
        assert reader.rows("SELECT rank FROM rank ORDER BY rank") == [(0,), (1,), (2,)]


def test_a_second_list_of_events_is_damage(tmp_path: Path) -> None:
    event = json.dumps({**NAME, "name": "a", "ts": 1})
    data = f'{{"traceEvents": [{event}], "x": 1, "traceEvents": [{event}, {event}]}}'.encode()
    with loaded(tmp_path, data) as reader:
        assert reader.scalar("SELECT count(*) FROM event") == 1
        assert reader.rows("SELECT kind, byte_offset FROM damage") == [
            ("trailing", data.rindex(b'"traceEvents"'))
        ]
        assert reader.scalar("SELECT state FROM file") == "partial"


@pytest.mark.parametrize("named", [False, True])
def test_a_file_without_its_begin_keeps_what_is_whole(tmp_path: Path, named: bool) -> None:
    """Half an upload: the events from the first whole one on, and the rank is partial."""
    events = [{"ph": "X", **NAME, "name": f"n{n}", "ts": n} for n in range(9)]
    whole = json.dumps({"traceEvents": events, "distributedInfo": {"rank": 3}})
    path = tmp_path / "in" / "trace.json"
    path.parent.mkdir()
    path.write_text(whole[whole.index("n2") :])
    (path.parent / "other.json").write_text('{"lr": 3}')
    ingest([path if named else path.parent], tmp_path / "run.db")
    with open_run(tmp_path / "run.db") as reader:
        names = [name for (name,) in reader.rows("SELECT name FROM events ORDER BY ts_ns")]
        assert names == [f"n{n}" for n in range(3, 9)]
        assert reader.rows("SELECT rank, state FROM file") == [(3, "partial")]
        assert reader.rows("SELECT kind, split(detail, ';')[1] FROM damage") == [
            ("header", "the file lacks its begin")
        ]


def test_a_list_of_no_events_is_empty(tmp_path: Path) -> None:
    with pytest.raises(DamageError, match="empty"):
        loaded(tmp_path, b"[1, 2, 3]", strict=True)


def test_ranks_of_other_runs_are_noticed(tmp_path: Path) -> None:
    base = 1_716_423_322_000_000_000
    for rank, world, days in ((0, 2, 0), (1, 2, 1), (2, 4, 40)):
        event = {**NAME, "name": "a", "ts": 1}
        info = {"rank": rank, "world_size": world}
        at = base + days * 86_400 * 10**9
        (tmp_path / f"{rank}.json").write_bytes(
            trace(event, distributedInfo=info, baseTimeNanoseconds=at)
        )
    files = [tmp_path / f"{rank}.json" for rank in range(3)]
    assert ingest(files[:2], tmp_path / "two.db").warnings == []
    assert ingest(files, tmp_path / "three.db").warnings == [
        "ranks of different runs? the world size is 2 says rank 0, 4 says rank 2",
        "ranks of different runs? rank 2 was captured 40 days after rank 0",
    ]


def test_lines_of_a_rank_map_are_all_of_use(tmp_path: Path) -> None:
    path, ranks = tmp_path / "a.json", tmp_path / "map"
    path.write_bytes(trace({**NAME, "name": "a", "ts": 1}, distributedInfo={}))
    ranks.write_text("a.json 1\nb*.json 2\n")
    warnings = ingest([path], tmp_path / "run.db", rank_map=ranks).warnings
    assert warnings == [f"--rank-map {ranks}: b*.json: no such file among these"]
    ranks.write_text("a.json 1\na.json 2\n")
    with pytest.raises(UsageError, match=r"line 2: a\.json has another rank above"):
        ingest([path], tmp_path / "run.db", rank_map=ranks, force=True)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(InputError, match=r"pipe\.json: is no file"):
        ingest([tmp_path / "pipe.json"], tmp_path / "run.db")


def test_a_database_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder; give the database a name in it"):
        ingest([tmp_path], tmp_path)


def test_a_damaged_key_of_the_events_makes_no_event_of_a_device(tmp_path: Path) -> None:
    events = [{"ph": "X", **NAME, "name": f"n{n}", "ts": n} for n in range(9)]
    root = {"deviceProperties": [{"name": "H100"}], "traceEvents": events, "baseTimeNanoseconds": 0}
    with loaded(tmp_path, json.dumps(root).replace("traceEvents", "trace\x80vents").encode()) as r:
        assert r.scalar("SELECT count(*) FROM event") == 9
        assert r.scalar("SELECT device_name FROM rank") == "H100"
        assert r.rows("SELECT kind FROM damage") == [("header",)]
