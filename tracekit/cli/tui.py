"""`tracekit tui`: the terminal browser."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("database", type=click.Path(path_type=Path, readable=False))
def command(database: Path) -> None:
    """Browse a run in the terminal: overview, timeline and every analyzer's table."""
    from tracekit_tui.app import run_app

    run_app(database)
