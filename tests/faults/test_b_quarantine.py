"""Rows B4 to B7: times that cannot be true are left out, all others are exact. Times in us."""

from __future__ import annotations

import json

import pytest

from tests.builders import TraceBuilder
from tests.faults.conftest import Cases
from tests.faults.store import compute_ns, line_with
from tests.faults.writing import BASE_NS, LAYOUTS, laid, reordered, start_of

US = 1000
STAMP = 1_600_000_000_000_000


@pytest.mark.parametrize("lost_at", [0, 1, STAMP * 1000 // 10**6, 2 * STAMP])
def test_b4_a_time_far_from_all_others_is_left_out(cases: Cases, lost_at: int) -> None:
    # Two kernels near 1.6e15 and a third that is years away: the span is that of the two.
    trace = TraceBuilder(distributed=False)
    trace.kernel("gemm", STAMP, 10, launch=False)
    trace.kernel("gemm", STAMP + 50, 10, launch=False)
    trace.kernel("lost", lost_at, 0, launch=False)
    loaded = cases({layout: laid(trace, layout) for layout in LAYOUTS})
    for case in LAYOUTS:
        assert [(kind, n) for kind, _, n in loaded.damage(case)] == [("impossible time", 1)]
        _, breakdown = loaded.figures(case)
        assert (breakdown["window_ns"], breakdown["compute_ns"]) == (60 * US, 20 * US)
        assert loaded.coverage(case).span_ns == 60 * US
    assert line_with(loaded.info(), "impossible time", "lost")


def test_b4_a_cpu_event_at_zero_is_no_part_of_the_span(cases: Cases) -> None:
    trace = TraceBuilder(distributed=False)
    trace.cpu_op("aten::mm", STAMP, 10)
    trace.cpu_op("aten::mm", STAMP + 50, 10)
    trace.cpu_op("aten::lost", 0, 0)
    loaded = cases({"cpu": trace}, device="cpu")
    assert loaded.coverage("cpu").span_ns == 60 * US
    _, breakdown = loaded.figures("cpu")
    assert (breakdown["window_ns"], breakdown["compute_ns"]) == (60 * US, 20 * US)
    assert [(kind, n) for kind, _, n in loaded.damage("cpu")] == [("impossible time", 1)]


@pytest.mark.parametrize("ts", ['"n/a"', "null", "1e300", "true", "{}", '""', "-1e300"])
def test_b4_a_time_that_cannot_be_read_is_counted(cases: Cases, ts: str) -> None:
    files = {}
    for layout in LAYOUTS:
        trace = TraceBuilder(distributed=False, flows=False)
        trace.kernel("gemm", 0, 10, launch=False)
        trace.cpu_op("lost", "777.777", 5)
        trace.kernel("add", 20, 10, launch=False)
        files[layout] = laid(trace, layout).replace(b"777.777", ts.encode())
    loaded = cases(files)
    for case, data in files.items():
        assert loaded.names(case) == ["gemm", "add"], case
        offset = start_of(data, '"lost"')
        assert loaded.damage(case) == [("no readable time", offset, 1)], case


def test_b5_touching_intervals(cases: Cases) -> None:
    # gemm[0,10], kernel[5,5], nccl[5,15]: computing until 10, so 5 of the 10 is hidden.
    trace = TraceBuilder(distributed=False)
    trace.kernel("gemm", 0, 10)
    trace.kernel("kernel", 5, 0)
    trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 5, 10, stream=20)
    # The same with kernel[5,10] and nccl[5,20]: 5 of 15.
    longer = TraceBuilder(distributed=False)
    longer.kernel("gemm", 0, 10)
    longer.kernel("kernel", 5, 5)
    longer.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 5, 15, stream=20)
    loaded = cases({"empty": trace, "longer": longer})
    for case, comm in (("empty", 10), ("longer", 15)):
        overlap, _ = loaded.figures(case)
        assert (overlap["overlapped_ns"], overlap["comm_ns"]) == (5 * US, comm * US)
        assert overlap["compute_ns"] == 10 * US
        assert loaded.damage(case) == []


