"""Rows A4 and A5: files that end early, that are glued together, that are empty."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.faults.conftest import Cases
from tests.faults.store import call, line_with, printed
from tests.faults.writing import LAYOUTS, laid, spans_of, start_of, write_all


def busy(rank: int, world_size: int = 4, *, events: int = 40) -> TraceBuilder:
    """A rank of many events in pairs: an operator, then its kernel; all names are its own."""
    trace = TraceBuilder(rank=rank, world_size=world_size, flows=False)
    for number in range(events // 2):
        trace.cpu_op(f"op {rank}.{number}", 10 * number, 5, **{"Input Dims": [[number, 2], []]})
        trace.kernel(f"kernel {rank}.{number}", 10 * number + 7, 2, launch=False)
    return trace


def names(data: bytes, upto: int) -> list[str]:
    """The names of the events of ``busy`` that end before a byte, by time."""
    ends = [end for _, end in spans_of(data)]
    count = sum(end <= upto for end in ends)
    rank = 0 if b"op 0.0" in data else 1
    return [f"{('op', 'kernel')[n % 2]} {rank}.{n // 2}" for n in range(count)]


def is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a4_a_cut_file_keeps_all_that_came_before(cases: Cases, layout: str) -> None:
    """At 60 % and at many other places: within a name, a number, a mark, between events."""
    trace = busy(0)
    trace.distributed = False
    data = laid(trace, layout)
    spans = spans_of(data)
    start, end = spans[24]
    places = {int(len(data) * 0.6), *range(start, end, 17), end, end + 1, spans[0][0], spans[-1][1]}
    files = {str(place): data[:place] for place in sorted(places)}
    loaded = cases(files)
    for case in files:
        place = int(case)
        assert loaded.names(case) == names(data, place), case
        assert loaded.state(case) == "partial", case
        ((kind, offset, _),) = loaded.damage(case)
        assert kind == "truncated", case
        # Where the event begins that is cut; between events, where the file ends.
        broken = [a for a, b in spans if a < place < b]
        assert offset in (broken or range(place - 8, place + 1)), case


def test_a4_the_rank_is_incomplete_and_the_others_load(cases: Cases) -> None:
    whole = {str(rank): busy(rank).json() for rank in range(4)}
    cut = int(len(whole["0"]) * 0.6)
    loaded = cases({**whole, "0": whole["0"][:cut]})
    (offset,) = (a for a, b in spans_of(whole["0"]) if a < cut < b)
    assert loaded.summary.ranks == [0, 1, 2, 3]
    assert loaded.damage("0") == [("truncated", offset, 1)]
    assert [loaded.state(case) for case in whole] == ["partial", "whole", "whole", "whole"]
    assert len(loaded.names("3")) == 40
    assert line_with("\n".join(loaded.summary.warnings), "rank 0", "truncated", offset)
    assert line_with(loaded.info(), "truncated", offset, "rank0.json")
    assert line_with(loaded.report(), "rank 0", "the trace is partial")


def test_a4_a_file_that_ends_in_its_header_is_not_passed_over(tmp_path: Path) -> None:
    """It looks like no trace any more, and stands among traces."""
    header = busy(1).json()
    folder = write_all(
        tmp_path / "traces",
        {
            "rank0.json": busy(0).json(),
            "rank1.json": header[: header.index(b"traceEvents") - 10],
            "settings.json": b'{"lr": 0.1}',
        },
    )
    status, _, err = call("ingest", folder, "-o", tmp_path / "run.db")
    assert status == 0
    assert line_with(err, "rank1.json")
    assert line_with(printed("info", tmp_path / "run.db"), "partial", "rank1.json")
    assert "settings.json" not in printed("info", tmp_path / "run.db")


def test_a4_a_gzip_that_ends_early(cases: Cases) -> None:
    trace = busy(0)
    trace.distributed = False
    data = trace.json()
    packed = gzip.compress(data, 1)
    cuts = [*(len(packed) * share // 10 for share in range(3, 10)), len(packed) - 9]
    loaded = cases({str(cut): packed[:cut] for cut in cuts}, suffix=".json.gz")
    for cut in cuts:
        kept = zlib.decompressobj(31).decompress(packed[:cut])
        assert loaded.names(str(cut)) == names(data, len(kept)), cut
        assert loaded.state(str(cut)) == "partial", cut
        damage = {kind: offset for kind, offset, _ in loaded.damage(str(cut))}
        assert damage["compression"] == len(kept), cut
    assert len(loaded.names(str(cuts[-1]))) == 40, "only the checksum is missing"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shift", [0, 20, 60, 100, 200])
def test_a4_half_a_file_and_half_of_another(cases: Cases, layout: str, shift: int) -> None:
    """The first half of rank 0's file, and the second of rank 1's from some way into an event."""
    first, second = laid(busy(0), layout), laid(busy(1), layout)
    start, end = spans_of(first)[20]
    rest = second[spans_of(second)[20][0] + shift :]
    # Within the name; a little further on where the parts would happen to fit.
    cut = next(at for at in range(start + 50, end) if not is_json(first[:at] + rest))
    glued = first[:cut] + rest
    kept = names(first, start)
    loaded = cases({"0": glued, "1": second, "2": laid(busy(2), layout)})
    assert loaded.names("0") == kept
    assert loaded.state("0") == "partial"
    assert (
        start
        <= min(offset or 0 for _, offset, _ in loaded.damage("0"))
        <= start + (end - start) * 2
    )
    left_out = sum(count for _, _, count in loaded.damage("0"))
    assert left_out >= 40 - 21, "each event that is left out is counted"
    assert len(loaded.names("1")) == len(loaded.names("2")) == 40
    assert {loaded.state("1"), loaded.state("2")} == {"whole"}


def test_a4_a_writer_that_started_again_in_the_same_process(cases: Cases) -> None:
    """Half a file and then the whole of it: what follows the damage is of the same process."""
    trace = busy(0)
    trace.distributed = False
    data = trace.json()
    start, _ = spans_of(data)[20]
    again = data[spans_of(data)[0][0] :]
    loaded = cases({"twice": data[: start + 40] + again})
    assert set(names(data, len(data))) >= set(loaded.names("twice")) >= set(names(data, start))
    assert ("bad event", start, 1) in loaded.damage("twice") or loaded.state("twice") == "partial"


EMPTY = {
    "gzip of nothing": ("rank2.json.gz", gzip.compress(b"", mtime=0)),
    "nothing": ("rank2.json", b""),
    "no gzip at all": ("rank2.json.gz", b""),
    "gzip of a newline": ("rank2.json.gz", gzip.compress(b"\n", mtime=0)),
    "two members of nothing": ("rank2.json.gz", gzip.compress(b"") * 2),
    "blanks": ("rank2.json", b" \n\n"),
    "no events": ("rank2.json", b'{"schemaVersion": 1, "traceEvents": []}'),
    "an empty list": ("rank2.json", b"[]"),
}  # fmt: skip


@pytest.mark.parametrize("kind", EMPTY)
def test_a5_an_empty_trace_is_named_and_not_covered(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "traces"
    for rank in (0, 1, 3):
        busy(rank).write(folder / f"rank{rank}.json")
    name, data = EMPTY[kind]
    (folder / name).write_bytes(data)
    database = tmp_path / "run.db"
    status, _, err = call("ingest", folder, "-o", database)
    assert status == 0
    assert "rank 2: empty trace" in err
    _, report, _ = call("report", database)
    assert "3/4" in report
    assert "rank 2: empty trace" in report or line_with(report, "rank 2", "the trace is empty")
    _, info, _ = call("info", database)
    assert line_with(info, "empty", name)


def test_a5_the_state_and_the_place_are_in_the_store(cases: Cases) -> None:
    files = {str(rank): busy(rank).json() for rank in (0, 1)}
    loaded = cases({**files, "2": b"", "3": busy(3).json()})
    assert loaded.state("2") == "empty"
    assert loaded.damage("2") == [("empty", 0, 1)]
    assert loaded.coverage("2").events == 0


def test_a5_only_empty_traces_are_no_run(cases: Cases) -> None:
    loaded = cases({"0": b"", "1": gzip.compress(b"")})
    assert loaded.summary.events == 0
    assert "not available" in loaded.report("-a", "step_breakdown")


def test_a4_start_of_agrees_with_the_spans() -> None:
    data = busy(0).json()
    assert [start_of(data, f'op 0.{n}"') for n in range(20)] == [a for a, _ in spans_of(data)[::2]]
