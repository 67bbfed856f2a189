"""What a rank's manifest says of its memory, into the store."""

from __future__ import annotations

from typing import Any

from tracekit.ingest.header import count
from tracekit.store import Writer
from tracekit_collectors import records

_MOST = (1 << 62) - 1


def load(writer: Writer, rank: int, manifest: records.RankManifest) -> None:
    """Append model state, gathered parameters, gradient storage and step peaks of a rank."""
    writer.insert(
        "model_state",
        [(rank, s.moment, s.category, s.dtype, s.elements, s.bytes) for s in manifest.model_state],
    )
    writer.insert("state_change", [(rank, "gathered", at, live) for at, live in manifest.gathered])
    writer.insert(
        "grad_storage",
        [
            (rank, int(step), address, size)
            for step, storages in manifest.grads.items()
            for address, size in storages
        ],
    )
    writer.insert(
        "memory_peak", [row for window in manifest.windows for row in _peaks(rank, window)]
    )


def _peaks(rank: int, window: records.WindowRecord) -> list[tuple[Any, ...]]:
    """Rows of memory_peak: what torch counted in each step of a window."""
    rows = []
    for step, said in window.peaks.items():
        allocated, reserved = (
            count(said.get("allocated"), _MOST),
            count(said.get("reserved"), _MOST),
        )
        missing = said.get("missing")
        if missing is None and None in (allocated, reserved):
            missing = "the manifest does not tell it"
        counted = (None, None, None, allocated, reserved, None, None)
        why = None if missing is None else str(missing)
        rows.append((rank, "counter", None, None, int(step), *counted, why))
    return rows
