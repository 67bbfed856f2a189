"""Ingest a run: find its files, load each, derive what the analyzers read.

The database is whole or not there: see ``store.create``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from tracekit.errors import DamageError, UsageError
from tracekit.ingest import clock, sources
from tracekit.ingest.limits import Limits
from tracekit.ingest.loading import Loader, Progress
from tracekit.ingest.ownership import Capture, Span
from tracekit.ingest.ranks import insert_ranks, load_run_files
from tracekit.ingest.snapshots import Snapshots
from tracekit.ingest.workers import Workers
from tracekit.store import Writer
from tracekit.store.building import scratch_folder
from tracekit.store.store import create, refuse_to_replace, sql_file

_A_DAY_NS = 86_400 * 10**9
# Ranks of one run are captured at its same steps, or as late as a run that started again.
_A_RUN_NS = 3 * _A_DAY_NS


@dataclass(slots=True)
class Summary:
    """What an ingest did."""

    ranks: list[int] = field(default_factory=list)
    events: int = 0
    warnings: list[str] = field(default_factory=list)


def ingest(
    paths: Sequence[Path],
    output: Path,
    *,
    device: str | None = None,
    force: bool = False,
    append: bool = False,
    jobs: int | None = None,
    memory_limit: int | None = None,
    rank_map: Path | None = None,
    strict: bool = False,
    keep_args: bool = False,
    progress: Progress = lambda at: None,
) -> Summary:
    """Load all traces under ``paths`` into a database.

    Args:
        paths: Trace files, folders of them, patterns, archives, or run directories.
        output: The database to make.
        device: ``"cpu"`` or ``"cuda"`` for traces that do not say what they ran on: on the CPU,
            operators and the backend's own intervals are the work that is measured.
        force: Replace ``output`` if it exists.
        append: Add to ``output`` if it exists.
        jobs: Files that are read at once; as many as there are cores.
        memory_limit: Bytes that all processes together may take; 2 GiB.
        rank_map: A file that says which rank each file is of.
        strict: Any damage is an error, and nothing is written.
        keep_args: Keep all arguments of all events as JSON.
        progress: Called as the files are read.

    Raises:
        InputError: no trace, an unreadable one, a rank that is unknown or that two files claim.
        DamageError: a damaged file, where ``strict``.
        UsageError: ``output`` exists and neither ``force`` nor ``append`` is on; options that do
            not fit together.
        StoreError: the database cannot be read or written.
    """
    _check_output(output, force=force, append=append)
    given = sources.RankMap(rank_map) if rank_map else None
    base = output if append and output.exists() else None
    with scratch_folder(output) as scratch:
        found = sources.find(paths, scratch)
        snapshots = Snapshots(found)
        limits = Limits.of(
            jobs, memory_limit, files=len(found.traces), snapshots=bool(found.snapshots)
        )
        files = [trace.path for trace in found.traces]
        with (
            # They start while the database is made.
            Workers(files, jobs=limits.jobs, keep_args=keep_args, rows=limits.rows) as workers,
            create(output, base=base, memory_limit=limits.store_bytes) as writer,
        ):
            loader = Loader(writer, found, given, _before(writer), progress)
            loader.load(workers)
            workers.stop()
            snapshots.claim(loader)
            loader.warnings += given.unused() if given else []
            insert_ranks(writer, loader, device)
            load_run_files(writer, found, loader)
            snapshots.load(writer, loader, most_bytes=limits.snapshot_bytes // 2)
            _derive(writer)
            derived = _found_wrong(writer, list(loader.ranks))
            loader.warnings += derived + _strangers(writer)
            if strict:
                _refuse(loader.damaged + derived)
            ranks = [rank for (rank,) in writer.rows("SELECT rank FROM rank ORDER BY rank")]
    return Summary(ranks, loader.events, loader.warnings)


def _refuse(damaged: list[str]) -> None:
    if damaged:
        more = f" (and {len(damaged) - 1} more)" if damaged[1:] else ""
        raise DamageError(f"{damaged[0]}{more}; --strict: nothing was written")


def _check_output(output: Path, *, force: bool, append: bool) -> None:
    if force and append:
        raise UsageError("--force replaces the database and --append adds to it: give one of them")
    if output.is_dir():
        raise UsageError(f"{output}: is a folder; give the database a name in it")
    refuse_to_replace(output)
    if output.exists() and not (force or append):
        raise UsageError(f"{output}: exists; give --force to replace it, or --append to add to it")


def _before(writer: Writer) -> list[Capture]:
    """The files that the database holds already."""
    rows = writer.rows("SELECT file_id, path, sha256, rank, start_ns, end_ns FROM file")
    return [
        Capture(number, path, sha256, rank, {}, span=None if start is None else Span(start, end))
        for number, path, sha256, rank, start, end in rows
    ]


def _found_wrong(writer: Writer, ranks: list[int]) -> list[str]:
    """What the derivation found to be wrong with the events of some ranks, a line each."""
    return [
        f"rank {rank}: {count} {kind}: {detail}"
        for rank, kind, count, detail in writer.rows(
            "SELECT rank, kind, count, detail FROM damage "
            "WHERE file_id IS NULL AND severity = 'damage' AND list_contains($1, rank) "
            "ORDER BY rank, kind",
            [ranks],
        )
    ]


def _strangers(writer: Writer) -> list[str]:
    """Ranks that can hardly be of one run: nothing forbids them, and no figure of both is true."""
    said = []
    sizes = writer.rows(
        "SELECT world_size, min(rank) FROM rank WHERE world_size IS NOT NULL GROUP BY 1 ORDER BY 2"
    )
    if len(sizes) > 1:
        parts = ", ".join(f"{size} says rank {rank}" for size, rank in sizes)
        said.append(f"ranks of different runs? the world size is {parts}")
    spans = writer.rows(
        "SELECT rank, min(start_ns), max(end_ns) FROM file WHERE start_ns IS NOT NULL "
        "GROUP BY rank ORDER BY 2"
    )
    if spans and spans[-1][1] - min(end for _, _, end in spans) > _A_RUN_NS:
        days = (spans[-1][1] - spans[0][1]) // _A_DAY_NS
        said.append(
            f"ranks of different runs? rank {spans[-1][0]} was captured {days} days after "
            f"rank {spans[0][0]}"
        )
    return said


def _derive(writer: Writer) -> None:
    lines = sql_file("tracekit.ingest", "communication_names.txt").splitlines()
    pattern = "|".join(line for line in lines if line.strip() and not line.startswith("#"))
    # A variable and no column: the pattern is compiled once, and not for each name.
    writer.execute("SET VARIABLE communication_pattern = $1", [pattern])
    scripts = resources.files("tracekit.ingest").joinpath("derive")
    for script in sorted(scripts.iterdir(), key=lambda item: item.name):
        if script.name.endswith(".sql"):
            sql = script.read_text(encoding="utf-8")
            head, _, condition = sql.partition("\n")[0].partition("-- Only where ")
            if head or not condition or writer.scalar(f"SELECT {condition}"):
                writer.script(sql)
    clock.align(writer)
