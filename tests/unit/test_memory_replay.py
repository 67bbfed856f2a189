"""The replay of an allocator's history: by hand, and against an allocator that counts forward."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.ingest.memory_replay import Life, Step, replay


def test_a_history_worked_by_hand() -> None:
    # 300 live from before; A 100, B 50 and C 200 come and go: 400, 450, 400, 600, 300, 320.
    steps = [
        Step("segment_alloc", 0, 1000),
        Step("alloc", 10, 100),
        Step("alloc", 20, 50),
        Step("free_requested", 20, 50),
        Step("free_completed", 20, 50),
        Step("alloc", 30, 200),
        Step("free_requested", 1, 300),
        Step("alloc", 40, 20),
        Step("segment_free", 2000, 500),
    ]
    found = replay(steps, {10: 100, 30: 200, 40: 20}, reserved_bytes=1500)
    assert (found.peak_bytes, found.peak_entry, found.begin_bytes) == (600, 5, 300)
    assert (found.reserved_bytes, found.most_reserved_bytes) == (2000, 2000)
    assert sorted(found.at_peak(), key=lambda life: life.address) == [
        Life(1, 300, None, 6),
        Life(10, 100, 1, None),
        Life(30, 200, 5, None),
    ]
    assert Life(20, 50, 2, 3) in found.lives
    assert not found.wrong


def test_100_that_stay_and_20_that_come_and_go_peak_at_120() -> None:
    steps = [Step("alloc", 1, 100)]
    for _ in range(5):
        steps += [Step("alloc", 2, 20), Step("free_requested", 2, 20)]
    found = replay(steps, {1: 100}, reserved_bytes=512)
    assert (found.peak_bytes, found.peak_entry) == (120, 1)  # the first of five equal ones
    assert sum(life.bytes for life in found.at_peak()) == 120


def test_the_peak_may_lie_before_the_history_or_at_its_end() -> None:
    fell = replay([Step("free_requested", 1, 70), Step("alloc", 2, 30)], {2: 30}, 100)
    assert (fell.peak_bytes, fell.peak_entry) == (70, None)
    assert fell.at_peak() == [Life(1, 70, None, 0)]
    rose = replay([Step("alloc", 2, 30)], {1: 70, 2: 30}, 100)
    assert (rose.peak_bytes, rose.peak_entry) == (100, 0)
    assert sum(life.bytes for life in rose.at_peak()) == 100


@pytest.mark.parametrize(
    ("steps", "live", "said"),
    [
        (
            [Step("alloc", 1, 5)],
            {},
            "entry 0, 'alloc' of 5 bytes, is an allocation that is neither",
        ),
        ([Step("alloc", 1, 5)], {1: 6}, "has 6 bytes later"),
        ([Step("free_requested", 1, 5)], {1: 5}, "is a free of what is there afterwards"),
        ([Step("teleport", 1, 5)], {}, "is an action that is not known"),
        ([Step("segment_alloc", 1, 50)], {1: 20}, "more is allocated than reserved"),
    ],
)
def test_what_cannot_be_is_said(steps: list[Step], live: dict[int, int], said: str) -> None:
    found = replay(steps, live, reserved_bytes=50)
    assert any(said in text for text in found.wrong.values()), found.wrong


class Allocator:
    """Counts forward, as torch does: sizes as requested, addresses used again."""

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self.pending: list[int] = []
        self.reserved = 1 << 20
        self.steps: list[Step] = []
        self.totals: list[tuple[int, dict[int, int], int]] = [self._state()]

    def _state(self) -> tuple[int, dict[int, int], int]:
        return sum(self.live.values()), dict(self.live), self.reserved

    def _record(self, action: str, address: int, size: int) -> None:
        self.steps.append(Step(action, address, size))
        self.totals.append(self._state())

    def act(self, what: int, size: int, pick: int) -> None:
        if what == 0:
            taken = self.live.keys() | set(self.pending)
            address = next(at for at in range(0, 1 << 20, 512) if at not in taken)
            self.live[address] = size
            self._record("alloc", address, size)
        elif what == 1 and self.live:
            address = sorted(self.live)[pick % len(self.live)]
            size = self.live.pop(address)
            self.pending.append(address)
            self._record("free_requested", address, size)
        elif what == 2 and self.pending:
            self._record("free_completed", self.pending.pop(0), size)
        elif what == 3:
            self.reserved += size
            self._record("segment_alloc", 1 << 40, size)
        elif what == 4 and self.reserved - size > sum(self.live.values()):
            self.reserved -= size
            self._record("segment_free", 1 << 40, size)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4096), st.integers(0, 99)), max_size=80),
    st.integers(0, 80),
)
def test_it_finds_what_an_allocator_saw(actions: list[tuple[int, int, int]], lost: int) -> None:
    allocator = Allocator()
    for action in actions:
        allocator.act(*action)
    lost = min(lost, len(allocator.steps))  # a ring forgets its begin
    states = allocator.totals[lost:]
    found = replay(allocator.steps[lost:], allocator.live, allocator.reserved)
    assert not found.wrong
    peak = max(total for total, _, _ in states)
    assert found.peak_bytes == peak
    assert found.begin_bytes == states[0][0]
    at = next(number for number, state in enumerate(states) if state[0] == peak)
    assert found.peak_entry == (at - 1 if at else None)
    assert {life.address: life.bytes for life in found.at_peak()} == states[at][1]
    assert found.reserved_bytes == states[at][2]
    assert found.most_reserved_bytes == max(reserved for _, _, reserved in states)
