"""The store: whole or not there, locked by others, left in the middle of a change, begun anew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from tracekit.errors import StoreError
from tracekit.store import StoreLockedError, open_run
from tracekit.store.store import create

# Opens a run to write, commits one change a line, says so, and waits to be killed.
_WRITER = """
import duckdb, sys, time
connection = duckdb.connect(sys.argv[1])
connection.execute("PRAGMA disable_checkpoint_on_shutdown")
for sql in sys.argv[2:]:
    connection.execute(sql)
print("ready", flush=True)
time.sleep(600)
"""

_BUILDER = """
import sys, time
from pathlib import Path
from tracekit.store.store import create
with create(Path(sys.argv[1]), memory_limit=100_000_000) as writer:
    writer.insert("name", [(0, "half a run")])
    writer.script("SET memory_limit = '20MB'")
    writer.script("CREATE TEMP TABLE big AS SELECT range AS i FROM range(4000000)")
    print("ready", flush=True)
    time.sleep(600)
"""


@contextmanager
def running(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A Python process that has said that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def make(path: Path, *names: str) -> Path:
    with create(path) as writer:
        writer.insert("name", list(enumerate(names)))
    return path


def names(path: Path) -> list[str]:
    with open_run(path) as reader:
        return [name for (name,) in reader.rows("SELECT name FROM name ORDER BY name_id")]


def warning(path: Path) -> str:
    with open_run(path) as reader:
        return reader.warning or ""


def adding(number: int, name: str) -> str:
    return f"INSERT INTO name VALUES ({number}, '{name}')"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make(tmp_path / "run.db", "gemm")


def log_of(path: Path) -> Path:
    return path.with_name(path.name + ".wal")


def folder(path: Path) -> set[str]:
    return {entry.name for entry in path.parent.iterdir()}


def test_j1_a_locked_database_names_who_holds_it(run: Path) -> None:
    with running(_WRITER, run) as writer:
        with pytest.raises(StoreLockedError) as caught:
            open_run(run)
        assert caught.value.pid == writer.pid
        assert f"{caught.value.program} (PID {writer.pid}) is writing to it" in str(caught.value)
        assert "python" in caught.value.program
        assert "\n" not in str(caught.value)
        with pytest.raises(StoreLockedError), create(run, base=run):
            pass
    assert names(run) == ["gemm"]


def test_j2_a_killed_writer_loses_only_what_it_had_not_committed(run: Path) -> None:
    with running(_WRITER, run, adding(1, "first"), adding(2, "second")):
        pass  # kill -9
    log = log_of(run)
    whole, database = log.read_bytes(), run.read_bytes()
    assert names(run) == ["gemm", "first", "second"]
    assert "all that it had committed is shown" in warning(run)

    log.write_bytes(whole[:-1])
    assert names(run) == ["gemm", "first"]
    assert "hold no whole change: lost. Shown is the last committed state" in warning(run)

    # The head of a log is 27 to 43 bytes: it holds 16 random ones, of one or two bytes each.
    for rest in (whole[:20], b"", b"no log at all" * 100):
        log.write_bytes(rest)
        assert names(run) == ["gemm"]
        assert "is lost" in warning(run) or ": lost" in warning(run)

    # Nothing of the user's is changed by reading.
    assert (run.read_bytes(), log.read_bytes()) == (database, rest)
    # Ingesting again is as if nothing had been, and leaves no log that is not its own.
    assert names(make(run, "gemm")) == ["gemm"]
    assert (warning(run), folder(run)) == ("", {"run.db"})


def test_j2_a_damaged_log_is_read_up_to_the_damage(run: Path) -> None:
    with running(_WRITER, run, adding(1, "first"), adding(2, "second")):
        pass
    log = log_of(run)
    damaged = bytearray(log.read_bytes())
    damaged[damaged.rfind(b"second")] ^= 0xFF
    log.write_bytes(damaged)
    assert names(run) == ["gemm", "first"]
    assert "damaged at byte" in warning(run)
    assert log.read_bytes() == damaged


def test_j2_the_log_of_another_database_is_not_read(run: Path, tmp_path: Path) -> None:
    with running(_WRITER, run, adding(1, "first")):
        pass
    other = make(tmp_path / "other.db", "nccl")
    log_of(other).write_bytes(log_of(run).read_bytes())
    assert names(other) == ["nccl"]
    assert "another database" in warning(other)


def test_j2_a_build_that_was_killed_leaves_the_old_run_and_is_cleaned_up(run: Path) -> None:
    with running(_BUILDER, run) as builder:
        left = {entry for entry in folder(run) if f".{builder.pid}." in entry}
        assert left >= {f".run.db.{builder.pid}.building", f".run.db.{builder.pid}.tmp"}
        # A build that lives is not touched by another.
        make(run, "gemm", "add")
        assert left <= folder(run)
    assert names(run) == ["gemm", "add"]
    assert left <= folder(run)
    make(run, "nccl")
    assert (names(run), folder(run)) == (["nccl"], {"run.db"})


def test_leftovers_of_a_process_with_our_own_number_are_removed(run: Path) -> None:
    # In a container every process may have the same number.
    run.with_name(f".run.db.{os.getpid()}.building").write_bytes(b"half")
    run.with_name(f".run.db.{os.getpid()}.building.wal").write_bytes(b"half")
    assert names(make(run, "nccl")) == ["nccl"]
    assert folder(run) == {"run.db"}


def test_an_error_leaves_what_was_there(run: Path) -> None:
    with pytest.raises(TypeError), create(run) as writer:
        writer.insert("name", [(0, "half a run"), 7])  # type: ignore[list-item]
    assert (names(run), folder(run)) == (["gemm"], {"run.db"})


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on the size of files")
def test_a_full_disk_is_one_line_and_leaves_what_was_there(run: Path) -> None:
    script = """
