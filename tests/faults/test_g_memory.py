"""Memory snapshots of every shape: what is known of them, and what is not, with the reason."""

from __future__ import annotations

import gzip
import json
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.faults import snapshots
from tests.faults.snapshots import GIB, a_step, block, entry, g1, segment, snapshot, write
from tests.faults.writing import tar
from tracekit.errors import DamageError, InputError
from tracekit.ingest.run import ingest
from tracekit.store import open_run
from tracekit_collectors import records

STEM = "rank-3.node-a.77"


def rows(database: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_run(database) as store:
        return store.rows(sql)


def run_directory(folder: Path, value: Any, max_entries: int = 1000, **window: Any) -> Path:
    """A run of rank 3, with a trace and a snapshot."""
    trace = TraceBuilder(3, 4)
    trace.kernel("gemm", 0, 1)
    trace.write(folder / f"{STEM}.trace.json")
    name = f"{STEM}.memory.pickle.gz"
    write(folder / name, value)
    memory = {"file": name, "max_entries": max_entries, "bytes": 1, "cost_ns": 5}
    record = records.WindowRecord([4], f"{STEM}.trace.json", memory=memory, **window)
    manifest = records.RankManifest(3, 4, 3, "node-a", 77, "cuda", windows=[record])
    records.write_manifest(folder, STEM, manifest)
    return folder


@pytest.mark.parametrize("name", ["rank5.pickle", "rank5.pickle.gz", "rank5.bin"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_g1_g2_without_a_history_the_peak_is_unknown(
    tmp_path: Path, name: str, protocol: int
) -> None:
    file = write(tmp_path / name, g1(), protocol)
    summary = ingest([file], tmp_path / "run.db")
    assert summary.ranks == [5]
    assert summary.warnings == [
        f"rank 5: {file}: device 0: peak unavailable, because the snapshot holds no history"
    ]
    state = "SELECT rank, device, allocated_bytes, reserved_bytes, entries FROM memory_snapshot"
    assert rows(tmp_path / "run.db", state) == [(5, 0, 3 * GIB // 2, 2 * GIB, 0)]
    peak = "SELECT requested_bytes, allocated_bytes, at_least_bytes, missing FROM memory_peak"
    expected = [(None, None, 3 * GIB // 2, "the snapshot holds no history")]
    assert rows(tmp_path / "run.db", peak) == expected
    assert rows(tmp_path / "run.db", "FROM memory_peak_block") == []


def test_the_peak_of_a_rank_and_what_lived_at_it(tmp_path: Path) -> None:
    run = run_directory(tmp_path / "run", a_step())
    summary = ingest([run], tmp_path / "run.db")
    assert summary.ranks == [3]
    assert summary.warnings == []
    ts_ns = (snapshots.BASE_US + 10) * 1000
    peak = "SELECT * EXCLUDE (file_id, allocated_bytes) FROM memory_peak"
    assert rows(tmp_path / "run.db", peak) == [
        (3, "history", 0, None, 1, ts_ns, 180, 2048, 180, "all", None)
    ]
    held = "SELECT address, requested_bytes, alloc_entry, free_entry FROM memory_peak_block"
    assert rows(tmp_path / "run.db", f"{held} ORDER BY 1") == [
        (0, 100, 0, None),
        (512, 20, 1, 4),
        (1024, 60, None, 2),
    ]
    view = "SELECT blocks, requested_bytes, function, line, ts_ns FROM memory_at_peak ORDER BY 2"
    assert rows(tmp_path / "run.db", view) == [
        (1, 20, "forward", 9, ts_ns),
        (1, 60, None, None, ts_ns),
        (1, 100, "build", 3, ts_ns),  # the caller of torch, not torch
    ]
    state = "SELECT requested_bytes, allocated_bytes, entries, max_entries FROM memory_snapshot"
    assert rows(tmp_path / "run.db", state) == [(100, 512, 7, 1000)]
    file = "SELECT rank, kind, events, state FROM file WHERE kind = 'memory'"
    assert rows(tmp_path / "run.db", file) == [(3, "memory", 7, "whole")]
    stack = "SELECT stack_id, depth, function FROM memory_stack ORDER BY ALL"
    assert rows(tmp_path / "run.db", stack) == [(0, 0, "empty"), (0, 1, "build"), (1, 0, "forward")]


def test_the_step_of_the_peak(tmp_path: Path) -> None:
    run = tmp_path / "run"
    trace = TraceBuilder(0, 1, base_ns=snapshots.BASE_US * 1000)
    trace.step(6, 0, 15)
    trace.kernel("gemm", 1, 1)
    trace.step(7, 15, 15)
    trace.kernel("gemm", 16, 1)
    trace.write(run / "rank0.json")
    write(run / "rank0.pickle", a_step())
    ingest([run], tmp_path / "run.db")
    assert rows(tmp_path / "run.db", "SELECT DISTINCT step FROM memory_at_peak") == [(6,)]


def test_a_full_history_tells_no_peak(tmp_path: Path) -> None:
    run = run_directory(tmp_path / "run", a_step(), max_entries=7)
    summary = ingest([run], tmp_path / "run.db")
    assert "its history is full (7 entries): what came before it is lost" in summary.warnings[0]
    peak = "SELECT requested_bytes, at_least_bytes, covers FROM memory_peak"
    assert rows(tmp_path / "run.db", peak) == [(None, 180, None)]


def test_a_lone_file_does_not_say_how_much_its_history_could_hold(tmp_path: Path) -> None:
    file = write(tmp_path / "rank0.pickle", a_step())
    ingest([file], tmp_path / "run.db")
    peak = "SELECT requested_bytes, covers FROM memory_peak"
    assert rows(tmp_path / "run.db", peak) == [(180, "unknown")]


def test_a_history_that_contradicts_its_end_tells_nothing(tmp_path: Path) -> None:
    value = a_step()
    value["device_traces"][0][0]["size"] = 90
    file = write(tmp_path / "rank0.pickle", value)
    summary = ingest([file], tmp_path / "run.db")
    assert "is an allocation that has 100 bytes later" in summary.warnings[0]
    peak = "SELECT requested_bytes, at_least_bytes FROM memory_peak"
    assert rows(tmp_path / "run.db", peak) == [(None, None)]


def test_each_device_has_a_peak_of_its_own(tmp_path: Path) -> None:
    history = [entry("alloc", 0, 5, 0)]
    segments = [segment(0, 512, block(0, 512, asked=5)), segment(0, 512, block(0, 7), device=2)]
    second = [entry("alloc", 0, 7, 0)]
    file = write(tmp_path / "rank0.pickle", snapshot(segments, history, [], second))
    ingest([file], tmp_path / "run.db")
    peak = "SELECT device, requested_bytes FROM memory_peak ORDER BY 1"
    assert rows(tmp_path / "run.db", peak) == [(0, 5), (2, 7)]


def test_peaks_that_torch_counted(tmp_path: Path) -> None:
    peaks = {"4": {"allocated": 700, "reserved": 900}, "5": {"missing": "no CUDA"}}
    run = run_directory(tmp_path / "run", a_step(), peaks=peaks)
    ingest([run], tmp_path / "run.db")
    counted = "SELECT rank, step, allocated_bytes, reserved_bytes, missing FROM memory_peak"
    assert rows(tmp_path / "run.db", f"{counted} WHERE source = 'counter' ORDER BY step") == [
        (3, 4, 700, 900, None),
        (3, 5, None, None, "no CUDA"),
    ]


def test_a_manifest_with_a_memory_record_and_one_without_are_read(tmp_path: Path) -> None:
    for window in (records.WindowRecord([1]), records.WindowRecord([1], memory={"file": "x"})):
        manifest = records.RankManifest(0, 1, 0, "a", 1, "cuda", windows=[window])
        records.write_manifest(tmp_path, "rank-0.a.1", manifest)
        assert records.read_manifest(tmp_path / "rank-0.a.1.json").windows == [window]
    old = asdict(manifest)
    del old["windows"][0]["memory"], old["windows"][0]["peaks"]
    (tmp_path / "rank-0.a.1.json").write_text(json.dumps(old))
    assert records.read_manifest(tmp_path / "rank-0.a.1.json").windows[0].memory is None


def test_a_rank_with_a_snapshot_and_no_trace(tmp_path: Path) -> None:
    run = run_directory(tmp_path / "run", a_step())
    (run / f"{STEM}.trace.json").unlink()
    summary = ingest([run], tmp_path / "run.db")
    assert summary.ranks == [3]
    told = "SELECT world_size, host, device_kind FROM rank"
    assert rows(tmp_path / "run.db", told) == [(4, "node-a", "cuda")]
    assert rows(tmp_path / "run.db", "SELECT requested_bytes FROM memory_peak") == [(180,)]


def test_more_later_and_the_same_twice(tmp_path: Path) -> None:
    run = run_directory(tmp_path / "run", a_step())
    ingest([run], tmp_path / "run.db")
    write(run / f"{STEM}.memory-2.pickle.gz", g1())
    summary = ingest([run], tmp_path / "run.db", append=True)
    assert any("a file of the same content" in text for text in summary.warnings)
    sql = "SELECT rank, allocated_bytes FROM memory_snapshot ORDER BY file_id"
    assert rows(tmp_path / "run.db", sql) == [(3, 512), (3, 3 * GIB // 2)]
    assert rows(tmp_path / "run.db", "SELECT count(*) FROM memory_peak_block") == [(3,)]


def test_a_process_killed_while_it_packs_leaves_its_snapshot(tmp_path: Path) -> None:
    run = run_directory(tmp_path / "run", a_step(), max_entries=1000)
    packed = run / f"{STEM}.memory.pickle.gz"
    plain = run / f"{STEM}.memory.pickle"
    plain.write_bytes(gzip.decompress(packed.read_bytes()))
    ingest([run], tmp_path / "both.db")
    assert rows(tmp_path / "both.db", "SELECT count(*) FROM memory_snapshot") == [(1,)]
    packed.unlink()
    ingest([run], tmp_path / "plain.db")
    assert rows(tmp_path / "plain.db", "SELECT max_entries FROM memory_snapshot") == [(1000,)]


def test_a_snapshot_that_is_named_and_not_there(tmp_path: Path) -> None:
    run = run_directory(tmp_path / "run", a_step())
    (run / f"{STEM}.memory.pickle.gz").unlink()
    said = "the memory snapshot that the manifest names is not there"
    for append in (False, True):
        summary = ingest([run], tmp_path / "run.db", append=append)
        assert f"rank 3: {STEM}.memory.pickle.gz: {said}" in summary.warnings
    noted = rows(tmp_path / "run.db", "SELECT rank, value FROM note WHERE value LIKE '%memory%'")
    assert noted == [(3, f"{STEM}.memory.pickle.gz: {said}")]


def test_of_the_pickles_in_a_folder_snapshots_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write(folder / "rank0_snapshot.pickle", a_step())
    write(folder / "vocabulary.pickle", {"words": ["a"]})
    (folder / "broken.pickle.gz").write_bytes(b"\x1f\x8b\x08 and no more")
    summary = ingest([folder], tmp_path / "run.db")
    assert (summary.ranks, summary.warnings) == ([0], [])


def test_an_archive_may_hold_snapshots(tmp_path: Path) -> None:
    archive = tar(tmp_path / "run.tar.gz", {"x/rank2.pickle": pickle.dumps(a_step())})
    assert ingest([archive], tmp_path / "run.db").ranks == [2]
    assert rows(tmp_path / "run.db", "SELECT requested_bytes FROM memory_peak") == [(180,)]


def test_a_damaged_snapshot_does_not_keep_a_run_from_being_read(tmp_path: Path) -> None:
    run = run_directory(tmp_path / "run", a_step())
    packed = run / f"{STEM}.memory.pickle.gz"
    packed.write_bytes(packed.read_bytes()[:-30])
    summary = ingest([run], tmp_path / "run.db")
    assert summary.events == 2  # of the trace
    (line,) = summary.warnings
    assert line.startswith(f"rank 3: {packed}: at byte ")
    assert "the gzip ends early" in line
    noted = rows(
        tmp_path / "run.db", "SELECT rank, key, value FROM note WHERE value LIKE 'memory%'"
    )
    assert noted == [(3, "problem", line.replace("rank 3:", "memory snapshot:", 1))]
    with pytest.raises(DamageError, match="the gzip ends early"):
        ingest([run], tmp_path / "strict.db", strict=True)


def test_parts_that_are_not_as_torch_writes_them(tmp_path: Path) -> None:
    value = a_step()
    value["device_traces"][0][3] = {"action": "alloc", "addr": -1, "size": 5}
    value["segments"] += [17, value["segments"][0]]
    value["segments"][0]["blocks"].append({"size": "big"})
    file = write(tmp_path / "rank0.pickle", value)
    summary = ingest([file], tmp_path / "run.db")
    assert "1 x block, 2 x segment, 1 x entry of a history: left out" in summary.warnings[-1]
    peak = "SELECT requested_bytes, missing FROM memory_peak"
    assert rows(tmp_path / "run.db", peak) == [(None, "1 x block cannot be read")]
    assert rows(tmp_path / "run.db", "SELECT state FROM file") == [("partial",)]
    assert rows(tmp_path / "run.db", "SELECT kind, count FROM damage") == [("memory snapshot", 1)]
    with pytest.raises(DamageError, match="left out"):
        ingest([file], tmp_path / "strict.db", strict=True)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "at byte 0: not a pickle of protocol 2 to 5"),
        (b"just text\n", "at byte 0: not a pickle of protocol 2 to 5"),
        (pickle.dumps(g1(), 0), "at byte 0: not a pickle of protocol 2 to 5"),
        (pickle.dumps(g1(), 4)[:-9], "ends early"),
        (pickle.dumps([1, 2]), "a pickle, but not a memory snapshot"),
        (pickle.dumps({"segments": 5}), "a pickle, but not a memory snapshot"),
        (pickle.dumps(print, 4), "STACK_GLOBAL refused"),
    ],
)
def test_a_named_file_that_is_no_snapshot_is_one_error(
    tmp_path: Path, data: bytes, said: str
) -> None:
    file = tmp_path / "rank0.pickle"
    file.write_bytes(data)
    with pytest.raises(InputError) as caught:
        ingest([file], tmp_path / "run.db")
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run.db").exists()


def test_one_object_in_a_million_places_is_no_million_rows(tmp_path: Path) -> None:
    value = a_step()
    one = segment(0, 512, *[block(0, 1) for _ in range(1000)])
    value["segments"] += [one] * 10_000
    value["device_traces"] += [value["device_traces"][0]] * 10_000
    name = snapshots.frame("f" * 100_000)
    value["device_traces"][0][0]["frames"] = [name] * 100_000
    ingest([write(tmp_path / "rank0.pickle", value)], tmp_path / "run.db")
    assert rows(tmp_path / "run.db", "SELECT count(*) FROM memory_block") == [(1002,)]
    assert rows(tmp_path / "run.db", "SELECT count(*) FROM memory_trace") == [(7,)]
    assert rows(tmp_path / "run.db", "SELECT max(depth) FROM memory_stack") == [(255,)]
    assert rows(tmp_path / "run.db", "SELECT max(length(function)) FROM memory_stack") == [(1000,)]


def test_names_of_any_kind_are_kept_as_text(tmp_path: Path) -> None:
    value = a_step()
    odd = snapshots.frame("z [b]\ud800", "[/]\x1b[31m.py", -4)
    value["device_traces"][0][1]["frames"] = [odd, "no frame", {"name": 5}]
    value["device_traces"][0][1]["action"] = "alloc"
    ingest([write(tmp_path / "rank0.pickle", value)], tmp_path / "run.db")
    sql = "SELECT depth, function, file, line FROM memory_stack WHERE stack_id = 1 ORDER BY 1"
    found = rows(tmp_path / "run.db", sql)
    assert found[0] == (0, "z [b]?", "[/]\x1b[31m.py", None)
    assert found[1] == (1, None, None, None)


def test_memory_that_is_not_enough_is_said(tmp_path: Path) -> None:
    value = a_step()
    value["device_traces"][0] = [dict(item) for item in value["device_traces"][0] * 100_000]
    file = write(tmp_path / "rank0.pickle.gz", value, 5)
    with pytest.raises(InputError, match=r"rank0.pickle.gz: at byte \d+: .*--memory-limit"):
        ingest([file], tmp_path / "run.db", memory_limit=480 << 20)
