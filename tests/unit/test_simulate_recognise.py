"""Recognition: every order that we or torch emit gets its name, and nothing else does."""

from collections.abc import Sequence
from typing import Any

import pytest

from tracekit.simulate.recognise import recognise
from tracekit.simulate.replay import replay
from tracekit.simulate.schedules import (
    Action,
    Kind,
    interleaved_one_f_one_b,
    looped_bfs,
    one_f_one_b,
    schedule_orders,
    zb_h1,
)

SHAPES = [(2, 4), (2, 8), (4, 4), (4, 8), (4, 16), (8, 24)]


def order(text: str, stage: int) -> list[Action]:
    """ "F0 B0'": one letter, the micro-batch, a dash for each chunk above 0."""
    kinds: dict[str, Kind] = {"F": "F", "B": "B", "I": "I", "W": "W"}
    return [
        Action(kinds[word[0]], stage, word.count("'"), int(word[1:].rstrip("'")))
        for word in text.split()
    ]


@pytest.mark.parametrize(("p", "m"), SHAPES)
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1", "zb-h2", "forward-only"])
def test_own_orders(name: str, p: int, m: int):
    found = recognise(schedule_orders(name, p, m))
    assert (found.name, found.p, found.m, found.v, found.reason) == (name, p, m, 1, None)


@pytest.mark.parametrize(("p", "m"), SHAPES)
@pytest.mark.parametrize("v", [2, 3])
@pytest.mark.parametrize("name", ["interleaved-1f1b", "looped-bfs"])
def test_own_orders_with_chunks(name: str, v: int, p: int, m: int):
    found = recognise(schedule_orders(name, p, m, v))
    assert (found.name, found.p, found.m, found.v, found.reason) == (name, p, m, v, None)


def torch_1f1b(p: int, m: int) -> list[list[Action]]:
    """The loop of torch's Schedule1F1B: min(m, p - stage) warm-ups, then B first, then F.

    Written out because its ``pipeline_order`` is off by one on the last rank.
    """
    orders = []
    for stage in range(p):
        ahead = min(m, p - stage)
        done = [Action("F", stage, 0, mb) for mb in range(ahead)]
        for mb in range(m):
            done.append(Action("B", stage, 0, mb))
            if ahead + mb < m:
                done.append(Action("F", stage, 0, ahead + mb))
        orders.append(done)
    return orders


@pytest.mark.parametrize(("p", "m"), SHAPES)
def test_torch_and_megatron_count_warm_up_apart_but_run_the_same_order(p: int, m: int):
    assert torch_1f1b(p, m) == one_f_one_b(p, m)


def test_gpipe_with_the_backward_in_reverse():
    orders = [order("F0 F1 F2 B2 B1 B0", stage) for stage in range(2)]
    assert recognise(orders).name == "gpipe"


def test_missing_ranks_do_not_hide_the_schedule():
    orders: list[Sequence[Action]] = list(one_f_one_b(4, 8))
    orders[2] = []
    assert recognise(orders).name == "1f1b"
    assert recognise(orders).p == 4


def test_split_backward_fused_again_on_one_stage():
    # Stage 0 of ZB-H1 runs W right after I: a framework may record the two as one B.
    orders = zb_h1(2, 4)
    orders[0] = order("F0 F1 B0 F2 B1 F3 B2 B3", 0)
    assert recognise(orders).name == "zb-h1"


def test_one_microbatch_is_gpipe():
    assert recognise(one_f_one_b(4, 1)).name == "gpipe"


@pytest.mark.parametrize(
    ("orders", "reason"),
    [
        ([], "no actions"),
        ([[], []], "no actions"),
        # no pipelining at all: stage 0 never runs ahead
        ([order("F0 B0 F1 B1", 0), order("F0 B0 F1 B1", 1)], "stage 0 runs 1 forwards"),
        ([order("F0 F1 F2 B0 B1 F3 B2 B3", 0)], "does not alternate"),
        ([order("F0 F1 B0", 0)], "stage 0 lacks actions"),
        ([order("F0 B0 F0 B0", 0)], "more than one step"),
        ([order("F0 B0", 1)], "another stage"),
        ([order("F0 I0 F1 I1", 0)], "lacks actions"),
        # W only at the very end: the activations of all micro-batches are held
        ([order("F0 I0 F1 I1 F2 I2 W0 W1 W2", 0)], "W runs late"),
        ([order("F0 F0' F1 F1' B0 B1 B0' B1'", 0)], "take its chunks in turn"),
        ([order("F0 F0' F1 B0' B0 F1' B1' B1", 0)], "does not alternate"),
        ([order("F0 F0' I0' I0 W0' W0", 0)], "one micro-batch"),
    ],
)
def test_unknown_says_why(orders: list[list[Action]], reason: str):
    found = recognise(orders)
    assert found.name == "unknown"
    assert reason in (found.reason or "")


