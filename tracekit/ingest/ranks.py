"""What stands beside the traces of a run: ranks, manifests, notes and telemetry, into the store."""

from __future__ import annotations

import json
from typing import Any

import duckdb

from tracekit.ingest import gpus, header, memory, nvml, sources
from tracekit.ingest.known_files import new_file
from tracekit.ingest.loading import Loader
from tracekit.ingest.rank_state import RankState
from tracekit.store import Writer
from tracekit.store.writer import storable
from tracekit_collectors import records

_NO_TRACE = "no trace"


def insert_ranks(writer: Writer, loader: Loader, device: str | None) -> None:
    """The ranks that an ingest added, with their threads and groups."""
    known = {rank for (rank,) in writer.rows("SELECT rank FROM rank")}
    grouped = {rank for (rank,) in writer.rows("SELECT DISTINCT rank FROM process_group")}
    for state in loader.ranks.values():
        new = list(state.threads)[state.first_thread :]
        writer.add(
            "thread",
            [
                (state.rank, number, pid, tid, state.thread_names.get(number), False)
                for number, (pid, tid) in enumerate(new, start=state.first_thread)
            ],
        )
        captures = [c for c in loader.captures if c.rank == state.rank]
        merged: dict[str, Any] = {}
        for capture in captures:  # what the first file says counts; an empty one says nothing
            merged = capture.header | merged
        manifest = next((c.manifest for c in captures if c.manifest is not None), None)
        row = header.rank_row(state.rank, merged, manifest, device)
        if state.rank in known:
            header.complete_rank(writer, row)
            _name_threads(writer, state)
        else:
            header.insert_rank(writer, row)
        if state.rank not in grouped:
            header.insert_groups(writer, state.rank, merged)
        if state.rank not in known and manifest is not None:
            _insert_manifest(writer, loader, state.rank, manifest)


def _name_threads(writer: Writer, state: RankState) -> None:
    """Names of threads that an earlier ingest knew by number only."""
    for number, name in state.thread_names.items():
        if number < state.first_thread:
            sql = "UPDATE thread SET name = $1 WHERE rank = $2 AND thread_id = $3 AND name IS NULL"
            writer.execute(sql, [storable(name), state.rank, number])


def _insert_manifest(
    writer: Writer, loader: Loader, rank: int, manifest: records.RankManifest
) -> None:
    notes = [(rank, key, str(value), "manifest") for key, value in manifest.notes.items()]
    notes += [(rank, "problem", problem, "manifest") for problem in manifest.problems]
    try:
        writer.insert("note", notes)
        writer.insert(
            "mesh", [(rank, item.dim, item.coord, item.size, item.ranks) for item in manifest.mesh]
        )
        memory.load(writer, rank, manifest)
    except (AttributeError, TypeError, ValueError, duckdb.Error) as error:
        reason = " ".join(str(error).split())[:200]
        loader.warnings.append(f"rank {rank}: manifest used in part only: {reason}")
        writer.insert("note", [(rank, "problem", f"manifest: {reason}", "manifest")])


def load_run_files(writer: Writer, found: sources.Sources, loader: Loader) -> None:
    """Notes on the run, manifests of ranks without a trace, and telemetry.

    What the database holds already is left as it is.
    """
    warnings = loader.warnings
    for shown, problem in found.problems:
        warnings.append(f"{shown}: {problem}")
        loader.damaged.append(warnings[-1])
        if not writer.scalar("SELECT count(*) FROM note WHERE value = $1", [storable(problem)]):
            writer.insert("note", [(None, "problem", problem, shown)])
    if found.passed_over:
        more = f" and {len(found.passed_over) - 1} more" if found.passed_over[1:] else ""
        warnings.append(f"{found.passed_over[0]}{more}: not a trace: passed over")
    for path in found.run_files:
        with new_file(writer, path, str(path), "run", warnings) as data:
            notes = _notes(json.loads(data), path.name) if data is not None else []
            # A run that was still going on when it was read before has said a part of them.
            sql = "SELECT rank, key, value, source FROM note WHERE rank IS NULL"
            before = writer.rows(sql)
            writer.insert("note", [note for note in notes if note not in before])
    writer.execute(
        "DELETE FROM note WHERE key = $1 AND rank IN (SELECT rank FROM rank)", [_NO_TRACE]
    )
    owned = {rank for (rank,) in writer.rows("SELECT rank FROM rank")}
    said = {rank for (rank,) in writer.rows("SELECT rank FROM note WHERE key = $1", [_NO_TRACE])}
    for manifest in found.manifests.values():
        if manifest.rank not in owned:
            warnings.append(f"rank {manifest.rank}: no trace: {manifest.state}")
            if manifest.rank not in said:
                row = (manifest.rank, _NO_TRACE, manifest.state, "manifest")
                writer.insert("note", [row])
    for file in found.gpus:
        gpus.load_facts(writer, file, warnings)
    for file in found.samples:
        if wrong := nvml.load_samples(writer, file):
            warnings.append(wrong)
            loader.damaged.append(wrong)
    if found.samples:
        nvml.drop_doubles(writer)
    gpus.assign_gpus(writer)


def _notes(run: Any, source: str) -> list[tuple[None, str, str, str]]:
    if not isinstance(run, dict):
        return []
    return [
        (None, key, value if isinstance(value, str) else json.dumps(value), source)
        for key, value in run.items()
        if value is not None
    ]
