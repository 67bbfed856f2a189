"""What the header of a trace says of its rank: place, device, process groups, clock base.

Headers come from outside: a value that is not what it should be is left out, never an error.
"""

from __future__ import annotations

import json
from typing import Any

from tracekit.store import Writer
from tracekit.store.writer import storable
from tracekit_collectors import records

_LARGEST_BASE_NS = (3 << 60) - 1  # with a time and a duration below 2^63: see scan.h


def base_ns(header: dict[str, Any]) -> int:
    """The base that times are relative to; one that no clock shows is none."""
    return count(header.get("baseTimeNanoseconds"), _LARGEST_BASE_NS) or 0


def count(value: Any, largest: int = 2**31 - 1) -> int | None:
    """A whole number as headers write it, perhaps in quotes; None for what is none."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:20])
    ok = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest
    return value if ok else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def distributed(header: dict[str, Any]) -> dict[str, Any]:
    """The header's account of torch.distributed; empty where it has none."""
    info = header.get("distributedInfo")
    return info if isinstance(info, dict) else {}


def insert_rank(writer: Writer, row: dict[str, Any]) -> None:
    """The row of a rank that is new: see :func:`rank_row`."""
    columns, marks = ", ".join(row), ", ".join(f"${name}" for name in row)
    said = {name: storable(value) for name, value in row.items()}
    writer.execute(f"INSERT INTO rank ({columns}) VALUES ({marks})", said)  # noqa: S608 - our names


def complete_rank(writer: Writer, row: dict[str, Any]) -> None:
    """What a later capture of a rank says, where the earlier ones said nothing."""
    said = {name: storable(value) for name, value in row.items() if value is not None}
    columns = ", ".join(f"{name} = coalesce({name}, ${name})" for name in said)
    writer.execute(f"UPDATE rank SET {columns} WHERE rank = $rank", said)  # noqa: S608 - our names


def rank_row(
    rank: int,
    header: dict[str, Any],
    manifest: records.RankManifest | None,
    device_kind: str | None,
) -> dict[str, Any]:
    """A rank by the columns of its table; where the trace says nothing, its manifest does, else
    ``device_kind``."""
    info = distributed(header)
    world = count(info.get("world_size"))
    devices = header.get("deviceProperties")
    host = header.get("host_name") or (manifest.host if manifest else None)
    device = devices[0] if isinstance(devices, list) and devices else {}
    device = device if isinstance(device, dict) else {}
    pipeline = manifest.pipeline if manifest and isinstance(manifest.pipeline, dict) else {}
    return {
        "rank": rank,
        "world_size": world if world is not None else (manifest.world_size if manifest else None),
        "host": host if isinstance(host, str) else None,
        "local_rank": manifest.local_rank if manifest else None,
        "pid": manifest.pid if manifest else None,
        "backend": _text(info.get("backend")),
        "device_kind": manifest.device_kind if manifest else device_kind,
        "device_name": (manifest.device_name if manifest else None) or _text(device.get("name")),
        "device_bytes": (manifest.device_bytes if manifest else None)
        or count(device.get("totalGlobalMem"), 1 << 62),
        "device_said": _device_said(manifest) if manifest else None,
        "evidence": "none",
        "schedule": _text(pipeline.get("schedule")),
        "stages": count(pipeline.get("stages")),
        "microbatches": count(pipeline.get("microbatches")),
        "capture_state": manifest.state if manifest else None,
        "cut_step": count(manifest.cut_step) if manifest else None,
    }


def _device_said(manifest: records.RankManifest) -> str | None:
    """By the fields of ``devices.Place``, JSON; None where the manifest says nothing."""
    said = {
        "index": count(manifest.device_index),
        "uuid": _text(manifest.device_uuid),
        "pci": _text(manifest.device_pci),
        "visible": _text(manifest.visible_devices),
        "order": _text(manifest.device_order),
    }
    return json.dumps(said) if any(value is not None for value in said.values()) else None


def insert_groups(writer: Writer, rank: int, header: dict[str, Any]) -> None:
    """The process groups that a rank's file lists."""
    groups = distributed(header).get("pg_config")
    rows: dict[str, tuple[Any, ...]] = {}  # a group listed twice is one group
    for group in groups if isinstance(groups, list) else []:
        if not isinstance(group, dict) or "pg_name" not in group:
            continue
        listed = group.get("ranks")
        ranks = [r for r in listed if count(r) == r] if isinstance(listed, list) else []
        size = count(group.get("pg_size"))
        description = group.get("pg_desc")
        name = str(group["pg_name"])
        rows[name] = (
            rank,
            name,
            None if description in (None, "undefined") else str(description),
            size if size is not None else len(ranks) or None,
            ranks,
            bool(ranks) and size in (None, len(ranks)),
            None,
        )
    writer.insert("process_group", list(rows.values()))
