"""Arithmetic of a stretch of time shown in a row of cells: mapping, zoom, pan, ticks.

Pure integers, exact to the nanosecond; the SQL in ``queries`` bins with the same formulas.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# A cell of a nanosecond is the end of zooming in: below it there is nothing to tell apart.
_SMALLEST_CELL_NS = 1

_SCALES = ((10**9, "s"), (10**6, "ms"), (10**3, "us"), (1, "ns"))


@dataclass(frozen=True, slots=True)
class Window:
    """``[start_ns, end_ns)`` over ``cells`` cells; t falls in cell (t-start)*cells//span."""

    start_ns: int
    end_ns: int
    cells: int

    @property
    def span_ns(self) -> int:
        return self.end_ns - self.start_ns

    def cell_of(self, time_ns: int) -> int:
        """The cell of an instant; below 0 or above ``cells`` - 1 when it is outside."""
        return (time_ns - self.start_ns) * self.cells // self.span_ns

    def edge(self, cell: int) -> int:
        """The first instant of a cell; ``edge(cells)`` is ``end_ns``."""
        return self.start_ns - (-cell * self.span_ns // self.cells)

    def middle(self, cell: int) -> int:
        return self.start_ns + (2 * cell + 1) * self.span_ns // (2 * self.cells)

    def resized(self, cells: int) -> Window:
        """The same time over another number of cells, longer where cells would be too short."""
        cells = max(1, cells)
        end_ns = max(self.end_ns, self.start_ns + cells * _SMALLEST_CELL_NS)
        return Window(self.start_ns, end_ns, cells)

    def zoomed(self, numerator: int, denominator: int, cell: int, limits: Window) -> Window:
        """Span times numerator/denominator, with what is in the middle of ``cell`` kept there."""
        span = self.span_ns * numerator // denominator
        span = min(max(span, self.cells * _SMALLEST_CELL_NS), _widest(self, limits))
        start = self.middle(cell) - (2 * cell + 1) * span // (2 * self.cells)
        return replace(self, start_ns=start, end_ns=start + span).clamped(limits)

    def panned(self, cells: int, limits: Window) -> Window:
        """Moved to the right by ``cells``, to the left when negative, and never past an end."""
        by_ns = max(1, abs(cells) * self.span_ns // self.cells) * (1 if cells > 0 else -1)
        moved = replace(self, start_ns=self.start_ns + by_ns, end_ns=self.end_ns + by_ns)
        return moved.clamped(limits)

    def around(self, start_ns: int, end_ns: int, limits: Window) -> Window:
        """A window that shows the interval with a fiftieth of its length to spare on each side."""
        spare = (end_ns - start_ns) // 50
        start = start_ns - spare
        end = max(end_ns + spare, start + self.cells * _SMALLEST_CELL_NS)
        return replace(self, start_ns=start, end_ns=end).clamped(limits)

    def clamped(self, limits: Window) -> Window:
        """Shifted into ``limits``, and shortened when it is longer than they are."""
        span = min(self.span_ns, _widest(self, limits))
        start = min(
            max(self.start_ns, limits.start_ns), max(limits.end_ns, limits.start_ns + span) - span
        )
        return replace(self, start_ns=start, end_ns=start + span)


def _widest(window: Window, limits: Window) -> int:
    return max(limits.span_ns, window.cells * _SMALLEST_CELL_NS)


def tick_step(span_ns: int, most: int) -> int:
    """The smallest of 1, 2, 5 times a power of ten with which a span holds at most ``most``."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if span_ns <= factor * power * max(1, most):
                return factor * power
        power *= 10


def ticks(window: Window, origin_ns: int, apart: int) -> list[tuple[int, str]]:
    """(cell, text) of round times since ``origin_ns``, at least about ``apart`` cells apart."""
    step = tick_step(window.span_ns, window.cells // max(1, apart))
    first = -((origin_ns - window.start_ns) // step) * step
    found = []
    time_ns = first
    while origin_ns + time_ns < window.end_ns:
        cell = window.cell_of(origin_ns + time_ns)
        if cell >= 0:
            found.append((cell, axis_text(time_ns, step)))
        time_ns += step
    return found


def axis_text(time_ns: int, step_ns: int) -> str:
    """A time on the axis with as many decimals as ticks ``step_ns`` apart need: exact digits."""
    size = max(abs(time_ns), step_ns)
    factor, unit = next(scale for scale in _SCALES if size >= scale[0] or scale[0] == 1)
    digits = 0
    while factor > 1 and step_ns * 10**digits < factor:
        digits += 1
    scaled = abs(time_ns) * 10**digits // factor
    whole, part = divmod(scaled, 10**digits)
    sign = "-" if time_ns < 0 else ""
    return f"{sign}{whole}.{part:0{digits}d} {unit}" if digits else f"{sign}{whole} {unit}"