@pytest.mark.parametrize(
    ("comm", "compute", "overlapped"),
    [((5, 0), (0, 10), 0), ((5, 0), (5, 0), 0), ((0, 10), (5, 0), 0), ((0, 10), (10, 5), 0),
     ((0, 10), (0, 10), 10)],
)  # fmt: skip
def test_b5_events_of_no_length_and_equal_edges(
    cases: Cases, comm: tuple[int, int], compute: tuple[int, int], overlapped: int
) -> None:
    trace = TraceBuilder(distributed=False)
    trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", *comm, stream=20)
    trace.kernel("gemm", *compute)
    overlap, breakdown = cases({"one": trace}).figures("one")
    assert overlap["overlapped_ns"] == overlapped * US
    assert (overlap["comm_ns"], overlap["compute_ns"]) == (comm[1] * US, compute[1] * US)
    if breakdown["window_ns"] is not None:  # else nothing has a length
        parts = sum(breakdown[key] for key in ("compute_ns", "exposed_ns", "idle_ns"))
        assert parts == breakdown["window_ns"]


@pytest.mark.parametrize("before_us", [10**11, 2 * 10**6])
def test_b6_a_kernel_long_before_its_launch_is_left_out(cases: Cases, before_us: int) -> None:
    trace = TraceBuilder(base_ns=BASE_NS, distributed=False)
    trace.step(1, 900, 500)
    trace.step(2, 1400, 500)
    trace.kernel("lost", 1000 - before_us, 10, launch=1000)
    trace.kernel("gemm", 1100, 10, launch=1050)
    trace.kernel("gemm", 1500, 10, launch=1450)
    loaded = cases({layout: laid(trace, layout) for layout in LAYOUTS if layout != "list"})
    for case in loaded.ranks:
        assert compute_ns(loaded.figures(case)[:1] * 2) == 20 * US
        assert [(kind, n) for kind, _, n in loaded.damage(case)] == [
            ("kernel before its launch", 1)
        ]
    assert line_with(loaded.info(), "kernel before its launch", "lost")
    # The step that launched it is flagged, and the next is not.
    printed = json.loads(
        loaded.report("-a", "step_breakdown", "--by", "rank,step", "--format", "json")
    )
    flagged = [m["where"] for m in printed["missing"] if "before its launch" in m["reason"]]
    assert flagged
    steps = [where["step"] for where in flagged]
    assert {s for step in steps for s in (step if isinstance(step, list) else [step])} == {1}
    assert [row["compute_ns"] for row in printed["rows"] if row["rank"] == 0] == [10 * US] * 2


def test_b6_a_little_before_its_launch_is_the_clock(cases: Cases) -> None:
    """Clocks of device and host differ by microseconds: that is no damage."""
    trace = TraceBuilder(distributed=False)
    trace.kernel("gemm", 1000, 10, launch=1003)
    loaded = cases({"one": trace})
    assert (loaded.damage("one"), compute_ns(loaded.figures("one"))) == ([], 10 * US)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_b7_absolute_times_are_exact(cases: Cases, layout: str) -> None:
    # As a float64, 1740461679470813.123 us would be off by up to 125 ns.
    files = {}
    texts = ["1740461679470813.123", "1740461679470813.001", "4102444800000000.999"]
    for text in texts:
        trace = TraceBuilder(distributed=False)
        trace.kernel("gemm", text, "2.001", launch=False)
        files[text] = laid(trace, layout)
    loaded = cases(files)
    for text in texts:
        start = int(text.replace(".", ""))
        rows = loaded.reader.rows(
            "SELECT start_ns, end_ns FROM work WHERE rank = $1", [loaded.ranks[text]]
        )
        assert rows == [(start, start + 2001)]


def test_b7_times_relative_to_a_base_are_exact(cases: Cases) -> None:
    base = 1_711_964_646_000_000_123
    trace = TraceBuilder(distributed=False, base_ns=base)
    trace.kernel("gemm", "4458676522690.655", "156.777", launch=False)
    files = {layout: laid(trace, layout) for layout in LAYOUTS if layout != "list"}
    first = ["baseTimeNanoseconds", "traceEvents"]
    files["base first"] = reordered(laid(trace, "compact"), first)
    files["base last"] = reordered(laid(trace, "compact"), first[::-1])
    loaded = cases(files)
    start = base + 4458676522690655
    assert loaded.reader.rows("SELECT DISTINCT start_ns, end_ns FROM work") == [
        (start, start + 156777)
    ]
