"""The command line as a user meets it: one line for an error, exit codes, data on stdout."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tracekit import __version__
from tracekit.cli.main import main
from tracekit.errors import ExitCode
from tracekit.ingest.run import ingest

COMMANDS = ("run", "ingest", "report", "tui", "query", "info")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    trace = TraceBuilder(rank=0, world_size=2)
    trace.step(0, 0, 100)
    trace.kernel("gemm [/] <script> | `x`", 0, 30)
    trace.kernel("ncclDevKernel_AllReduce", 20, 40, stream=20)
    trace.write(tmp_path / "rank0.json")
    ingest([tmp_path / "rank0.json"], tmp_path / "run.db")
    return tmp_path / "run.db"


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_info:
        main([str(argument) for argument in arguments])
    out = capsys.readouterr()
    assert isinstance(exit_info.value.code, int)
    return exit_info.value.code, out.out, out.err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_everywhere(capsys: pytest.CaptureFixture[str], command: str) -> None:
    status, out, _ = call(capsys, command, "--help")
    assert status == 0
    assert out.startswith(f"Usage: tracekit {command}")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "--version")
    assert (status, out) == (0, f"tracekit, version {__version__}\n")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from tracekit.cli.main import cli; "
        "assert CliRunner().invoke(cli, ['--help']).exit_code == 0; "
        "print([m for m in ('duckdb', 'textual', 'pyarrow', 'rich', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_json_is_the_contract(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, "report", database, "-a", "comm_overlap", "--format", "json")
    assert (status, err) == (0, "")
    result = json.loads(out)
    assert list(result) == ["schema_version", "analyzer", "columns", "rows", "missing"]
    assert result["schema_version"] == 1
    assert result["analyzer"] == "comm_overlap"
    assert {"name", "unit", "better", "doc"} == set(result["columns"][0])
    (row,) = result["rows"]
    # nccl[20,60], gemm[0,30]: 10 of 40 us hidden.
    assert (row["rank"], row["overlap"], row["exposed_ns"]) == (0, 0.25, 30_000)
    assert result["missing"] == []


def test_all_analyzers_as_json_are_a_list(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = call(capsys, "report", database, "--format", "json")
    names = [result["analyzer"] for result in json.loads(out)]
    assert names == [
        "pipeline_bubble", "comm_overlap", "step_breakdown", "stage_memory", "coverage",
    ]  # fmt: skip


def test_csv_and_markdown(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "report", database, "-a", "comm_overlap", "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["rank"], row["overlap"], row["step"]) == ("0", "0.25", "")
    _, out, _ = call(capsys, "report", database, "-a", "comm_overlap", "--format", "markdown")
    assert "| 0 | 25.0 % | 30.00 us |" in out


def test_what_the_run_cannot_answer_has_its_own_status(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = call(capsys, "report", database, "-a", "pipeline_bubble", "--format", "json")
    assert status == ExitCode.UNAVAILABLE
    assert json.loads(out)["missing"] == [
        {"reason": "not available: no pipeline action in this run", "where": {}}
    ]


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["report", "nowhere.db"], ExitCode.STORE, "nowhere.db: no such file"),
        (["report", "{db}", "-a", "colour"], ExitCode.USAGE, "no analyzer 'colour'; there are:"),
        (["report", "{db}", "-a", "coverage", "--by", "x"], ExitCode.USAGE, "grouped by 'x'"),
        (["report", __file__], ExitCode.STORE, "cannot be opened"),
        (["ingest", "nowhere", "-o", "x.db"], ExitCode.INPUT, "nowhere: no such file or folder"),
        (["ingest", "{db}", "-o", "x.db"], ExitCode.INPUT, "not a trace"),
        (["query", "{db}", "SELECT FROM"], ExitCode.USAGE, "Parser Error"),
        (["query", "{db}", "DROP TABLE event"], ExitCode.USAGE, "read-only"),
        (["query", "{db}", "FROM read_csv('/etc/passwd')"], ExitCode.USAGE, "disabled"),
        (["query", "{db}", "ATTACH '/tmp/x.db'"], ExitCode.USAGE, "disabled"),
        (["run", "-o", "{db}", "--", "true"], ExitCode.USAGE, "exists; give -f to replace it"),
        (["run", "-o", "x.db"], ExitCode.USAGE, "Missing argument"),
        (["tui", "nowhere.db"], ExitCode.STORE, "nowhere.db: no such file"),
        (["frobnicate"], ExitCode.USAGE, "No such command"),
        (
            ["report", "{db}", "-o", "/nonexistent/x"],
            ExitCode.INPUT,
            "/nonexistent/x: No such file",
        ),
        (["ingest", "rank0.json", "-o", "/nonexistent/x.db"], ExitCode.STORE, "cannot be created"),
    ],
)
def test_errors_are_one_line(
    database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path, arguments: list[str], status: int, says: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    found, out, err = call(capsys, *(a.replace("{db}", str(database)) for a in arguments))
    assert (found, out) == (status, "")
    assert says in err
    assert "Traceback" not in err


def test_query(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT name, dur_ns FROM events WHERE cat = 'kernel' ORDER BY name"
    _, out, _ = call(capsys, "query", database, sql, "--format", "json")
    assert json.loads(out)[0] == {"name": "gemm [/] <script> | `x`", "dur_ns": 30000}
    _, out, _ = call(capsys, "query", database, sql)
    assert "gemm [/] <script> | `x`" in out
    _, out, err = call(capsys, "query", database, sql, "--limit", "1", "--format", "csv")
    assert len(out.splitlines()) == 2
    assert "first 1 rows" in err


def test_info_names_the_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = TraceBuilder()
    trace.kernel("gemm", 0, 30)
    data = trace.json()
    (tmp_path / "rank0.json").write_bytes(data[: data.rfind(b"{") - 4] + b'\n  "name": "cut')
    ingest([tmp_path / "rank0.json"], tmp_path / "run.db")
    status, out, _ = call(capsys, "info", tmp_path / "run.db")
    assert status == 0
    assert "truncated" in out
    assert "rank0.json" in out


def test_the_report_for_people_shows_names_literally(database: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tracekit", "report", str(database)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "25.0 %" in done.stdout
    assert "\x1b" not in done.stdout
    assert "not available: no pipeline action in this run" in done.stdout
    assert "rank 1: not in the run: 1 of 2 ranks" in done.stdout


def test_another_duckdb_file_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import duckdb

    path = tmp_path / "other.db"
    duckdb.connect(str(path)).close()
    status, _, err = call(capsys, "report", path)
    assert (status, err.count("\n")) == (ExitCode.STORE, 1)
    assert "not a tracekit run" in err


def test_a_newer_schema_is_refused(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import duckdb

    with duckdb.connect(str(database)) as connection:
        connection.execute(
            "CREATE OR REPLACE VIEW meta AS SELECT 'schema_version' AS key, '99' AS value"
        )
    status, _, err = call(capsys, "report", database)
    assert status == ExitCode.STORE
    assert "schema version 99" in err


def test_a_name_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = TraceBuilder()
    trace.kernel("gemm", 0, 1)
    path = tmp_path / "rank0\udcff.json"
    trace.write(path)
    status, _, err = call(capsys, "ingest", path, "-o", tmp_path / "run.db")
    assert (status, err.count("\n")) == (0, 1)
    assert call(capsys, "info", tmp_path / "run.db")[0] == 0
    status, _, err = call(capsys, "report", tmp_path / "no\udcff.db")
    assert (status, err.count("\n")) == (ExitCode.STORE, 1)


def test_an_internal_error_is_one_line_and_a_traceback_with_debug(
    database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("a\nb")

    monkeypatch.setattr("tracekit.present.report.print_info", broken)
    status, out, err = call(capsys, "info", database)
    assert (status, out, err.count("\n")) == (ExitCode.INTERNAL, "", 1)
    assert "RuntimeError: a b" in err
    assert "Traceback" in call(capsys, "--debug", "info", database)[2]


def test_query_gives_each_column_a_name(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a"
    _, out, _ = call(capsys, "query", database, sql, "--format", "json")
    assert json.loads(out) == [{"a": 1, "a_1": 2, "a_1_1": 3, "a_2": 4}]


def test_query_takes_one_statement(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, "query", database, "SELECT 1; SELECT 2")
    assert (status, out) == (ExitCode.USAGE, "")
    assert err == "tracekit: several statements: give them one at a time\n"


def test_a_trace_in_place_of_a_database(
    tmp_path: Path, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "rank0.json"
    for command in ("report", "info", "tui"):
        status, _, err = call(capsys, command, trace)
        assert status == ExitCode.STORE
        expected = f"to load traces: tracekit ingest {trace} -o run.db"
        assert err == f"tracekit: {trace}: is no database; {expected}\n"


def test_names_do_not_move_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is piped is as it is; a table, and all that is said, shows no control characters."""
    name = "a\x1b[31mred\x9b32m\u202e\x7f"
    trace = TraceBuilder(rank=0, world_size=1)
    trace.kernel(name, 0, 30)
    file = trace.write(tmp_path / "\x1b]0;title\x07.json")
    status, _, err = call(capsys, "ingest", file, tmp_path / "no\x1b2J", "-o", "x")
    assert (status, err) == (3, f"tracekit: {tmp_path}/no�2J: no such file or folder\n")
    call(capsys, "ingest", file, "-o", tmp_path / "run.db")
    for command in (("info",), ("report",), ("query", "SELECT name FROM events")):
        _, out, err = call(capsys, command[0], tmp_path / "run.db", *command[1:])
        assert not set("\x1b\x9b\u202e\x7f\x07") & set(out + err), command
    sql = "SELECT name FROM events WHERE cat = 'kernel'"
    _, out, _ = call(capsys, "query", tmp_path / "run.db", sql, "--format", "csv")
    assert out == f"name\n{name}\n"
