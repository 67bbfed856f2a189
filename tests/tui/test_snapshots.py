"""Each screen as it looks, at the smallest size and a larger one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tui_runs
from textual.pilot import Pilot

from tracekit.store import open_run
from tracekit_tui.app import TracekitApp

SIZES = [(80, 24), (120, 36)]
SCREENS = {
    "overview": ("plain", ""),
    "overview_paced": ("pipeline", ""),
    "overview_empty": ("empty", ""),
    "timeline": ("plain", "2"),
    "timeline_open": ("plain", "2 e n right right right"),
    "timeline_actions": ("pipeline", "2 e j"),
    "timeline_empty": ("empty", "2"),
    "timeline_help": ("plain", "2 question_mark"),
    "table_bubble": ("pipeline", "3"),
    "table_overlap": ("plain", "4 right s"),
    "table_steps": ("plain", "5 b b b"),
    "table_missing": ("plain", "6"),
    "table_coverage": ("plain", "7"),
}


def _press(keys: str) -> Callable[[Pilot[None]], Any]:
    async def before(pilot: Pilot[None]) -> None:
        for key in ["", *keys.split()]:
            if key:
                await pilot.press(key)
            for _ in range(3):
                await pilot.pause()
                await pilot.app.workers.wait_for_complete()
            await pilot.pause()

    return before


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("screen", SCREENS)
def test_screen(
    screen: str, size: tuple[int, int], tmp_path: Path, snap_compare: Callable[..., bool]
) -> None:
    run, keys = SCREENS[screen]
    with open_run(tui_runs.built(getattr(tui_runs, run), tmp_path)) as reader:
        app = TracekitApp(reader)
        assert snap_compare(app, run_before=_press(keys), terminal_size=size)


@pytest.mark.parametrize("screen", ["overview", "timeline_actions", "table_overlap"])
def test_light(screen: str, tmp_path: Path, snap_compare: Callable[..., bool]) -> None:
    run, keys = SCREENS[screen]
    with open_run(tui_runs.built(getattr(tui_runs, run), tmp_path)) as reader:
        app = TracekitApp(reader)
        app.theme = "tracekit-light"
        assert snap_compare(app, run_before=_press(keys), terminal_size=(80, 24))


def test_no_colour(
    tmp_path: Path, snap_compare: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with open_run(tui_runs.built(tui_runs.plain, tmp_path)) as reader:
        app = TracekitApp(reader)
        assert snap_compare(app, run_before=_press("2"), terminal_size=(80, 24))
