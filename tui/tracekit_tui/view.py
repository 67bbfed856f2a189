"""What the timeline shows and where its cursor is: a value, and the moves that give the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tracekit_tui.model import Spot
from tracekit_tui.widgets.rows import Row
from tracekit_tui.window import Window


@dataclass(frozen=True, slots=True)
class View:
    """A window of time, the first row on screen, and the cursor's row and cell."""

    window: Window
    limits: Window
    top: int = 0
    row: int = 0
    cell: int = 0

    def resized(self, cells: int, height: int, rows: int) -> View:
        """For a screen of another size."""
        fitting = replace(
            self,
            window=self.window.resized(cells).clamped(self.limits),
            limits=self.limits.resized(cells),
            cell=min(self.cell, max(0, cells - 1)),
        )
        return fitting.to_row(self.row, height, rows)

    def to_row(self, row: int, height: int, rows: int) -> View:
        """The cursor in a row, with the rows scrolled just enough to show it."""
        row = min(max(0, row), max(0, rows - 1))
        top = min(max(self.top, row - height + 1), row)
        top = min(max(0, top), max(0, rows - height))
        return replace(self, row=row, top=top)

    def scrolled(self, by: int, height: int, rows: int) -> View:
        """Rows moved, with the cursor kept on screen."""
        top = min(max(0, self.top + by), max(0, rows - height))
        row = min(max(self.row, top), max(top, min(top + height, rows) - 1))
        return replace(self, top=top, row=row)

    def to_cell(self, cell: int) -> View:
        """The cursor in a cell; past an end the window moves instead."""
        last = self.window.cells - 1
        if cell < 0:
            return replace(self, window=self.window.panned(cell, self.limits), cell=0)
        if cell > last:
            moved = self.window.panned(cell - last, self.limits)
            return replace(self, window=moved, cell=last)
        return replace(self, cell=cell)

    def panned(self, cells: int) -> View:
        return replace(self, window=self.window.panned(cells, self.limits))

    def zoomed(self, numerator: int, denominator: int, cell: int | None = None) -> View:
        """About the cursor, or another cell."""
        about = self.cell if cell is None else cell
        window = self.window.zoomed(numerator, denominator, about, self.limits)
        # At an end of the run the window cannot keep the place: the cursor goes along.
        moved = window.cell_of(self.window.middle(self.cell))
        return replace(self, window=window, cell=min(max(0, moved), window.cells - 1))

    def fitted(self) -> View:
        """The whole run, with the cursor at the same time."""
        window = replace(self.limits, cells=self.window.cells)
        cell = window.cell_of(self.window.middle(self.cell))
        return replace(self, window=window, cell=min(max(0, cell), window.cells - 1))

    def onto(self, start_ns: int, end_ns: int) -> View:
        """An interval filling the window, with the cursor at its start."""
        window = self.window.around(start_ns, end_ns, self.limits)
        cell = min(max(0, window.cell_of(start_ns)), window.cells - 1)
        if window.edge(cell) < start_ns and cell < window.cells - 1:
            cell += 1
        return replace(self, window=window, cell=cell)

    def spot(self, rows: Sequence[Row]) -> Spot | None:
        """What the cursor points at."""
        if self.row >= len(rows):
            return None
        row = rows[self.row]
        start, end = self.window.edge(self.cell), self.window.edge(self.cell + 1)
        return Spot(row.rank, row.lane, start, max(end, start + 1))
