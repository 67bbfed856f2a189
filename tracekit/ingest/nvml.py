"""Samples of telemetry into the store.

All of it comes from outside: what cannot be true is left out and said, with the file's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tracekit.ingest import known_files
from tracekit.ingest.sources import Trace
from tracekit.ingest.telemetry_file import DamagedError, Reader
from tracekit.store import Writer
from tracekit.store.writer import storable
from tracekit_collectors.telemetry import PROCESSES, VALUES

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST = (1 << 62) - 1
_ROWS_AT_ONCE = 50_000


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
