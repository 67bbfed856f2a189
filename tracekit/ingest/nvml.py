"""Telemetry files into the store: GPUs, samples of them, and which rank runs on which.

All of it comes from outside: what cannot be true is left out and said, with the file's name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tracekit.ingest import devices, known_files
from tracekit.ingest.header import count
from tracekit.ingest.sources import Trace
from tracekit.ingest.telemetry_file import DamagedError, Reader
from tracekit.store import Writer
from tracekit.store.writer import as_map, storable
from tracekit_collectors.telemetry import FORMAT_VERSION, PROCESSES, VALUES

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST = (1 << 62) - 1
_ROWS_AT_ONCE = 50_000
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


def load_samples(writer: Writer, file: Trace) -> str | None:
    """Append the samples that a file holds; returns what is wrong with it, if anything.

    Of a run in progress the file has grown since it was read last: see :func:`drop_doubles`.
    """
    try:
        sha256, size = known_files.digest(file.path), file.path.stat().st_size
        if known_files.is_known(writer, sha256):
            return None
        reader = Reader(file.path)
    except (OSError, DamagedError) as error:
        return f"{file.shown}: cannot be read: {error}"
    kept = bad = 0
    problems = []
    try:
        for table in _tables(reader):
            good = table.filter(_possible(table))
            kept, bad = kept + good.num_rows, bad + table.num_rows - good.num_rows
            _append(writer, storable(reader.host), good)
    except DamagedError as error:
        problems.append(str(error))
    finally:
        reader.close()
    if bad:
        problems.append(f"{bad} samples that cannot be true are left out")
    # The file has another hash once it has grown: it is still one file.
    writer.execute("DELETE FROM file WHERE kind = 'nvml' AND path = $1", [storable(file.shown)])
    state = "partial" if problems else "whole"
    known_files.register(writer, file.shown, sha256, "nvml", size, events=kept, state=state)
    return f"{file.shown}: {'; '.join(problems)}" if problems else None


def _tables(reader: Reader) -> Iterator[pa.Table]:
    """What a file holds in tables that are worth a statement. What stands before a damage comes
    before its error."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    damage = None
    try:
        for batch in reader.batches():
            waiting.append(batch)
            if sum(part.num_rows for part in waiting) >= _ROWS_AT_ONCE:
                yield pa.Table.from_batches(waiting)
                waiting = []
    except DamagedError as error:
        damage = error
    if waiting:
        yield pa.Table.from_batches(waiting)
    if damage is not None:
        raise damage


def _possible(table: pa.Table) -> pa.ChunkedArray:
    """Which rows could be true: a GPU, a time, and no number below 0 or past all bounds."""
    import pyarrow.compute as pc

    mask = _within(table["gpu"], (1 << 31) - 1, null=False)
    for name, null in (("ts_ns", False), *((name, True) for name in VALUES)):
        mask = pc.and_(mask, _within(table[name], _LARGEST, null=null))
    return mask


def _within(column: pa.ChunkedArray, largest: int, *, null: bool) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    inside = pc.and_(pc.greater_equal(column, 0), pc.less_equal(column, largest))
    return pc.fill_null(inside, null)


def _append(writer: Writer, host: str, table: pa.Table) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not table.num_rows:
        return
    table = table.append_column("host", pa.repeat(host, table.num_rows))
    samples = table.drop_columns([PROCESSES])
    writer.append("nvml_sample", samples)
    lists = table[PROCESSES].combine_chunks()
    found = pa.Table.from_struct_array(pc.list_flatten(lists))
    owners = samples.select(["host", "gpu", "ts_ns"]).take(pc.list_parent_indices(lists))
    for name in ("pid", "used_bytes"):
        owners = owners.append_column(name, found[name])
    sound = pc.and_(
        _within(owners["pid"], _LARGEST, null=False),
        _within(owners["used_bytes"], _LARGEST, null=True),
    )
    writer.append("nvml_process", owners.filter(sound))


def drop_doubles(writer: Writer) -> None:
    """A sample is known by host, GPU and time: a file that grew was read again from its start."""
    for table, key in (
        ("nvml_sample", "host, gpu, ts_ns"),
        ("nvml_process", "host, gpu, ts_ns, pid"),
    ):
        writer.execute(
            f"DELETE FROM {table} WHERE rowid NOT IN "  # noqa: S608 - our names
            f"(SELECT min(rowid) FROM {table} GROUP BY {key})"
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
