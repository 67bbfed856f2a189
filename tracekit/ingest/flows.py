"""Flows from a launch to its work, of one file: which of them say more than the events do."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tracekit.store import Writer

_LAUNCH_FLOWS = ["ac2g", "async_cpu_to_gpu"]
_MOST_OPEN = 1 << 19


class Flows:
    """Keeps what stands nowhere else: the ends of a launch flow are events of its id, so it is a
    link already wherever they carry that id as their correlation."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._correlations: list[pa.Array] = []  # distinct ones of each batch
        self._open: list[pa.Table] = []  # launches whose events were not seen yet

    def see(self, correlations: pa.Array) -> None:
        """Events that came before the flows of the same batch."""
        self._correlations.append(correlations.drop_null().unique())

    def take(self, flows: pa.Table) -> None:
        """Flows as the table of the store has them."""
        launches = pc.is_in(flows["kind"], value_set=pa.array(_LAUNCH_FLOWS))
        self._writer.append("flow", flows.filter(pc.invert(launches)))
        left = self._unknown(flows.filter(launches), self._correlations[-1:])
        left = self._unknown(left, self._correlations[:-1])
        if len(left):
            self._open.append(left)
        if sum(len(each) for each in self._open) > _MOST_OPEN:
            self.finish()

    def finish(self) -> None:
        """Append what is open still."""
        for flows in self._open:
            self._writer.append("flow", self._unknown(flows, self._correlations))
        self._open.clear()

    def _unknown(self, flows: pa.Table, correlations: list[pa.Array]) -> pa.Table:
        if not len(flows) or not correlations:
            return flows
        known = pa.chunked_array(correlations)
        return flows.filter(pc.invert(pc.is_in(flows["flow_id"], value_set=known)))
