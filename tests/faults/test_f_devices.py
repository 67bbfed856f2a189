"""Rows F1 and F2: what ROCm and XPU write otherwise than CUDA. Times in us."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import Event, TraceBuilder
from tests.faults.conftest import Cases
from tests.faults.writing import LAYOUTS, laid

US = 1000
LINKS = (
    "SELECT k.name, l.name, w.launch_ns, w.stream FROM works AS k "
    "JOIN work AS w ON w.rank = k.rank AND w.event_id = k.event_id "
    "LEFT JOIN events AS l ON l.rank = w.rank AND l.event_id = w.launch_id ORDER BY k.start_ns"
)


def span(cat: str, name: str, place: tuple[object, object], ts: int, args: Event) -> Event:
    pid, tid = place
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": 10,
            "args": args}  # fmt: skip


def hip(
    call: str = "hipExtModuleLaunchKernel",
    cat: str = "cuda_runtime",
    key: str = "External id",
    quoted: bool = False,
    **kernel: Any,
) -> TraceBuilder:
    """An operator, the launch within it and its kernel; nothing but External id links them."""
    trace = TraceBuilder(distributed=False, flows=False)
    for number in range(3):
        external: object = str(number + 1) if quoted else number + 1
        at = 100 * number
        trace.raw(span("cpu_op", "aten::mm", (9, 9), at, {key: external}))
        trace.raw(span(cat, call, (9, 9), at + 2, {key: external, "cid": 107}))
        args = {key: external, "device": 2, "stream": 0, **kernel}
        trace.raw(span("kernel", f"Cijk_{number}", (2, 0), at + 20, args))
    return trace


F1 = {
    "hipExtModuleLaunchKernel": hip(),
    "hipLaunchKernel": hip("hipLaunchKernel"),
    "hip_runtime": hip(cat="hip_runtime"),
    "old key": hip(key="external id"),
    "quoted": hip(quoted=True),
    "no correlation": hip(correlation=None),
    "kind": hip(kind="Dispatch Kernel"),
    "stream text": hip(stream="0"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_f1_a_kernel_with_only_an_external_id_is_linked(cases: Cases, layout: str) -> None:
    loaded = cases({case: laid(trace, layout) for case, trace in F1.items()})
    assert loaded.reader.rows("FROM damage") == []
    for case, rank in loaded.ranks.items():
        rows = loaded.reader.rows(LINKS.replace("ORDER", "WHERE k.rank = $1 ORDER"), [rank])
        call = case if case.startswith("hip") and case != "hip_runtime" else None
        for number, (kernel, launch, launch_ns, stream) in enumerate(rows):
            assert (kernel, launch) == (f"Cijk_{number}", call or "hipExtModuleLaunchKernel"), case
            assert (launch_ns, stream) == ((100 * number + 2) * US, "0"), case
        assert len(rows) == 3
        assert loaded.coverage(case).unlinked == 0
    assert loaded.reader.rows("SELECT DISTINCT class, device, stream FROM work") == [
        ("compute", 2, "0")
    ]


def test_f1_work_of_stream_0_counts(cases: Cases) -> None:
    loaded = cases({"hip": hip()})
    overlap, _ = loaded.figures("hip")
    assert overlap["compute_ns"] == 3 * 10 * US


def test_f1_an_id_of_0_links_nothing(cases: Cases) -> None:
    """Writers put 0 where they know no id: work is not linked to whatever else has none."""
    trace = hip()
    for event in trace.events:
        event["args"]["External id"] = 0
    loaded = cases({"hip": trace})
    assert loaded.coverage("hip").unlinked == 3
    assert loaded.reader.scalar("SELECT count(*) FROM work") == 3


def test_f1_correlation_wins_where_both_are(cases: Cases) -> None:
    trace = hip(correlation=50)
    trace.events[4]["args"]["correlation"] = 50  # the second launch owns all three kernels
    loaded = cases({"hip": trace})
    assert [at for _, _, at, _ in loaded.reader.rows(LINKS)] == [102 * US] * 3


def test_f1_copies_and_sets(cases: Cases) -> None:
    trace = TraceBuilder(distributed=False)
    for number, (cat, call) in enumerate(
        (("gpu_memcpy", "hipMemcpyWithStream"), ("gpu_memset", "hipMemsetAsync"))
    ):
        at = 100 * number
        trace.raw(span("cuda_runtime", call, (9, 9), at, {"External id": number + 1}))
        args = {"External id": number + 1, "device": 2, "stream": 0}
        trace.raw(span(cat, cat, (2, 0), at + 20, args))
    loaded = cases({"hip": trace})
    assert loaded.reader.rows("SELECT class, launch_ns FROM work ORDER BY start_ns") == [
        ("memory", 0),
        ("memory", 100 * US),
    ]


def xpu(*queues: object, cat: str = "xpu_runtime") -> TraceBuilder:
    """Kernels of 10 us, back to back on each queue; their tid says nothing."""
    trace = TraceBuilder(distributed=False, flows=False)
    for number, queue in enumerate(queues):
        call = {"correlation": number + 1, "External id": number + 1}
        trace.raw(span(cat, "urEnqueueKernelLaunch", (9, 9), 20 * number, call))
        args = {"sycl queue": queue, "device": 0, "context": 1, **call}
        trace.raw(span("kernel", f"gemm_{number}", (0, 77), 20 * number + 5, args))
    return trace


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("queues", "texts"),
    [
        ((1, 2, 1), ["1", "1", "2"]),
        (("1", "2", "1"), ["1", "1", "2"]),
        (("0x55d0c8", "0x55d0d0", "0x55d0c8"), ["0x55d0c8", "0x55d0c8", "0x55d0d0"]),
        ((2**60 + 1, 2**60, 0), ["0", str(2**60), str(2**60 + 1)]),
    ],
)
def test_f2_the_queue_stands_for_the_stream(
    cases: Cases, layout: str, queues: tuple[object, ...], texts: list[str]
) -> None:
    loaded = cases({"xpu": laid(xpu(*queues), layout)})
    assert [row for (row,) in loaded.reader.rows("SELECT stream FROM work ORDER BY 1")] == texts
    assert loaded.coverage("xpu").unlinked == 0
    assert loaded.reader.rows("FROM damage") == []


@pytest.mark.parametrize("place", [(0, 77), (-1, 0), (9, 9)])
def test_f2_overhead_has_no_device_time(cases: Cases, place: tuple[int, int]) -> None:
    trace = xpu(1, 1)
    args = {"device": 0, "sycl queue": 1, "correlation": 1, "External id": 1}
    trace.raw(span("overhead", "Resource Instantiation", place, 100, args))
    trace.raw({**span("overhead", "Buffer Flush", place, 0, {}), "dur": 500})
    loaded = cases({"with": trace, "without": xpu(1, 1)})
    assert loaded.figures("with") == loaded.figures("without")
    rows = loaded.reader.rows("SELECT DISTINCT device, stream FROM events WHERE cat = 'overhead'")
    assert rows == [(None, None)]
    assert loaded.reader.scalar("SELECT count(*) FROM work") == 4


def test_f2_a_stream_beside_the_queue_is_the_stream(cases: Cases) -> None:
    trace = xpu(1)
    trace.events[1]["args"]["stream"] = 5
    loaded = cases({"xpu": trace})
    assert loaded.reader.rows("SELECT stream FROM work") == [("5",)]


def test_f2_kernels_of_two_queues_may_overlap(cases: Cases) -> None:
    """Nine short kernels inside a long one: on another queue that is no lost end."""
    trace = TraceBuilder(distributed=False)
    long = span("kernel", "long", (0, 77), 0, {"sycl queue": 1, "device": 0})
    trace.raw({**long, "dur": 1000})
    for number in range(9):
        args = {"sycl queue": 2, "device": 0}
        trace.raw(span("kernel", "short", (0, 77), 20 * number + 5, args))
    loaded = cases({"xpu": trace})
    assert loaded.reader.rows("FROM damage") == []
    overlap, _ = loaded.figures("xpu")
    assert overlap["compute_ns"] == 1000 * US
