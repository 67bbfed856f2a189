"""Turn events into the columns of the store: exact times, known categories, nothing decided.

One :class:`Columns` serves one rank; :meth:`Columns.take` appends a block of events to the store,
:meth:`Columns.finish` what is only known at the end (threads, names).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.ingest.kineto import Args, Event
from tracekit.store.store import Writer

CATEGORIES = {
    "kernel": "kernel",
    "gpu_memcpy": "gpu_memcpy",
    "memcpy": "gpu_memcpy",
    "gpu_memset": "gpu_memset",
    "memset": "gpu_memset",
    "cpu_op": "cpu_op",
    "operator": "cpu_op",
    "user_annotation": "annotation",
    "gpu_user_annotation": "gpu_annotation",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "hip_runtime": "runtime",
    "xpu_runtime": "runtime",
    "mtia_runtime": "runtime",
    "privateuse1_runtime": "runtime",
    "runtime": "runtime",
    "cuda_sync": "sync",
    "overhead": "overhead",
    "python_function": "python",
}
GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_NO_ARGS = Args()
_MEMORY = "[memory]"
_LARGEST_NS = 1 << 61


class Names:
    """Ids for names, shared by all ranks of a run."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def id_of(self, name: str) -> int:
        return self._ids.setdefault(name, len(self._ids))

    def table(self) -> pa.Table:
        return pa.table(
            {
                "name_id": pa.array(range(len(self._ids)), pa.int32()),
                "name": pa.array(list(self._ids), pa.string()),
            }
        )


class Columns:
    """Appends the events of one rank to the store."""

    def __init__(self, writer: Writer, names: Names, rank: int, base_ns: int) -> None:
        self._writer = writer
        self._names = names
        self._rank = rank
        self._base_ns = base_ns
        self._threads: dict[tuple[str, str], int] = {}
        self._thread_names: dict[tuple[str, str], str] = {}
        self.events = 0
        self._memory_events = 0
        self.skipped: Counter[str] = Counter()

    def take(self, block: Sequence[Event]) -> None:
        """Append a block of events."""
        spans: list[Event] = []
        memory: list[Event] = []
        flows: list[Event] = []
        for event in block:
            phase = event.ph
            if phase == "X":
                spans.append(event)
            elif phase in ("i", "I"):
                (memory if event.name == _MEMORY else spans).append(event)
            elif phase in ("s", "f"):
                flows.append(event)
            elif phase == "M":
                self._take_metadata(event)
            else:
                self.skipped[f"phase {phase!r}"] += 1
        self._take_spans(spans)
        self._take_memory(memory)
        self._take_flows(flows)

    def finish(self) -> None:
        """Write the threads that the events ran on."""
        keys = list(self._threads)
        self._writer.insert(
            "thread",
            [
                (self._rank, self._threads[key], *key, self._thread_names.get(key), False)
                for key in keys
            ],
        )

    def _thread(self, event: Event) -> int:
        key = (str(event.pid), str(event.tid))
        return self._threads.setdefault(key, len(self._threads))

    def _take_metadata(self, event: Event) -> None:
        if event.name == "thread_name" and event.args is not None:
            self._thread_names[(str(event.pid), str(event.tid))] = str(event.args.name)

    def _timed(self, events: list[Event]) -> tuple[list[Event], pa.Array]:
        """The events whose time can be read, and their times; the others are counted."""
        times = nanoseconds([event.ts for event in events])
        if self._base_ns:  # the sum must fit too
            fits = pc.less(pc.abs(times), _LARGEST_NS)
            times = pc.if_else(fits, times, pa.scalar(None, pa.int64()))
        if times.null_count:
            readable = times.is_valid().to_pylist()
            events = [event for event, ok in zip(events, readable, strict=True) if ok]
            self.skipped["no readable time"] += times.null_count
            times = times.drop_null()
        return events, pc.add(times, self._base_ns)

    def _take_spans(self, events: list[Event]) -> None:
        events, times = self._timed(events)
        if not events:
            return
        args = [event.args or _NO_ARGS for event in events]
        count = len(events)
        first = self.events
        self.events += count
        durations = nanoseconds([event.dur for event in events])
        lengthless = (
            sum(
                event.ph == "X" and length is None
                for event, length in zip(events, durations.to_pylist(), strict=True)
            )
            if durations.null_count
            else 0
        )
        if lengthless:
            self.skipped["unfinished event (no readable duration)"] += lengthless
        durations = pc.fill_null(durations, 0)
        unfinished = pc.sum(pc.less(durations, 0)).as_py() or 0
        if unfinished:
            self.skipped["unfinished event (negative duration)"] += unfinished
            durations = pc.max_element_wise(durations, pa.scalar(0, pa.int64()))
        categories = [CATEGORIES.get(str(event.cat).lower(), "other") for event in events]
        gpu = [category in GPU_WORK for category in categories]
        table = {
            "rank": _constant(self._rank, count),
            "event_id": pa.array(range(first, first + count), pa.int32()),
            "cat": pa.array(categories, pa.string()).dictionary_encode(),
            "name_id": pa.array([self._names.id_of(str(e.name)) for e in events], pa.int32()),
            "ts_ns": times,
            "dur_ns": durations,
            "thread_id": pa.array([self._thread(event) for event in events], pa.int32()),
            "device": _integers(
                [
                    _first(a.device, e.pid) if g else None
                    for a, e, g in zip(args, events, gpu, strict=True)
                ],
                pa.int32(),
            ),
            "stream": pa.array(
                [
                    str(_first(a.stream, a.queue, e.tid)) if g else None
                    for a, e, g in zip(args, events, gpu, strict=True)
                ],
                pa.string(),
            ),
            "correlation": _integers([a.correlation for a in args], pa.int64()),
            "external_id": _integers(
                [_first(a.external_id, a.external_id_old) for a in args], pa.int64()
            ),
            "bytes": _integers([a.bytes for a in args], pa.int64()),
            "input_dims": _texts([a.input_dims for a in args]),
            "input_types": _texts([a.input_types for a in args]),
            "concrete": _texts([a.concrete for a in args]),
            "sequence": _integers([a.sequence for a in args], pa.int64()),
            "forward_thread": _integers([a.forward_thread for a in args], pa.int64()),
        }
        self._writer.append("event", pa.table(table))
        self._take_comm_args(first, args)

    def _take_comm_args(self, first: int, args: list[Args]) -> None:
        found = [
            (first + number, a)
            for number, a in enumerate(args)
            if a.operation is not None or a.group_name is not None
        ]
        if not found:
            return
        only = [a for _, a in found]
        table = {
            "rank": _constant(self._rank, len(found)),
            "event_id": pa.array([number for number, _ in found], pa.int32()),
            "operation": _strings([a.operation for a in only]),
            "group_name": _strings([a.group_name for a in only]),
            "group_description": _strings([a.group_description for a in only]),
            "group_size": _integers([a.group_size for a in only], pa.int32()),
            "group_ranks": _strings([a.group_ranks for a in only]),
            "seq": _integers([a.seq for a in only], pa.int64()),
            "in_elems": _integers([a.in_elems for a in only], pa.int64()),
            "out_elems": _integers([a.out_elems for a in only], pa.int64()),
            "dtype": _strings([a.dtype for a in only]),
            "src_rank": _integers([a.src_rank for a in only], pa.int32()),
            "dst_rank": _integers([a.dst_rank for a in only], pa.int32()),
        }
        self._writer.append("comm_args", pa.table(table))

    def _take_memory(self, events: list[Event]) -> None:
        events, times = self._timed(events)
        if not events:
            return
        args = [event.args or _NO_ARGS for event in events]
        count = len(events)
        first = self._memory_events
        self._memory_events += count
        table = {
            "rank": _constant(self._rank, count),
            "ts_ns": times,
            "ordinal": pa.array(range(first, first + count), pa.int32()),
            "device_type": _integers([a.device_type for a in args], pa.int32()),
            "device": _integers([a.device_id for a in args], pa.int32()),
            "address": _integers([_unsigned(a.address) for a in args], pa.uint64()),
            "bytes": _integers([a.memory_bytes for a in args], pa.int64()),
            "total_allocated": _integers([a.total_allocated for a in args], pa.int64()),
            "total_reserved": _integers([a.total_reserved for a in args], pa.int64()),
        }
        self._writer.append("memory_event", pa.table(table))

    def _take_flows(self, events: list[Event]) -> None:
        # Launch links also stand in correlation ids: only links that stand nowhere else are kept.
        kept, times = self._timed([event for event in events if event.cat == "fwdbwd"])
        if not kept:
            return
        table = {
            "rank": _constant(self._rank, len(kept)),
            "kind": _strings([event.cat for event in kept]),
            "flow_id": _integers([event.id for event in kept], pa.int64()),
            "is_start": pa.array([event.ph == "s" for event in kept], pa.bool_()),
            "ts_ns": times,
            "thread_id": pa.array([self._thread(event) for event in kept], pa.int32()),
        }
        self._writer.append("flow", pa.table(table))


