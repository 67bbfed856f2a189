"""Every screen driven by keys, on small stores whose figures are known."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import tui_runs
from textual import events
from textual.pilot import Pilot
from textual.widgets import Static

from tracekit.errors import StoreError
from tracekit.store import open_run
from tracekit_tui.app import TracekitApp, run_app
from tracekit_tui.screens.help import HelpScreen
from tracekit_tui.screens.overview import OverviewScreen
from tracekit_tui.screens.table import TableScreen
from tracekit_tui.screens.timeline import TimelineScreen
from tracekit_tui.widgets.gantt import Gantt
from tracekit_tui.widgets.table import ResultTable

US = tui_runs.US
Make = Callable[[Path], Path]


async def settle(pilot: Pilot[None]) -> None:
    """Wait until nothing is asked and all answers are drawn."""
    for _ in range(3):
        await pilot.pause()
        await pilot.app.workers.wait_for_complete()
    await pilot.pause()


@asynccontextmanager
async def running(
    make: Make, path: Path, size: tuple[int, int] = (100, 30)
) -> AsyncIterator[tuple[TracekitApp, Pilot[None]]]:
    with open_run(tui_runs.built(make, path)) as reader:
        app = TracekitApp(reader)
        async with app.run_test(size=size) as pilot:
            await settle(pilot)
            yield app, pilot


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settle(pilot)


def text_of(app: TracekitApp, selector: str) -> str:
    return str(app.screen.query_one(selector, Static).content)


def lines(app: TracekitApp) -> list[str]:
    """The screen as text."""
    return [
        "".join(segment.text for segment in strip).rstrip()
        for strip in app.screen._compositor.render_strips()
    ]


def gantt(app: TracekitApp) -> Gantt:
    return app.screen.query_one(Gantt)


async def test_overview_says_what_the_run_is_and_what_is_missing(tmp_path: Path) -> None:
    async with running(tui_runs.plain, tmp_path) as (app, _):
        run, trust = text_of(app, "#run"), text_of(app, "#trust")
        assert "train.py --name [red]x[/]" in run
        assert "2 of 3" in run
        assert "2 (5-6)" in run
        assert "rank 2: no trace here" in trust
        assert "rank 1: not aligned: why" in trust
        assert "allocator history [truncated]" in trust
        figures = text_of(app, "#figures")
        # overlap = 10 / 40 of both ranks
        assert "25.0 %" in figures
        assert "no pipeline action in this run" in figures


async def test_overview_says_that_a_paced_run_is_synthetic(tmp_path: Path) -> None:
    async with running(tui_runs.pipeline, tmp_path) as (app, _):
        assert "at least 10 ms by sleeping" in text_of(app, "#trust")
        assert "33.3 %" in text_of(app, "#figures")


async def test_timeline_shares_and_detail(tmp_path: Path) -> None:
    async with running(tui_runs.plain, tmp_path, (120, 30)) as (app, pilot):
        await press(pilot, "2")
        legend = text_of(app, "#legend")
        # of each step: 50, 10, 30, 5 and 5 of 100 us
        for text in (
            "compute 50.0%",
            "overlapped comm 10.0%",
            "exposed comm 30.0%",
            "copies 5.0%",
            "idle 5.0%",
            "of 200.0 us on rank 0",
        ):
            assert text in legend
        detail = text_of(app, "#detail")
        assert tui_runs.GEMM in detail
        assert "compute  60.00 us  from 0 us  rank 0  step 5" in detail


async def test_times_are_aligned(tmp_path: Path) -> None:
    async with running(tui_runs.plain, tmp_path, (120, 30)) as (app, pilot):
        await press(pilot, "2", "j")
        assert "rank 1" in text_of(app, "#detail")
        assert "from 0 us" in text_of(app, "#detail")
        assert "▸ rank 1~" in "\n".join(lines(app))


async def test_expanding_gives_lanes_and_names_literally(tmp_path: Path) -> None:
    async with running(tui_runs.plain, tmp_path, (120, 30)) as (app, pilot):
        await press(pilot, "2", "e")
        shown = lines(app)
        assert [line[:12].strip() for line in shown[3:8]] == [
            "▾ rank 0",
            "compute",
            "comm",
            "memory",
            "▸ rank 1~",
        ]
        assert tui_runs.GEMM in shown[4]
        assert "[0] nccl[bol" in shown[5]
        await press(pilot, "j", "j", "enter")
        assert len(gantt(app).rows) == 2
        await press(pilot, "E")
        assert len(gantt(app).rows) == 8


async def test_zoom_pan_fit_and_steps(tmp_path: Path) -> None:
    async with running(tui_runs.plain, tmp_path, (120, 30)) as (app, pilot):
        await press(pilot, "2")
        view = gantt(app).view
        whole = view.window
        assert (whole.start_ns, whole.span_ns) == (tui_runs.BASE, 200 * US)
        await press(pilot, "plus")
        assert gantt(app).view.window.span_ns == 100 * US
        near = gantt(app).view.window
        await press(pilot, "l")
        assert gantt(app).view.window == near.panned(whole.cells // 8, whole)
        await press(pilot, "h")
        assert gantt(app).view.window == near
        await press(pilot, "minus")
        assert gantt(app).view.window == whole
        await press(pilot, "right", "right", "left")
        assert gantt(app).view.cell == 1
        await press(pilot, "n", "n")
        # the second step is at the end of the run: the window slides back to it
        assert gantt(app).view.window.end_ns == tui_runs.BASE + 200 * US
        assert "step 6" in text_of(app, "#detail")
        await press(pilot, "p")
        assert gantt(app).view.window.start_ns == tui_runs.BASE
        await press(pilot, "0")
        assert gantt(app).view.window == whole


async def test_rows_scroll_and_the_cursor_stays_on_screen(tmp_path: Path) -> None:
    def many(path: Path) -> Path:
        return tui_runs.plain(path, ranks=60, world=60)

    async with running(many, tmp_path, (80, 24)) as (app, pilot):
        await press(pilot, "2", "G")
        assert gantt(app).view.row == 59
        assert gantt(app).view.top == 60 - gantt(app).body
        assert gantt(app).frame is not None
        assert 59 in gantt(app).frame.ranks
        assert len(gantt(app).frame.ranks) == gantt(app).body
        await press(pilot, "g", "pagedown")
        assert gantt(app).view.row == gantt(app).body


async def test_actions_with_their_microbatch(tmp_path: Path) -> None:
    async with running(tui_runs.pipeline, tmp_path, (120, 30)) as (app, pilot):
        await press(pilot, "2")
        first, second = (line[12:].strip("▐ ") for line in lines(app)[3:5])
        assert first.replace("·", " ").split() == ["F0", "F1", "B0", "B1"]
        assert second.replace("·", " ").strip("│ ").split() == ["F0", "F1", "B0", "B1"]
        assert "F0  forward, stage 0, micro-batch 0" in text_of(app, "#detail")
        assert "10.00 ms" in text_of(app, "#detail")
        await press(pilot, "j")
        assert "bubble" in text_of(app, "#detail")


async def test_the_mouse_moves_the_cursor_opens_and_zooms(tmp_path: Path) -> None:
    async with running(tui_runs.plain, tmp_path, (120, 30)) as (app, pilot):
        await press(pilot, "2")
        await pilot.click(Gantt, offset=(gantt(app).names_width + 20, 3))
        await settle(pilot)
        assert (gantt(app).view.row, gantt(app).view.cell) == (1, 20)
        await pilot.click(Gantt, offset=(2, 2))
        await settle(pilot)
        assert gantt(app).opened == {0}
        before = gantt(app).view.window.span_ns
        x = gantt(app).names_width + 20
        gantt(app).post_message(
            events.MouseScrollUp(gantt(app), x, 3, 0, -1, 0, shift=False, meta=False, ctrl=False)
        )
        await settle(pilot)
        assert gantt(app).view.window.span_ns == before // 2


async def test_table_columns_sort_group_and_documentation(tmp_path: Path) -> None:
    async with running(tui_runs.plain, tmp_path, (120, 30)) as (app, pilot):
        await press(pilot, "4")
        assert isinstance(app.screen, TableScreen)
        grid = app.screen.query_one(ResultTable).grid
        assert grid is not None
        column = [drawn.column.name for drawn in grid.columns].index("exposed_ns")
        assert grid.text(0, column) == "60.00 us"
        assert "higher is better" in text_of(app, "#column")
        await press(pilot, "right")
        assert text_of(app, "#column").startswith("exposed_ns  ns  lower is better")
        await press(pilot, "h", "h", "s")
        assert [row.rank for row in grid.rows] == [0, 1]
        await press(pilot, "S")
        assert [row.rank for row in grid.rows] == [1, 0]
        assert "rank▼" in "\n".join(lines(app))
        await pilot.click(ResultTable, offset=(4, 1))
        assert [row.rank for row in grid.rows] == [0, 1]
        await press(pilot, "b")
        assert "by stage" in text_of(app, "#title")


async def test_missing_reasons_stand_beneath_the_table(tmp_path: Path) -> None:
    async with running(tui_runs.plain, tmp_path) as (app, pilot):
        await press(pilot, "3")
        assert "no pipeline action in this run" in text_of(app, "#reasons")
        assert "no rows" in "\n".join(lines(app))


async def test_figures_of_the_pipeline(tmp_path: Path) -> None:
    async with running(tui_runs.pipeline, tmp_path, (120, 30)) as (app, pilot):
        await press(pilot, "3")
        grid = app.screen.query_one(ResultTable).grid
        assert grid is not None
        names = [drawn.column.name for drawn in grid.columns]
        texts = dict(zip(names, (grid.text(0, n) for n in range(len(names))), strict=True))
        assert texts["bubble_ratio"] == texts["theoretical_ratio"] == "33.3 %"
        assert texts["window_ns"] == "60.00 ms"
        assert texts["busy_ns"] == "40.00 ms"
        assert texts["bubble_ns"] == "20.00 ms"
        assert texts["schedule"] == "gpipe"
        # columns that do not fit are reached by key
        before = "\n".join(lines(app))
        await press(pilot, *["right"] * 16)
        assert "cooldown" in "\n".join(lines(app))
        assert "cooldown" not in before


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (40, 10)])
async def test_an_empty_store_says_so_on_every_screen(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with running(tui_runs.empty, tmp_path, size) as (app, pilot):
        assert "the run holds no rank" in text_of(app, "#trust")
        for number in range(2, len(app.titles) + 1):
            await pilot.press(str(number), "down", "right", "s", "plus", "n", "e", "G")
            await settle(pilot)
        await press(pilot, "2")
        if size[0] >= 80:
            assert "Nothing to draw" in "\n".join(lines(app))


async def test_keys_lead_everywhere_and_back(tmp_path: Path) -> None:
    async with running(tui_runs.plain, tmp_path) as (app, pilot):
        await press(pilot, "2")
        assert isinstance(app.screen, TimelineScreen)
        await press(pilot, "5", "question_mark")
        assert isinstance(app.screen, HelpScreen)
        help_text = "\n".join(lines(app))
        assert "Group by other dimensions" in help_text
        assert "Communication overlap" in help_text
        await press(pilot, "escape", "escape")
        assert isinstance(app.screen, TimelineScreen)
        await press(pilot, "escape")
        assert isinstance(app.screen, OverviewScreen)
        await press(pilot, "escape", "9")
        assert isinstance(app.screen, OverviewScreen)
        titles = [command.title for command in app.get_system_commands(app.screen)]
        assert "Timeline" in titles
        await pilot.press("q")


async def test_any_theme_and_any_size(tmp_path: Path) -> None:
    async with running(tui_runs.pipeline, tmp_path) as (app, pilot):
        for theme in ("tracekit-light", "nord", "textual-light", "ansi-dark"):
            if theme in app.available_themes:
                app.theme = theme
                await pilot.press("1", "2", "3")
                await settle(pilot)
        for width, height in ((80, 24), (30, 8), (150, 50)):
            await pilot.resize_terminal(width, height)
            await pilot.press("1", "2", "e", "3")
            await settle(pilot)


@pytest.mark.parametrize("name", ["none.db", "text.db", "folder"])
def test_what_cannot_be_opened_is_said_before_anything_is_drawn(tmp_path: Path, name: str) -> None:
    (tmp_path / "text.db").write_text("not a database")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError):
        run_app(tmp_path / name)
