"""`tracekit ingest`: traces into a database."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.ending import cleaned_up
from tracekit.cli.say import say
from tracekit.cli.sizes import Size

if TYPE_CHECKING:
    from tracekit.ingest.loading import Progress


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, readable=False))
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="Database to make."
)
@click.option("-f", "--force", is_flag=True, help="Replace the database if it exists.")
@click.option("--append", is_flag=True, help="Add to the database if it exists.")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1),
    help="Files that are read at once. [default: one a core, as far as the memory goes]",
)
@click.option(
    "--memory-limit",
    type=Size(),
    default="2GiB",
    show_default=True,
    help="What all processes of the ingest together may hold; the rest waits on disk.",
)
@click.option(
    "--rank-map",
    type=click.Path(path_type=Path),
    help="Which rank each file is of, whatever the file says: a text file with a line "
    "'FILE RANK' each; FILE is a path, a name or a pattern.",
)
@click.option("--strict", is_flag=True, help="Any damage is an error (exit status 6).")
@click.option(
    "--keep-args",
    is_flag=True,
    help="Keep all args of all events as JSON, in the table event_args. Without it, the args "
    "that no column holds are counted by key.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="What the ranks trained on, for traces that do not say: on the CPU the operators and "
    "the backend's own intervals are measured.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def command(paths: tuple[Path, ...], output: Path, quiet: bool, **options: Any) -> None:
    """Load the traces of a run into one database.

    PATHS are traces (*.json, *.json.gz), folders of them, run directories, archives (*.tar.gz) or
    patterns. Each file becomes a rank: by its own metadata, else by its name.
    """
    ingest_aloud(paths, output, quiet=quiet, **options)


def ingest_aloud(
    paths: tuple[Path, ...], output: Path, *, quiet: bool = False, **options: Any
) -> None:
    """Ingest with a progress bar on a terminal, and a summary; all of it on stderr.

    ``options`` are those of :func:`tracekit.ingest.run.ingest`.
    """
    from tracekit.ingest.run import ingest

    added = bool(options.get("append")) and output.exists()
    with cleaned_up(), _bar(quiet=quiet) as progress:
        summary = ingest(paths, output, progress=progress, **options)
    if quiet:
        return
    for warning in summary.warnings:
        say(warning)
    ranks = "1 rank" if len(summary.ranks) == 1 else f"{len(summary.ranks)} ranks"
    events = f"{summary.events:,} events"
    say(f"{events} added; {ranks} in {output}" if added else f"{ranks}, {events} in {output}")


@contextlib.contextmanager
def _bar(*, quiet: bool) -> Iterator[Progress]:
    """A progress bar on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from tracekit.ingest.loading import At

    if quiet or not sys.stderr.isatty():
        yield lambda at: None
        return
    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[files]}", markup=False),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("reading", total=None, files="")

        def show(at: At) -> None:
            read = at.bytes >= at.total_bytes
            bar.update(
                task,
                description="deriving" if read else "reading",
                completed=at.bytes,
                total=at.total_bytes,
                files=f"{at.files}/{at.total_files} files",
            )

        yield show
