"""Results as tables for a terminal."""

from __future__ import annotations

import os
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tracekit.analysis.base import Column, Result, Unit
from tracekit.plain import plain, plain_lines
from tracekit.present.structured import describe, shown_columns
from tracekit.present.units import NOT_AVAILABLE, show

_PLAIN_WIDTH = 240
_GAP = 2


def print_result(console: Console, result: Result, *, brief: bool = False) -> None:
    """One table, and what is missing beneath it.

    ``brief`` leaves out the columns of detail, and the last ones where the terminal is narrow.
    """
    console.print(
        Text.assemble((result.analyzer.title, "bold"), "  ", (result.analyzer.doc, "dim")),
        no_wrap=True,
        overflow="ellipsis",
    )
    if result.rows:
        _print_cells(console, result, brief=brief)
    for missing in result.missing:
        console.print(Text("  " + plain(describe(missing.reason, missing.where)), style="yellow"))
    console.print()


def _print_cells(console: Console, result: Result, *, brief: bool) -> None:
    columns = _columns(result, brief=brief)
    heads = [_heading(column) for column in columns]
    cells = [[_cell(row, column) for column in columns] for row in result.rows]
    left_out = 0
    while brief and len(heads) - left_out > 1:
        width = sum(_widths(heads, cells)[: len(heads) - left_out])
        if width <= console.width:
            break
        left_out += 1
    kept = len(heads) - left_out
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="cyan")
    for column, head in list(zip(columns, heads, strict=True))[:kept]:
        left = column.unit is Unit.TEXT
        table.add_column(Text(head), justify="left" if left else "right", no_wrap=True)
    for row in cells:
        table.add_row(
            *(Text(cell, style="dim" if cell == NOT_AVAILABLE else "") for cell in row[:kept])
        )
    # Never folded: a table that is wider than the terminal is wrapped by the terminal.
    terminal_width = console.width
    console.width = max(terminal_width, sum(_widths(heads, cells)[:kept]))
    console.print(table)
    console.width = terminal_width
    if left_out:
        names = ", ".join(column.name for column in columns[kept:])
        console.print(
            Text(f"  with -a {result.analyzer.name} also: {names}", style="dim"),
            no_wrap=True,
            overflow="ellipsis",
        )


def _columns(result: Result, *, brief: bool) -> list[Column]:
    """A column that says nothing anywhere has its reason beneath the table."""
    return [
        column
        for column in shown_columns(result)
        if column.is_dim
        or (
            not (brief and column.detail)
            and any(getattr(row, column.name) is not None for row in result.rows)
        )
    ]


def _cell(row: object, column: Column) -> str:
    text = plain(show(getattr(row, column.name), column.unit))
    return "all" if column.is_dim and text == NOT_AVAILABLE else text


def _widths(heads: list[str], cells: list[list[str]]) -> list[int]:
    return [
        max(cell_len(line) for line in [*head.split("\n"), *(row[place] for row in cells)]) + _GAP
        for place, head in enumerate(heads)
    ]


def print_rows(names: list[str], rows: list[tuple[Any, ...]], stream: TextIO) -> None:
    """Rows of any query; numbers to the right, nothing interpreted."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="cyan")
    for place, name in enumerate(names):
        numbers = any(isinstance(row[place], (int, float)) for row in rows)
        table.add_column(Text(plain(name)), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else plain_lines(str(cell))) for cell in row))
    plain_console(stream).print(table)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # the command decides, not rich


def plain_console(stream: TextIO) -> Console:
    """A console that takes all text literally."""
    # Without a terminal there is no width to fit: tables are as wide as they are.
    fitted = stream.isatty() or "COLUMNS" in os.environ
    return _Console(
        file=stream,
        width=None if fitted else _PLAIN_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _heading(column: Column) -> str:
    """The column's name, a word a line, without its unit, which the values carry."""
    return column.name.removesuffix("_ns").removesuffix("_bytes").replace("_", "\n")
