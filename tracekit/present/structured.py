"""Results as JSON, CSV and Markdown: raw integers and ratios for machines."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterable
from typing import Any

from tracekit.analysis.base import RESULT_VERSION, Result
from tracekit.present.units import show


def as_record(result: Result) -> dict[str, Any]:
    """What ``report --format json`` prints of one analyzer."""
    return {
        "schema_version": RESULT_VERSION,
        "analyzer": result.analyzer.name,
        "columns": [
            {
                "name": column.name,
                "unit": None if column.unit is None else str(column.unit),
                "better": column.better,
                "doc": column.doc,
            }
            for column in result.analyzer.columns
        ],
        "rows": [dataclasses.asdict(row) for row in result.rows],
        "missing": [dataclasses.asdict(missing) for missing in result.missing],
    }


def to_json(results: list[Result], *, single: bool) -> str:
    """One object for one analyzer, else a list of them."""
    found = [as_record(result) for result in results]
    return json.dumps(found[0] if single else found, indent=2, ensure_ascii=False)


def to_csv(results: list[Result]) -> str:
    """Rows under a header; several analyzers are parted by an empty line."""
    parts = []
    for result in results:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        names = [column.name for column in result.analyzer.columns]
        writer.writerow(names)
        for row in result.rows:
            writer.writerow([_cell(getattr(row, name)) for name in names])
        parts.append(out.getvalue())
    return "\n".join(parts)


def to_markdown(results: list[Result]) -> str:
    """A table per analyzer, formatted for people, and what is missing beneath it."""
    lines: list[str] = []
    for result in results:
        columns = shown_columns(result)
        lines += [f"### {result.analyzer.title}", ""]
        lines.append("| " + " | ".join(column.name for column in columns) + " |")
        lines.append(
            "|"
            + "|".join("---" if column.unit in (None, "text") else "--:" for column in columns)
            + "|"
        )
        for row in result.rows:
            cells = (_escaped(show(getattr(row, c.name), c.unit)) for c in columns)
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
        lines += [f"- {_escaped(describe(m.reason, m.where))}" for m in result.missing]
        if result.missing:
            lines.append("")
    return "\n".join(lines)


def shown_columns(result: Result) -> list[Any]:
    """The columns worth showing to people: not the dimensions that no row has."""
    return [
        column
        for column in result.analyzer.columns
        if not column.is_dim or any(getattr(row, column.name) is not None for row in result.rows)
    ]


def describe(reason: str, where: dict[str, Any]) -> str:
    """A reason with the rows it touches: ``rank 0-3: not available: ...``."""
    places = [f"{name} {_place(value)}" for name, value in where.items()]
    return f"{', '.join(places)}: {reason}" if places else reason


def _place(value: Any) -> str:
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        return str(value)
    return ranges((number, number) for number in sorted(set(value)))


def ranges(runs: Iterable[tuple[int, int]]) -> str:
    """Ascending runs of (first, last) as text, with those that touch made one: ``0-3, 7``."""
    joined: list[tuple[int, int]] = []
    for first, last in runs:
        if joined and first == joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in joined)


def _cell(value: Any) -> str:
    """A spreadsheet takes a text that begins like a formula for one: defuse it."""
    if value is None:
        return ""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return str(value)


def _escaped(text: str) -> str:
    for mark in ("\\", "|", "`", "<", ">", "[", "]", "*", "_"):
        text = text.replace(mark, "\\" + mark)
    return " ".join(text.split())
