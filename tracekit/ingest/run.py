"""Ingest a run: find its files, load each, derive what the analyzers read.

The database is whole or not there: see ``store.create``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import duckdb

from tracekit.errors import InputError, UsageError
from tracekit.ingest import clock, header, memory, nvml, sources
from tracekit.ingest.columns import Columns, Names
from tracekit.ingest.kineto import TraceFile, open_trace
from tracekit.store.store import Writer, create, refuse_to_replace, sql_file
from tracekit_collectors import records

Progress = Callable[[str, int], None]  # what was done, bytes on disk that it settles


@dataclass(slots=True)
class Summary:
    """What an ingest did."""

    ranks: list[int] = field(default_factory=list)
    events: int = 0
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Load:
    writer: Writer
    found: sources.Sources
    device: str | None
    summary: Summary
    names: Names = field(default_factory=Names)
    owners: dict[int, Path] = field(default_factory=dict)
    hashes: dict[Path, str] = field(default_factory=dict)
    files: int = 0


def ingest(
    paths: Sequence[Path],
    output: Path,
    *,
    device: str | None = None,
    force: bool = False,
    progress: Progress = lambda what, size: None,
) -> Summary:
    """Load all traces under ``paths`` into a new database.

    Args:
        paths: Trace files, folders of them, or run directories.
        output: The database to make.
        device: ``"cpu"`` or ``"cuda"`` for traces that do not say what they ran on: on the CPU,
            operators and the backend's own intervals are the work that is measured.
        force: Replace ``output`` if it exists.
        progress: Called after each file.

    Raises:
        InputError: no trace, an unreadable one, a rank that is unknown or that two files claim.
        UsageError: ``output`` exists and ``force`` is off.
        StoreError: the database cannot be written.
    """
    found = sources.find(paths)
    if output.exists() and not force:
        raise UsageError(f"{output}: exists; give --force to replace it")
    refuse_to_replace(output)
    summary = Summary()
    with create(output) as writer:
        load = _Load(writer, found, device, summary)
        for path in found.traces:
            progress(path.name, 0)
            _load_trace(load, path)
            progress(path.name, path.stat().st_size)
        writer.append("name", load.names.table())
        _load_run_files(load)
        _derive(writer)
    summary.ranks.sort()
    return summary


def sizes(paths: Sequence[Path]) -> int:
    """Bytes on disk of the traces under ``paths``, for a progress bar."""
    return sum(path.stat().st_size for path in sources.find(paths).traces)


def _load_trace(load: _Load, path: Path) -> None:
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    trace = open_trace(path)
    blocks = trace.blocks()
    first = next(blocks, [])  # the header of an unusual layout is known after the first block
    rank, manifest = _rank_of(load, path, trace)
    if rank in load.owners and load.hashes[load.owners[rank]] == content:
        load.summary.warnings.append(f"{path}: same content as {load.owners[rank]}, skipped")
        return
    if rank in load.owners:
        raise InputError(
            f"{path}: rank {rank} is also claimed by {load.owners[rank]}; "
            "give one run at a time, and one file of each rank"
        )
    load.owners[rank] = path
    load.hashes[path] = content
    columns = Columns(load.writer, load.names, rank, header.base_ns(trace.header))
    columns.take(first)
    for block in blocks:
        columns.take(block)
    columns.finish()
    header.insert_rank(load.writer, rank, trace.header, manifest, load.device)
    header.insert_groups(load.writer, rank, trace.header)
    if manifest is not None:
        try:
            _insert_manifest(load.writer, rank, manifest)
        except (AttributeError, TypeError, ValueError, duckdb.Error) as error:
            reason = " ".join(str(error).split())[:200]
            load.summary.warnings.append(f"rank {rank}: manifest used in part only: {reason}")
            load.writer.insert("note", [(rank, "problem", f"manifest: {reason}", "manifest")])
    _insert_file(load, path, content, rank, trace, columns)
    load.summary.ranks.append(rank)
    load.summary.events += columns.events


def _rank_of(load: _Load, path: Path, trace: TraceFile) -> tuple[int, records.RankManifest | None]:
    """Rank from the trace's own metadata, its manifest, its name; 0 for a file on its own."""
    manifest = next(
        (
            m
            for at, m in load.found.manifests.items()
            if m.trace == path.name and at.parent.resolve() == path.parent
        ),
        None,
    )
    stated = header.count(header.distributed(trace.header).get("rank"))
    if stated is not None:
        return stated, manifest
    if manifest is not None:
        return manifest.rank, manifest
    named = sources.rank_in_name(path)
    if named is not None:
        return named, None
    if len(load.found.traces) == 1:
        load.summary.warnings.append(f"{path}: no rank in it or in its name; taken as rank 0")
        return 0, None
    raise InputError(
        f"{path}: no rank in it or in its name; name the files rank0.json, rank1.json, ..."
    )


