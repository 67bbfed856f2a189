"""Inputs that are not one trace each, or not all of it: nothing is lost, and all of it is said."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from tests.faults.raw import NAME, loaded, trace
from tracekit.errors import DamageError, InputError, StoreError, UsageError
from tracekit.ingest.run import ingest
from tracekit.store import open_run


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
