"""The application: its screens, the keys that lead to them, and the results they share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from textual import on
from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.screen import Screen

from tracekit.analysis.base import Analyzer
from tracekit.analysis.registry import ANALYZERS
from tracekit.store import Reader, open_run
from tracekit_tui import theme
from tracekit_tui.facts import load_run
from tracekit_tui.results import ResultReady, Results
from tracekit_tui.screens.base import RunScreen
from tracekit_tui.screens.help import HelpScreen
from tracekit_tui.screens.overview import OverviewScreen
from tracekit_tui.screens.table import TableScreen
from tracekit_tui.screens.timeline import TimelineScreen
from tracekit_tui.source import Timeline
from tracekit_tui.widgets.nav import Nav


class TracekitApp(App[None]):
    """Browses one run."""

    CSS_PATH = "app.tcss"
    TITLE = "tracekit"
    ENABLE_COMMAND_PALETTE = True

    BINDINGS = [
        *(Binding(str(number), f"goto({number - 1})", show=False) for number in range(1, 10)),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("escape", "previous", "Back", key_display="esc", show=False),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, reader: Reader, analyzers: Sequence[Analyzer] = ANALYZERS) -> None:
        super().__init__()
        self.reader = reader
        self.analyzers = tuple(analyzers)
        self.titles = ("Overview", "Timeline", *(analyzer.title for analyzer in self.analyzers))
        self.run_info = load_run(reader)
        self.results = Results(self, reader)
        self.timeline = Timeline(reader)
        self._run_screens: tuple[RunScreen, ...] = ()
        self._visited: list[int] = []
        self.register_theme(theme.DARK)
        self.register_theme(theme.LIGHT)
        self.theme = theme.DARK.name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return theme.variables(self.current_theme)

    def on_mount(self) -> None:
        self._run_screens = (
            OverviewScreen(0),
            TimelineScreen(1),
            *(TableScreen(n, analyzer) for n, analyzer in enumerate(self.analyzers, start=2)),
        )
        for screen in self._run_screens:
            self.install_screen(screen, f"run-{screen.number}")
        self.push_screen(self._run_screens[0])

    @property
    def here(self) -> RunScreen | None:
        """The screen of the run that is shown, also while help or the palette is above it."""
        found = [screen for screen in self.screen_stack if isinstance(screen, RunScreen)]
        return found[-1] if found else None

    def action_goto(self, number: int) -> None:
        here = self.here
        if here is None or number == here.number or number >= len(self._run_screens):
            return
        self._visited.append(here.number)
        self._switch(number)

    def action_previous(self) -> None:
        here = self.here
        if here is not None and self._visited:
            self._switch(self._visited.pop())

    def _switch(self, number: int) -> None:
        if self.screen is self.here:
            self.switch_screen(self._run_screens[number])
            self._run_screens[number].show_results()

    async def action_quit(self) -> None:
        """Leave now, whatever is being computed."""
        self.results.interrupt()
        self.timeline.interrupt()
        self.exit()

    @on(Nav.Chosen)
    def _choose(self, message: Nav.Chosen) -> None:
        self.action_goto(message.number)

    @on(ResultReady)
    def _pass_on(self) -> None:
        for screen in self._run_screens:
            if screen.is_mounted and screen in self.screen_stack:
                screen.show_results()

    def action_help(self) -> None:
        screen = self.here
        if screen is None or self.screen is not screen:
            return
        own: list[tuple[str, str]] = []
        everywhere: list[tuple[str, str]] = []
        for number, title in enumerate(self.titles, start=1):
            everywhere.append((str(number), title))
        seen = set()
        for active in screen.active_bindings.values():
            binding = active.binding
            if binding.action in seen or not binding.description or _is_textuals(binding):
                continue
            seen.add(binding.action)
            keys = self.get_key_display(binding)
            entry = (keys, binding.tooltip or binding.description)
            mine = active.node is not self
            (own if mine else everywhere).append(entry)
        groups = [("This screen", own), ("Everywhere", everywhere)]
        self.push_screen(HelpScreen(self.titles[screen.number], groups, screen.HELP_NOTES))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        yield from super().get_system_commands(screen)
        for number, title in enumerate(self.titles):
            yield SystemCommand(
                title,
                f"Go to this screen (key {number + 1})",
                lambda number=number: self.action_goto(number),
            )


def _is_textuals(binding: Binding) -> bool:
    """Keys that every Textual application has and nobody looks for here."""
    return binding.action.startswith(("app.focus", "screen.copy")) or binding.key == "ctrl+q"


def run_app(path: Path) -> None:
    """Browse a run until the user leaves.

    Raises:
        StoreError: the database cannot be opened; nothing has been drawn then.
    """
    with open_run(path) as reader:
        TracekitApp(reader).run()
