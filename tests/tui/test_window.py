"""Window <-> cell arithmetic, worked by hand."""

import pytest

from tracekit_tui.window import Window, axis_text, tick_step, ticks

LIMITS = Window(0, 1000, 10)


def test_cells_hold_what_lies_between_their_edges() -> None:
    # 10 ns over 4 cells: edges at ceil(c * 10 / 4) = 0, 3, 5, 8, 10
    window = Window(100, 110, 4)
    assert [window.edge(cell) for cell in range(5)] == [100, 103, 105, 108, 110]
    assert [window.cell_of(t) for t in range(100, 110)] == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert (window.cell_of(99), window.cell_of(110)) == (-1, 4)


def test_zooming_keeps_the_time_under_the_cursor() -> None:
    # cell 3 of [0, 1000) holds 300-400, its middle is 350; half the span: 350 - 3.5 * 50 = 175
    near = LIMITS.zoomed(1, 2, 3, LIMITS)
    assert near == Window(175, 675, 10)
    assert near.middle(3) == 350
    assert near.zoomed(2, 1, 3, LIMITS) == LIMITS


def test_zooming_stops_at_the_run_and_at_a_nanosecond_a_cell() -> None:
    assert LIMITS.zoomed(2, 1, 9, LIMITS) == LIMITS
    window = LIMITS
    for _ in range(20):
        window = window.zoomed(1, 2, 5, LIMITS)
    assert window.span_ns == 10


def test_zooming_out_near_an_end_slides_into_the_run() -> None:
    assert Window(0, 100, 10).zoomed(4, 1, 9, LIMITS) == Window(0, 400, 10)
    assert Window(900, 1000, 10).zoomed(4, 1, 0, LIMITS) == Window(600, 1000, 10)


@pytest.mark.parametrize(("cells", "start"), [(1, 210), (-1, 190), (5, 250), (-50, 0), (500, 900)])
def test_panning_by_cells_stops_at_the_ends(cells: int, start: int) -> None:
    # 100 ns over 10 cells: a cell is 10 ns
    assert Window(200, 300, 10).panned(cells, LIMITS) == Window(start, start + 100, 10)


def test_a_step_fills_the_window_with_a_fiftieth_to_spare() -> None:
    assert LIMITS.around(400, 500, LIMITS) == Window(398, 502, 10)
    # at the start of the run the window slides right instead of showing what is not there
    assert LIMITS.around(0, 100, LIMITS) == Window(0, 104, 10)


def test_resizing_keeps_the_time() -> None:
    assert LIMITS.resized(20) == Window(0, 1000, 20)
    # 5 ns cannot fill 20 cells of at least a nanosecond
    assert Window(0, 5, 5).resized(20) == Window(0, 20, 20)


@pytest.mark.parametrize(
    ("span", "most", "step"), [(1000, 10, 100), (1001, 10, 200), (401, 1, 500), (9, 9, 1)]
)
def test_ticks_are_round(span: int, most: int, step: int) -> None:
    assert tick_step(span, most) == step


def test_ticks_count_from_the_origin() -> None:
    # 1 ms over 100 cells, ticks at least 20 cells apart: 5 at most, so 200 us apart
    window = Window(5_100_000, 6_100_000, 100)
    assert ticks(window, 5_000_000, 20) == [
        (10, "200 us"),
        (30, "400 us"),
        (50, "600 us"),
        (70, "800 us"),
        (90, "1.0 ms"),
    ]


@pytest.mark.parametrize(
    ("time", "step", "text"),
    [
        (0, 1_000_000, "0 ms"),
        (1_500_000, 500_000, "1.5 ms"),
        (1_234_567_890, 1_000, "1.234567 s"),
        (-20_000, 10_000, "-20 us"),
        (123, 1, "123 ns"),
    ],
)
def test_axis_text_has_the_digits_that_tell_ticks_apart(time: int, step: int, text: str) -> None:
    assert axis_text(time, step) == text
