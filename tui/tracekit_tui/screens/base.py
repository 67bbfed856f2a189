"""What every screen of a run has: the line at the top, the keys at the bottom."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer

from tracekit.plain import plain
from tracekit_tui.widgets.nav import Nav

if TYPE_CHECKING:
    from tracekit_tui.app import TracekitApp


class RunScreen(Screen[None]):
    """A screen with a number; :meth:`body` gives what is between the two lines."""

    # What help says beneath the keys.
    HELP_NOTES: tuple[str, ...] = ()

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    @property
    def tracekit(self) -> TracekitApp:
        return cast("TracekitApp", self.app)

    def compose(self) -> ComposeResult:
        app = self.tracekit
        yield Nav(app.titles, self.number, plain(app.reader.path.name))
        yield from self.body()
        yield Footer(show_command_palette=False)

    def body(self) -> ComposeResult:
        raise NotImplementedError

    def show_results(self) -> None:
        """Take what the analyzers have answered since."""
