"""Cells to characters and styles, by hand."""

from tracekit_tui.model import ActionCell, Frame, Label, Lane, RankInfo
from tracekit_tui.view import View
from tracekit_tui.widgets.nav import Nav
from tracekit_tui.widgets.paint import paint_axis, paint_row, paint_ruler
from tracekit_tui.widgets.rows import gutter_text, lanes_of, rows_of
from tracekit_tui.window import Window

# 4 cells of 100 ns: all compute; half compute; idle; exposed communication under copies.
WINDOW = Window(0, 400, 4)
CELLS = [(100, 0, 0, 0, 0), (50, 0, 0, 0, 0), (0, 0, 0, 0, 0), (0, 0, 100, 0, 40)]
FRAME = Frame(WINDOW, (0,), cells={0: CELLS})


def test_bars_are_as_high_as_the_cell_is_busy() -> None:
    assert paint_row(FRAME, WINDOW, 0, Lane.RANK) == [
        ("▇", "compute"),
        ("▄", "compute"),
        ("·", "idle"),
        ("▇", "exposed"),
    ]


def test_a_step_that_begins_in_idle_time_is_marked() -> None:
    window = Window(0, 800, 8)
    frame = Frame(window, (0,), cells={0: CELLS * 2}, steps={0: {2: 9}})
    assert paint_row(frame, window, 0, Lane.RANK)[2] == ("│", "step")


def test_lanes_show_their_class_whatever_else_runs() -> None:
    assert paint_row(FRAME, WINDOW, 0, Lane.COMMUNICATION)[3] == ("▇", "exposed")
    # 40 of 100 ns: round(0.4 * 7) = 3 of 7 eighths
    assert paint_row(FRAME, WINDOW, 0, Lane.MEMORY)[3] == ("▃", "copies")
    assert paint_row(FRAME, WINDOW, 0, Lane.COMPUTE)[3] == ("·", "idle")


def test_mixed_cells_take_turns_in_proportion_to_time() -> None:
    window = Window(0, 100_000, 1000)
    frame = Frame(window, (0,), cells={0: [(60, 10, 30, 0, 0)] * 1000})
    styles = [style for _, style in paint_row(frame, window, 0, Lane.RANK)]
    counts = {name: styles.count(name) for name in ("compute", "overlapped", "exposed")}
    assert all(
        abs(counts[name] - many) <= 2
        for name, many in (("compute", 600), ("overlapped", 100), ("exposed", 300))
    )


def test_the_smallest_event_is_seen() -> None:
    window = Window(0, 1_000_000, 1)
    frame = Frame(window, (0,), cells={0: [(0, 0, 1, 0, 0)]})
    assert paint_row(frame, window, 0, Lane.RANK) == [("▁", "exposed")]


def test_without_colour_letters_tell_the_class() -> None:
    row = paint_row(FRAME, WINDOW, 0, Lane.RANK, colourless=True)
    assert "".join(char for char, _ in row) == "cc·X"


def test_a_frame_of_another_window_is_drawn_where_its_time_is_now() -> None:
    # cells of 50 ns from 100: the middles 125, 175 lie in cell 1, 225, 275 in cell 2
    row = paint_row(FRAME, Window(100, 300, 4), 0, Lane.RANK)
    assert [char for char, _ in row] == ["▄", "▄", "·", "·"]
    # what the frame does not hold is blank, not idle
    assert paint_row(FRAME, Window(300, 500, 2), 0, Lane.RANK) == [("▇", "exposed"), (" ", "idle")]


def test_actions_are_named_where_there_is_room() -> None:
    window = Window(0, 800, 8)
    f0, b12 = ActionCell("F", 0, 0, 0), ActionCell("B", 0, 13, 400)
    frame = Frame(window, (0,), actions={0: [f0, f0, f0, None, b12, b12, f0, None]})
    row = paint_row(frame, window, 0, Lane.ACTIONS)
    assert "".join(char for char, _ in row) == "F0 ·B  ·"
    assert [style for _, style in row[3:6]] == ["idle", "backward-alt", "backward-alt"]
    colourless = paint_row(frame, window, 0, Lane.ACTIONS, colourless=True)
    assert "".join(char for char, _ in colourless) == "F0 ·B F·"


def test_names_in_bars_are_cut_and_never_markup() -> None:
    window = Window(0, 1000, 10)
    frame = Frame(
        window,
        (0,),
        cells={0: [(100, 0, 0, 0, 0)] * 10},
        labels={(0, "compute"): [Label(1, 9, "[/]gemm[0]")]},
    )
    row = paint_row(frame, window, 0, Lane.COMPUTE)
    assert "".join(char for char, _ in row) == "▇ [/]ge… ▇"
    assert row[2][1] == "compute-bar"


def test_the_axis_and_the_ruler() -> None:
    window = Window(0, 40_000, 40)
    axis = "".join(char for char, _ in paint_axis(window, 0))
    assert axis.rstrip() == "╷0 us" + " " * 15 + "╷20 us"
    frame = Frame(window, (0,), steps={0: {-1: 4, 20: 5}})
    text = "".join(char for char, _ in paint_ruler(frame, window, 0))
    assert text == "< step 4 " + "─" * 11 + "┬ step 5 " + "─" * 11


def _info(rank: int, *, stage: int | None = None, aligned: bool = True) -> RankInfo:
    return RankInfo(rank, None, None, "kernel", stage, aligned, stage is not None)


def test_rows_open_into_lanes() -> None:
    rows = rows_of([_info(0), _info(1, stage=2)], frozenset({1}))
    assert [(row.rank, str(row.lane)) for row in rows] == [
        (0, "rank"),
        (1, "rank"),
        (1, "actions"),
        (1, "compute"),
        (1, "communication"),
        (1, "memory"),
    ]
    assert Lane.ACTIONS not in lanes_of(_info(0))
    assert gutter_text(rows[1], opened=True) == "▾ rank 1 s2"
    assert gutter_text(rows_of([_info(3, aligned=False)], frozenset())[0], opened=False) == (
        "▸ rank 3~"
    )


def test_the_cursor_pulls_rows_and_window_along() -> None:
    view = View(Window(200, 300, 10), Window(0, 1000, 10))
    assert view.to_row(7, height=5, rows=20).top == 3
    assert view.to_row(99, height=5, rows=20).row == 19
    assert view.to_cell(10).window == Window(210, 310, 10)
    assert view.to_cell(10).cell == 9
    assert view.scrolled(3, height=5, rows=20).row == 3
    assert view.onto(400, 500).window == Window(398, 502, 10)
    assert view.onto(400, 500).cell == 1


def test_titles_fit_the_line() -> None:
    nav = Nav(("Overview", "Timeline", "Communication overlap", "Memory per stage"), 2, "run.db")
    assert nav.texts(99)[2] == " 3 Communication overlap "
    assert nav.texts(50) == [" 1 Overview ", " 2 Timeline ", " 3 Communicati… ", " 4 Memory "]
    assert sum(map(len, nav.texts(30))) <= 30
