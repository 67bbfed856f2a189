"""The overview: the run, the headline figure of each analyzer, and reasons for doubt."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from textwrap import wrap
from typing import Any

from textual.app import ComposeResult
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from tracekit.analysis.base import Analyzer, Column, Result, Row, Unit
from tracekit.plain import plain
from tracekit.present.structured import describe
from tracekit.present.units import show
from tracekit_tui.results import Failure
from tracekit_tui.screens.base import RunScreen
from tracekit_tui.text import fit
from tracekit_tui.widgets.grid import ends

_SPARKS = "▁▂▃▄▅▆▇█"
_NAME, _VALUE, _WHERE, _SPREAD = 32, 10, 10, 32

Part = tuple[str, str] | str


class OverviewScreen(RunScreen):
    """What there is to know before any table."""

    HELP_NOTES = (
        "Each line sums up an analyzer's rows by their headline column; the bars at the right are "
        "the rows in order. Its number key opens the table.",
    )

    def body(self) -> ComposeResult:
        with VerticalScroll(id="overview"):
            with Container(id="about"):
                yield Static(id="run", markup=False)
                yield Static(id="trust", markup=False)
            yield Static(id="figures", markup=False)

    def on_mount(self) -> None:
        self._panel("run", "Run").update(self._run())
        self._panel("trust", "Trust").update(self._trust())
        self._panel("figures", "Figures")
        self.show_results()

    def _panel(self, name: str, title: str) -> Static:
        panel = self.query_one(f"#{name}", Static)
        panel.border_title = title
        return panel

    def on_resize(self) -> None:
        self.set_class(self.size.width >= 110, "wide")
        self.query_one("#run", Static).update(self._run())
        self.show_results()

    def _run(self) -> Content:
        """Facts in two columns, those that are too long for one on a line of their own."""
        facts = self.tracekit.run_info.facts
        half = (self.size.width // (2 if self.has_class("wide") else 1) - 8) // 2
        lines: list[list[Part]] = []
        open_line = False
        for key, value in facts:
            short = len(value) <= half - 12
            entry: list[Part] = [
                (key.ljust(9), "$tk-muted"),
                " ",
                fit(value, half - 10) if short else plain(value),
            ]
            if short and open_line:
                lines[-1] += entry
            else:
                lines.append(entry)
            open_line = short and not open_line
        return Content("\n").join(Content.assemble(*line) for line in lines)

    def _trust(self) -> Content:
        trust = self.tracekit.run_info.trust
        if not self.tracekit.run_info.ranks:
            return Content.assemble(("! ", "bold $warning"), "the run holds no rank")
        if not trust:
            return Content.assemble(("✓ ", "bold $success"), "all ranks, whole files, one clock")
        lines = [
            Content.assemble(("! ", "bold $warning"), (f"{kind}  ", "bold"), plain(text))
            for kind, text in trust
        ]
        return Content("\n").join(lines)

    def show_results(self) -> None:
        width = self.size.width - 7
        head = "".join(
            (
                " " * _NAME,
                "median".rjust(_VALUE),
                "lowest".rjust(_VALUE),
                "highest".rjust(_VALUE),
                "  ",
                "worst at".ljust(_WHERE),
            )
        )
        lines = [Content.assemble((head, "$tk-muted"))]
        # Asked for last is computed first: ask from the last to the first.
        analyzers = list(enumerate(self.tracekit.analyzers, start=3))
        answers = {a.name: self.tracekit.results.get(a) for _, a in reversed(analyzers)}
        for number, analyzer in analyzers:
            lines += self._figure(number, analyzer, answers[analyzer.name], width)
        self.query_one("#figures", Static).update(Content("\n").join(lines))

    def _figure(
        self, number: int, analyzer: Analyzer, answer: Result | Failure | None, width: int
    ) -> list[Content]:
        key: list[Part] = [(f"{number} ", "bold $primary")]
        column = next(c for c in analyzer.columns if c.name == analyzer.headline)
        name = column.name.removesuffix("_ns").removesuffix("_bytes").replace("_", " ")
        title: list[Part] = [
            analyzer.title,
            (fit(f"  {name}", _NAME - 2 - len(analyzer.title)), "$tk-muted"),
        ]
        if answer is None:
            return [Content.assemble(*key, *title, ("  computing …", "$tk-muted"))]
        if isinstance(answer, Failure):
            return [
                Content.assemble(*key, *title, ("  cannot be computed", "$error")),
                _reason(answer.reason, width),
            ]
        lines = [Content.assemble(*key, *title, *_summary(answer, column, width))]
        return lines + [_reason(describe(m.reason, m.where), width) for m in answer.missing]


def _reason(text: str, width: int) -> Content:
    lines = wrap(plain(text), max(20, width - 4), break_on_hyphens=False) or [""]
    return Content.assemble(("  ! ", "bold $warning"), ("\n    ".join(lines), "$tk-muted"))


def _summary(result: Result, column: Column, width: int) -> list[Part]:
    """Median, ends, where the worst is, and the rows as bars."""
    known: list[tuple[Any, Row]] = [
        (value, row) for row in result.rows if (value := getattr(row, column.name)) is not None
    ]
    if not known:
        return [("n/a".rjust(_VALUE), "$tk-muted")]
    values = [value for value, _ in known]
    low, high = min(values), max(values)
    middle = median(values) if column.unit is Unit.RATIO else int(median(values))
    parts: list[Part] = [(show(middle, column.unit).rjust(_VALUE), "bold")]
    if len(known) == 1:
        return parts
    _, bad = ends(column, values)
    for end in (low, high):
        style = "$tk-bad" if bad is not None and end == bad else ""
        parts.append((show(end, column.unit).rjust(_VALUE), style))
    where = ""
    if bad is not None:
        worst = next(row for value, row in known if value == bad)
        where = " ".join(f"{dim} {getattr(worst, dim)}" for dim in result.by)
    parts.append(f"  {fit(where, _WHERE)} ")
    room = min(_SPREAD, width - _NAME - 3 * _VALUE - _WHERE - 4)
    parts.append((sparks(values, max(0, room)), "$tk-compute"))
    return parts


def sparks(values: list[Any], room: int) -> str:
    """The values as bars from zero; where there are too many, the highest of each stretch."""
    if room < 2 or not values:
        return ""
    if len(values) > room:
        edges = [i * len(values) // room for i in range(room + 1)]
        values = [max(values[a:b]) for a, b in pairwise(edges)]
    top = max(values)
    if top <= 0:
        return ""
    return "".join(_SPARKS[min(7, max(0, int(value / top * 7.999)))] for value in values)
