"""What a result's table looks like: columns, widths, texts, order. No widget inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len

from tracekit.analysis.base import Column, Result, Row, Unit
from tracekit.present.structured import shown_columns
from tracekit.present.units import show

_WIDEST = 28
# Widths come from at most so many rows, spread over all.
_SAMPLE = 500
_BAR = 6
_APART = 0.02
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True, slots=True)
class GridColumn:
    """A column as it is drawn."""

    column: Column
    heading: tuple[str, str]
    width: int
    right: bool
    best: Any
    worst: Any


class Grid:
    """A result with an order of rows; texts are made when they are drawn."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.rows: list[Row] = list(result.rows)
        step = max(1, len(self.rows) // _SAMPLE)
        sample = self.rows[::step]
        self.columns = [_column(column, self.rows, sample) for column in shown_columns(result)]
        self.frozen = sum(1 for column in self.columns if column.column.is_dim)
        self.order: tuple[int, bool] | None = None

    def sort(self, column: int, descending: bool) -> None:
        """By a column; rows without a value come last either way."""
        name = self.columns[column].column.name
        known = [row for row in self.result.rows if getattr(row, name) is not None]
        unknown = [row for row in self.result.rows if getattr(row, name) is None]
        known.sort(key=lambda row: getattr(row, name), reverse=descending)
        self.rows = known + unknown
        self.order = (column, descending)

    def text(self, row: int, column: int) -> str:
        """A value as the rest of tracekit writes it."""
        drawn = self.columns[column]
        value = getattr(self.rows[row], drawn.column.name)
        return _text(drawn.column, value)

    def mark(self, row: int, column: int) -> str:
        """The name of the style of a cell: a hint, never the only sign."""
        drawn = self.columns[column]
        value = getattr(self.rows[row], drawn.column.name)
        if value is None:
            return "absent"
        if drawn.column.is_dim:
            return "dim"
        if drawn.worst is not None and value == drawn.worst:
            return "worst"
        if drawn.best is not None and value == drawn.best:
            return "best"
        return "value"

    def bar(self, row: int, column: int) -> str:
        """A ratio as a bar of eighths; empty for any other value."""
        drawn = self.columns[column]
        value = getattr(self.rows[row], drawn.column.name)
        if drawn.column.unit is not Unit.RATIO or value is None or not 0 <= value <= 1:
            return " " * _BAR
        eighths = round(float(value) * _BAR * 8)
        whole, part = divmod(int(eighths), 8)
        return ("█" * whole + (_EIGHTHS[part] if part else "")).ljust(_BAR)

    def width(self, column: int, bars: bool) -> int:
        drawn = self.columns[column]
        ratio = drawn.column.unit is Unit.RATIO
        return drawn.width + (_BAR + 1 if bars and ratio else 0)


def _column(column: Column, rows: list[Row], sample: list[Row]) -> GridColumn:
    texts = [_text(column, getattr(row, column.name)) for row in sample]
    heading = _heading(column)
    # One more than the heading: the arrow of the order.
    width = max([len(heading[0]), len(heading[1]) + 1, *map(cell_len, texts)])
    values = [value for row in rows if (value := getattr(row, column.name)) is not None]
    best, worst = ends(column, values)
    right = column.unit not in (None, Unit.TEXT) or all(isinstance(v, int) for v in values)
    return GridColumn(column, heading, min(width, _WIDEST), right, best, worst)


def ends(column: Column, values: list[Any]) -> tuple[Any, Any]:
    """The best and the worst value, where that can be said."""
    if column.better is None or not values:
        return None, None
    low, high = min(values), max(values)
    # Values this close differ in noise: a colour would say too much.
    if low == high or high - low < _APART * max(abs(low), abs(high)):
        return None, None
    return (low, high) if column.better == "lower" else (high, low)


def _text(column: Column, value: Any) -> str:
    if column.is_dim and value is None:
        return "all"
    return show(value, column.unit)


def _heading(column: Column) -> tuple[str, str]:
    """The name without its unit, on two lines of about the same length."""
    name = column.name.removesuffix("_ns").removesuffix("_bytes")
    words = name.split("_")
    if len(words) == 1:
        return "", name
    splits = [(" ".join(words[:cut]), " ".join(words[cut:])) for cut in range(1, len(words))]
    best = min(splits, key=lambda lines: max(len(lines[0]), len(lines[1]) + 1))
    whole = " ".join(words)
    return ("", whole) if len(whole) <= 6 else best


def describe_column(column: Column) -> tuple[str, str]:
    """Name with unit and polarity, and its documentation."""
    parts = [column.name]
    if column.unit not in (None, Unit.TEXT):
        parts.append(str(column.unit))
    if column.better is not None:
        parts.append(f"{column.better} is better")
    return "  ".join(parts), column.doc
