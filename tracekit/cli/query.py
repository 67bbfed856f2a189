"""`tracekit query`: SQL over the run, read-only."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import click

from tracekit.errors import UsageError


@click.command()
@click.argument("database", type=click.Path(path_type=Path))
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
            cursor = reader.execute(sql)
            names = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchall() if limit == 0 else cursor.fetchmany(limit + 1)
        except duckdb.Error as error:
            raise UsageError(str(error).splitlines()[0]) from error
    more = limit and len(rows) > limit
    rows = rows[:limit] if more else rows
    _print(names, rows, form)
    if more:
        click.echo(f"tracekit: first {limit} rows; --limit 0 for all", err=True)


def _print(names: list[str], rows: list[tuple[Any, ...]], form: str) -> None:
    match form:
        case "json":
            records = [dict(zip(names, row, strict=True)) for row in rows]
            click.echo(json.dumps(records, default=str, ensure_ascii=False))
        case "csv":
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(names)
            writer.writerows(rows)
        case _:
            from tracekit.present.table import print_rows

            print_rows(names, rows, sys.stdout)
