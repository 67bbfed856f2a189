"""One analyzer's table, straight from its row definition."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from tracekit.analysis.base import Analyzer
from tracekit.plain import plain
from tracekit.present.structured import describe
from tracekit_tui.results import Failure
from tracekit_tui.screens.base import RunScreen
from tracekit_tui.widgets.grid import describe_column
from tracekit_tui.widgets.table import ResultTable


class TableScreen(RunScreen):
    """Rows of an analyzer, the documentation of a column, and what is missing."""

    BINDINGS = [Binding("b", "group", "Group by", tooltip="Group by other dimensions")]

    HELP_NOTES = (
        "Colours only repeat what the numbers say: the best and the worst value of a column.",
        "A click on a heading sorts; n/a is not available: the reason stands beneath the table.",
    )

    def __init__(self, number: int, analyzer: Analyzer) -> None:
        super().__init__(number)
        self.analyzer = analyzer
        self._groupings = groupings(analyzer)
        self._grouping = 0
        self._shown: object = None

    @property
    def by(self) -> tuple[str, ...]:
        return self._groupings[self._grouping]

    def body(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield ResultTable()
        yield Static(id="column", markup=False)
        with VerticalScroll(id="missing", can_focus=False):
            yield Static(id="reasons", markup=False)

    def on_mount(self) -> None:
        self.show_results()

    def action_group(self) -> None:
        self._grouping = (self._grouping + 1) % len(self._groupings)
        self.show_results()

    def show_results(self) -> None:
        if not self.query("#title"):
            return
        answer = self.tracekit.results.get(self.analyzer, self.by)
        shown = (self.by, answer is None)
        if answer is not None and self._shown == shown:
            return
        self._shown = shown
        table = self.query_one(ResultTable)
        reasons: list[str] = []
        if answer is None:
            table.show_note("computing …")
        elif isinstance(answer, Failure):
            table.show_note(f"cannot be computed: {answer.reason}")
        else:
            table.show_result(answer)
            reasons = [describe(missing.reason, missing.where) for missing in answer.missing]
        self._show_title(
            None if isinstance(answer, Failure) or answer is None else len(answer.rows)
        )
        self.query_one("#missing").display = bool(reasons)
        lines = [Content.assemble(("! ", "bold $warning"), plain(text)) for text in reasons]
        self.query_one("#reasons", Static).update(Content("\n").join(lines))

    def _show_title(self, rows: int | None) -> None:
        by = " and ".join(self.by) or "the whole run"
        count = "" if rows is None else f"  {rows} row{'' if rows == 1 else 's'}"
        self.query_one("#title", Static).update(
            Content.assemble(
                (self.analyzer.title, "bold $primary"),
                f"  by {by}",
                (count, "$tk-muted"),
                "\n",
                (self.analyzer.doc, "$tk-muted"),
            )
        )

    @on(ResultTable.Moved)
    def _show_column(self, message: ResultTable.Moved) -> None:
        line = self.query_one("#column", Static)
        if message.column is None:
            line.update("")
            return
        name, doc = describe_column(message.column)
        line.update(Content.assemble((name, "bold"), "  ", (doc, "$tk-muted")))


def groupings(analyzer: Analyzer) -> list[tuple[str, ...]]:
    """What rows can be grouped by: the default, each dimension alone, by rank and step, all."""
    found = [analyzer.default_by, *((dim,) for dim in analyzer.by)]
    if "step" in analyzer.by:
        found += [(dim, "step") for dim in analyzer.by if dim in ("stage", "rank")]
    return list(dict.fromkeys(found))