def _insert_manifest(writer: Writer, rank: int, manifest: records.RankManifest) -> None:
    source = "manifest"
    writer.insert(
        "note", [(rank, key, str(value), source) for key, value in manifest.notes.items()]
    )
    writer.insert("note", [(rank, "problem", problem, source) for problem in manifest.problems])
    writer.insert(
        "mesh", [(rank, item.dim, item.coord, item.size, item.ranks) for item in manifest.mesh]
    )
    memory.load(writer, rank, manifest)


def _insert_file(
    load: _Load, path: Path, content: str, rank: int, trace: TraceFile, columns: Columns
) -> None:
    number = load.files
    load.files += 1
    load.writer.insert(
        "file",
        [
            (
                number,
                str(path),
                content,
                "trace",
                path.stat().st_size,
                rank,
                trace.state,
                columns.events,
            )
        ],
    )
    rows = [(number, rank, d.kind, d.byte_offset, d.count, d.detail) for d in trace.damage]
    rows += [
        (number, rank, kind, None, count, "left out") for kind, count in columns.skipped.items()
    ]
    load.writer.insert("damage", rows)
    if rows:
        load.summary.warnings.append(
            f"{path}: rank {rank}: "
            + "; ".join(
                f"{kind} x{count}" + (f" at byte {at}" if at is not None else "")
                for _, _, kind, at, count, _ in rows[:3]
            )
            + ("; ..." if len(rows) > 3 else "")
        )


def _load_run_files(load: _Load) -> None:
    writer = load.writer
    for path, problem in load.found.problems:
        load.summary.warnings.append(f"{path}: {problem}")
    for path in load.found.run_files:
        try:
            run = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            load.summary.warnings.append(f"{path}: cannot be read: {error}")
            continue
        if isinstance(run, dict):
            writer.insert(
                "note",
                [
                    (None, key, value if isinstance(value, str) else json.dumps(value), path.name)
                    for key, value in run.items()
                    if value is not None
                ],
            )
    for manifest in load.found.manifests.values():
        if manifest.rank not in load.owners:
            load.summary.warnings.append(f"rank {manifest.rank}: no trace: {manifest.state}")
            writer.insert("note", [(manifest.rank, "no trace", manifest.state, "manifest")])
    for path in load.found.nvml:
        _, bad = nvml.load(writer, path)
        if bad:
            load.summary.warnings.append(f"{path}: {bad} lines cannot be read")


def _derive(writer: Writer) -> None:
    lines = sql_file("tracekit.ingest", "communication_names.txt").splitlines()
    pattern = "|".join(line for line in lines if line.strip() and not line.startswith("#"))
    writer.execute("CREATE TEMP TABLE _setting AS SELECT $1 AS communication_pattern", [pattern])
    scripts = resources.files("tracekit.ingest").joinpath("derive")
    for script in sorted(scripts.iterdir(), key=lambda item: item.name):
        if script.name.endswith(".sql"):
            writer.script(script.read_text(encoding="utf-8"))
    clock.align(writer)
