"""`tracekit query`: SQL over the run, read-only."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import click

from tracekit.cli.say import say
from tracekit.errors import UsageError
from tracekit.plain import plain_lines


@click.command()
@click.argument("database", type=click.Path(path_type=Path, readable=False))
@click.argument("sql")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
)
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    help="Rows to print at most; 0 for all.",
)
def command(database: Path, sql: str, form: str, limit: int) -> None:
    """Ask the database in SQL. Tables: `SHOW TABLES`; a table's columns: `DESCRIBE events`.

    The database is opened read-only and can reach no other file.
    """
    import duckdb

    from tracekit.cli.opened import open_aloud

    if not sql.strip(" ;\n\t"):
        raise UsageError("the query is empty")
    with open_aloud(database) as reader:
        try:
            if len(duckdb.extract_statements(sql)) > 1:
                raise UsageError("several statements: give them one at a time")
            names, rows = reader.table(sql, most=limit + 1 if limit else None)
        except duckdb.Error as error:
            raise UsageError(str(error).splitlines()[0]) from error
    more = limit and len(rows) > limit
    rows = rows[:limit] if more else rows
    _print(_distinct(names), rows, form)
    if more:
        say(f"first {limit} rows; --limit 0 for all")


def _distinct(names: list[str]) -> list[str]:
    """A record has each name once: a second ``rank`` is ``rank_1``, as DuckDB counts them."""
    found: list[str] = []
    for name in names:
        number, each = 0, name
        while each in found:
            number += 1
            each = f"{name}_{number}"
        found.append(each)
    return found


def _print(names: list[str], rows: list[tuple[Any, ...]], form: str) -> None:
    """All values as they are; a terminal is not given what it would obey."""
    seen = sys.stdout.isatty()
    match form:
        case "json":
            records = [dict(zip(names, row, strict=True)) for row in rows]
            text = json.dumps(records, default=str, ensure_ascii=False)
            click.echo(_escaped(text) if seen else text)
        case "csv":
            writer = csv.writer(sys.stdout, lineterminator="\n")
            for row in (names, *rows):
                writer.writerow([plain_lines(x) if seen and isinstance(x, str) else x for x in row])
        case _:
            from tracekit.present.table import print_rows

            print_rows(names, rows, sys.stdout)


def _escaped(text: str) -> str:
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
