"""`tracekit attach`: how a capture that goes on is doing."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True
)
def command(directory: Path, form: str) -> None:
    """Print the state of a run that is being captured: how far each rank is, what it records, and
    which ranks have not been heard of.

    It only reads the run directory, and disturbs nothing.
    """
    from tracekit.ingest.live import look
    from tracekit.present.live import print_live

    run = look(directory)
    if form == "json":
        ranks = [asdict(rank) | {"silent": rank.is_silent} for rank in run.ranks]
        text = json.dumps({"schema_version": 1, "wrappers": run.wrappers, "ranks": ranks}, indent=1)
        click.echo(text)
    else:
        print_live(run, sys.stdout)
