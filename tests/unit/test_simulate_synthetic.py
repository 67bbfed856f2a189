"""Synthetic runs: what the files say when read back is what the truth says."""

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import Truth, jitter, pipeline_run


def load(path: Path) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    return parsed


def span(event: dict[str, Any], trace: dict[str, Any]) -> tuple[int, int]:
    start = trace["baseTimeNanoseconds"] + int(event["ts"] * 1000)
    return start, start + int(event["dur"] * 1000)


def spans_of_actions(trace: dict[str, Any]) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Kernels by the action annotation around their launch: name and ordinal of the step.

    A slow reader of its own, by time alone, that shares nothing with the writer.
    """
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    launched = {
        e["args"]["correlation"]: span(e, trace)[0] for e in events if e["cat"] == "cuda_runtime"
    }
    marks = [
        (*span(e, trace), e["name"])
        for e in events
        if e["cat"] == "user_annotation" and e["name"].startswith("tracekit.action")
    ]
    found: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for kernel in (e for e in events if e["cat"] == "kernel"):
        at = launched[kernel["args"]["correlation"]]
        around = [mark for mark in marks if mark[0] <= at < mark[1]]
        if around:
            (start, _, name) = around[0]
            step = sum(1 for s, _, n in marks if n == name and s < start)
            found[name, step].append(span(kernel, trace))
    return found


def assert_files_say(truth: Truth) -> None:
    for rank, path in enumerate(truth.paths):
        read = spans_of_actions(load(path))
        expected = [a for a in truth.actions if a.rank == rank]
        assert len(read) == len(expected)
        for a in expected:
            name = (
                f"tracekit.action {a.action.kind} stage={a.action.stage} chunk={a.action.chunk} "
                f"vstage={a.vstage} mb={a.action.microbatch}"
            )
            kernels = sorted(read[name, a.step])
            offset = truth.offset_ns[rank]
            assert (kernels[0][0], kernels[-1][1]) == (a.start_ns + offset, a.end_ns + offset)
            assert all(left[1] == right[0] for left, right in pairwise(kernels))


@pytest.mark.parametrize(
    ("schedule", "v", "ratio"),
    [
        ("1f1b", 1, Fraction(3, 11)),
        ("gpipe", 1, Fraction(3, 11)),
        ("interleaved", 2, Fraction(3, 19)),
    ],
)
@pytest.mark.parametrize("receive_waits", [False, True])
def test_uniform_runs(tmp_path: Path, schedule: str, v: int, ratio: Fraction, receive_waits: bool):
    truth = pipeline_run(tmp_path, schedule=schedule, v=v, receive_waits=receive_waits)
    assert truth.bubble_ratio() == truth.idle_ratio() == ratio
    assert [truth.bubble_ratio(step) for step in (0, 1)] == [ratio, ratio]
    assert {s.transfer_ns for s in truth.stages} == {0}
    assert_files_say(truth)


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "zb-h1", "p": 3, "m": 4},
        {"noise": jitter(300_000), "dp": 2, "p": 2},
        {"p2p_ns": 70_001, "host_offsets_ns": (0, -3_000_000_001)},
        {"autograd_thread": True, "p": 2, "m": 2},
        {"f_ns": 1_001, "b_ns": 2_003, "p2p_ns": 7},
        {"f_ns": [1_000, 5_000], "b_ns": [2_000, 9_000], "p": 2, "steps": 3},
    ],
)
def test_other_runs(tmp_path: Path, options: dict[str, Any]):
    truth = pipeline_run(tmp_path, **options)
    assert_files_say(truth)
    assert 0 < truth.bubble_ratio() <= truth.idle_ratio() < 1


def test_window_and_bubble_by_hand(tmp_path: Path):
    # p=2, m=1: F0[0,1] +1 F1[2,3] B1[3,5] +1 B0[6,8] ms. Window 8, busy 3 on each stage.
    # Stage 0 waits 5: it sends for 1, receives for 1, and 3 are bubble; so does stage 1.
    ms = 1_000_000
    truth = pipeline_run(tmp_path, p=2, m=1, p2p_ns=ms, steps=1)
    assert [(s.window_ns, s.busy_ns, s.transfer_ns, s.bubble_ns) for s in truth.stages] == [
        (8 * ms, 3 * ms, 2 * ms, 3 * ms)
    ] * 2
    assert [s.received_ns for s in truth.stages] == [ms, ms]
    assert truth.bubble_ratio() == Fraction(3 + 3, 8 + 8)
    assert truth.idle_ratio() == Fraction(5 + 5, 8 + 8)


def test_receive_contains_its_wait(tmp_path: Path):
    ms = 1_000_000
    truth = pipeline_run(tmp_path, p=2, m=1, p2p_ns=ms, steps=1, receive_waits=True)
    start = truth.stages[0].window_start_ns
    receives = []
    for path in truth.paths:
        trace = load(path)
        receives.append(
            [
                tuple((ns - start) // ms for ns in span(e, trace))
                for e in trace["traceEvents"]
                if e.get("cat") == "kernel" and e["args"].get("Collective name") == "recv"
            ]
        )
    # stage 0 is free from the end of F0 at 1 and has its gradient at 6; stage 1 is free from 0
    assert receives == [[(1, 6)], [(0, 2)]]


def test_offsets_shift_all_ranks_of_a_host(tmp_path: Path):
    plain = pipeline_run(tmp_path / "a", p=4, m=4)
    shifted = pipeline_run(tmp_path / "b", p=4, m=4, host_offsets_ns=(0, 2_500_001))
    assert shifted.hosts == ("host0", "host0", "host1", "host1")
    assert shifted.offset_ns == (0, 0, 2_500_001, 2_500_001)
    assert plain.actions == shifted.actions
    for rank in range(4):
        before, after = load(plain.paths[rank]), load(shifted.paths[rank])
        assert after["host_name"] == shifted.hosts[rank]
        moved = {
            int((b["ts"] - a["ts"]) * 1000)
            for a, b in zip(before["traceEvents"], after["traceEvents"], strict=True)
        }
        assert moved == {shifted.offset_ns[rank]}


def test_hosts_by_name(tmp_path: Path):
    hosts = ("a", "b", "a", "b")
    truth = pipeline_run(tmp_path, p=2, dp=2, m=2, hosts=hosts, host_offsets_ns=(5, 9))
    assert truth.offset_ns == (5, 9, 5, 9)
    devices = [load(path)["deviceProperties"][0]["id"] for path in truth.paths]
    assert devices == [0, 0, 1, 1]
    with pytest.raises(ValueError, match="one name per rank"):
        pipeline_run(tmp_path, p=4, hosts=("a", "b"))


def test_all_reduces_align_clocks(tmp_path: Path):
    truth = pipeline_run(tmp_path, p=2, dp=2, m=2, host_offsets_ns=(0, 123_457), steps=2)
    last_action = max(a.end_ns for a in truth.actions if a.step == 0)
    starts = []
    for rank, path in enumerate(truth.paths):
        trace = load(path)
        world = [
            span(e, trace)
            for e in trace["traceEvents"]
            if e.get("cat") == "kernel" and e["args"].get("Process Group Name") == "0"
        ]
        offset = truth.offset_ns[rank]
        assert [end - offset for _, end in world] == truth.all_reduce_ends_ns
        assert all(start - offset >= last_action for start, _ in world)
        starts.append([start - offset for start, _ in world])
    assert len(truth.all_reduce_ends_ns) >= 10
    assert any(len(set(at)) > 1 for at in zip(*starts, strict=True))


def test_streams_and_threads_hold_one_thing_at_a_time(tmp_path: Path):
    """No two kernels overlap on a stream; slices of a CPU thread nest or follow each other."""
    truth = pipeline_run(tmp_path, schedule="interleaved", v=2, p2p_ns=1_300_000, steps=2)
    for path in truth.paths:
        trace = load(path)
        slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        streams = defaultdict(list)
        for e in slices:
            if e["cat"] == "kernel":
                streams[e["tid"]].append(span(e, trace))
        for spans in streams.values():
            assert all(a[1] <= b[0] for a, b in pairwise(sorted(spans)))
        open_ends: list[int] = []
        cpu = [e for e in slices if e["pid"] >= 4000]
        for start, end in sorted((span(e, trace) for e in cpu), key=lambda s: (s[0], -s[1])):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1]
            open_ends.append(end)


def test_host_runs_ahead_and_steps_tile(tmp_path: Path):
    truth = pipeline_run(tmp_path, steps=3)
    trace = load(truth.paths[1])
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    launches = {
        e["args"]["correlation"]: span(e, trace)[0] for e in events if e["cat"] == "cuda_runtime"
    }
    kernels = [e for e in events if e["cat"] == "kernel"]
    assert all(launches[e["args"]["correlation"]] < span(e, trace)[0] for e in kernels)
    steps = [span(e, trace) for e in events if e["name"].startswith("ProfilerStep#")]
    assert len(steps) == 3
    assert all(a[1] == b[0] for a, b in pairwise(steps))
    # Some kernels of step 0 run in the host's step 1: they belong to the step of their launch.
    first, second = steps[0], steps[1]
    assert any(
        first[0] <= launches[e["args"]["correlation"]] < first[1] and span(e, trace)[0] >= second[0]
        for e in kernels
    )


def test_point_to_point_lies_outside_actions_and_pairs_up(tmp_path: Path):
    truth = pipeline_run(tmp_path, p=3, m=4, dp=2, steps=1)
    sent: dict[tuple[int, int], int] = defaultdict(int)
    got: dict[tuple[int, int], int] = defaultdict(int)
    for rank, path in enumerate(truth.paths):
        trace = load(path)
        assert not any(
            start == end for spans in spans_of_actions(trace).values() for start, end in spans
        )
        for e in trace["traceEvents"]:
            args = e.get("args", {})
            if e.get("cat") == "kernel" and args.get("Collective name") == "send":
                assert args["Process Group Description"] == "mesh_pp"
                sent[rank, args["Dst Rank"]] += 1
            if e.get("cat") == "kernel" and args.get("Collective name") == "recv":
                got[args["Src Rank"], rank] += 1
    assert sent == got
    # 2 replicas, 2 edges each, both directions, one message per micro-batch
    assert len(sent) == 2 * 2 * 2
    assert set(sent.values()) == {4}


def test_groups_of_a_rank(tmp_path: Path):
    truth = pipeline_run(tmp_path, p=2, dp=2, m=2)
    groups = load(truth.paths[3])["distributedInfo"]["pg_config"]
    assert [(g["pg_desc"], g["ranks"]) for g in groups] == [
        ("default_pg", [0, 1, 2, 3]),
        ("mesh_pp", [1, 3]),
        ("mesh_dp", [2, 3]),
    ]


def test_the_same_run_gives_the_same_bytes(tmp_path: Path):
    one = pipeline_run(tmp_path / "a", noise=jitter(1000), p=2, m=2)
    two = pipeline_run(tmp_path / "b", noise=jitter(1000), p=2, m=2)
    assert [p.read_bytes() for p in one.paths] == [p.read_bytes() for p in two.paths]
