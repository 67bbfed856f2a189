"""What a rank's manifest says of its memory, into the store."""

from __future__ import annotations

from tracekit.store import Writer
from tracekit_collectors import records


def load(writer: Writer, rank: int, manifest: records.RankManifest) -> None:
    """Append model state, gathered parameters and gradient storage of a rank."""
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
