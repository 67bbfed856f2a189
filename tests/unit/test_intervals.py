"""The one interval implementation against a brute-force one that looks at every instant."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracekit.store import Writer
from tracekit.store.store import create

INTERVAL = st.tuples(
    st.integers(0, 1), st.integers(0, 30), st.integers(-3, 12), st.integers(0, 3)
)  # key, start, length, layer


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writer]:
    with create(Path(tmp_path_factory.mktemp("store")) / "run.db") as writer:
        writer.script(
            "CREATE TEMP TABLE t (key INT, start_ns BIGINT, end_ns BIGINT,"
            " a INT, b INT, c INT, d INT)"
        )
        yield writer


def fill(writer: Writer, intervals: list[tuple[int, int, int, int]]) -> None:
    writer.script("DELETE FROM t")
    writer.insert(
        "t",
        [
            (key, start, start + length, *(int(layer == place) for place in range(4)))
            for key, start, length, layer in intervals
        ],
    )


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(INTERVAL, max_size=12))
def test_sweep_counts_every_instant(
    writer: Writer, intervals: list[tuple[int, int, int, int]]
) -> None:
    fill(writer, intervals)
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    for key, start, end, *counts in writer.rows("FROM sweep('t')"):
        assert end > start
        for instant in range(start, end):
            assert (key, instant) not in found, "segments are disjoint"
            found[key, instant] = tuple(counts)
    expected: dict[tuple[int, int], list[int]] = {}
    for key, start, length, layer in intervals:
        for instant in range(start, start + length):
            expected.setdefault((key, instant), [0, 0, 0, 0])[layer] += 1
    assert found == {place: tuple(counts) for place, counts in expected.items()}


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(INTERVAL, max_size=12))
def test_union_is_maximal_and_exact(
    writer: Writer, intervals: list[tuple[int, int, int, int]]
) -> None:
    fill(writer, intervals)
    rows = sorted(writer.rows("FROM union_of('t')"))
    covered = {
        (key, instant)
        for key, start, length, _ in intervals
        for instant in range(start, start + length)
    }
    assert {(k, i) for k, start, end in rows for i in range(start, end)} == covered
    for (key, _, end), (next_key, start, _) in itertools.pairwise(rows):
        assert key != next_key or end < start, "touching intervals are one"


def test_hand_worked(writer: Writer) -> None:
    # a = [0,10) + [5,20): 20 long. b = [8,12): 4 of it under a. So |a \ b| = 16.
    fill(writer, [(0, 0, 10, 0), (0, 5, 15, 0), (0, 8, 4, 1)])
    length = "sum(end_ns - start_ns)"
    assert writer.rows(
        f"SELECT {length} FILTER (a > 0), {length} FILTER (a > 0 AND b > 0),"
        f" {length} FILTER (a > 0 AND b = 0) FROM sweep('t')"
    ) == [(20, 4, 16)]
