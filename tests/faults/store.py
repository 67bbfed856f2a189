"""What a store says of the traces that a test put into it: rows, damage, figures, faces."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from tests.builders import TraceBuilder
from tests.faults.writing import time_limit
from tracekit.analysis.comm_overlap import COMM_OVERLAP
from tracekit.analysis.coverage import COVERAGE
from tracekit.analysis.step_breakdown import STEP_BREAKDOWN
from tracekit.cli.main import main
from tracekit.ingest.run import Summary, ingest
from tracekit.store import Reader, open_run

Damage = tuple[str, int | None, int]  # kind, byte_offset, count

_CALL = "n.name, e.ts_ns, e.dur_ns, t.pid, t.tid"
_OF_EVENT = (
    "JOIN event AS e ON e.rank = x.rank AND e.event_id = x.event_id "
    "JOIN name AS n ON n.name_id = e.name_id"
    " JOIN thread AS t ON t.rank = e.rank AND t.thread_id = e.thread_id"
)
# Every table that the bytes of a trace decide, without the ids that we give.
_TABLES = {
    "event": f"SELECT {_CALL}, x.cat, x.device, x.stream, x.correlation, x.external_id, d.bytes, "
    "d.sequence, d.forward_thread, s.input_dims, s.input_types, s.concrete "
    f"FROM event AS x {_OF_EVENT} "
    "LEFT JOIN event_detail AS d ON d.rank = x.rank AND d.event_id = x.event_id "
    "LEFT JOIN signature AS s USING (signature_id)",
    "comm_args": f"SELECT {_CALL}, x.* EXCLUDE (rank, event_id) FROM comm_args AS x {_OF_EVENT}",
    "python_call": f"SELECT {_CALL}, x.* EXCLUDE (rank, event_id) "
    f"FROM python_call AS x {_OF_EVENT}",
    "event_args": f"SELECT {_CALL}, x.args FROM event_args AS x {_OF_EVENT}",
    "memory_event": "SELECT x.* EXCLUDE (rank, file_id) FROM memory_event AS x",
    "flow": "SELECT x.kind, x.flow_id, x.is_start, x.ts_ns, t.pid, t.tid FROM flow AS x "
    "JOIN thread AS t ON t.rank = x.rank AND t.thread_id = x.thread_id",
    "thread": "SELECT x.pid, x.tid, x.name, x.is_main FROM thread AS x",
    "process_group": "SELECT x.* EXCLUDE (rank) FROM process_group AS x",
    "unknown_arg": "SELECT x.key, x.count FROM unknown_arg AS x",
    "damage": "SELECT x.kind, x.count, x.severity FROM damage AS x",
    "work": "SELECT x.* EXCLUDE (rank, event_id, launch_id) FROM work AS x",
    "step": "SELECT x.* EXCLUDE (rank) FROM step AS x",
}
_JSON_COLUMNS = slice(13, 16)  # of event: their blanks are not compared


def table(reader: Reader, name: str, rank: int) -> list[tuple[Any, ...]]:
    """The rows of one table and rank in an order of their own, without our ids."""
    found = reader.rows(f"{_TABLES[name]} WHERE x.rank = $1 ORDER BY ALL", [rank])
    if name == "event":
        found = [(*row[:13], *map(_value, row[_JSON_COLUMNS])) for row in found]
    return sorted(found, key=repr)


def tables(
    reader: Reader, rank: int, without: Iterable[str] = ()
) -> dict[str, list[tuple[Any, ...]]]:
    """All of them."""
    return {name: table(reader, name, rank) for name in _TABLES if name not in without}


def whole(reader: Reader) -> dict[str, object]:
    """Everything in a store, rank by rank: to hold one run of an ingest against another."""
    ranks = [rank for (rank,) in reader.rows("SELECT rank FROM rank ORDER BY rank")]
    found: dict[str, object] = {f"{rank}": tables(reader, rank) for rank in ranks}
    found["rank"] = reader.rows("FROM rank ORDER BY rank")
    found["file"] = reader.rows("SELECT sha256, bytes, rank, state, events FROM file ORDER BY ALL")
    found["header"] = reader.rows("SELECT rank, key, value FROM header ORDER BY ALL")
    found["clock"] = reader.rows("FROM clock ORDER BY rank")
    return found


def digests(reader: Reader) -> dict[str, list[Any]]:
    """The same as numbers, for stores too large to hold: rows and the sum of their hashes."""
    found: dict[str, list[Any]] = {}
    for name, sql in _TABLES.items():
        inner = sql.replace("SELECT ", "SELECT x.rank AS of_rank, ", 1)
        found[name] = reader.rows(
            f"SELECT of_rank, count(*), sum(hash(y)::HUGEINT) FROM ({inner}) AS y "
            "GROUP BY of_rank ORDER BY of_rank"
        )
    return found


def _value(text: str | None) -> str | None:
    return None if text is None else json.dumps(json.loads(text))


@dataclasses.dataclass(slots=True)
class Loaded:
    """A store of several small traces, each a rank of its own with a name for it; see ``load``."""

    reader: Reader
    database: Path
    summary: Summary
    ranks: dict[str, int]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.close()

    def names(self, case: str) -> list[str]:
        """The names of its events, by time."""
        sql = "SELECT name FROM events WHERE rank = $1 ORDER BY ts_ns, name"
        return [name for (name,) in self.reader.rows(sql, [self.ranks[case]])]

    def damage(self, case: str) -> list[Damage]:
        """What the store says was wrong."""
        sql = (
            "SELECT kind, byte_offset, count FROM damage WHERE rank = $1 "
            "ORDER BY byte_offset NULLS LAST, kind"
        )
        return self.reader.rows(sql, [self.ranks[case]])  # type: ignore[return-value]

    def state(self, case: str) -> str:
        """whole, partial or empty."""
        sql = "SELECT state FROM file WHERE kind = 'trace' AND rank = $1"
        state = self.reader.scalar(sql, [self.ranks[case]])
        assert isinstance(state, str)
        return state

    def tables(self, case: str, without: Iterable[str] = ()) -> dict[str, list[tuple[Any, ...]]]:
        return tables(self.reader, self.ranks[case], without)

    def figures(self, case: str) -> list[dict[str, Any]]:
        """Its rows of the analyzers that time GPU work, to hold against those of a twin."""
        found = []
        for analyzer in (COMM_OVERLAP, STEP_BREAKDOWN):
            for row in analyzer.run(self.reader, ["rank"]).rows:
                if row.rank == self.ranks[case]:
                    found.append(dataclasses.asdict(row) | {"rank": None})
        assert len(found) == 2
        return found

    def coverage(self, case: str) -> Any:
        """Its row of the coverage."""
        (row,) = (r for r in COVERAGE.run(self.reader).rows if r.rank == self.ranks[case])
        return row

    def info(self) -> str:
        """What ``tracekit info`` prints."""
        return printed("info", self.database)

    def report(self, *options: str) -> str:
        """What ``tracekit report`` prints."""
        return printed("report", self.database, *options)


def load(
    folder: Path,
    files: Mapping[str, bytes | TraceBuilder],
    *,
    suffix: str = ".json",
    seconds: float = 60,
    **options: Any,
) -> Loaded:
    """Ingest each as a rank of one store, the first as rank 0, for so long at most.

    The traces must hold no rank, or the one of their place: the names of the files say it.
    """
    folder.mkdir()
    ranks = {name: rank for rank, name in enumerate(files)}
    paths = [folder / f"rank{rank}{suffix}" for rank in ranks.values()]
    for path, data in zip(paths, files.values(), strict=True):
        path.write_bytes(data.json() if isinstance(data, TraceBuilder) else data)
    database = folder.with_suffix(".db")
    with time_limit(seconds):
        summary = ingest(paths, database, **options)
    return Loaded(open_run(database), database, summary, ranks)


def call(*arguments: object) -> tuple[int, str, str]:
    """A command of tracekit: its exit status, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    redirected = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with redirected[0], redirected[1], pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert isinstance(stop.value.code, int)
    return stop.value.code, out.getvalue(), err.getvalue()


def printed(*arguments: object) -> str:
    """What a command prints that is expected to answer, if only why it cannot."""
    status, out, err = call(*arguments)
    assert status in (0, 5), err
    return out


def line_with(text: str, *parts: object) -> str:
    """The line of a text in which all the parts stand."""
    found = [line for line in text.splitlines() if all(str(part) in line for part in parts)]
    assert found, f"no line with {parts} in:\n{text}"
    return found[0]


def compute_ns(figures: list[dict[str, Any]]) -> int:
    """Of the overlap's row and the breakdown's, which agree."""
    assert figures[0]["compute_ns"] == figures[1]["compute_ns"]
    return int(figures[0]["compute_ns"])
