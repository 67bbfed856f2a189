"""Batches of a reader process into the tables of the store, for one file.

A batch numbers its strings, threads and tracks as the file does; here they get the numbers that the
whole run uses, and the times their base. Nothing is decided about what the events mean.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tracekit.ingest import batch, text
from tracekit.ingest.flows import Flows
from tracekit.ingest.ownership import Span
from tracekit.ingest.pools import Numbers, Pools
from tracekit.ingest.rank_state import RankState
from tracekit.ingest.workers import Frame
from tracekit.store import Writer

_DAY_NS = 86_400_000_000_000
# Tables with times, and which of their rows are of a file.
_OF_FILE = {
    "slice": "track_id IN (SELECT track_id FROM track WHERE file_id = $2)",
    "memory_event": "file_id = $2",
    "flow": "file_id = $2",
}


class Intake:
    """Appends the batches of one file to the store."""

    def __init__(
        self,
        writer: Writer,
        numbers: Numbers,
        state: RankState,
        file_id: int,
        base_ns: int,
    ) -> None:
        self._writer = writer
        self._pools = Pools(numbers, state, file_id)
        self._state = state
        self._file_id = file_id
        self._base_ns = base_ns
        self._flows = Flows(writer)
        self.events = 0
        self.span: Span | None = None
        self.is_wide = False

    def take(self, frame: Frame) -> None:
        """Append one batch."""
        columns, strings, args = batch.unpacked(frame)
        for pool, first, buffers in strings:
            self._pools.take(pool, first, *buffers)
        first_event = self._state.events
        if "event" in columns:
            self._take_events(columns["event"])
        if "detail" in columns:
            self._take_details(columns["detail"], first_event)
        if "comm" in columns:
            self._take_comm(columns["comm"], first_event)
        if "python" in columns:
            self._take_python(columns["python"], first_event)
        if "args" in columns:
            self._take_args(columns["args"], args, first_event)
        if "memory" in columns:
            self._take_memory(columns["memory"])
        if "flow" in columns:
            self._take_flows(columns["flow"])
        if "meta" in columns:
            self._take_meta(columns["meta"])

    def _take_events(self, found: dict[str, pa.Array]) -> None:
        count = len(found["ts"])
        times = pc.add(found["ts"], self._base_ns)
        tracks, threads = self._pools.tracks_of(found["track"])
        table = {
            "track_id": tracks,
            "event_id": pc.add(found["id"], pa.scalar(self._state.events, pa.int32())),
            "name_id": self._pools.names_of(found["name"]),
            "ts_ns": times,
            "dur_ns": found["dur"],
            "correlation": found["correlation"],
            "external_id": found["external"],
        }
        self._writer.append("slice", pa.table(table))
        self._state.events += count
        self.events += count
        self._flows.see(found["correlation"], threads, times)
        self._widen(pc.min(times).as_py(), pc.max(pc.add(times, found["dur"])).as_py())

    def _take_details(self, found: dict[str, pa.Array], first: int) -> None:
        table = {
            "rank": self._ranks(len(found["row"])),
            "event_id": pc.add(found["row"], pa.scalar(first, pa.int32())),
            "bytes": found["bytes"],
            "signature_id": self._pools.signatures_of(found["signature"]),
            "sequence": found["sequence"],
            "forward_thread": found["forward_thread"],
        }
        self._writer.append("event_detail", pa.table(table))

    def _take_comm(self, found: dict[str, pa.Array], first: int) -> None:
        texts_of = self._pools.texts_of
        table = {
            "rank": self._ranks(len(found["row"])),
            "event_id": pc.add(found["row"], pa.scalar(first, pa.int32())),
            "operation": texts_of(found["operation"]),
            "group_name": texts_of(found["group"]),
            "group_description": texts_of(found["description"]),
            "group_size": found["group_size"],
            "group_ranks": texts_of(found["ranks"]),
            "seq": found["seq"],
            "in_elems": found["in_elems"],
            "out_elems": found["out_elems"],
            "dtype": texts_of(found["dtype"]),
            "src_rank": found["src"],
            "dst_rank": found["dst"],
        }
        self._writer.append("comm_args", pa.table(table))

    def _take_python(self, found: dict[str, pa.Array], first: int) -> None:
        table = {
            "rank": self._ranks(len(found["row"])),
            "event_id": pc.add(found["row"], pa.scalar(first, pa.int32())),
            "python_id": found["id"],
            "parent_id": found["parent"],
            "module_id": found["module"],
        }
        self._writer.append("python_call", pa.table(table))

    def _take_args(self, found: dict[str, pa.Array], data: text.Buffer, first: int) -> None:
        kept = bytes(data)
        pairs = zip(found["start"].to_pylist(), found["end"].to_pylist(), strict=True)
        table = {
            "rank": self._ranks(len(found["row"])),
            "event_id": pc.add(found["row"], pa.scalar(first, pa.int32())),
            "args": pa.array([text.json_text(kept[a:b]) for a, b in pairs], pa.string()),
        }
        self._writer.append("event_args", pa.table(table))

    def _take_memory(self, found: dict[str, pa.Array]) -> None:
        count = len(found["ts"])
        times = pc.add(found["ts"], self._base_ns)
        table = {
            "rank": self._ranks(count),
            "file_id": pa.repeat(pa.scalar(self._file_id, pa.int32()), count),
            "ts_ns": times,
            "ordinal": batch.numbers(self._state.memory_events, count),
            "device_type": found["device_type"],
            "device": found["device"],
            "address": found["address"].view(pa.uint64()),
            "bytes": found["bytes"],
            "total_allocated": found["allocated"],
            "total_reserved": found["reserved"],
        }
        self._writer.append("memory_event", pa.table(table))
        self._state.memory_events += count
        self._widen(pc.min(times).as_py(), pc.max(times).as_py())

    def _take_flows(self, found: dict[str, pa.Array]) -> None:
        kinds = self._pools.categories_of(found["category"])
        flows = pa.table(
            {
                "rank": self._ranks(len(kinds)),
                "file_id": pa.repeat(pa.scalar(self._file_id, pa.int32()), len(kinds)),
                "kind": pc.fill_null(kinds, ""),
                "flow_id": found["id"],
                "is_start": pc.equal(found["is_start"], 1),
                "ts_ns": pc.add(found["ts"], self._base_ns),
                "thread_id": self._pools.threads_of(found["thread"]),
            }
        )
        self._flows.take(flows)

    def finish(self, base_ns: int) -> None:
        """Append what waited for the rest of the file, and set all times to the base of it, which
        may stand behind the events."""
        self._flows.finish()
        shift = base_ns - self._base_ns
        for table, condition in _OF_FILE.items() if shift else ():
            sql = f"UPDATE {table} SET ts_ns = ts_ns + $1 WHERE {condition}"  # noqa: S608 - ours
            self._writer.execute(sql, [shift, self._file_id])
        if self.span is not None:
            self.span = Span(self.span.start_ns + shift, self.span.end_ns + shift)
            self._leave_out_lost_times()

    def _leave_out_lost_times(self) -> None:
        """What lies more than a day from the middle of the file has lost its time: it is not of the
        span."""
        assert self.span is not None
        self.is_wide = self.span.end_ns - self.span.start_ns > _DAY_NS
        if not self.is_wide:
            return
        sql = """
            WITH _times AS (
                SELECT ts_ns, ts_ns + dur_ns AS end_ns FROM event WHERE file_id = $1
                UNION ALL SELECT ts_ns, ts_ns FROM memory_event WHERE file_id = $1
            ),
            _middle AS (SELECT quantile_disc(ts_ns, 0.51) AS middle_ns FROM _times)
            SELECT min(ts_ns), max(end_ns) FROM _times, _middle
            WHERE greatest(abs(ts_ns::HUGEINT - middle_ns), abs(end_ns::HUGEINT - middle_ns)) <= $2
        """
        start_ns, end_ns = self._writer.rows(sql, [self._file_id, _DAY_NS])[0]
        if start_ns is not None:
            self.span = Span(start_ns, end_ns)

    def _take_meta(self, found: dict[str, pa.Array]) -> None:
        texts = self._pools.texts
        for what, thread, name in zip(
            found["what"].to_pylist(),
            found["thread"].to_pylist(),
            found["text"].to_pylist(),
            strict=True,
        ):
            if texts[what] == "thread_name" and name is not None:
                self._state.thread_names[self._pools.threads[thread]] = texts[name]

    def _ranks(self, count: int) -> pa.Array:
        return pa.repeat(pa.scalar(self._state.rank, pa.int32()), count)

    def _widen(self, start_ns: int, end_ns: int) -> None:
        if self.span is None:
            self.span = Span(start_ns, end_ns)
        else:
            self.span.start_ns = min(self.span.start_ns, start_ns)
            self.span.end_ns = max(self.span.end_ns, end_ns)
