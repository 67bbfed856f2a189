"""How one row of the timeline becomes cells: pure functions from a frame to (character, style).

A bar of a class is as high as the share of the cell that is busy. Where several classes share a
cell the colours of the cells around take turns in proportion to time, so that a row holds as much
of each colour as of its class, however far out the view. An action fills its cells and is named F,
B, I or W with its micro-batch where there is room.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TypeVar

from tracekit_tui.model import EMPTY_CELL, ActionCell, Cell, Frame, Kind, Label, Lane
from tracekit_tui.window import Window, ticks

T = TypeVar("T")
Inked = tuple[str, str]  # character, name of a style

_TICK_CELLS = 14
_LEVELS = " ▁▂▃▄▅▆▇"
IDLE: Inked = ("·", "idle")
UNKNOWN: Inked = (" ", "idle")

_KIND_STYLES = ("compute", "overlapped", "exposed", "copies")
# Without colour the class is told by a letter.
_KIND_LETTERS = "coXm"

_TOP = len(_LEVELS) - 1
_BARS = [[(level, style) for level in _LEVELS] for style in _KIND_STYLES]
_LETTERS = [
    [(letter, style)] * len(_LEVELS)
    for letter, style in zip(_KIND_LETTERS, _KIND_STYLES, strict=True)
]

_ACTION_STYLES = {"F": "forward", "B": "backward", "I": "input", "W": "weight"}


def legend(colourless: bool) -> list[tuple[str, str, Kind | None]]:
    """(mark, text, kind) of the classes, in the order of the legend; None is idle."""
    names = ("compute", "overlapped comm", "exposed comm", "copies")
    marks = _KIND_LETTERS if colourless else "■■■■"
    kinds: list[tuple[str, str, Kind | None]] = [(marks[kind], names[kind], kind) for kind in Kind]
    return [*kinds, ("·", "idle", None)]


def paint_row(
    frame: Frame, window: Window, rank: int, lane: Lane, *, colourless: bool = False
) -> list[Inked]:
    """One row of the window from a frame, which may still be of an earlier window."""
    places = _places(frame.window, window)
    if lane is Lane.ACTIONS:
        if rank not in frame.actions:
            return [UNKNOWN] * window.cells
        line = _paint_actions(_picked(frame.actions[rank], places, None), colourless)
    else:
        cells = _picked(frame.cells.get(rank), places, EMPTY_CELL)
        line = _paint_cells(frame.window, cells, places, lane, colourless)
        if frame.window == window and not colourless:
            _write_labels(line, frame.labels.get((rank, str(lane)), ()))
    if frame.window == window:
        _mark_steps(line, sorted(frame.steps.get(rank, ())))
    else:
        line = [UNKNOWN if place is None else ink for ink, place in zip(line, places, strict=True)]
    return line


def _places(drawn: Window, shown: Window) -> list[int | None]:
    """For each cell that is shown, the cell of the frame that holds its middle."""
    if drawn == shown:
        return list(range(shown.cells))
    found = (drawn.cell_of(shown.middle(cell)) for cell in range(shown.cells))
    return [place if 0 <= place < drawn.cells else None for place in found]


def _picked(values: Sequence[T] | None, places: Sequence[int | None], empty: T) -> list[T]:
    if values is None:
        return [empty] * len(places)
    return [empty if place is None else values[place] for place in places]


def _times(cell: Cell, lane: Lane) -> Sequence[int]:
    """Time of each kind within a cell, as a lane counts it."""
    compute, overlapped, exposed, _, all_copies = cell
    match lane:
        case Lane.COMPUTE:
            return compute + overlapped, 0, 0, 0
        case Lane.COMMUNICATION:
            return 0, overlapped, exposed, 0
        case Lane.MEMORY:
            return 0, 0, 0, all_copies
        case _:
            return cell


def _paint_cells(
    window: Window,
    cells: Sequence[Cell],
    places: Sequence[int | None],
    lane: Lane,
    colourless: bool,
) -> list[Inked]:
    """The inner loop of all drawing: some thousand cells for each key."""
    line: list[Inked] = []
    cell_ns = window.span_ns / window.cells
    first = window.start_ns * window.cells // window.span_ns
    inks = _LETTERS if colourless else _BARS
    for cell, place in zip(cells, places, strict=True):
        if cell is EMPTY_CELL:
            line.append(IDLE)
            continue
        times = _times(cell, lane)
        busy = times[0] + times[1] + times[2] + times[3]
        if busy == 0:
            line.append(IDLE)
            continue
        # Successive cells take turns spread evenly (golden ratio): laid end to end, the times
        # of all kinds are met at that part of their length.
        at = busy * ((first + (place or 0)) * 618_034 % 1_000_000) // 1_000_000
        kind = 0
        while at >= times[kind]:
            at -= times[kind]
            kind += 1
        line.append(inks[kind][min(_TOP, max(1, round(busy / cell_ns * _TOP)))])
    return line


def _paint_actions(actions: Sequence[ActionCell | None], colourless: bool) -> list[Inked]:
    line: list[Inked] = []
    for action, group in groupby(actions):
        width = len(list(group))
        if action is None:
            line += [IDLE] * width
            continue
        style = _ACTION_STYLES.get(action.kind, "forward")
        style += "-alt" if action.microbatch % 2 else ""
        text = f"{action.kind}{action.microbatch}"
        if len(text) > width:
            text = action.kind if width > 1 or colourless else " "
        line += [(char, style) for char in text.ljust(width)]
    return line


def _write_labels(line: list[Inked], labels: Sequence[Label]) -> None:
    """Names in their bars, one cell in from each end; the bar's colour becomes the ground."""
    for label in labels:
        for cell in range(label.first, label.past):
            line[cell] = (" ", _solid(line[cell][1]))
        room = label.past - label.first - 2
        text = label.text if len(label.text) <= room else label.text[: room - 1] + "…"
        for offset, char in enumerate(text):
            cell = label.first + 1 + offset
            line[cell] = (char, line[cell][1])


