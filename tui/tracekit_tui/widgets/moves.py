"""Keys and mouse of the timeline: each move is the next view of the one that is shown."""

from __future__ import annotations

from textual import events
from textual.binding import Binding
from textual.widget import Widget

from tracekit_tui.feed import Feed
from tracekit_tui.model import Jump, Run
from tracekit_tui.view import View
from tracekit_tui.widgets.rows import Row, rows_of

_PAN_PARTS = 8
HEAD = 2  # lines above the rows: the axis and the ruler of steps


class Moves(Widget):
    """Bindings, actions and mouse of the Gantt; drawing is the subclass's."""

    BINDINGS = [
        Binding("plus,equals_sign", "zoom(1)", "Zoom", key_display="+-", tooltip="Zoom in"),
        Binding("minus,underscore", "zoom(-1)", "Zoom out", key_display="-", show=False),
        Binding("0", "fit", "Fit", tooltip="The whole run"),
        Binding("left", "cell(-1)", "Cursor left, then pan", show=False),
        Binding("right", "cell(1)", "Cursor right, then pan", show=False),
        Binding("h,shift+left", "pan(-1)", "Pan left", key_display="h", show=False),
        Binding("l,shift+right", "pan(1)", "Pan right", key_display="l", show=False),
        Binding("up,k", "row(-1)", "Row above", key_display="k ↑", show=False),
        Binding("down,j", "row(1)", "Row below", key_display="j ↓", show=False),
        Binding("pageup", "page(-1)", "A page of rows up", show=False),
        Binding("pagedown", "page(1)", "A page of rows down", show=False),
        Binding("g,home", "end(0)", "First rank", key_display="g", show=False),
        Binding("G,end", "end(1)", "Last rank", key_display="G", show=False),
        Binding("n", "step(1)", "Step", key_display="np", tooltip="Next step"),
        Binding("p", "step(-1)", "Previous step", show=False),
        Binding("e,enter", "open", "Expand", key_display="e", tooltip="Expand or fold the rank"),
        Binding("E", "open_all", "Expand or fold all ranks", show=False),
        Binding("v", "by_actions", "Actions", tooltip="Ranks as actions or classes"),
    ]

    run_info: Run
    view: View
    rows: list[Row]
    opened: frozenset[int]
    by_actions: bool
    names_width: int
    jumps: Feed[Jump, tuple[int, int] | None]

    @property
    def body(self) -> int:
        """Lines that rows have."""
        return max(1, self.size.height - HEAD)

    def show_view(self, view: View) -> None:
        """Draw a view from what is at hand, and ask for what it needs."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "by_actions":
            return any(info.has_actions for info in self.run_info.ranks)
        return True

    def zoom(self, direction: int, cell: int | None = None) -> None:
        """Twice as near, or half: about the cursor, or another cell."""
        factors = (1, 2) if direction > 0 else (2, 1)
        self.show_view(self.view.zoomed(*factors, cell))

    def scroll_rows(self, by: int) -> None:
        self.show_view(self.view.scrolled(by, self.body, len(self.rows)))

    def to_row(self, row: int) -> None:
        self.show_view(self.view.to_row(row, self.body, len(self.rows)))

    def action_zoom(self, direction: int) -> None:
        self.zoom(direction)

    def action_fit(self) -> None:
        self.show_view(self.view.fitted())

    def action_pan(self, direction: int) -> None:
        by = max(1, self.view.window.cells // _PAN_PARTS)
        self.show_view(self.view.panned(direction * by))

    def action_cell(self, direction: int) -> None:
        self.show_view(self.view.to_cell(self.view.cell + direction))

    def action_row(self, direction: int) -> None:
        self.to_row(self.view.row + direction)

    def action_page(self, direction: int) -> None:
        self.to_row(self.view.row + direction * self.body)

    def action_end(self, last: int) -> None:
        self.to_row(len(self.rows) - 1 if last else 0)

    def action_step(self, direction: int) -> None:
        if not self.rows:
            return
        view = self.view
        forward = direction > 0
        # From the whole run, the first step is ahead even when the cursor is on its start.
        whole = forward and view.window.span_ns >= view.limits.span_ns
        time = view.window.edge(view.cell) - 1 if whole else view.window.middle(view.cell)
        self.jumps.ask(Jump(self.rows[view.row].rank, time, forward))

    def action_open(self) -> None:
        if self.rows:
            self._reopen(self.opened ^ {self.rows[self.view.row].rank})

    def action_open_all(self) -> None:
        ranks = frozenset(info.rank for info in self.run_info.ranks)
        self._reopen(frozenset() if self.opened else ranks)

    def _reopen(self, opened: frozenset[int]) -> None:
        """Open other ranks, with the cursor kept on its rank and the rank on its line."""
        if not self.rows:
            return
        rank = self.rows[self.view.row].rank
        line = self._row_of(rank) - self.view.top
        self.opened = opened
        self.rows = rows_of(self.run_info.ranks, opened)
        row = self._row_of(rank)
        kept = self.view.scrolled(row - line - self.view.top, self.body, len(self.rows))
        self.show_view(kept.to_row(row, self.body, len(self.rows)))

    def _row_of(self, rank: int) -> int:
        return next(number for number, row in enumerate(self.rows) if row.rank == rank)

    def action_by_actions(self) -> None:
        self.by_actions = not self.by_actions
        self.show_view(self.view)

    # Mouse ---------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """Put the cursor there; a second click, or one on a rank's name, opens the rank."""
        number = self.view.top + event.y - HEAD
        view = self.view
        if event.y >= HEAD and number < len(self.rows):
            view = view.to_row(number, self.body, len(self.rows))
        elif event.y >= HEAD:
            return
        cell = event.x - self.names_width
        if 0 <= cell < view.window.cells:
            view = view.to_cell(cell)
        self.show_view(view)
        if event.y >= HEAD and (cell < 0 or event.chain == 2):
            self.action_open()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, -1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, 1)

    def _wheel(self, event: events.MouseEvent, direction: int) -> None:
        """Zoom at the pointer; with Shift pan; with Ctrl, or over the names, scroll the rows."""
        event.stop()
        event.prevent_default()
        cell = event.x - self.names_width
        if event.shift:
            self.action_pan(direction)
        elif event.ctrl or cell < 0:
            self.scroll_rows(3 * direction)
        else:
            self.zoom(-direction, min(max(0, cell), self.view.window.cells - 1))
