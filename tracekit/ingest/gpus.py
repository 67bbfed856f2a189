"""The GPUs of the nodes into the store, and which rank runs on which.

All of it comes from outside: a fact that cannot be true is left out.
"""

from __future__ import annotations

import json
from typing import Any

from tracekit.ingest import devices, known_files
from tracekit.ingest.header import count
from tracekit.ingest.sources import Trace
from tracekit.store import Writer
from tracekit.store.writer import as_map, storable
from tracekit_collectors.telemetry import FORMAT_VERSION

_LARGEST = (1 << 62) - 1
_UNKNOWN_GPU = "GPU unknown"


def load_facts(writer: Writer, file: Trace, warnings: list[str]) -> None:
    """The GPUs of a node; what a later wrapper said of the same node counts."""
    with known_files.new_file(writer, file.path, file.shown, "gpus", warnings) as data:
        if data is None:
            return
        said = json.loads(data)
        if not isinstance(said, dict) or said.get("format") != FORMAT_VERSION:
            raise ValueError(f"not the GPUs of a node, format {FORMAT_VERSION}")
        host, began_ns = said.get("host"), count(said.get("start_ns"), _LARGEST)
        if not isinstance(host, str) or began_ns is None:
            raise ValueError("it does not say of which host, or when")
        host = storable(host)
        latest = writer.scalar("SELECT max(start_ns) FROM gpu WHERE host = $1", [host])
        if latest is not None and latest > began_ns:
            return
        listed = said.get("gpus")
        rows = {}
        for gpu in listed if isinstance(listed, list) else []:
            number = count(gpu.get("gpu")) if isinstance(gpu, dict) else None
            if number is not None:
                rows[number] = _gpu_row(host, began_ns, number, {**said, **gpu})
        writer.execute("DELETE FROM gpu WHERE host = $1", [host])
        writer.insert("gpu", list(rows.values()))


def _gpu_row(host: str, began_ns: int, number: int, said: dict[str, Any]) -> tuple[Any, ...]:
    """In the order of the table's columns."""

    def text(name: str) -> str | None:
        return said[name] if isinstance(said.get(name), str) else None

    reasons = said.get("unsupported")
    why = {
        str(column): reason
        for column, reason in (reasons.items() if isinstance(reasons, dict) else ())
        if isinstance(reason, str)
    }
    return (
        host,
        number,
        text("uuid"),
        text("pci_bus_id"),
        text("name"),
        count(said.get("memory_bytes"), _LARGEST),
        count(said.get("sm_clock_max_mhz")),
        text("driver"),
        said.get("is_divided") if isinstance(said.get("is_divided"), bool) else None,
        *(count(said.get(name)) for name in ("parent", "mig", "gpu_instance", "compute_instance")),
        began_ns,
        count(said.get("interval_ns"), _LARGEST),
        count(said.get("lost_ns"), _LARGEST),
        text("lost_reason"),
        as_map({key: storable(value) for key, value in why.items()}),
    )


def assign_gpus(writer: Writer) -> None:
    """Say of each rank which GPU of its host it runs on, or in a note why that is not known."""
    writer.execute("DELETE FROM note WHERE key = $1 AND source = 'ingest'", [_UNKNOWN_GPU])
    for (host,) in writer.rows("SELECT DISTINCT host FROM gpu ORDER BY host"):
        gpus = [
            devices.Gpu(*row)
            for row in writer.rows(
                "SELECT gpu, uuid, pci_bus_id, name, coalesce(is_divided, false), parent, "
                "gpu_instance, compute_instance FROM gpu WHERE host = $1 ORDER BY gpu",
                [host],
            )
        ]
        ranks = "SELECT rank, device_said FROM rank WHERE host = $1 AND device_kind = 'cuda'"
        for rank, said in writer.rows(f"{ranks} ORDER BY rank", [host]):
            try:
                gpu = devices.gpu_of(_place(said), gpus)
                writer.execute("UPDATE rank SET gpu = $1 WHERE rank = $2", [gpu, rank])
            except devices.UnknownError as error:
                writer.insert("note", [(rank, _UNKNOWN_GPU, str(error), "ingest")])


def _place(said: str | None) -> devices.Place:
    """What a rank says of its device, as ``header.rank_row`` kept it."""
    return devices.Place(**json.loads(said)) if said else devices.Place()
