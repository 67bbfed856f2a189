"""Any trace, in any layout, cut anywhere, damaged anyhow."""

from __future__ import annotations

import gzip
import json
import random
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from tests.builders import TraceBuilder
from tests.faults.generate import expected, inflated, parsed, stored, traces
from tests.faults.store import load
from tests.faults.test_layouts import bare, shuffled
from tests.faults.writing import LAYOUTS, in_members, laid, reordered, spans_of, unescaped
from tracekit.errors import InputError

EXAMPLES = settings(
    max_examples=25,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    # A failing example is small already, and making it smaller takes minutes.
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
)
# A hang and not a slow machine: what takes that long reads a few kB.
SECONDS = 60

CUTS = st.lists(st.floats(0, 1, exclude_max=True), min_size=6, max_size=6)
# What happens at which place of the file, and the byte that comes there.
HITS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "delete", "insert"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 255) | st.sampled_from(b'"\\{}[],:\n\0'),
    ),
    min_size=1,
    max_size=5,
)


def variants(trace: TraceBuilder, seed: int) -> dict[str, bytes]:
    """The trace as each writer would have written it."""
    chance = random.Random(seed)
    files = {layout: laid(trace, layout) for layout in LAYOUTS if layout != "list"}
    if not trace.base_ns:
        files["list"] = laid(trace, "list")
    files["kineto, utf-8"] = unescaped(files["kineto"])
    files["indent-2, utf-8"] = unescaped(files["indent-2"])
    files["events first"] = reordered(files["compact"], ["traceEvents", "schemaVersion"])
    files["base last"] = reordered(files["kineto"], ["traceEvents", "baseTimeNanoseconds"])
    files["gzip"] = gzip.compress(files["kineto"], 1, mtime=0)
    cuts = [chance.randrange(len(files["kineto"])) for _ in range(chance.randrange(1, 6))]
    files["members"] = in_members(files["kineto"], cuts)
    events = list(trace.events)
    files["keys turned"] = laid(shuffled(trace, chance.randrange(7)), "compact")
    files["keys turned, kineto"] = laid(shuffled(trace, chance.randrange(7)), "kineto")
    trace.events = events
    return files


@EXAMPLES
@given(traces(), st.integers(0, 2**16))
@example(bare(), 0)
def test_a_trace_is_the_same_in_every_layout(trace: TraceBuilder, seed: int) -> None:
    files = variants(trace, seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        load(Path(folder) / "run", files, seconds=SECONDS) as loaded,
    ):
        reference = loaded.tables("compact")
        for case in files:
            assert loaded.tables(case) == reference, case
            assert loaded.state(case) == "whole", case
        events, base = parsed(files["compact"])
        assert stored(loaded.reader, loaded.ranks["compact"]) == expected(events, base)


