"""A value and its unit as short text."""

from __future__ import annotations

from typing import Any

from tracekit.analysis.base import Unit

NOT_AVAILABLE = "n/a"

_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "us"))
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def show(value: Any, unit: Unit | None) -> str:
    """Text for people: ns as us, ms or s, bytes as KiB to TiB, ratios as percent.

    A missing value is ``n/a``, never 0.
    """
    if value is None:
        return NOT_AVAILABLE
    match unit:
        case Unit.NS:
            return _scaled(int(value), _TIMES, "ns")
        case Unit.BYTES:
            return _scaled(int(value), _SIZES, "B")
        case Unit.RATIO:
            return f"{100 * float(value):.1f} %"
        case Unit.COUNT:
            return f"{value:,}".replace(",", " ")  # narrow no-break space
        case _:
            return str(value)


def _scaled(value: int, scale: tuple[tuple[int, str], ...], smallest: str) -> str:
    for factor, name in scale:
        if abs(value) >= factor:
            scaled = value / factor
            decimals = 0 if abs(scaled) >= 1000 else 1 if abs(scaled) >= 100 else 2
            return f"{scaled:.{decimals}f} {name}"
    return f"{value} {smallest}"
