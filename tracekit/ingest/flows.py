"""Flows from a launch to its work, of one file: which of them say more than the events do."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tracekit.store import Writer

_LAUNCH_FLOWS = ["ac2g", "async_cpu_to_gpu"]
_MOST_OPEN = 1 << 19
_MIX = -7046029254386353131  # odd, and its bits look like chance (2^64 divided by the golden ratio)


class Flows:
    """Keeps what stands nowhere else. An end of a launch flow stands at the beginning of an event;
    where that event carries the id as its correlation, the end says nothing more."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._known: list[pa.Array] = []  # places of events with a correlation, of each batch
        self._open: list[pa.Table] = []  # ends whose events were not seen yet

    def see(self, correlations: pa.Array, threads: pa.Array, times: pa.Array) -> None:
        """The events of a batch; its flows come after them."""
        self._known.append(_places(correlations, threads, times).drop_null().unique())

    def take(self, flows: pa.Table) -> None:
        """Flows as the table of the store has them."""
        launches = pc.is_in(flows["kind"], value_set=pa.array(_LAUNCH_FLOWS))
        self._writer.append("flow", flows.filter(pc.invert(launches)))
        left = self._unknown(flows.filter(launches), self._known[-1:])
        if len(left):
            self._open.append(left)
        if sum(len(each) for each in self._open) > _MOST_OPEN:
            self.finish()

    def finish(self) -> None:
        """Append what is open still."""
        for flows in self._open:
            self._writer.append("flow", self._unknown(flows, self._known))
        self._open.clear()

    def _unknown(self, flows: pa.Table, known: list[pa.Array]) -> pa.Table:
        if not len(flows) or not known:
            return flows
        places = _places(flows["flow_id"], flows["thread_id"], flows["ts_ns"])
        return flows.filter(pc.invert(pc.is_in(places, value_set=pa.chunked_array(known))))


def _places(ids: pa.Array, threads: pa.Array, times: pa.Array) -> pa.Array:
    """Id, thread and time as one number of 64 bits, in which they are mixed."""
    mixed = pc.add(pc.multiply(ids, _MIX), times)
    return pc.add(pc.multiply(mixed, _MIX), threads.cast(pa.int64()))
