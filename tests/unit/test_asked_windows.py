"""Windows that somebody asks for while a run goes on, and how a rank says how far it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.store import call
from tracekit_collectors import progress, records
from tracekit_collectors.asked import Asked, Trigger
from tracekit_collectors.options import Options, Recording
from tracekit_collectors.plan import Plan
from tracekit_collectors.progress import Progress

OPTIONS = Options(warmup=1, active=3)


def trigger(folder: Path) -> Path:
    return folder / records.TRIGGER_FILE


def test_the_planned_windows_come_in_order_and_then_nothing() -> None:
    plan = Plan(Options(repeat=2))
    first, second = Recording(2, 3, 5), Recording(7, 8, 10)
    assert (plan.next, plan.is_fulfilled) == (first, False)
    assert plan.closed(first, 6) == []
    assert plan.next == second
    assert plan.closed(second, 11) == []
    assert (plan.next, plan.is_fulfilled) == (None, True)


def test_a_window_that_is_asked_for_takes_the_place_of_a_planned_one() -> None:
    plan = Plan(Options(repeat=3))  # 2..5, 7..10, 12..15
    plan.ask(Recording(1, 2, 8))
    assert plan.next == Recording(1, 2, 8)
    assert plan.closed(Recording(1, 2, 8), 9) == [3, 8]
    assert plan.next == Recording(12, 13, 15)


def test_a_window_that_is_asked_for_within_another_comes_after_it() -> None:
    plan = Plan(Options())
    plan.ask(Recording(4, 5, 7))
    plan.closed(Recording(2, 3, 5), 6)
    assert plan.next == Recording(6, 7, 9)  # two steps late


def test_between_two_windows_there_is_a_step_that_neither_records() -> None:
    plan = Plan(Options(warmup=0, at_steps=(10,)))
    plan.ask(Recording(7, 7, 9))
    assert plan.closed(Recording(7, 7, 9), 10) == [10]
    plan.ask(Recording(10, 10, 12))
    assert plan.next == Recording(11, 11, 13)
    plan.ask(Recording(10, 11, 13))  # its warm-up is that step
    assert plan.next == Recording(10, 11, 13)


def test_all_ranks_record_the_steps_that_the_first_one_names(tmp_path: Path) -> None:
    first, second = Trigger(tmp_path, OPTIONS, 0.0), Trigger(tmp_path, OPTIONS, 0.0)
    assert first.look(10, 1.0) is None
    trigger(tmp_path).touch()
    # 20 steps in 2 s: in the 2 s that all may need to look, 20 more end; then the warm-up, and one.
    expected = Recording(41, 42, 44)
    assert first.look(20, 2.0) == expected
    assert not trigger(tmp_path).exists()
    assert second.look(19, 2.3) == expected
    assert first.look(30, 3.0) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["asked-1.json"]


def test_nobody_looks_more_than_once_a_second(tmp_path: Path) -> None:
    looks = Trigger(tmp_path, OPTIONS, 0.0)
    looks.look(1, 0.5)
    trigger(tmp_path).touch()
    assert looks.look(2, 1.4) is None
    assert looks.look(3, 1.6) is not None


def test_a_rank_that_hears_late_records_what_is_left_for_it(tmp_path: Path) -> None:
    records.write_json(records.asked_path(tmp_path, 1), {"first": 9, "last": 11, "warmup": 2})
    looks = Trigger(tmp_path / "other", OPTIONS, 0.0)
    looks._directory = tmp_path
    assert looks.look(8, 1.0) == Recording(8, 9, 11)  # one step of warm-up is left


@pytest.mark.parametrize(("steps", "window"), [(10, (10, 10, 11)), (12, (12, 14, 16))])
def test_a_step_that_has_passed(tmp_path: Path, steps: int, window: tuple[int, ...]) -> None:
    looks = Trigger(tmp_path, OPTIONS, 0.0)
    records.write_json(records.asked_path(tmp_path, 1), {"first": 9, "last": 11, "warmup": 2})
    assert looks.look(steps, 1.0) == window


def test_what_was_asked_of_a_process_before_is_not_asked_of_this_one(tmp_path: Path) -> None:
    records.write_json(records.asked_path(tmp_path, 1), {"first": 900, "last": 902, "warmup": 1})
    looks = Trigger(tmp_path, OPTIONS, 0.0)
    assert looks.look(5, 1.0) is None
    trigger(tmp_path).write_text('{"at_step": 50, "active": 1}')
    assert looks.look(6, 2.0) == Recording(49, 50, 50)
    assert records.asked_path(tmp_path, 2).exists()


@pytest.mark.parametrize(
    "said",
    ["nonsense", "[]", '{"steps": 3}', '{"active": 0}', '{"active": true}', '{"warmup": 1.5}'],
)
def test_a_trigger_that_asks_for_nonsense_is_said_and_gone(
    tmp_path: Path, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEKIT_RUN_DIR", str(tmp_path))
    trigger(tmp_path).write_text(said)
    assert Trigger(tmp_path, OPTIONS, 0.0).look(3, 1.0) is None
    assert [path.name for path in tmp_path.iterdir()] == [records.LOG_FILE]
    assert "asks for nothing that can be done" in (tmp_path / records.LOG_FILE).read_text()


def test_what_a_trigger_leaves_open_is_as_the_run_was_started() -> None:
    assert Asked.of({}, Options(active=5, warmup=0)) == Asked(5, 0, None)
    assert Asked.of({"active": 1, "warmup": None}, OPTIONS) == Asked(1, 1, None)


def test_a_rank_says_how_far_it_is_every_other_second(tmp_path: Path) -> None:
    line = Progress(tmp_path, "rank-0.a.1")
    line.tell(3, "waits for step 9", 0.0)
    line.tell(4, "waits for step 9", 1.9)
    seen = progress.read(tmp_path, "rank-0.a.1")
    assert seen is not None
    assert (seen.steps, seen.doing, seen.step_ns) == (3, "waits for step 9", None)
    line.tell(5, "waits for step 9", 2.0)
    again = progress.read(tmp_path, "rank-0.a.1")
    assert again is not None
    assert again.steps == 5
    assert again.step_ns == (again.time_ns - seen.time_ns) // 2
    assert (tmp_path / "rank-0.a.1.progress").stat().st_size == 256


def test_a_line_that_cannot_be_written_is_let_go(tmp_path: Path) -> None:
    Progress(tmp_path / "gone", "rank-0.a.1").say(1, "x")
    assert progress.read(tmp_path / "gone", "rank-0.a.1") is None


class TestAttach:
    """`tracekit attach` and `tracekit trigger` on a run directory as ranks leave it."""

    def directory(self, folder: Path, *, ended: bool = False, ranks: int = 3) -> Path:
        run = {"command": ["train", "--x"], "host": "a", "start_ns": 1, "pid": 1}
        records.write_json(folder / "run.json", run | ({"exit_status": 0} if ended else {}))
        for rank in range(ranks):
            name = f"rank-{rank}.a.{rank}"
            manifest = records.RankManifest(rank, ranks, rank, "a", rank, "cpu")
            manifest.windows = [records.WindowRecord([3, 4, 5], "x.json.gz")]
            records.write_manifest(folder, name, manifest)
            Progress(folder, name).say(40 + rank, "waits for step 90")
        return folder

    def test_ranks_in_the_same_state_are_one_line(self, tmp_path: Path) -> None:
        status, out, _ = call("attach", self.directory(tmp_path))
        assert status == 0
        assert "on a: train --x" in out
        assert "0-2    a     waits for step 90  40-42" in out
        assert out.rstrip().endswith("3-5")

    def test_a_rank_that_is_silent_stands_out(self, tmp_path: Path) -> None:
        path = records.progress_path(self.directory(tmp_path), "rank-1.a.1")
        said = json.loads(path.read_text())
        path.write_text(json.dumps(said | {"time_ns": said["time_ns"] - 60 * 10**9}))
        _, out, _ = call("attach", tmp_path)
        assert "0, 2   a     waits for step 90 " in out
        assert "1      a     waits for step 90 (silent)" in out

    def test_json_has_a_row_a_rank(self, tmp_path: Path) -> None:
        _, out, _ = call("attach", self.directory(tmp_path), "--format", "json")
        found = json.loads(out)
        assert [rank["steps"] for rank in found["ranks"]] == [40, 41, 42]
        assert found["wrappers"][0]["command"] == ["train", "--x"]

    def test_what_is_no_run_directory(self, tmp_path: Path) -> None:
        assert call("attach", tmp_path)[0] == 3
        status, _, err = call("attach", tmp_path / "none")
        assert (status, err) == (3, f"tracekit: {tmp_path / 'none'}: no such run directory\n")

    def test_nothing_is_asked_of_a_run_that_has_ended(self, tmp_path: Path) -> None:
        status, _, err = call("trigger", self.directory(tmp_path, ended=True))
        assert status == 5
        assert "the run has ended" in err
        assert not trigger(tmp_path).exists()

    def test_a_request_that_nobody_takes_stays(self, tmp_path: Path) -> None:
        status, _, err = call(
            "trigger", self.directory(tmp_path), "--active", "2", "--timeout", "0"
        )
        assert status == 0
        assert "no rank has taken it" in err
        assert json.loads(trigger(tmp_path).read_text()) == {"active": 2}
        assert call("trigger", tmp_path)[0] == 2  # one at a time
