"""Which steps a capture records, what ends a step, and where a rank stands: no torch needed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tracekit_collectors import api, options, records
from tracekit_collectors.options import Options, Recording
from tracekit_collectors.steps import StepCounter


def plan(most: int = 5, **fields: object) -> list[Recording]:
    return list(itertools.islice(Options(**fields).recordings(), most))  # type: ignore[arg-type]


def test_the_default_is_one_window_after_a_step_of_each_kind() -> None:
    # Step 0 finds the rank, 1 passes, 2 warms up, 3 to 5 are recorded.
    assert plan() == [Recording(2, 3, 5)]


def test_a_repeated_window_waits_and_warms_up_again() -> None:
    assert plan(wait=2, warmup=1, active=2, repeat=3) == [
        Recording(3, 4, 5), Recording(8, 9, 10), Recording(13, 14, 15)
    ]  # fmt: skip


def test_windows_without_wait_and_warm_up_have_a_step_between_them() -> None:
    assert plan(wait=0, warmup=0, active=2, repeat=2) == [Recording(1, 1, 2), Recording(4, 4, 5)]


def test_a_window_every_so_many_steps_has_no_end() -> None:
    assert plan(3, every=100, active=2) == [
        Recording(99, 100, 101), Recording(199, 200, 201), Recording(299, 300, 301)
    ]  # fmt: skip


def test_windows_at_steps_have_as_much_warm_up_as_there_is_room_for() -> None:
    # 1 has none before it; 4 has step 3; 5 lies within the window of 4, and 6 right behind it.
    at_steps = Options(at_steps=(5, 1, 4, 1, 6), active=2, warmup=2)
    assert list(at_steps.recordings()) == [Recording(1, 1, 2), Recording(3, 4, 5)]
    assert at_steps.left_out == [5, 6]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"active": 0}, "repeat are 0 or more, active 1 or more"),
        ({"every": 3}, "every step would be recorded"),
        ({"every": 10, "at_steps": (4,)}, "not both"),
        ({"at_steps": (0,)}, "step 0"),
        ({"collect": ("torch", "stack")}, "nothing is called 'stack'"),
    ],
)
def test_numbers_that_make_no_window_are_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Options(**fields)  # type: ignore[arg-type]


def test_options_come_through_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Options(at_steps=(7, 9), collect=("torch", "stacks"))
    for name, value in given.to_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    assert options.from_environment() == (given, tmp_path)


class Adam:
    """As much of an optimizer as the counter looks at."""


class Sgd(Adam):
    pass


def count(counter: StepCounter, optimizers: Iterator[Adam] | list[Adam]) -> list[bool]:
    return [counter.optimizer_stepped(o, outermost=True, in_backward=False) for o in optimizers]


def test_one_optimizer_ends_a_step_each_time() -> None:
    counter, only = StepCounter(), Adam()
    assert count(counter, [only] * 3) == [True] * 3
    assert counter.source == "optimizer Adam"


def test_of_two_that_take_turns_the_second_ends_the_step() -> None:
    counter, first, second = StepCounter(), Adam(), Sgd()
    # What it is known by until the first comes again.
    assert count(counter, [first, second]) == [True, False]
    assert count(counter, [first, second] * 3) == [False, True] * 3
    assert counter.source == "optimizer Sgd"
    assert counter.optimizers == [first, second]


def test_an_optimizer_that_steps_now_and_then_ends_none() -> None:
    counter, often, seldom = StepCounter(), Adam(), Sgd()
    assert count(counter, [often, often]) == [True] * 2
    assert count(counter, [seldom, often, often, seldom]) == [False, True, True, False]


def test_a_boundary_that_is_used_no_more_is_replaced() -> None:
    counter, first, then = StepCounter(), Adam(), Sgd()
    count(counter, [first, first])
    assert any(count(counter, [then] * 1001))
    assert count(counter, [then]) == [True]


def test_a_boundary_that_is_gone_is_replaced_at_once() -> None:
    counter = StepCounter()
    assert [count(counter, [Adam()])[0] for _ in range(3)] == [True] * 3
    assert counter.optimizers == []


def test_inner_optimizers_and_those_within_a_backward_pass_end_no_step_themselves() -> None:
    counter, one = StepCounter(), Adam()
    assert not counter.optimizer_stepped(one, outermost=False, in_backward=False)
    assert not counter.optimizer_stepped(one, outermost=True, in_backward=True)
    assert counter.backward_ended()
    assert not counter.backward_ended()  # a pass in which none stepped


def test_what_the_program_says_counts_from_then_on() -> None:
    counter, one = StepCounter(), Adam()
    assert count(counter, [one]) == [True]
    assert counter.said("tracekit.step()")
    assert count(counter, [one]) == [False]
    assert not counter.said("another")
    assert counter.source == "tracekit.step()"


def test_a_source_that_is_expected_is_waited_for() -> None:
    counter = StepCounter()
    counter.expect("the engine")
    assert count(counter, [Adam()]) == [False]
    assert counter.said("the engine")


@pytest.fixture(autouse=True)
def _nothing_declared() -> Iterator[None]:
    yield
    api.declare_mesh()


def test_a_declared_mesh_has_its_slowest_dimension_first() -> None:
    api.declare_mesh(pp=2, dp=2, tp=3)
    # 8 = 1 * 6 + 0 * 3 + 2.
    assert api.declared_mesh(8, 12) == [
        records.MeshDim("pp", 1, 2, [2, 8]),
        records.MeshDim("dp", 0, 2, [8, 11]),
        records.MeshDim("tp", 2, 3, [6, 7, 8]),
    ]


def test_a_mesh_that_is_not_the_world_is_refused() -> None:
    api.declare_mesh(pp=2, dp=2)
    with pytest.raises(ValueError, match="pp=2 x dp=2 has 4 ranks, the run 8"):
        api.declared_mesh(0, 8)
    with pytest.raises(ValueError, match="dimension tp: a size is 1 or more, not 0"):
        api.declare_mesh(tp=0)


def test_what_no_pipeline_has_is_refused() -> None:
    with pytest.raises(ValueError, match="F, B, I or W, not 'X'"):
        api.pipeline_action("X", stage=0, microbatch=0)
    with pytest.raises(ValueError, match="0 or more"):
        api.pipeline_action("F", stage=0, microbatch=-1)
    with api.pipeline_action("F", stage=0, microbatch=0), api.annotate("outside a capture"):
        api.step()


def test_a_trace_that_was_packed_is_not_read_twice(tmp_path: Path) -> None:
    for name in ("rank-0.a.1.trace.json", "rank-0.a.1.trace-2.json", "rank0.trace.json"):
        (tmp_path / name).touch()
        assert not records.is_packed_already(tmp_path / name)
        (tmp_path / f"{name}.gz").touch()
        assert records.is_packed_already(tmp_path / name) == name.startswith("rank-")


def test_a_manifest_of_a_newer_writer_is_read(tmp_path: Path) -> None:
    window = records.WindowRecord(steps=[3], trace="rank-0.a.1.trace.json.gz")
    manifest = records.RankManifest(0, 1, 0, "a", 1, "cpu", windows=[window])
    records.write_manifest(tmp_path, "rank-0.a.1", manifest)
    path = records.manifest_path(tmp_path, "rank-0.a.1")
    assert records.read_manifest(path) == manifest
    text = path.read_text().replace('"steps": [3]', '"steps": [3], "later": {}')
    path.write_text(text.replace('"rank": 0', '"rank": 0, "later": 1'))
    assert records.read_manifest(path) == manifest
    path.write_text(text.replace('"windows": [', '"windows": [7, '))
    with pytest.raises(ValueError, match="WindowRecord: not an object"):
        records.read_manifest(path)