@EXAMPLES
@given(traces(), st.sampled_from(LAYOUTS), CUTS, CUTS)
@example(bare(), "kineto", [0, 0.001, 0.02, 0.5, 0.99, 0.999], [0, 0.01, 0.02, 0.5, 0.99, 0.999])
@example(bare(), "list", [0, 0.0005, 0.3, 0.5, 0.99, 0.9999], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
@example(bare(), "compact", [0, 0.0005, 0.3, 0.5, 0.99, 0.9999], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
def test_a_cut_trace_keeps_a_prefix(
    trace: TraceBuilder, layout: str, plain: list[float], packed: list[float]
) -> None:
    data = laid(trace, layout)
    members = in_members(data, [len(data) // 3, len(data) // 2])
    kept = {f"plain {share}": data[: int(len(data) * share)] for share in plain}
    files = dict(kept)
    for share in packed:
        files[f"gzip {share}"] = members[: int(len(members) * share)]
        kept[f"gzip {share}"] = inflated(files[f"gzip {share}"])
    events, base = parsed(data)
    ends = [end for _, end in spans_of(data)]
    with (
        tempfile.TemporaryDirectory() as folder,
        load(Path(folder) / "run", files, seconds=SECONDS) as loaded,
    ):
        for case, part in kept.items():
            prefix = events[: sum(end <= len(part) for end in ends)]
            rows = stored(loaded.reader, loaded.ranks[case])
            # The base of the times may stand behind the events: cut off, nothing tells it.
            assert rows in (expected(prefix, base), expected(prefix, 0)), case
            if is_whole(part):
                continue
            assert loaded.state(case) == ("partial" if part.strip() else "empty"), case
            damage = loaded.damage(case)
            assert any(at is not None and at <= len(part) for _, at, _ in damage), case


def is_whole(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def hit(data: bytes, hits: list[tuple[str, float, int]]) -> bytes:
    """The bytes after the damage."""
    found = bytearray(data)
    for what, share, byte in hits:
        at = int(share * len(found))
        if what == "flip":
            found[at] ^= byte
        elif what == "delete":
            del found[at]
        else:
            found.insert(at, byte)
    return bytes(found)


def may_be_refused(data: bytes, layout: str) -> bool:
    """Whether the damage took what shows that it is a trace at all."""
    if layout == "list":
        return not data.startswith(b"[")
    return re.search(rb'"traceEvents"\s*:\s*\[', data) is None


@EXAMPLES
@given(traces(), st.sampled_from(LAYOUTS), st.lists(HITS, min_size=8, max_size=8))
@example(bare(), "kineto", [[("delete", n / 97, 1)] for n in range(90)])
@example(bare(), "compact", [[("insert", n / 97, ord('"'))] for n in range(90)])
@example(bare(), "list", [[("flip", n / 97, 0x80)] for n in range(90)])
@example(bare(), "indent-2", [[("insert", n / 97, ord("}"))] for n in range(90)])
@example(bare(), "kineto-2026", [[("insert", n / 97, ord("]"))] for n in range(90)])
def test_damage_never_loses_rows_silently(
    trace: TraceBuilder, layout: str, damages: list[list[tuple[str, float, int]]]
) -> None:
    data = laid(trace, layout)
    events, base = parsed(data)
    every = sum(n for row, n in expected(events, base).items() if row[0] != "flow")
    files = {str(number): hit(data, hits) for number, hits in enumerate(damages)}
    for case, damaged in list(files.items()):
        if may_be_refused(damaged, layout):
            del files[case]
            with tempfile.TemporaryDirectory() as folder:
                judge(Path(folder) / "run", {case: damaged}, every, refusable=True)
    with tempfile.TemporaryDirectory() as folder:
        judge(Path(folder) / "run", files, every)


def judge(folder: Path, files: dict[str, bytes], every: int, refusable: bool = False) -> None:
    """All rows are kept or counted, or the file is known to end at a place."""
    if not files:
        return
    try:
        loaded = load(folder, files, seconds=SECONDS)
    except InputError:
        assert refusable, "one bad byte costs no file"
        return
    with loaded:
        for case in files:
            rows = stored(loaded.reader, loaded.ranks[case])
            kept = sum(n for row, n in rows.items() if row[0] != "flow")
            damage = loaded.damage(case)
            counted = sum(count for _, _, count in damage)
            located = any(at is not None for _, at, _ in damage)
            ends = loaded.state(case) != "whole" and located
            assert kept + counted >= every or ends, (case, files[case], damage)


@pytest.mark.parametrize("seed", range(3))
def test_damage_to_the_compressed_bytes_is_never_silent(tmp_path: Path, seed: int) -> None:
    """What comes out of a damaged gzip may be anything: its checksum tells."""
    chance = random.Random(seed)
    data = laid(bare(), "kineto") + b" " * 40_000
    packed = gzip.compress(data, 6, mtime=0)
    files = {}
    for number in range(20):
        damaged = bytearray(packed)
        damaged[chance.randrange(12, len(packed))] ^= chance.randrange(1, 256)
        files[str(number)] = bytes(damaged)
    with load(tmp_path / "run", files, suffix=".json.gz", seconds=SECONDS) as loaded:
        clean = expected(*parsed(data))
        for case in files:
            kinds = {kind for kind, at, _ in loaded.damage(case) if at is not None}
            assert "compression" in kinds, case
            rows = stored(loaded.reader, loaded.ranks[case])
            assert rows == clean or loaded.state(case) in ("partial", "empty"), case
