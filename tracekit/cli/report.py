"""`tracekit report`: the analyzers' answers as tables, JSON, CSV or Markdown."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from tracekit.analysis.base import Analyzer, Result
    from tracekit.store import Reader

FORMATS = ("table", "json", "csv", "markdown")


@click.command()
@click.argument("database", type=click.Path(path_type=Path, readable=False))
@click.option("-a", "--analyzer", "names", multiple=True, help="Only this analyzer; repeatable.")
@click.option("--by", "by", multiple=True, help="Group by rank, stage, step; repeatable.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write to a file, not to stdout."
)
def command(
    database: Path, names: tuple[str, ...], by: tuple[str, ...], form: str, output: Path | None
) -> int:
    """Print where the step time and the memory of a run go.

    Times and ratios are raw integers and numbers in JSON and CSV. Exit status 5: the run cannot
    answer any of what was asked; why is in the output.
    """
    from tracekit.cli.opened import open_aloud

    analyzers = choose(names)
    with open_aloud(database) as reader:
        results = [analyzer.run(reader, _grouping(analyzer, by, names)) for analyzer in analyzers]
        text = None if form == "table" else _text(results, form, single=len(names) == 1)
        with contextlib.ExitStack() as stack:
            stream = (
                sys.stdout
                if output is None
                else stack.enter_context(output.open("w", encoding="utf-8"))
            )
            if text is not None:
                stream.write(text.rstrip("\n") + "\n")
            else:
                from tracekit.present.report import print_report

                print_report(reader, results, stream, summary=not names)
    return ExitCode.OK if any(r.available for r in results) else ExitCode.UNAVAILABLE


def choose(names: tuple[str, ...]) -> list[Analyzer]:
    """The analyzers of these names, all without names.

    Raises:
        UsageError: an unknown name.
    """
    from tracekit.analysis.registry import ANALYZERS, BY_NAME

    for name in names:
        if name not in BY_NAME:
            raise UsageError(f"no analyzer {name!r}; there are: {', '.join(BY_NAME)}")
    return [BY_NAME[name] for name in names] if names else list(ANALYZERS)


def _grouping(
    analyzer: Analyzer, by: tuple[str, ...], names: tuple[str, ...]
) -> tuple[str, ...] | None:
    """The dimensions asked for; over all analyzers, those that each of them has."""
    wanted = tuple(dim for part in by for dim in part.split(","))
    if not wanted:
        return None
    if names:
        return wanted
    known = {dim for each in choose(()) for dim in each.by}
    for dim in wanted:
        if dim not in known:
            raise UsageError(
                f"nothing is grouped by {dim!r}; there are: {', '.join(sorted(known))}"
            )
    return tuple(dim for dim in wanted if dim in analyzer.by) or None


def _text(results: list[Result], form: str, *, single: bool) -> str:
    from tracekit.present import structured

    match form:
        case "json":
            return structured.to_json(results, single=single)
        case "csv":
            return structured.to_csv(results)
        case _:
            return structured.to_markdown(results)


def print_to_stdout(reader: Reader) -> None:
    """The whole report as a table, for ``run``."""
    from tracekit.present.report import print_report

    results = [analyzer.run(reader) for analyzer in choose(())]
    print_report(reader, results, sys.stdout, summary=True)
