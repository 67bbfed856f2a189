"""The builder itself: bytes as Kineto writes them, times exact, events that refer to each other."""

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Layout, TraceBuilder, to_ns, us


def events(trace: TraceBuilder, **match: Any) -> list[dict[str, Any]]:
    """The events as a reader sees them, numbers as Decimal, that have these values."""
    parsed = json.loads(trace.json(), parse_float=Decimal)["traceEvents"]
    return [e for e in parsed if all(e.get(key) == value for key, value in match.items())]


@pytest.mark.parametrize(
    ("micros", "ns"),
    [
        ("1740461679470813.123", 1_740_461_679_470_813_123),
        (Decimal("0.001"), 1),
        (10.9, 10_900),
        (5, 5_000),
        ("-1", -1_000),
    ],
)
def test_time_is_exact(micros: Any, ns: int):
    assert to_ns(micros) == ns


def test_time_finer_than_a_nanosecond():
    with pytest.raises(ValueError, match="whole number of ns"):
        to_ns("0.0001")


@given(st.integers(-(10**19), 10**19))
def test_ns_survive_the_file(ns: int):
    trace = TraceBuilder()
    trace.kernel("k", ts_ns=ns, dur_ns=1, launch=False)
    (event,) = events(trace)
    assert event["ts"] * 1000 == ns
    assert f'"ts": {us(ns)}' in trace.json().decode()


def test_time_is_given_once():
    with pytest.raises(ValueError, match="either ts_us or ts_ns"):
        TraceBuilder().kernel("k", 1, 1, ts_ns=1000)
    with pytest.raises(ValueError, match="either dur_us or dur_ns"):
        TraceBuilder().kernel("k", 1)


def test_bytes_of_one_slice_and_one_flow():
    trace = TraceBuilder(pid=9, distributed=False)
    op = trace.cpu_op("aten::mm", 100, 20)
    trace.kernel("gemm", "130.5", 40, external_id=op, launch=110, queued=0, grid=[1, 1, 1])
    text = trace.json().decode()
    assert text.startswith('\n{\n  "schemaVersion": 1,\n')
    assert (
        "\n  {\n"
        '    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9,\n'
        '    "ts": 100.000, "dur": 20.000,\n'
        '    "args": {\n'
        '      "External id": 1\n'
        "    }\n"
        "  },\n  {\n"
    ) in text
    assert (
        "  },\n  {\n"
        '    "ph": "f", "id": 2, "pid": 0, "tid": 7, "ts": 130.500,\n'
        '    "cat": "ac2g", "name": "ac2g", "bp": "e"\n'
        "  },\n"
    ) in text
    assert text.count("\n  },\n  {\n") == len(trace.events) - 1


@pytest.mark.parametrize("layout", get_args(Layout))
def test_layouts_say_the_same(layout: Layout):
    trace = TraceBuilder(rank=1, world_size=2, host="a", base_ns=10, metadata={"x": 1})
    trace.kernel('quote " \\ \n \x01 ä', 10, 5)
    trace.memory(3, -512, 100, 200)
    trace.raw({"ph": "X", "ts": Decimal("1.5"), "dur": -1, "args": {"deep": [Decimal("2.25")]}})
    trace.raw({})
    parsed = json.loads(trace.json(layout))
    found = parsed if layout == "list" else parsed["traceEvents"]
    assert found == json.loads(trace.json("compact"))["traceEvents"]
    assert found[-2]["args"] == {"deep": [2.25]}
    if layout != "list":
        assert parsed == json.loads(trace.json("compact"))
        assert (parsed["host_name"], parsed["baseTimeNanoseconds"], parsed["x"]) == ("a", 10, 1)


def test_no_events():
    assert json.loads(TraceBuilder().json())["traceEvents"] == []


def test_launch_and_kernel_share_correlation_and_external_id():
    trace = TraceBuilder(pid=9)
    op = trace.cpu_op("aten::mm", 0, 50, tid=12)
    correlation = trace.kernel("gemm", 100, 40, external_id=op, launch=20, tid=12, stream=8)
    (kernel,) = events(trace, cat="kernel")
    (launch,) = events(trace, cat="cuda_runtime")
    start, end = events(trace, ph="s")[0], events(trace, ph="f")[0]
    assert kernel["args"]["correlation"] == launch["args"]["correlation"] == correlation
    assert kernel["args"]["External id"] == launch["args"]["External id"] == op
    assert (kernel["pid"], kernel["tid"], kernel["args"]["stream"]) == (0, 8, 8)
    assert (launch["name"], launch["ts"], launch["tid"]) == ("cudaLaunchKernel", 20, 12)
    assert start["id"] == end["id"] == correlation
    assert (start["ts"], start["tid"], end["ts"], end["tid"]) == (20, 12, 100, 8)


def test_launch_forms():
    def launches(**kw: Any) -> list[Decimal]:
        trace = TraceBuilder()
        trace.kernel("k", 100, 1, **kw)
        return [e["ts"] for e in events(trace, cat="cuda_runtime")]

    assert launches() == [90]
    assert launches(launch=False) == []
    assert launches(launch="1.5") == [Decimal("1.5")]
    assert launches(launch_ns=1_234) == [Decimal("1.234")]


