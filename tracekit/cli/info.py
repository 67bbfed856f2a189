"""`tracekit info`: what a database holds."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.argument("database", type=click.Path(path_type=Path, readable=False))
def command(database: Path) -> None:
    """Say what a database holds: run, files, ranks, tables, and what is damaged, with its place."""
    from tracekit.cli.opened import open_aloud
    from tracekit.present.report import print_info

    with open_aloud(database) as reader:
        print_info(reader, sys.stdout)
