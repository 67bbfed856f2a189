"""Results as tables for a terminal."""

from __future__ import annotations

import os
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tracekit.analysis.base import Column, Result, Unit
from tracekit.present.structured import describe, shown_columns
from tracekit.present.units import NOT_AVAILABLE, show

_PLAIN_WIDTH = 240


def print_result(console: Console, result: Result, *, brief: bool = False) -> None:
    """One table, and what is missing beneath it; ``brief`` leaves out the columns of detail."""
    console.print(Text(result.analyzer.title, style="bold"), Text(result.analyzer.doc, style="dim"))
    if result.rows:
        console.print(_table(result, brief=brief))
    for missing in result.missing:
        console.print(Text("  " + describe(missing.reason, missing.where), style="yellow"))
    console.print()


def print_rows(names: list[str], rows: list[tuple[Any, ...]], stream: TextIO) -> None:
    """Rows of any query; numbers to the right, nothing interpreted."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="cyan")
    for place, name in enumerate(names):
        numbers = any(isinstance(row[place], (int, float)) for row in rows)
        table.add_column(Text(name), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    plain_console(stream).print(table)


def plain_console(stream: TextIO) -> Console:
    """A console that takes all text literally."""
    # Without a terminal there is no width to fit: tables are as wide as they are.
    fitted = stream.isatty() or "COLUMNS" in os.environ
    return Console(
        file=stream,
        width=None if fitted else _PLAIN_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _table(result: Result, *, brief: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="cyan")
    columns = [
        column
        for column in shown_columns(result)
        # A column that says nothing anywhere has its reason beneath the table.
        if column.is_dim
        or (
            not (brief and column.detail)
            and any(getattr(row, column.name) is not None for row in result.rows)
        )
    ]
    for column in columns:
        table.add_column(
            Text(_heading(column)),
            justify="left" if column.unit is Unit.TEXT else "right",
            overflow="fold",
        )
    for row in result.rows:
        cells = []
        for column in columns:
            text = show(getattr(row, column.name), column.unit)
            if column.is_dim and text == NOT_AVAILABLE:
                text = "all"
            cells.append(Text(text, style="dim" if text == NOT_AVAILABLE else ""))
        table.add_row(*cells)
    return table


def _heading(column: Column) -> str:
    """The column's name without its unit, which the values carry."""
    return column.name.removesuffix("_ns").removesuffix("_bytes").replace("_", " ")