def test_no_flows():
    trace = TraceBuilder(flows=False)
    trace.kernel("k", 100, 1)
    assert [e["cat"] for e in trace.events] == ["kernel", "cuda_runtime"]


def test_copies_sets_syncs_and_marks():
    trace = TraceBuilder(device=3)
    trace.memcpy(100, 5, "HtoD (Pinned -> Device)", 64)
    trace.memset(200, 5, nbytes=32)
    trace.sync(300, 5, "Device Sync")
    trace.step(7, 0, 400)
    trace.gpu_annotation("ProfilerStep#7", 0, 400)
    copy, fill, sync = (
        events(trace, cat=cat)[0] for cat in ("gpu_memcpy", "gpu_memset", "cuda_sync")
    )
    assert (copy["name"], copy["args"]["bytes"]) == ("Memcpy HtoD (Pinned -> Device)", 64)
    assert (fill["name"], fill["args"]["bytes"]) == ("Memset (Device)", 32)
    assert (sync["name"], sync["args"]["cuda_sync_kind"]) == ("Device Sync", "Device Sync")
    assert {e["pid"] for e in (copy, fill, sync)} == {3}
    assert [e["name"] for e in events(trace, cat="cuda_runtime")] == [
        "cudaMemcpyAsync",
        "cudaMemsetAsync",
        "cudaDeviceSynchronize",
    ]
    assert events(trace, cat="user_annotation")[0]["name"] == "ProfilerStep#7"
    assert events(trace, cat="gpu_user_annotation")[0]["pid"] == 3


def test_memory_event():
    trace = TraceBuilder(pid=9, device=2)
    trace.memory("1.25", 512, 1000, 2000, device_type=0, device=-1, addr=77)
    assert events(trace) == [
        {
            "ph": "i",
            "cat": "cpu_instant_event",
            "s": "t",
            "name": "[memory]",
            "pid": 9,
            "tid": 9,
            "ts": Decimal("1.250"),
            "args": {
                "Device Type": 0,
                "Device Id": -1,
                "Addr": 77,
                "Bytes": 512,
                "Total Allocated": 1000,
                "Total Reserved": 2000,
            },
        }
    ]


def test_collective():
    trace = TraceBuilder(rank=1, world_size=4)
    trace.group("5", "mesh_tp", [1, 3], size=8)
    trace.collective("_allgather_base", 100, 10, elems=8, out_elems=64, group="5", dtype="Float")
    trace.collective("allreduce", 200, 10, launch=False)
    gather, reduce = events(trace, cat="kernel")
    (operator,) = events(trace, name="record_param_comms")
    expected = {
        "Collective name": "_allgather_base",
        "In msg nelems": 8,
        "Out msg nelems": 64,
        "Group size": 8,
        "dtype": "Float",
        "Process Group Name": "5",
        "Process Group Description": "mesh_tp",
        "Process Group Ranks": "[1, 3]",
        "Seq": 1,
    }
    assert gather["name"].startswith("ncclDevKernel_AllGather_RING_LL(")
    assert expected.items() <= gather["args"].items()
    assert expected.items() <= operator["args"].items()
    assert gather["args"]["External id"] == operator["args"]["External id"]
    assert "Src Rank" not in gather["args"]
    assert reduce["args"]["Process Group Ranks"] == "[0, 1, 2, 3]"
    info = json.loads(trace.json())["distributedInfo"]
    assert (info["rank"], info["world_size"], info["pg_count"]) == (1, 4, 2)
    assert info["pg_config"][0] == {
        "pg_name": "5",
        "pg_desc": "mesh_tp",
        "backend_config": "cuda:nccl",
        "pg_size": 8,
        "ranks": [1, 3],
    }


def test_sequence_numbers_count_per_group_and_apart_for_point_to_point():
    trace = TraceBuilder(world_size=2)
    trace.group("1", "mesh_pp", [0, 1])
    trace.collective("allreduce", 100, 1)
    trace.collective("send", 110, 1, dst=1)
    trace.collective("recv", 120, 1, src=1)
    trace.collective("allreduce", 130, 1)
    trace.collective("allreduce", 140, 1, group="1")
    trace.collective("allreduce", 150, 1, seq=-1)
    kernels = [e["args"] for e in events(trace, cat="kernel")]
    assert [args.get("Seq") for args in kernels] == [1, 1, 2, 2, 1, None]
    assert [(args.get("Src Rank"), args.get("Dst Rank")) for args in kernels[1:3]] == [
        (None, 1),
        (1, None),
    ]


def test_write(tmp_path: Path):
    trace = TraceBuilder()
    plain = trace.write(tmp_path / "deep" / "a.json")
    packed = trace.write(tmp_path / "a.json.gz")
    assert plain.read_bytes() == gzip.decompress(packed.read_bytes()) == trace.json()
    assert trace.write(tmp_path / "b", gz=True).read_bytes() == packed.read_bytes()