def _solid(style: str) -> str:
    return style if style.endswith("-bar") or style == "idle" else f"{style}-bar"


def _mark_steps(line: list[Inked], starts: Sequence[int]) -> None:
    """A rule where a step begins, unless steps are too close to tell apart."""
    if len(starts) * 3 > len(line):
        return
    for cell in starts:
        if cell >= 0 and line[cell][1] == "idle":
            line[cell] = ("│", "step")


def paint_axis(window: Window, origin_ns: int) -> list[Inked]:
    """Round times since the origin, each beside its mark."""
    line: list[Inked] = [(" ", "axis")] * window.cells
    for cell, text in ticks(window, origin_ns, _TICK_CELLS):
        _write(line, cell, "╷" + text, "axis", whole=True)
    return line


def paint_ruler(frame: Frame | None, window: Window, rank: int) -> list[Inked]:
    """Where the steps of a rank begin, with their numbers where there is room."""
    line: list[Inked] = [("─", "rule")] * window.cells
    known = frame is not None and frame.window == window
    starts = sorted(frame.steps.get(rank, {}).items()) if frame is not None and known else []
    if not starts:
        return line
    pasts = [cell for cell, _ in starts[1:]] + [window.cells]
    for (cell, step), past in zip(starts, pasts, strict=True):
        if cell >= 0:
            line[cell] = ("┬", "step")
        text = f"< step {step} " if cell < 0 else f" step {step} "
        if len(text) > past - cell - 1:
            text = text.replace("step ", "")
        if len(text) <= past - cell - 1:
            _write(line, cell + 1, text, "step", whole=False)
    return line


def _write(line: list[Inked], cell: int, text: str, style: str, *, whole: bool) -> None:
    if whole and cell + len(text) > len(line):
        return
    for offset, char in enumerate(text[: len(line) - cell]):
        line[cell + offset] = (char, style)