# torch's own orders


def torch_orders(schedule: str, p: int, m: int, v: int) -> list[list[Action]]:
    """What torch computes per rank, without building a model or a process group."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    cls = getattr(schedules, schedule)
    bare = object.__new__(cls)
    bare.pp_group_size, bare._n_microbatches = p, m
    bare.n_local_stages, bare._stages = v, [None] * v
    bare.num_stages = bare._num_stages = p * v
    bare.number_of_rounds = max(1, m // p)
    bare.microbatches_per_round = m // bare.number_of_rounds
    is_v = schedule in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")
    return [
        [_from_torch(a, p, is_v) for a in _flat(bare._calculate_single_rank_operations(rank))]
        for rank in range(p)
    ]


def _flat(actions: Sequence[Any]) -> list[Any]:
    """Without the no-ops, and with overlapped pairs as two actions."""
    return [part for a in actions if a is not None for part in (a.sub_actions or (a,))]


def _from_torch(action: Any, p: int, is_v: bool) -> Action:
    chunk, stage = divmod(action.stage_index, p)
    kinds: dict[str, Kind] = {
        "FORWARD": "F",
        "FULL_BACKWARD": "B",
        "BACKWARD_INPUT": "I",
        "BACKWARD_WEIGHT": "W",
    }
    kind = kinds[action.computation_type.name]
    return Action(kind, p - 1 - stage if is_v and chunk else stage, chunk, action.microbatch_index)


@pytest.mark.parametrize(("p", "m"), SHAPES)
def test_torch_interleaved_and_breadth_first_are_ours(p: int, m: int):
    for v in (2, 3):
        assert torch_orders("ScheduleInterleaved1F1B", p, m, v) == interleaved_one_f_one_b(p, m, v)
        assert torch_orders("ScheduleLoopedBFS", p, m, v) == looped_bfs(p, m, v)


@pytest.mark.parametrize(
    ("schedule", "v", "name"),
    [
        ("ScheduleInterleaved1F1B", 2, "interleaved-1f1b"),
        ("ScheduleInterleaved1F1B", 1, "eager-1f1b"),
        ("ScheduleLoopedBFS", 2, "looped-bfs"),
        ("ScheduleInterleavedZeroBubble", 2, "interleaved-zb"),
        ("ScheduleInterleavedZeroBubble", 1, "zb-h1"),
        ("ScheduleZBVZeroBubble", 2, "zb-v"),
        ("ScheduleDualPipeV", 2, "dualpipe-v"),
    ],
)
@pytest.mark.parametrize(("p", "m"), [(2, 4), (2, 8), (4, 8), (4, 16)])
def test_torch_names(schedule: str, v: int, name: str, p: int, m: int):
    found = recognise(torch_orders(schedule, p, m, v))
    assert (found.name, found.p, found.m, found.v) == (name, p, m, v)


@pytest.mark.parametrize(("p", "m"), [(4, 6), (4, 10), (8, 12)])
def test_torch_groups_other_than_p(p: int, m: int):
    """torch only asks that the rounds divide m: its groups are then wider than p."""
    assert recognise(torch_orders("ScheduleInterleaved1F1B", p, m, 2)).name == "interleaved-1f1b"


def test_torch_zero_bubble_v_has_no_deadlock():
    # F = I = W = 1, p=4, m=8: only the fill of the last stage remains, 3 of 51 slots
    run = replay(
        torch_orders("ScheduleZBVZeroBubble", 4, 8, 2),
        {"F": 1, "I": 1, "W": 1},
        placement="v",
    )
    assert run.window_ns == 6 * 8 + 3
