"""What tracekit itself has to say, on stderr."""

from __future__ import annotations

import click

from tracekit.plain import plain


def say(text: str) -> None:
    """One line; a file's name in it may hold anything."""
    click.echo(f"tracekit: {plain(text)}", err=True)