def nanoseconds(raws: Sequence[msgspec.Raw]) -> pa.Array:
    """Microseconds as written (number or string, any number of decimals) to integer ns, exactly.

    Digits below a nanosecond are rounded half to even; what is missing, no number, or beyond
    what an int64 holds is null.
    """
    texts = pc.utf8_trim(
        pa.array([bytes(raw) or None for raw in raws], pa.binary()).cast(pa.string()),
        '" ',
    )
    try:
        exact = texts.cast(pa.decimal128(28, 3))
        found = pc.multiply(exact, pa.scalar(Decimal(1000))).cast(pa.decimal128(38, 0))
        return found.cast(pa.int64())
    except pa.ArrowInvalid:
        return pa.array([_exact(text) for text in texts.to_pylist()], pa.int64())


def _exact(text: str | None) -> int | None:
    try:
        found = Decimal(text or "").scaleb(3).to_integral_value(ROUND_HALF_EVEN)
        return int(found) if abs(found) < 1 << 63 else None
    except (InvalidOperation, ValueError, OverflowError):
        return None


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _constant(value: int, count: int) -> pa.Array:
    return pa.array([value] * count, pa.int32())


def _to_int(value: Any) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        try:
            return int(value, 0)
        except ValueError:
            return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _unsigned(value: Any) -> int | None:
    number = _to_int(value)
    return None if number is None else number & 0xFFFFFFFFFFFFFFFF


def _integers(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        limit = 2 ** (kind.bit_width - 1)
        numbers = (_to_int(value) for value in values)
        return pa.array([n if n is None or -limit <= n < limit else None for n in numbers], kind)


def _strings(values: list[Any]) -> pa.Array:
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _texts(values: list[msgspec.Raw]) -> pa.Array:
    return pa.array([bytes(raw).decode() if raw else None for raw in values], pa.string())
