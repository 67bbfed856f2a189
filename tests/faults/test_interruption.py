"""Interrupted at any moment: what was there before stays, and running again gives the same."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.faults import bulk
from tests.faults.processes import Running
from tests.faults.store import call, digests, line_with
from tracekit.errors import ExitCode
from tracekit.ingest.run import ingest
from tracekit.store import open_run
from tracekit.store.store import create

pytestmark = pytest.mark.alone

MOMENTS = 5


def everything(database: Path) -> dict[str, list[Any]]:
    with open_run(database) as reader:
        return digests(reader)


class Run:
    """Two ranks of some size, what an ingest of them gives, and how long that takes."""

    def __init__(self, folder: Path) -> None:
        self.traces = [
            bulk.write(folder / f"rank{rank}.json.gz", rank, 8 * 10**6) for rank in range(2)
        ]
        with Running("ingest", *self.traces, "-o", folder / "run.db") as command:
            status, err = command.wait(120)
            self.seconds = time.monotonic() - command.started
        assert status == 0, err
        self.expected = everything(folder / "run.db")
        self.bytes = (folder / "run.db").stat().st_size


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("run"))


@pytest.fixture(params=["new", "--force", "--append"])
def before(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[str], bytes | None]:
    """A database, the option to go on with, and its bytes if there is one already."""
    database = tmp_path / "out" / "run.db"
    database.parent.mkdir()
    if request.param == "new":
        return database, [], None
    trace = TraceBuilder(7, 8)
    trace.kernel("earlier", 0, 10)
    ingest([trace.write(tmp_path / "rank7.json")], database)
    return database, [request.param], database.read_bytes()


def content(database: Path) -> bytes | None:
    return database.read_bytes() if database.exists() else None


def whole(run: Run, database: Path, options: list[str]) -> None:
    """It holds all that the command puts there."""
    found = everything(database)
    if options == ["--append"]:
        with open_run(database) as reader:
            assert reader.rows("SELECT rank FROM rank ORDER BY rank") == [(0,), (1,), (7,)]
        found = {name: [row for row in rows if row[0] != 7] for name, rows in found.items()}
    assert found == run.expected


def again(run: Run, database: Path, options: list[str]) -> None:
    """The same command once more: what it gives, and that nothing else is left."""
    status, _, err = call("ingest", *run.traces, "-o", database, *options)
    assert status == 0, err
    whole(run, database, options)
    assert [path.name for path in database.parent.iterdir()] == ["run.db"]


Before = tuple[Path, list[str], bytes | None]


@pytest.mark.parametrize("share", [n / MOMENTS for n in range(1, MOMENTS + 1)])
def test_ctrl_c_leaves_what_was_there(run: Run, before: Before, share: float) -> None:
    database, options, earlier = before
    with Running("ingest", *run.traces, "-o", database, *options) as command:
        time.sleep(run.seconds * share * random.Random(share).uniform(0.7, 1.0))
        command.signal(signal.SIGINT)
        status, err = command.wait(20)
        assert command.session_ends()
    if "events in" in err or "events added" in err:  # it had ended before, but for the interpreter
        assert database.exists()
        return
    if share > 1 / MOMENTS:  # before that, it may be the interpreter's start that is interrupted
        assert (status, "Traceback" in err) == (ExitCode.INTERRUPTED, False), err
    assert content(database) == earlier
    names = [path.name for path in database.parent.iterdir()]
    assert names == (["run.db"] if earlier else [])
    if share == 0.6:
        again(run, database, options)


@pytest.mark.parametrize("share", [n / MOMENTS for n in range(1, MOMENTS + 1)])
def test_kill_9_leaves_what_was_there(run: Run, before: Before, share: float) -> None:
    database, options, earlier = before
    with Running("ingest", *run.traces, "-o", database, *options) as command:
        time.sleep(run.seconds * share * random.Random(share).uniform(0.7, 1.0))
        command.process.kill()
        status, _ = command.wait(20)
        assert command.session_ends(), "its workers end with it"
    if status == 0:
        return
    if content(database) != earlier:  # it had put it there, and was about to end
        whole(run, database, options)
        return
    left = [path.name for path in database.parent.iterdir() if path.name != "run.db"]
    assert all(name.startswith(".run.db.") for name in left)
    again(run, database, options)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_leaves_nothing(run: Run, tmp_path: Path, number: signal.Signals) -> None:
    with Running("ingest", *run.traces, "-o", tmp_path / "run.db") as command:
        assert command.has_workers()
        command.process.send_signal(number)
        status, err = command.wait(20)
        assert command.session_ends()
    assert (status, err) == (-number, "")
    assert list(tmp_path.iterdir()) == []
    again(run, tmp_path / "run.db", [])


@pytest.mark.parametrize("share", [0.001, 0.3, 0.6, 0.9])
def test_a_full_disk_leaves_what_was_there(run: Run, before: Before, share: float) -> None:
    """No file may grow further than a share of the database, as if the disk had no room."""
    database, options, earlier = before
    limit = int(run.bytes * share)

    def full() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    with Running("ingest", *run.traces, "-o", database, *options, before=full) as command:
        status, err = command.wait(60)
        assert command.session_ends()
    assert status == ExitCode.STORE, err
    assert line_with(err, "run.db")
    assert "Traceback" not in err
    assert "internal error" not in err
    assert content(database) == earlier
    names = [path.name for path in database.parent.iterdir()]
    assert names == (["run.db"] if earlier else [])
    if share == 0.6:
        again(run, database, options)


def test_what_a_killed_ingest_of_another_database_left_is_not_touched(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / ".other.db.1.building").write_bytes(b"not ours")
    (tmp_path / ".run.db.notes").write_bytes(b"not ours either")
    status, _, err = call("ingest", run.traces[0], "-o", tmp_path / "run.db")
    assert status == 0, err
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".other.db.1.building",
        ".run.db.notes",
        "run.db",
    ]


def test_two_ingests_of_one_database_at_once_give_one_whole_database(
    run: Run, tmp_path: Path
) -> None:
    database = tmp_path / "run.db"
    arguments = ("ingest", *run.traces, "-o", database, "--force")
    with Running(*arguments) as first, Running(*arguments) as second:
        results = [first.wait(120), second.wait(120)]
    assert 0 in [status for status, _ in results]
    assert {status for status, _ in results} <= {0, int(ExitCode.STORE), int(ExitCode.USAGE)}
    assert everything(database) == run.expected
    assert [path.name for path in tmp_path.iterdir()] == ["run.db"]


def test_an_interrupt_within_a_statement_is_one(tmp_path: Path) -> None:
    """DuckDB says "Query interrupted", whoever asked and whatever it was about to write."""
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))

    def build() -> None:
        with create(tmp_path / "run.db") as writer:
            timer.start()
            writer.execute("SELECT count(*) FROM range(100000000000) WHERE range % 7 = 3")

    with pytest.raises(KeyboardInterrupt):
        build()
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_at_the_start_of_the_second_thread(tmp_path: Path) -> None:
    """It ends the command, and nothing waits for a thread that nobody knows."""
    (tmp_path / "interrupted.py").write_text(
        "import threading\n"
        "from tracekit.cli import main\n"
        "from tracekit.store.apart import apart\n"
        "start = threading.Thread.start\n"
        "def started(self):\n"
        "    start(self)\n"
        "    threading.Thread.start = start\n"
        "    raise KeyboardInterrupt\n"
        "def work(**_):\n"
        "    threading.Thread.start = started\n"
        "    try:\n"
        "        apart(lambda: print('done'), lambda: None)\n"
        "    finally:\n"
        "        apart(lambda: print('cleaned up'), lambda: None)\n"
        "main.cli.main = work\n"
        "main.main([])\n"
    )
    done = module(tmp_path, "interrupted")
    assert (done.returncode, done.stderr) == (130, "tracekit: interrupted\n")
    assert done.stdout == "cleaned up\n"


def module(folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", name],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_an_interrupt_within_an_import_has_the_status_of_any(tmp_path: Path) -> None:
    """Dataclasses are made by an `exec` of text: the interpreter takes such an interrupt for one
    that nobody caught, also when somebody did."""
    (tmp_path / "interrupted.py").write_text(
        "from tracekit.cli import main\n"
        "main.cli.main = lambda **_: exec('raise KeyboardInterrupt')\n"
        "main.main([])\n"
    )
    done = module(tmp_path, "interrupted")
    assert (done.returncode, done.stderr) == (130, "tracekit: interrupted\n")


def test_an_interrupt_that_a_callback_swallows_comes_again(tmp_path: Path) -> None:
    """No exception leaves the callback of a weak reference, and imports use some."""
    (tmp_path / "interrupted.py").write_text(
        "import os, signal, time, weakref\n"
        "from tracekit.cli import main\n"
        "class Thing: pass\n"
        "def callback(_):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(1)\n"
        "def work(**_):\n"
        "    thing = Thing()\n"
        "    reference = weakref.ref(thing, callback)\n"
        "    del thing\n"
        "    time.sleep(10)\n"
        "main.cli.main = work\n"
        "main.main([])\n"
    )
    started = time.monotonic()
    done = module(tmp_path, "interrupted")
    assert (done.returncode, done.stderr) == (130, "tracekit: interrupted\n")
    assert time.monotonic() - started < 5
