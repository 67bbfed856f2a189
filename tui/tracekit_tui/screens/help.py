"""Help of the screen beneath: its keys as bound, and its notes."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

Keys = Sequence[tuple[str, str]]


class HelpScreen(ModalScreen[None]):
    """Closes with any of the keys that leave."""

    BINDINGS = [
        Binding("escape,question_mark,enter", "dismiss", "Close", key_display="esc"),
        Binding("q", "dismiss", show=False),
    ]

    def __init__(
        self, title: str, groups: Sequence[tuple[str, Keys]], notes: Sequence[str]
    ) -> None:
        super().__init__()
        self._title = title
        self._groups = groups
        self._notes = notes

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help") as box:
            box.border_title = Content(f"Help: {self._title}")
            box.border_subtitle = Content("esc closes")
            with Container(id="keys"):
                for heading, keys in self._groups:
                    yield Static(_column(heading, keys), markup=False)
            notes = Content("\n").join(Content(note) for note in self._notes)
            yield Static(notes.stylize("$tk-muted"), id="notes", markup=False)


def _column(heading: str, keys: Keys) -> Content:
    lines = [Content.assemble((heading, "bold $primary"))]
    lines += [Content.assemble((key.rjust(6), "bold"), "  ", what) for key, what in keys]
    return Content("\n").join(lines)
