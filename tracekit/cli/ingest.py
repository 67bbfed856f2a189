"""`tracekit ingest`: traces into a database."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="Database to make."
)
@click.option("-f", "--force", is_flag=True, help="Replace the database if it exists.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="What the ranks trained on, for traces that do not say: on the CPU the operators and "
    "the backend's own intervals are measured.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def command(
    paths: tuple[Path, ...], output: Path, force: bool, device: str | None, quiet: bool
) -> None:
    """Load traces (*.json, *.json.gz), folders of them or run directories into a database."""
    ingest_with_progress(paths, output, force=force, device=device, quiet=quiet)


def ingest_with_progress(
    paths: tuple[Path, ...],
    output: Path,
    *,
    force: bool,
    device: str | None = None,
    quiet: bool = False,
) -> None:
    """Ingest with a progress bar on a terminal, and a summary; all of it on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from tracekit.ingest.run import ingest, sizes

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=quiet or not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task("reading", total=sizes(paths))
        summary = ingest(
            paths,
            output,
            device=device,
            force=force,
            progress=lambda what, size: bar.update(task, description=what, advance=size),
        )
    if quiet:
        return
    for warning in summary.warnings:
        click.echo(f"tracekit: {warning}", err=True)
    ranks = "1 rank" if len(summary.ranks) == 1 else f"{len(summary.ranks)} ranks"
    click.echo(f"tracekit: {ranks}, {summary.events:,} events in {output}", err=True)
