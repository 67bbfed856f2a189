"""The timeline: the Gantt, the shares of what is shown, and what the cursor points at."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from tracekit.analysis.base import Unit
from tracekit.plain import plain
from tracekit.present.units import show
from tracekit_tui.model import Detail, Kind, Lane, Spot
from tracekit_tui.screens.base import RunScreen
from tracekit_tui.widgets.gantt import Gantt
from tracekit_tui.widgets.paint import legend
from tracekit_tui.window import axis_text, tick_step

_COLOURS = {
    Kind.COMPUTE: "$tk-compute",
    Kind.OVERLAPPED: "$tk-overlapped",
    Kind.EXPOSED: "$tk-exposed",
    Kind.COPIES: "$tk-copies",
}
_ACTION_COLOURS = (
    ("F", "$tk-forward", "forward"),
    ("B", "$tk-backward", "backward"),
    ("I", "$tk-input", "input grad"),
    ("W", "$tk-weight", "weight grad"),
)

Part = tuple[str, str] | str


class TimelineScreen(RunScreen):
    """Ranks over time."""

    HELP_NOTES = (
        "A bar is as high as the share of its cell that is busy; where classes share cells, the "
        "colours of neighbours take turns in proportion to time. ~ a clock that is not aligned.",
        "The line beneath the chart splits the shown time of the cursor's rank exactly.",
        "Mouse: wheel zooms at the pointer, Shift+wheel pans, Ctrl+wheel (or over the names) "
        "scrolls ranks, click sets the cursor, double click expands.",
    )

    def body(self) -> ComposeResult:
        app = self.tracekit
        yield Gantt(app.run_info, app.timeline)
        yield Static(id="legend", markup=False)
        yield Static(id="detail", markup=False)

    @property
    def gantt(self) -> Gantt:
        return self.query_one(Gantt)

    @on(Gantt.Changed)
    def _show_shares(self) -> None:
        gantt = self.gantt
        spot = gantt.spot()
        legend_line = self.query_one("#legend", Static)
        if spot is None:
            legend_line.update("")
            return
        if spot.lane is Lane.ACTIONS:
            parts: list[Part] = []
            for letter, colour, name in _ACTION_COLOURS:
                parts += [(f" {letter} ", f"$tk-on-action on {colour}"), f" {name}  "]
            parts.append(("· bubble", "$tk-muted"))
            legend_line.update(Content.assemble(*parts))
            return
        legend_line.update(self._shares(spot.rank))

    def _shares(self, rank: int) -> Content:
        """The legend, with the share of each kind in the time that is shown."""
        gantt = self.gantt
        times = gantt.window_times(rank)
        span = gantt.view.window.span_ns
        entries = legend(self.app.no_color)
        named = sum(len(name) for _, name, _ in entries) + 12 * len(entries) + 8
        known = times is not None and gantt.rows[gantt.view.row].info.evidence != "none"
        parts: list[Part] = []
        for mark, name, kind in entries:
            if named > self.size.width:
                name = name.removesuffix(" comm")
            parts += [(f"{mark} ", "$tk-muted" if kind is None else _COLOURS[kind]), f"{name} "]
            if times is not None and known:
                ns = span - sum(times[:4]) if kind is None else times[kind]
                parts.append((show(ns / span, Unit.RATIO).replace(" ", ""), "bold"))
            parts.append(" " if named > self.size.width else "   ")
        content = Content.assemble(*parts)
        whole = f"of {show(span, Unit.NS)} on rank {rank}"
        fits = content.cell_length + len(whole) + 2 <= self.size.width
        return Content.assemble(content, (whole, "$tk-muted")) if fits else content

    @on(Gantt.Detailed)
    def _show_detail(self, message: Gantt.Detailed) -> None:
        self.query_one("#detail", Static).update(
            Content("\n").join(self._lines(message.spot, message.detail))
        )

    def _lines(self, spot: Spot, detail: Detail | None) -> list[Content]:
        gantt = self.gantt
        step = tick_step(gantt.view.window.span_ns, gantt.view.window.cells)
        place = f"rank {spot.rank}"
        at = axis_text(spot.start_ns - gantt.origin_ns, step)
        if detail is None:
            what = "bubble" if spot.lane is Lane.ACTIONS else "idle"
            if gantt.rows[gantt.view.row].info.evidence == "none" and spot.lane is Lane.RANK:
                what = "no timed work in the trace"
            return [
                Content.assemble((what, "$tk-muted")),
                Content.assemble((f"{place}  at {at}", "$tk-muted")),
            ]
        name = detail.name or "operators (a stretch of several)"
        more = f"   and {show(detail.others, Unit.COUNT)} more in this cell"
        first = Content.assemble(
            (plain(name), "bold $primary"), (more if detail.others else "", "$tk-muted")
        )
        start = axis_text(detail.start_ns - gantt.origin_ns, min(step, 1000))
        fields = [
            ("", detail.what),
            ("", show(detail.end_ns - detail.start_ns, Unit.NS)),
            ("from", start),
            ("", place),
        ]
        if detail.step is not None:
            fields.append(("step", str(detail.step)))
        fields.append(("", plain(detail.extra)))
        parts: list[Part] = []
        for key, value in fields:
            if value:
                parts += [(f"{key} " if key else "", "$tk-muted"), value, "  "]
        return [first, Content.assemble(*parts)]
