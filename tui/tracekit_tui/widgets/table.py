"""A table of a result, drawn by lines: only rows on screen are ever made into text."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tracekit.analysis.base import Column, Result
from tracekit_tui.text import fit
from tracekit_tui.widgets.grid import Grid

_HEAD = 2
_GAP = 2
_STYLES = (
    "head",
    "head-cursor",
    "value",
    "dim",
    "best",
    "worst",
    "absent",
    "track",
    "row",
    "cell",
    "bar",
    "thumb",
)


class ResultTable(Widget, can_focus=True):
    """Rows and columns with a cursor; dimensions stay at the left."""

    COMPONENT_CLASSES = {f"table--{name}" for name in _STYLES}

    BINDINGS = [
        Binding("s", "sort(0)", "Sort"),
        Binding("S", "sort(1)", "Reverse", tooltip="Sort the other way"),
        Binding("left,h", "column(-1)", "Column left", show=False, key_display="h ←"),
        Binding("right,l", "column(1)", "Column right", show=False, key_display="l →"),
        Binding("up,k", "row(-1)", "Row above", show=False, key_display="k ↑"),
        Binding("down,j", "row(1)", "Row below", show=False, key_display="j ↓"),
        Binding("pageup", "page(-1)", "A page up", show=False),
        Binding("pagedown", "page(1)", "A page down", show=False),
        Binding("g,home", "end(0)", "First row", show=False, key_display="g"),
        Binding("G,end", "end(1)", "Last row", show=False, key_display="G"),
    ]

    class Moved(Message):
        """The cursor is in a column."""

        def __init__(self, column: Column | None) -> None:
            super().__init__()
            self.column = column

    def __init__(self) -> None:
        super().__init__()
        self.grid: Grid | None = None
        self.note = "computing …"
        self.row = 0
        self.column = 0
        self._top = 0
        self._left = 0
        self._styles: dict[str, Style] = {}

    def show_result(self, result: Result) -> None:
        """Draw another result; the cursor starts at its headline."""
        self.grid = Grid(result) if result.rows else None
        self.note = "no rows: this run has nothing of the kind"
        self.row = self._top = self._left = self.column = 0
        if self.grid is not None:
            names = [drawn.column.name for drawn in self.grid.columns]
            headline = result.analyzer.headline
            self.column = names.index(headline) if headline in names else 0
        self._moved()

    def show_note(self, note: str) -> None:
        """Words in the place of a table."""
        self.grid = None
        self.note = note
        self._moved()

    @property
    def body(self) -> int:
        return max(1, self.size.height - _HEAD)

    def notify_style_update(self) -> None:
        self._styles = {}
        super().notify_style_update()

    def on_resize(self, event: events.Resize) -> None:
        self._moved()

    def _moved(self) -> None:
        """Keep the cursor within the table and the screen, and draw."""
        grid = self.grid
        if grid is not None:
            self.row = min(max(0, self.row), len(grid.rows) - 1)
            self.column = min(max(0, self.column), len(grid.columns) - 1)
            self._top = min(max(self._top, self.row - self.body + 1), self.row)
            self._top = min(self._top, max(0, len(grid.rows) - self.body))
            self._left = min(max(self._left, grid.frozen), max(grid.frozen, self.column))
            while self.column > max(self._visible()) and self._left < self.column:
                self._left += 1
        column = None if grid is None else grid.columns[self.column].column
        self.post_message(self.Moved(column))
        self.refresh()

    def _bars(self) -> bool:
        """Whether all columns fit with bars."""
        grid = self.grid
        if grid is None:
            return False
        needed = sum(grid.width(c, True) + _GAP for c in range(len(grid.columns)))
        return needed < self.size.width

    def _visible(self) -> list[int]:
        """Columns on screen: the dimensions, then from the leftmost that is scrolled to."""
        grid = self.grid
        if grid is None:
            return []
        bars = self._bars()
        found = list(range(grid.frozen))
        room = self.size.width - 1 - sum(grid.width(c, bars) + _GAP for c in found)
        for column in range(max(self._left, grid.frozen), len(grid.columns)):
            room -= grid.width(column, bars) + _GAP
            if room < 0 and len(found) > grid.frozen:
                break
            found.append(column)
        return found or [0]

    # Actions -----------------------------------------------------------------------------

    def action_row(self, by: int) -> None:
        self.row += by
        self._moved()

    def action_page(self, by: int) -> None:
        self.action_row(by * self.body)

    def action_end(self, last: int) -> None:
        self.row = len(self.grid.rows) if last and self.grid else 0
        self._moved()

    def action_column(self, by: int) -> None:
        self.column += by
        self._moved()

    def action_sort(self, reverse: int) -> None:
        """By the cursor's column, the worst or largest first; again, or with S, the other way."""
        grid = self.grid
        if grid is None:
            return
        column = grid.columns[self.column].column
        descending = not column.is_dim and column.better != "higher"
        if grid.order is not None and grid.order[0] == self.column:
            descending = not grid.order[1]
        elif reverse:
            descending = not descending
        grid.sort(self.column, descending)
        self.row = 0
        self._moved()

    def on_click(self, event: events.Click) -> None:
        grid = self.grid
        if grid is None:
            return
        past = 1
        for column in self._visible():
            past += grid.width(column, self._bars()) + _GAP
            if event.x < past:
                self.column = column
                break
        if event.y < _HEAD:
            self.action_sort(0)
        else:
            self.row = self._top + event.y - _HEAD
            self._moved()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_column(-1) if event.shift else self.action_row(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_column(1) if event.shift else self.action_row(3)

    # Drawing -----------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        grid = self.grid
        if grid is None:
            text = f" {self.note}"[:width] if y == 1 else ""
            return Strip([Segment(text, self._style("absent"))]).adjust_cell_length(
                width, self.rich_style
            )
        if y < _HEAD:
            return self._header(grid, y)
        number = self._top + y - _HEAD
        if number >= len(grid.rows):
            return Strip.blank(width, self.rich_style)
        return self._row(grid, number, y - _HEAD)

    def _header(self, grid: Grid, line: int) -> Strip:
        segments = [Segment(" ", self._style("head"))]
        bars = self._bars()
        for column in self._visible():
            drawn = grid.columns[column]
            arrow = ""
            if line == 1 and grid.order is not None and grid.order[0] == column:
                arrow = "▼" if grid.order[1] else "▲"
            text = drawn.heading[line]
            text = fit(text + arrow, drawn.width, drawn.right)
            style = self._style("head-cursor" if column == self.column else "head")
            segments.append(Segment(text, style))
            rest = grid.width(column, bars) - drawn.width + _GAP
            segments.append(Segment(" " * rest, self._style("head")))
        return self._finish(segments, self._style("head"), self._more(grid, line))

    def _more(self, grid: Grid, line: int) -> Segment:
        """A sign at the right that there are more columns."""
        visible = self._visible()
        more = line == 1 and visible[-1] < len(grid.columns) - 1
        return Segment(">" if more else " ", self._style("head"))

    def _row(self, grid: Grid, number: int, line: int) -> Strip:
        at = number == self.row
        bars = self._bars()
        segments = [Segment(" ", self._style("value", at))]
        for column in self._visible():
            drawn = grid.columns[column]
            mark = grid.mark(number, column)
            text = fit(grid.text(number, column), drawn.width, drawn.right)
            segments.append(Segment(text, self._style(mark, at, at and column == self.column)))
            if grid.width(column, bars) > drawn.width:
                segments.append(Segment(" ", self._style("value", at)))
                segments.append(Segment(grid.bar(number, column), self._style("track", at)))
            segments.append(Segment(" " * _GAP, self._style("value", at)))
        return self._finish(segments, self._style("value", at), self._thumb(grid, line))

    def _thumb(self, grid: Grid, line: int) -> Segment:
        count = len(grid.rows)
        if count <= self.body:
            return Segment(" ", self._style("value"))
        size = max(1, self.body * self.body // count)
        first = self._top * (self.body - size) // max(1, count - self.body)
        return Segment("▐", self._style("thumb" if first <= line < first + size else "bar"))

    def _finish(self, segments: list[Segment], ground: Style, last: Segment) -> Strip:
        body = Strip(segments).adjust_cell_length(max(0, self.size.width - 1), ground)
        return Strip([*body, last])

    def _style(self, name: str, at_row: bool = False, at_cell: bool = False) -> Style:
        key = f"{name}/{at_row}/{at_cell}"
        if key not in self._styles:
            style = self.rich_style
            if at_row:
                style += self._named("row")
            style += self._named(name)
            if at_cell and self.has_focus:
                style += self._named("cell") + Style(reverse=True)
            self._styles[key] = style
        return self._styles[key]

    def _named(self, name: str) -> Style:
        return self.get_component_rich_style(f"table--{name}", partial=True)
