"""The figures of one input as Markdown: medians, rates, and the ratios that were asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median

from inputs import Input
from rivals import (
    HTA,
    HTA_PROCESS,
    ORJSON,
    ORJSON_NO_GC,
    TRACEKIT,
    TRACEKIT_COMMANDS,
    Figure,
)

Rounds = list[dict[str, Figure]]
COLUMNS = ("", "wall s", "best", "worst", "CPU s", "MB/s", "MB/s per core", "peak MiB", "parts, s")
# What is measured against what; above 1, tracekit is ahead.
RATIOS: tuple[tuple[str, str, str, Callable[[Figure], float]], ...] = (
    ("HTA / tracekit, wall, in process", HTA, TRACEKIT, lambda f: f.wall_s),
    ("HTA / tracekit, CPU, in process", HTA, TRACEKIT, lambda f: f.cpu_s),
    ("HTA / tracekit, wall, whole commands", HTA_PROCESS, TRACEKIT_COMMANDS, lambda f: f.wall_s),
    ("HTA / tracekit, peak memory", HTA, TRACEKIT, lambda f: f.peak_bytes),
    ("orjson.loads / tracekit, CPU", ORJSON, TRACEKIT, lambda f: f.cpu_s),
    ("orjson.loads with gc off / tracekit, CPU", ORJSON_NO_GC, TRACEKIT, lambda f: f.cpu_s),
)


def report(data: Input, rounds: Rounds, database_bytes: int) -> str:
    """Everything about one input. A MB is 10**6 bytes of decompressed JSON."""
    size = data.json_bytes / 1e6
    ranks = "1 rank" if len(data.files) == 1 else f"{len(data.files)} ranks"
    lines = [
        f"## {data.name}: {ranks}, {size:.1f} MB of JSON, {data.gz_bytes / 1e6:.2f} MB gzipped, "
        f"{len(rounds)} rounds\n",
        _row(COLUMNS),
        _row("---" for _ in COLUMNS),
    ]
    lines += [
        _row((who, *_cells([found[who] for found in rounds], size)))
        for who in (HTA, HTA_PROCESS, TRACEKIT, TRACEKIT_COMMANDS, ORJSON, ORJSON_NO_GC)
        if who in rounds[0]
    ]
    lines += ["", _row(("ratio", "median", "least", "most")), _row(["---"] * 4)]
    for title, rival, ours, value in RATIOS:
        if rival in rounds[0]:
            ratios = [value(found[rival]) / value(found[ours]) for found in rounds]
            middle = (median(ratios), min(ratios), max(ratios))
            lines.append(_row((title, *(f"{ratio:.2f}" for ratio in middle))))
    lines += [
        "",
        f"run.db: {database_bytes / 1e6:.2f} MB, {database_bytes / data.gz_bytes:.2f} of the "
        "gzipped traces.",
    ]
    answers = [
        f"{who.partition(',')[0]} {_percent(rounds[0][who])}"
        for who in (HTA, TRACEKIT)
        if who in rounds[0]
    ]
    lines.append(f"Overlap of rank 0, %: {', '.join(answers)}.\n")
    return "\n".join(lines)


def _cells(figures: list[Figure], size: float) -> list[str]:
    walls, cpu = [figure.wall_s for figure in figures], median(f.cpu_s for f in figures)
    wall = median(walls)
    parts = ", ".join(
        f"{part} {median(figure.parts[part][0] for figure in figures):.2f}"
        for part in figures[0].parts
    )
    return [
        f"{wall:.2f}",
        f"{min(walls):.2f}",
        f"{max(walls):.2f}",
        f"{cpu:.2f}",
        f"{size / wall:.1f}",
        f"{size / cpu:.1f}",
        f"{max(figure.peak_bytes for figure in figures) / 2**20:.0f}",
        parts,
    ]


def _percent(figure: Figure) -> str:
    value = figure.answer.get("0")
    return "none" if value is None else f"{value:.2f}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
