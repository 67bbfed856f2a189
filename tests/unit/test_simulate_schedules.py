"""Orders and replay: published tables, closed forms, cases worked by hand, and invariants."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.simulate.replay import Replay, replay
from tracekit.simulate.schedules import (
    Action,
    gpipe,
    interleaved_one_f_one_b,
    looped_bfs,
    one_f_one_b,
    peak_in_flight,
    schedule_orders,
    zb_h1,
    zb_h2,
)
from tracekit.simulate.theory import (
    theoretical_bubble_overhead,
    theoretical_bubble_ratio,
    why_no_theory,
)

# Zero Bubble Pipeline Parallelism (Qi et al. 2023), Tables 5 and 9; p = 8, times in us.
# m, T_F, T_B, T_W, T_c, then the bubble rates of 1F1B, ZB-H1 and ZB-H2.
ZERO_BUBBLE_TABLE = [
    (24, 18_522, 18_086, 9_337, 601, ".2431", ".1585", ".1083"),
    (32, 18_513, 18_086, 9_331, 626, ".1985", ".1242", ".0837"),
    (64, 18_546, 18_097, 9_321, 762, ".1240", ".0674", ".0444"),
    (24, 29_718, 29_444, 19_927, 527, ".2347", ".1323", ".0698"),
    (32, 29_802, 29_428, 19_530, 577, ".1898", ".1045", ".0559"),
    (64, 29_935, 29_621, 19_388, 535, ".1091", ".0554", ".0294"),
]


def text(order: list[Action]) -> str:
    return " ".join(f"{a.kind}{a.microbatch}" + "'" * a.chunk for a in order)


def longest_stage_ns(run: Replay) -> int:
    return max(stage[-1].end_ns - stage[0].start_ns for stage in run.stages)


@pytest.mark.parametrize("row", ZERO_BUBBLE_TABLE)
def test_zero_bubble_paper_to_four_decimals(row: tuple[int, int, int, int, int, str, str, str]):
    m, f, b, w, c, *published = row
    durations = {"F": f * 1000, "I": b * 1000, "W": w * 1000, "B": (b + w) * 1000}
    rates = []
    for schedule in (one_f_one_b, zb_h1, zb_h2):
        cost = longest_stage_ns(replay(schedule(8, m), durations, latency_ns=c * 1000))
        rates.append(f"{1 - m * (f + b + w) * 1000 / cost:.4f}".removeprefix("0"))
    assert rates == published


@pytest.mark.parametrize("durations", [{"F": 1, "B": 2}, {"F": 1, "B": 1}, {"F": 700, "B": 300}])
def test_uniform_ratios_are_exact(durations: dict[str, int]):
    # p=4, m=8: 3/(8+3) and, with two chunks a stage, 3/(16+3)
    assert replay(one_f_one_b(4, 8), durations).bubble_ratio == Fraction(3, 11)
    assert replay(gpipe(4, 8), durations).bubble_ratio == Fraction(3, 11)
    assert replay(interleaved_one_f_one_b(4, 8, 2), durations).bubble_ratio == Fraction(3, 19)
    assert replay(one_f_one_b(4, 8), durations).bubble_overhead == Fraction(3, 8)


@given(
    p=st.integers(1, 6),
    rounds=st.integers(1, 4),
    v=st.integers(2, 3),
    f=st.integers(1, 9),
    b=st.integers(1, 9),
)
def test_theory_is_what_the_replay_gives(p: int, rounds: int, v: int, f: int, b: int):
    m = p * rounds
    for name, chunks in (
        ("gpipe", 1),
        ("1f1b", 1),
        ("interleaved-1f1b", v),
        ("looped-bfs", v),
    ):
        run = replay(schedule_orders(name, p, m, chunks), {"F": f, "B": b})
        assert run.bubble_ratio == theoretical_bubble_ratio(name, p, m, chunks)
        assert run.bubble_overhead == theoretical_bubble_overhead(name, p, m, chunks)


@given(p=st.integers(1, 8), m=st.integers(1, 12))
def test_one_chunk_forms_hold_for_any_number_of_microbatches(p: int, m: int):
    for name in ("gpipe", "1f1b"):
        run = replay(schedule_orders(name, p, m), {"F": 3, "B": 5})
        assert run.bubble_ratio == theoretical_bubble_ratio(name, p, m)


def test_both_conventions_of_the_paper():
    # p=8, m=24: 7/24 = 29.2 % of busy, 7/31 = 22.6 % of the window
    assert theoretical_bubble_overhead("1f1b", 8, 24) == Fraction(7, 24)
    assert theoretical_bubble_ratio("1f1b", 8, 24) == Fraction(7, 31)


def test_no_closed_form_says_why():
    assert theoretical_bubble_ratio("zb-h1", 4, 8) is None
    assert "durations" in (why_no_theory("zb-h1", 4, 8) or "")
    assert theoretical_bubble_ratio("interleaved-1f1b", 4, 6, 2) is None
    assert "multiple" in (why_no_theory("interleaved-1f1b", 4, 6, 2) or "")
    assert theoretical_bubble_overhead("unknown", 4, 8) is None
    assert theoretical_bubble_overhead("1f1b", 4, 8, 2) is None
    with pytest.raises(ValueError, match="p=0"):
        theoretical_bubble_ratio("1f1b", 0, 8)


def test_orders_of_two_stages():
    assert [text(o) for o in gpipe(2, 3)] == ["F0 F1 F2 B0 B1 B2"] * 2
    assert [text(o) for o in one_f_one_b(2, 3)] == ["F0 F1 B0 F2 B1 B2", "F0 B0 F1 B1 F2 B2"]
    assert [text(o) for o in zb_h1(2, 3)] == [
        "F0 F1 I0 W0 F2 I1 W1 I2 W2",  # stage 0: no lag
        "F0 I0 F1 I1 W0 F2 I2 W1 W2",  # stage 1: W one behind
    ]
    assert text(looped_bfs(2, 2, 2)[0]) == "F0 F1 F0' F1' B1' B0' B1 B0"
    # Megatron, stage 1 of 2 with 2 chunks: (2-1)*2 + 2*0 = 2 warm-up forwards
    assert text(interleaved_one_f_one_b(2, 2, 2)[1]) == "F0 F1 F0' B0' F1' B1' B0 B1"


def test_two_stages_by_hand():
    # stage 0:  F0[0,1] F1[1,2]   B0[4,6] ...       F=1, B=2, no latency
    # stage 1:          F0[1,2] B0[2,4] F1[4,5] B1[5,7]
    run = replay(one_f_one_b(2, 2), {"F": 1, "B": 2})
    assert [(t.start_ns, t.end_ns) for t in run.stages[0]] == [(0, 1), (1, 2), (4, 6), (7, 9)]
    assert [(t.start_ns, t.end_ns) for t in run.stages[1]] == [(1, 2), (2, 4), (4, 5), (5, 7)]
    # window 9, busy 2*(1+2) on each of 2 stages: 1 - 12/18 = 1/3 = (2-1)/(2+2-1)
    assert (run.window_ns, run.busy_ns(0), run.bubble_ratio) == (9, 6, Fraction(1, 3))


def test_latency_by_hand():
    # One micro-batch: F0[0,1] +10 F0[11,12] B0[12,14] +10 B0[24,26]
    run = replay(gpipe(2, 1), {"F": 1, "B": 2}, latency_ns=10)
    assert [[(t.start_ns, t.end_ns) for t in stage] for stage in run.stages] == [
        [(0, 1), (24, 26)],
        [(11, 12), (12, 14)],
    ]


def test_no_latency_between_chunks_of_one_stage():
    # V placement: stage 1 holds virtual stages 1 and 2, stage 0 holds 0 and 3.
    orders = [
        [Action("F", 0, 0, 0), Action("F", 0, 1, 0)],
        [Action("F", 1, 0, 0), Action("F", 1, 1, 0)],
    ]
    run = replay(orders, {"F": 1}, latency_ns=10, placement="v")
    # F[0,1] +10 F[11,12] F[12,13] +10 F[23,24]
    assert [(t.start_ns, t.end_ns) for t in run] == [(0, 1), (23, 24), (11, 12), (12, 13)]


def test_one_slow_stage_by_hand():
    # Stage 1 takes 3 instead of 1 for each F. Forwards only would end at 1 + 3*3 = 10.
    run = replay(
        [[Action("F", s, 0, mb) for mb in range(3)] for s in range(2)],
        lambda a: 3 if a.stage == 1 else 1,
    )
    assert run.end_ns == 10
    assert run.busy_ns(1) == 9


def test_peak_in_flight():
    p, m = 8, 24
    assert max(map(peak_in_flight, gpipe(p, m))) == m
    assert [peak_in_flight(order) for order in one_f_one_b(p, m)] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert {peak_in_flight(order) for order in zb_h1(p, m)} == {p}
    assert {peak_in_flight(order) for order in zb_h2(p, m)} == {2 * p - 1}


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1", "zb-h2"])
def test_fewer_microbatches_than_stages(name: str):
    orders = schedule_orders(name, 8, 2)
    assert all(len(order) == len(set(order)) for order in orders)
    assert replay(orders, {"F": 1, "B": 2, "I": 1, "W": 1}).window_ns > 0


@pytest.mark.parametrize(
    ("name", "p", "m", "v", "message"),
    [
        ("1f1b", 0, 8, 1, "p=0"),
        ("1f1b", 4, 8, 2, "one chunk"),
        ("interleaved-1f1b", 4, 6, 2, "multiple of p"),
        ("interleaved-1f1b", 4, 8, 1, "2 or more chunks"),
        ("looped-bfs", 4, 8, 0, "1 or more chunks"),
        ("2f2b", 4, 8, 1, "no schedule named '2f2b'"),
    ],
)
def test_wrong_arguments(name: str, p: int, m: int, v: int, message: str):
    with pytest.raises(ValueError, match=message):
        schedule_orders(name, p, m, v)


def test_deadlock_is_named():
    # Stage 0 wants the backward before the forward that stage 1 needs for it.
    f0, b0 = Action("F", 0, 0, 0), Action("B", 0, 0, 0)
    f1, b1 = Action("F", 1, 0, 0), Action("B", 1, 0, 0)
    with pytest.raises(ValueError, match="deadlock: stage 0 before B of chunk 0, micro-batch 0"):
        replay([[b0, f0], [f1, b1]], {"F": 1, "B": 1})


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        ([], "one or more actions"),
        ([[Action("F", 0, 0, 0)], []], "one or more actions"),
        ([[Action("F", 1, 0, 0)]], "stands in the order of stage 0"),
        ([[Action("F", 0, 0, 0)] * 2], "occurs twice"),
        ([[Action("F", 0, 0, 0)], [Action("F", 1, 0, 1)]], "needs F of virtual stage 0"),
        ([[Action("F", 0, 0, 0), Action("B", 0, 0, 0)]], "no duration given"),
    ],
)
def test_orders_that_cannot_run(orders: list[list[Action]], message: str):
    with pytest.raises(ValueError, match=message):
        replay(orders, {"F": 1})


def test_negative_times():
    with pytest.raises(ValueError, match="negative"):
        replay([[Action("F", 0, 0, 0)]], {"F": -1})
    with pytest.raises(ValueError, match="negative"):
        replay([[Action("F", 0, 0, 0)]], {"F": 1}, latency_ns=-1)


shapes = st.tuples(
    st.sampled_from(["gpipe", "1f1b", "zb-h1", "zb-h2", "interleaved-1f1b", "looped-bfs"]),
    st.integers(1, 5),
    st.integers(1, 3),
).map(lambda s: schedule_orders(s[0], s[1], s[1] * s[2], 2 if s[0][0] in "li" else 1))


@given(orders=shapes, seed=st.integers(1, 1000), latency=st.integers(0, 50))
def test_doubling_everything_doubles_every_time(
    orders: list[list[Action]], seed: int, latency: int
):
    def duration(action: Action) -> int:
        return (seed * (3 + action.stage) * (7 + action.microbatch) + ord(action.kind)) % 97

    once = replay(orders, duration, latency_ns=latency)
    twice = replay(orders, lambda a: 2 * duration(a), latency_ns=2 * latency)
    assert [(t.action, 2 * t.start_ns, 2 * t.end_ns) for t in once] == [
        (t.action, t.start_ns, t.end_ns) for t in twice
    ]
    assert once.window_ns == 0 or once.bubble_ratio == twice.bubble_ratio


@given(orders=shapes, shift=st.integers(0, 1000))
def test_a_later_first_action_shifts_the_rest(orders: list[list[Action]], shift: int):
    """All work hangs on the first F of stage 0: lengthening it by x delays all the others by x."""
    base = {"F": 10, "B": 20, "I": 9, "W": 11}
    first = orders[0][0]
    plain = replay(orders, base)
    late = replay(orders, lambda a: base[a.kind] + (shift if a == first else 0))
    for before, after in zip(plain, late, strict=True):
        assert after.end_ns == before.end_ns + shift


@given(orders=shapes, latency=st.integers(0, 30))
def test_every_dependency_is_met(orders: list[list[Action]], latency: int):
    p = len(orders)
    run = replay(orders, {"F": 10, "B": 20, "I": 9, "W": 11}, latency_ns=latency)
    timed = {("B" if t.action.kind == "I" else t.action.kind, t.action): t for t in run}
    by_place = {(kind, a.chunk * p + a.stage, a.microbatch): t for (kind, a), t in timed.items()}
    last = max(k for _, k, _ in by_place)
    wait = latency if p > 1 else 0
    for (kind, k, mb), t in by_place.items():
        if kind == "F" and k > 0:
            assert t.start_ns >= by_place["F", k - 1, mb].end_ns + wait
        if kind == "B":
            assert t.start_ns >= by_place["F", k, mb].end_ns
            if k < last:
                assert t.start_ns >= by_place["B", k + 1, mb].end_ns + wait
        if kind == "W":
            assert t.start_ns >= by_place["B", k, mb].end_ns
    for stage in run.stages:
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(stage))