import resource, sys
from pathlib import Path
from tracekit.store.store import create
resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))
try:
    with create(Path(sys.argv[1])) as writer:
        for rank in range(20):
            writer.script(f"INSERT INTO flow SELECT {rank}, 0, 'f', hash(range) % 10**15, true, "
                "hash(range + 1) % 10**15, 0 FROM range(100000)")
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(run)], capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        f"StoreError {run}: cannot be written: the file is larger than may be written here\n"
    )
    assert (names(run), folder(run)) == (["gemm"], {"run.db"})


def test_a_memory_limit_that_is_too_low_is_one_line(run: Path) -> None:
    with (
        pytest.raises(StoreError, match="the memory limit is too low") as caught,
        create(run, memory_limit=20_000_000, threads=1) as writer,
    ):
        writer.script("CREATE TEMP TABLE big AS SELECT list(range) FROM range(20000000)")
    assert "\n" not in str(caught.value)
    assert (names(run), folder(run)) == (["gemm"], {"run.db"})


def test_what_does_not_fit_into_memory_lies_beside_the_database(tmp_path: Path) -> None:
    with create(tmp_path / "run.db", memory_limit=50_000_000, threads=1) as writer:
        writer.script("CREATE TEMP TABLE big AS SELECT hash(range) AS h FROM range(12000000)")
        assert f".run.db.{os.getpid()}.tmp" in folder(tmp_path / "run.db")
    assert folder(tmp_path / "run.db") == {"run.db"}


def test_the_same_database_is_not_built_twice_at_once(run: Path) -> None:
    with create(run), pytest.raises(StoreError, match="by this process"), create(run):
        pass
    assert folder(run) == {"run.db"}


def test_an_interrupt_in_a_query_is_an_interrupt(run: Path) -> None:
    script = """
import sys
from pathlib import Path
from tracekit.store.store import create
try:
    with create(Path(sys.argv[1])) as writer:
        print("ready", flush=True)
        for _ in range(10_000):
            writer.script("CREATE OR REPLACE TEMP TABLE t AS SELECT hash(range) FROM range(100000)")
except KeyboardInterrupt:
    sys.exit(7)
"""
    with running(script, run) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 7
    assert (names(run), folder(run)) == (["gemm"], {"run.db"})


def test_a_run_that_begins_with_another_has_its_sources_and_nothing_derived(tmp_path: Path) -> None:
    first = tmp_path / "run.db"
    with create(first) as writer:
        writer.script("""
            INSERT INTO name VALUES (0, 'gemm');
            INSERT INTO rank (rank, evidence) VALUES (0, 'kernel');
            INSERT INTO process_group VALUES (0, '1', 'mesh_tp', 2, [0, 1], true, 'tp');
            INSERT INTO thread VALUES (0, 0, '1', '1', NULL, true);
            INSERT INTO damage VALUES
                (0, 0, 'bad event', 10, 1, 'skipped', 'damage'),
                (NULL, 0, 'impossible time', NULL, 1, 'left out', 'damage');
            INSERT INTO step VALUES (0, 1, 0, 1, 0, 1);
            INSERT INTO signature VALUES (0, '[]', NULL, NULL);
        """)
    with create(first, base=first) as writer:
        assert writer.rows("SELECT evidence FROM rank") == [("none",)]
        assert writer.rows("SELECT dim FROM process_group") == [(None,)]
        assert writer.rows("SELECT is_main FROM thread") == [(False,)]
        assert writer.rows("SELECT kind FROM damage") == [("bad event",)]
        assert writer.rows("FROM step") == []
        writer.insert("name", [(1, "add")])
    with open_run(first) as reader:
        assert reader.rows("SELECT name FROM name ORDER BY name_id") == [("gemm",), ("add",)]
        assert reader.rows("SELECT input_dims FROM signature") == [("[]",)]


def test_a_run_of_an_older_schema_is_not_added_to(run: Path) -> None:
    with duckdb.connect(str(run)) as connection:
        connection.execute(
            "CREATE OR REPLACE VIEW meta AS SELECT 'schema_version' AS key, '1' AS value"
        )
    with pytest.raises(StoreError, match="schema version 1, this tracekit reads"):
        open_run(run)
    refused = pytest.raises(StoreError, match="schema version 1, this tracekit reads")
    with refused, create(run, base=run):
        pass
    assert folder(run) == {"run.db"}


def test_a_reader_reaches_nothing_but_the_run(run: Path) -> None:
    run.with_name("secret.csv").write_text("a\n1\n")
    with open_run(run) as reader:
        for sql in (
            f"FROM '{run.with_name('secret.csv')}'",
            f"COPY name TO '{run.with_name('out.csv')}'",
            f"ATTACH '{run.with_name('other.db')}'",
            "SET enable_external_access = true",
            "INSERT INTO name VALUES (1, 'x')",
        ):
            with pytest.raises(duckdb.Error):
                reader.execute(sql)
    assert folder(run) == {"run.db", "secret.csv"}
