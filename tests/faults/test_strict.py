"""``--strict``: any damage is an error with an exit code of its own, and nothing is written."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.faults.store import call, line_with
from tests.faults.writing import raw, start_of, three, write_all
from tracekit.errors import DamageError, ExitCode
from tracekit.ingest.run import ingest


def impossible() -> TraceBuilder:
    trace = three()
    trace.kernel("lost", -(10**11), 10, launch=60)
    return trace


DAMAGED = {
    "bad event": raw(three("MARK").json(), "MARK", 'a " b'),
    "repaired": raw(three("MARK").json(), "MARK", "a\x01b"),
    "truncated": three().json()[:500],
    "unfinished event": three().json().replace(b'"dur": 10.000', b'"dur": -1', 1),
    "no readable time": three().json().replace(b'"ts": 20.000', b'"ts": "x"', 1),
    "empty": b"",
    "unmatched B": three().json().replace(b'"ph": "X"', b'"ph": "B"', 1),
    "before its launch": impossible().json(),
}
FINE = {
    "whole": three().json(),
    "a counter": three().json().replace(b'"ph": "X"', b'"ph": "C"', 1),
    "an empty object": three().json("compact").replace(b'ts": [{', b'ts": [{}, {', 1),
    "an empty name": three("").json(),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damage_is_an_error_that_names_its_place(tmp_path: Path, kind: str) -> None:
    files = {"rank0.json": three().json("compact"), "rank1.json": DAMAGED[kind]}
    folder = write_all(tmp_path / "traces", files)
    status, out, err = call("ingest", folder, "-o", tmp_path / "run.db", "--strict")
    assert (status, out) == (ExitCode.DAMAGED, "")
    assert status == 6
    assert line_with(err, kind)
    assert line_with(err, "rank 1") or line_with(err, "rank1.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["traces"]
    # The same without it is a warning.
    status, _, err = call("ingest", folder, "-o", tmp_path / "run.db")
    assert (status, kind in err) == (0, True)


def test_the_place_is_in_the_text(tmp_path: Path) -> None:
    data = DAMAGED["bad event"]
    folder = write_all(tmp_path / "traces", {"rank0.json": data})
    with pytest.raises(DamageError) as caught:
        ingest([folder], tmp_path / "run.db", strict=True)
    assert line_with(str(caught.value), "rank0.json", "bad event", start_of(data, 'a " b'))
    assert "\n" not in str(caught.value)


def test_a_damaged_gzip(tmp_path: Path) -> None:
    packed = gzip.compress(three().json())
    folder = write_all(tmp_path / "traces", {"rank0.json.gz": packed[:-20]})
    with pytest.raises(DamageError, match="compression"):
        ingest([folder], tmp_path / "run.db", strict=True)


@pytest.mark.parametrize("kind", FINE)
def test_what_no_figure_uses_is_no_damage(tmp_path: Path, kind: str) -> None:
    folder = write_all(tmp_path / "traces", {"rank0.json": FINE[kind]})
    status, _, err = call("ingest", folder, "-o", tmp_path / "run.db", "--strict")
    assert status == 0, err


@pytest.mark.parametrize("option", ["--force", "--append"])
def test_a_database_that_was_there_stays(tmp_path: Path, option: str) -> None:
    good = write_all(tmp_path / "good", {"rank0.json": three().json()})
    bad = write_all(tmp_path / "bad", {"rank1.json": DAMAGED["bad event"]})
    database = tmp_path / "run.db"
    ingest([good], database)
    before = database.read_bytes()
    status, _, _ = call("ingest", bad, "-o", database, option, "--strict")
    assert status == ExitCode.DAMAGED
    assert database.read_bytes() == before
    assert [p.name for p in tmp_path.glob(".run.db*")] == []


def test_damage_of_ranks_that_were_there_is_no_damage_of_what_is_added(tmp_path: Path) -> None:
    bad = write_all(tmp_path / "bad", {"rank0.json": DAMAGED["before its launch"]})
    good = write_all(tmp_path / "good", {"rank1.json": three().json()})
    database = tmp_path / "run.db"
    ingest([bad], database)
    status, _, err = call("ingest", good, "-o", database, "--append", "--strict")
    assert status == 0, err
    assert "before its launch" not in err
