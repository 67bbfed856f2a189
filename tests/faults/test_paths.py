"""What may be given to an ingest: folders, patterns, archives, a map of ranks, more later."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.faults.store import call, line_with, whole
from tests.faults.writing import tar, write_all
from tracekit.errors import InputError, StoreError, TracekitError, UsageError
from tracekit.ingest.run import ingest
from tracekit.store import open_run


def named(name: str, rank: int | None = None, at: int = 0, world_size: int = 4) -> TraceBuilder:
    found = TraceBuilder(rank or 0, world_size, distributed=rank is not None)
    found.kernel(name, at, 10)
    return found


def kernels(database: Path) -> dict[str, int]:
    with open_run(database) as reader:
        return dict(reader.rows("SELECT name, rank FROM events WHERE cat = 'kernel'"))


def everything(database: Path) -> dict[str, object]:
    with open_run(database) as reader:
        return whole(reader)


@pytest.mark.parametrize("name", ["traces.tar", "traces.tar.gz", "traces.tgz"])
def test_an_archive_is_a_folder(tmp_path: Path, name: str) -> None:
    files = {
        "run/rank0.json": named("of 0").json(),
        "run/rank1.json.gz": gzip.compress(named("of 1").json("compact")),
        "run/README.md": b"# no trace",
        "run/config.json": b'{"lr": 0.1}',
        "../../rank2.json": named("of 2").json(),
        "/rank3.json": named("of 3").json("list"),
    }
    archive = tar(tmp_path / name, files)
    summary = ingest([archive], tmp_path / "run.db")
    assert summary.ranks == [0, 1, 2, 3]
    assert kernels(tmp_path / "run.db") == {f"of {rank}": rank for rank in range(4)}
    with open_run(tmp_path / "run.db") as reader:
        paths = [path for (path,) in reader.rows("SELECT path FROM file ORDER BY rank")]
    assert [Path(path).name for path in paths[:2]] == ["rank0.json", "rank1.json.gz"]
    assert paths[0].endswith(f"{name}!run/rank0.json")
    # Nothing of it is left beside it, and nothing went where its names point to.
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.db", name]
    assert not (tmp_path.parent / "rank2.json").exists()


def test_a_folder_may_hold_archives(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "traces", {"rank0.json": named("of 0").json()})
    tar(folder / "more.tar.gz", {"rank1.json": named("of 1").json()})
    assert ingest([folder], tmp_path / "run.db").ranks == [0, 1]


def test_damage_in_an_archive_is_located_in_its_file(tmp_path: Path) -> None:
    data = named("of 0").json().replace(b'"cudaLaunchKernel"', b'"a " b"')
    archive = tar(tmp_path / "x.tar.gz", {"rank0.json": data, "rank1.json": named("b").json()})
    ingest([archive], tmp_path / "run.db")
    with open_run(tmp_path / "run.db") as reader:
        rows = reader.rows(
            "SELECT d.kind, byte_offset, path FROM damage AS d JOIN file USING (file_id)"
        )
    ((kind, offset, path),) = rows
    assert (kind, path.endswith("x.tar.gz!rank0.json")) == ("bad event", True)
    assert data[offset : data.index(b'a " b')].count(b"{") == 1


def test_an_archive_that_ends_early_keeps_what_came_before(tmp_path: Path) -> None:
    long = TraceBuilder(distributed=False)
    for number in range(3000):
        long.kernel(f"k{number * 7919 % 3001}", 20 * number, 10)
    data = long.json()
    members = {f"rank{rank}.json": data for rank in range(3)}
    members = {name: data.replace(b"k1", name.encode()) for name, data in members.items()}
    archive = tar(tmp_path / "x.tar.gz", members)
    packed = archive.read_bytes()
    archive.write_bytes(packed[: len(packed) // 2])
    status, _, err = call("ingest", archive, "-o", tmp_path / "run.db")
    assert status == 0
    assert line_with(err, "x.tar.gz")
    with open_run(tmp_path / "run.db") as reader:
        rows = reader.rows("SELECT rank, state, events FROM file ORDER BY rank")
    assert rows[0] == (0, "whole", 6000)
    assert rows[1][:2] == (1, "partial")
    assert 0 < rows[1][2] < 6000
    assert len(rows) == 2


def test_an_archive_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"no archive")
    (tmp_path / "y.tar").write_bytes(b"")
    for name in ("x.tar.gz", "y.tar"):
        status, out, err = call("ingest", tmp_path / name, "-o", tmp_path / "run.db")
        assert (status, out) == (3, "")
        assert line_with(err, name)


@pytest.mark.parametrize(
    ("pattern", "ranks"),
    [("*.json", [0, 1]), ("a/*.json.gz", [2]), ("**/*.gz", [2, 3]), ("rank[01].json", [0, 1]),
     ("rank?.json", [0, 1]), ("*", [0, 1, 2, 3])],
)  # fmt: skip
def test_a_pattern_is_expanded(tmp_path: Path, pattern: str, ranks: list[int]) -> None:
    folder = write_all(
        tmp_path / "traces", {f"rank{rank}.json": named(f"of {rank}").json() for rank in (0, 1)}
    )
    for rank, place in ((2, "a"), (3, "a/b")):
        named(f"of {rank}").write(folder / place / f"rank{rank}.json.gz")
    status, _, err = call("ingest", folder / pattern, "-o", tmp_path / "run.db")
    assert status == 0, err
    assert sorted(kernels(tmp_path / "run.db").values()) == ranks


def test_a_pattern_without_a_match(tmp_path: Path) -> None:
    status, _, err = call("ingest", tmp_path / "*.json.gz", "-o", tmp_path / "run.db")
    assert status == 3
    assert line_with(err, "*.json.gz")


def test_a_name_with_the_marks_of_a_pattern_is_a_name(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "run[1]", {"rank0.json": named("of 0").json()})
    (folder / "x[0]*.json").write_bytes(named("of x").json())
    assert ingest([folder / "x[0]*.json"], tmp_path / "run.db").ranks == [0]
    assert kernels(tmp_path / "run.db") == {"of x": 0}


@pytest.mark.parametrize(
    "lines",
    [
        "a.json 3\nb c.json 0\n",
        "# ranks\n\na.json   3 # the third\n b c.json\t0\n",
        "{folder}/a.json 3\n{folder}/b c.json 0\n",
        "a*.json 3\nb*.json 0\n",
        "traces/a.json 3\ntraces/b c.json 0\n",
    ],
)
def test_a_rank_map_wins_over_everything(tmp_path: Path, lines: str) -> None:
    folder = tmp_path / "traces"
    named("of a", rank=1).write(folder / "a.json")
    named("of b").write(folder / "b c.json")
    (tmp_path / "map").write_text(lines.replace("{folder}", str(folder)))
    status, _, err = call(
        "ingest", folder, "-o", tmp_path / "run.db", "--rank-map", tmp_path / "map"
    )
    assert status == 0, err
    assert kernels(tmp_path / "run.db") == {"of a": 3, "of b": 0}


@pytest.mark.parametrize("line", ["a.json", "a.json x", "a.json -1", "a.json 1.5", "7"])
def test_a_rank_map_that_cannot_be_read(tmp_path: Path, line: str) -> None:
    named("of a").write(tmp_path / "a.json")
    (tmp_path / "map").write_text(f"# first\n{line}\n")
    with pytest.raises(UsageError, match=r"map, line 2"):
        ingest([tmp_path / "a.json"], tmp_path / "run.db", rank_map=tmp_path / "map")
    with pytest.raises(UsageError, match="none"):
        ingest([tmp_path / "a.json"], tmp_path / "run.db", rank_map=tmp_path / "none")
    assert not (tmp_path / "run.db").exists()


def parts(tmp_path: Path) -> list[Path]:
    return [
        named(f"of {rank}", rank, 5 * rank).write(tmp_path / f"part{rank}" / "trace.json")
        for rank in range(4)
    ]


def test_appending_gives_what_one_ingest_gives(tmp_path: Path) -> None:
    files = parts(tmp_path)
    ingest(files, tmp_path / "once.db")
    ingest(files[2:3], tmp_path / "run.db")
    for group in (files[:1], files[3:], files[1:2]):
        status, _, err = call("ingest", *group, "-o", tmp_path / "run.db", "--append")
        assert status == 0, err
    assert everything(tmp_path / "run.db") == everything(tmp_path / "once.db")


def test_appending_the_same_file_changes_nothing(tmp_path: Path) -> None:
    files = parts(tmp_path)
    ingest(files[:2], tmp_path / "run.db")
    before = everything(tmp_path / "run.db")
    copy = tmp_path / "copy.json"
    copy.write_bytes(files[1].read_bytes())
    for again in (files[:2], [copy], [tmp_path / "part0"]):
        summary = ingest(again, tmp_path / "run.db", append=True)
        assert len(summary.warnings) == len(again)
        assert all("same content" in warning for warning in summary.warnings)
        assert everything(tmp_path / "run.db") == before


def test_appending_another_file_of_a_rank_is_an_error_that_shows_both(tmp_path: Path) -> None:
    files = parts(tmp_path)
    ingest(files[:2], tmp_path / "run.db")
    before = (tmp_path / "run.db").read_bytes()
    other = named("other", 1, 6).write(tmp_path / "other.json")
    with pytest.raises(InputError, match="rank 1") as caught:
        ingest([other, files[3]], tmp_path / "run.db", append=True)
    assert "other.json" in str(caught.value)
    assert str(files[1]) in str(caught.value)
    assert (tmp_path / "run.db").read_bytes() == before


def test_appending_a_later_capture_of_a_rank(tmp_path: Path) -> None:
    files = [named("early", 0, 0), named("late", 0, 5000)]
    paths = [each.write(tmp_path / f"{n}.json") for n, each in enumerate(files)]
    ingest(paths, tmp_path / "once.db")
    ingest(paths[:1], tmp_path / "run.db")
    assert ingest(paths[1:], tmp_path / "run.db", append=True).ranks == [0]
    assert everything(tmp_path / "run.db") == everything(tmp_path / "once.db")


def test_appending_a_damaged_file_leaves_what_was_there(tmp_path: Path) -> None:
    files = parts(tmp_path)
    ingest(files[:2], tmp_path / "run.db")
    before = (tmp_path / "run.db").read_bytes()
    (tmp_path / "no.json").write_bytes(b"not a trace")
    with pytest.raises(TracekitError):
        ingest([tmp_path / "no.json"], tmp_path / "run.db", append=True)
    assert (tmp_path / "run.db").read_bytes() == before
    assert [p.name for p in tmp_path.glob(".run.db*")] == []


def test_appending_to_what_is_no_run(tmp_path: Path) -> None:
    files = parts(tmp_path)
    (tmp_path / "text.db").write_text("no database")
    with pytest.raises(StoreError):
        ingest(files, tmp_path / "text.db", append=True)
    assert (tmp_path / "text.db").read_text() == "no database"
    with pytest.raises(UsageError):
        ingest(files, tmp_path / "run.db", append=True, force=True)
