"""The Gantt of the ranks, drawn by lines from a frame that a thread fetches.

Every key or mouse move gives a new :class:`View` and is drawn at once from the frame at hand; the
exact frame follows when the store has answered.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from tracekit_tui.feed import Answered, Feed
from tracekit_tui.model import Cell, Detail, Frame, FrameQuestion, Jump, Lane, Run, Spot
from tracekit_tui.source import Timeline
from tracekit_tui.view import View
from tracekit_tui.widgets import paint
from tracekit_tui.widgets.moves import HEAD, Moves
from tracekit_tui.widgets.paint import Inked
from tracekit_tui.widgets.rows import Row, gutter_text, gutter_width, rows_of
from tracekit_tui.window import Window

_BLIND = " no timed work in the trace"

_PLAIN = (
    "idle",
    "step",
    "rule",
    "axis",
    "gutter",
    "gutter-open",
    "row",
    "column",
    "cursor",
    "bar",
    "thumb",
)
_KINDS = ("compute", "overlapped", "exposed", "copies")
_ACTIONS = tuple(
    f"{name}{alt}" for name in ("forward", "backward", "input", "weight") for alt in ("", "-alt")
)
_STYLES = (*_PLAIN, *_KINDS, *(f"{kind}-bar" for kind in _KINDS), *_ACTIONS)


class Gantt(Moves, can_focus=True):
    """Rows of ranks and lanes over a window of time."""

    COMPONENT_CLASSES = {f"gantt--{name}" for name in _STYLES}

    class Changed(Message):
        """The view or what is drawn in it is another."""

    class Detailed(Message):
        """What the cursor points at is known."""

        def __init__(self, spot: Spot, detail: Detail | None) -> None:
            super().__init__()
            self.spot = spot
            self.detail = detail

    def __init__(self, run: Run, timeline: Timeline) -> None:
        super().__init__()
        self.run_info = run
        self.opened: frozenset[int] = frozenset()
        # A pipeline is told by its actions; without them the classes of work are all there is.
        self.by_actions = any(rank.has_actions for rank in run.ranks)
        self.rows: list[Row] = rows_of(run.ranks, self.opened)
        self.names_width = gutter_width(run.ranks)
        start, end = run.extent or (0, 1)
        self.origin_ns = start
        limits = Window(start, end, 1)
        self.view = View(limits, limits)
        self.frame: Frame | None = None
        self.frames: Feed[FrameQuestion, Frame] = Feed(self, timeline.frame, self._on_frame)
        self.details: Feed[Spot, Detail | None] = Feed(self, timeline.detail, self._on_detail)
        self.jumps: Feed[Jump, tuple[int, int] | None] = Feed(
            self, timeline.step_beside, self._on_jump
        )
        self._styles: dict[tuple[str, bool, bool, str | None], Style] = {}
        self._asked: FrameQuestion | None = None

    @property
    def cells(self) -> int:
        """Cells that the window has: one column at the right is the scroll bar's."""
        return max(1, self.size.width - self.names_width - 1)

    def notify_style_update(self) -> None:
        self._styles = {}
        super().notify_style_update()

    def on_resize(self, event: events.Resize) -> None:
        self.show_view(self.view.resized(self.cells, self.body, len(self.rows)))

    def show_view(self, view: View) -> None:
        """Draw a view from what is at hand, and ask for what it needs."""
        self.view = view
        self.refresh()
        shown = self.rows[view.top : view.top + self.body]
        ranks = tuple(dict.fromkeys(row.rank for row in shown))
        opened = tuple(rank for rank in ranks if rank in self.opened)
        acting = {row.rank for row in shown if self.lane_of(row) is Lane.ACTIONS}
        question = FrameQuestion(view.window, ranks, tuple(sorted(acting)), opened)
        if question != self._asked and self.run_info.extent is not None:
            self._asked = question
            self.frames.ask(question)
        spot = self.spot()
        if spot is not None:
            self.details.ask(spot)
        self.post_message(self.Changed())

    def spot(self) -> Spot | None:
        """What the cursor points at, with the lane as it is drawn."""
        spot = None if self.run_info.extent is None else self.view.spot(self.rows)
        if spot is None:
            return None
        return Spot(spot.rank, self.lane_of(self.rows[self.view.row]), spot.start_ns, spot.end_ns)

    def lane_of(self, row: Row) -> Lane:
        """Ranks may be drawn by their actions."""
        by_actions = self.by_actions and row.lane is Lane.RANK and row.info.has_actions
        return Lane.ACTIONS if by_actions else row.lane

    def window_times(self, rank: int) -> Cell | None:
        """Time of each kind over the whole window; None while it is not known."""
        frame = self.frame
        if frame is None or frame.window != self.view.window or rank not in frame.ranks:
            return None
        columns = zip(*frame.cells.get(rank, [(0, 0, 0, 0, 0)]), strict=True)
        compute, overlapped, exposed, copies, all_copies = (sum(column) for column in columns)
        return compute, overlapped, exposed, copies, all_copies

    @on(Answered)
    def _deliver(self, message: Answered) -> None:
        message.stop()
        message.deliver()

    def _on_frame(self, question: FrameQuestion, frame: Frame) -> None:
        self.frame = frame
        self.refresh()
        self.post_message(self.Changed())

    def _on_detail(self, spot: Spot, detail: Detail | None) -> None:
        if spot == self.spot():
            self.post_message(self.Detailed(spot, detail))

    def _on_jump(self, jump: Jump, found: tuple[int, int] | None) -> None:
        if found is None:
            self.notify(f"no {'next' if jump.forward else 'previous'} step of rank {jump.rank}")
        else:
            self.show_view(self.view.onto(*found))

    # Drawing -----------------------------------------------------------------------------

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if self.run_info.extent is None:
            text = "Nothing to draw: the run has no step, no timed work and no action."
            return self._strip([(char, "axis") for char in text[:width]] if y == 1 else [], width)
        if y == 0:
            axis = paint.paint_axis(self.view.window, self.origin_ns)
            axis[self.view.cell] = ("▼", "cursor-mark")
            return self._strip(self._gutter("time") + axis, width)
        if y == 1:
            rank = self.rows[self.view.row].rank if self.rows else 0
            ruler = paint.paint_ruler(self.frame, self.view.window, rank)
            return self._strip(self._gutter("step") + ruler, width)
        number = self.view.top + y - HEAD
        if number >= len(self.rows):
            return self._strip([], width)
        return self._row_strip(number, y - HEAD)

    def _gutter(self, text: str) -> list[Inked]:
        return [(char, "axis") for char in text.rjust(self.names_width - 1) + " "]

    def _row_strip(self, number: int, line: int) -> Strip:
        row = self.rows[number]
        style = "gutter-open" if row.rank in self.opened else "gutter"
        name = gutter_text(row, opened=row.rank in self.opened).ljust(self.names_width)
        inked: list[Inked] = [(char, style) for char in name]
        inked += self._cells_of(row)
        inked.append(self._scroll_mark(line))
        under = "row" if number == self.view.row else None
        return self._strip(inked, self.size.width, under, number == self.view.row)

    def _cells_of(self, row: Row) -> list[Inked]:
        window = self.view.window
        frame = self.frame
        if frame is None or row.rank not in frame.ranks:
            return [paint.UNKNOWN] * window.cells
        lane = self.lane_of(row)
        if row.info.evidence == "none" and lane is not Lane.ACTIONS:
            return [(char, "idle") for char in _BLIND.ljust(window.cells)[: window.cells]]
        return paint.paint_row(frame, window, row.rank, lane, colourless=self.app.no_color)

    def _scroll_mark(self, line: int) -> Inked:
        count = len(self.rows)
        if count <= self.body:
            return (" ", "bar")
        size = max(1, self.body * self.body // count)
        first = self.view.top * (self.body - size) // max(1, count - self.body)
        return ("▐", "thumb") if first <= line < first + size else ("▐", "bar")

    def _strip(
        self, inked: list[Inked], width: int, under: str | None = None, at_cursor: bool = False
    ) -> Strip:
        """Runs of equal style as segments; the cursor's row and column get a ground."""
        column = self.names_width + self.view.cell
        segments: list[Segment] = []
        if self.run_info.extent is None or column >= len(inked):
            self._add(segments, inked, False, False, under)
        else:
            self._add(segments, inked[:column], False, False, under)
            self._add(segments, inked[column : column + 1], True, at_cursor, under)
            self._add(segments, inked[column + 1 :], False, False, under)
        ground = self._named("row") if under else self.rich_style
        return Strip(segments).adjust_cell_length(width, ground)

    def _add(
        self,
        segments: list[Segment],
        inked: list[Inked],
        column: bool,
        cursor: bool,
        under: str | None,
    ) -> None:
        for name, group in groupby(inked, itemgetter(1)):
            text = "".join([char for char, _ in group])
            segments.append(Segment(text, self._style(name, column, cursor, under)))

    def _style(self, name: str, column: bool, cursor: bool, under: str | None) -> Style:
        key = (name, column, cursor, under)
        if key not in self._styles:
            style = self.rich_style
            if under:
                style += self._named(under)
            if column:
                style += self._named("column")
            style += self._named("cursor" if name == "cursor-mark" else name)
            if cursor:
                style += self._named("cursor") + Style(reverse=True)
            self._styles[key] = style
        return self._styles[key]

    def _named(self, name: str) -> Style:
        return self.get_component_rich_style(f"gantt--{name}", partial=True)
