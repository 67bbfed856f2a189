"""The report for people: what the run is, then a table per analyzer."""

from __future__ import annotations

import json
from typing import TextIO

from rich.text import Text

from tracekit.analysis.base import Result, Unit
from tracekit.analysis.presence import presence
from tracekit.plain import plain
from tracekit.present.structured import ranges
from tracekit.present.table import plain_console, print_result, print_rows
from tracekit.present.units import show
from tracekit.store import Reader


def print_report(reader: Reader, results: list[Result], stream: TextIO, *, summary: bool) -> None:
    """Write tables to ``stream``; with ``summary``, the run first and only the main columns."""
    console = plain_console(stream)
    if summary:
        for line in about(reader):
            console.print(Text(plain(line)))
        console.print()
    for result in results:
        if summary and not result.available:
            reasons = "; ".join(missing.reason for missing in result.missing)
            console.print(
                Text(result.analyzer.title, style="bold"), Text(plain(reasons), style="yellow")
            )
            console.print()
        else:
            print_result(console, result, brief=summary)


def about(reader: Reader) -> list[str]:
    """A few lines on the run: command, ranks, steps, and how far it can be trusted."""
    notes = dict(
        reader.rows("SELECT key, any_value(value) FROM note WHERE rank IS NULL GROUP BY key")
    )
    lines = []
    if "command" in notes:
        try:
            command = " ".join(str(part) for part in json.loads(notes["command"]))
        except ValueError:
            command = notes["command"]
        lines.append(f"Run       {command}")
    ranks, hosts, devices = reader.rows(
        "SELECT count(*), count(DISTINCT host), "
        "string_agg(DISTINCT coalesce(device_name, device_kind), ', ') FROM rank"
    )[0]
    steps, first, last = reader.rows("SELECT count(DISTINCT step), min(step), max(step) FROM step")[
        0
    ]
    parts = [f"{ranks} rank{'s' if ranks != 1 else ''}"]
    if hosts:
        parts.append(f"{hosts} host{'s' if hosts != 1 else ''}")
    if devices:
        parts.append(str(devices))
    if steps:
        parts.append(f"steps {first} to {last}" if steps > 1 else f"step {first}")
    step_ns = reader.scalar("SELECT (sum(end_ns - start_ns) // count(*))::BIGINT FROM step")
    if step_ns is not None:
        parts.append(f"{show(step_ns, Unit.NS)} a step")
    lines.append("Captured  " + ", ".join(parts))
    lines += trust(reader)
    return lines


def trust(reader: Reader) -> list[str]:
    """What a reader of the figures has to know about where they come from."""
    lines = []
    here = presence(reader)
    if not here.whole:
        parts = [f"missing {ranges(here.gaps)}"] if here.gaps else []
        parts += [f"empty {ranges((rank, rank) for rank in here.empty)}"] if here.empty else []
        lines.append(f"Ranks     {len(here.covered)}/{here.world}, {'; '.join(parts)}")
    evidence = dict(reader.rows("SELECT evidence, count(*) FROM rank GROUP BY evidence"))
    if "operator" in evidence:
        lines.append(
            "Evidence  operators and the backend's own intervals on CPU threads, no GPU kernels"
        )
    pace = reader.rows("SELECT DISTINCT value FROM note WHERE key = 'pace_ms' ORDER BY value")
    if pace:
        values = ", ".join(value for (value,) in pace)
        lines.append(
            f"Pace      synthetic: each pipeline action sleeps up to {values} ms, so that the "
            "schedule and not the contention for cores shows"
        )
    damaged = reader.scalar("SELECT sum(count)::BIGINT FROM damage WHERE severity = 'damage'")
    if damaged:
        lines.append(
            f"Damage    {damaged} events or parts skipped, repaired or left out: tracekit info"
        )
    return lines


def print_info(reader: Reader, stream: TextIO) -> None:
    """What the database holds, table by table, and each damage with its place."""
    console = plain_console(stream)
    for line in about(reader):
        console.print(Text(plain(line)))
    meta = dict(reader.rows("SELECT key, value FROM meta"))
    console.print(
        Text(f"Schema    {meta['schema_version']}, written by tracekit {meta['tracekit_version']}")
    )
    sections = (
        ("Files", "SELECT rank, kind, state, bytes, events, path FROM file ORDER BY rank, path"),
        (
            "Notes",
            "SELECT rank, key, value FROM note WHERE key NOT IN ('command') "
            "ORDER BY rank NULLS FIRST, key",
        ),
        (
            "Process groups",
            "SELECT name, description, dim, size, complete, "
            "count(*) AS ranks_that_list_it FROM process_group "
            "GROUP BY ALL ORDER BY name",
        ),
        (
            "Damage",
            "SELECT d.rank, d.kind, d.severity, d.count, d.byte_offset, f.path AS file, d.detail "
            "FROM damage AS d LEFT JOIN file AS f USING (file_id) "
            "ORDER BY d.rank, d.byte_offset",
        ),
        (
            "Args that no column holds",
            "SELECT u.key, sum(u.count)::BIGINT AS count, count(DISTINCT u.rank) AS ranks "
            "FROM unknown_arg AS u GROUP BY u.key ORDER BY count DESC, u.key",
        ),
        (
            "Tables",
            "SELECT table_name AS table, estimated_size AS rows FROM duckdb_tables() "
            "WHERE database_name = current_database() AND estimated_size > 0 "
            "ORDER BY table_name",
        ),
    )
    for title, sql in sections:
        names, rows = reader.table(sql)
        console.print()
        console.print(Text(title, style="bold"))
        if rows:
            print_rows(names, rows, stream)
        else:
            console.print(Text("  none", style="dim"))
