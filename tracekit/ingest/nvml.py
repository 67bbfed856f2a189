"""Telemetry files into the store."""

from __future__ import annotations

import json

from tracekit.store import Writer

_FIELDS = (
    "host",
    "gpu",
    "uuid",
    "ts_ns",
    "utilization",
    "memory_used_bytes",
    "power_mw",
    "energy_mj",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_c",
    "throttle_reasons",
)


def load(writer: Writer, data: bytes) -> tuple[int, int]:
    """Append the samples that a file holds; returns how many lines were good and how many were not.

    A sampler that was killed leaves half a line: it costs that line only.
    """
    rows, bad = [], 0
    for line in data.decode("utf-8", "replace").splitlines():
        try:
            sample = json.loads(line)
            rows.append(
                [sample[name] for name in _FIELDS[:4]] + [sample.get(name) for name in _FIELDS[4:]]
            )
            whole = [rows[-1][1], *rows[-1][3:]]  # all but the host and the uuid
            if not all(v is None or (type(v) is int and abs(v) < 1 << 62) for v in whole):
                rows.pop()
                raise ValueError
        except (ValueError, KeyError, TypeError):
            bad += 1
    writer.insert("nvml_sample", rows)
    return len(rows), bad
