"""Sizes in bytes as people write them on a command line."""

from __future__ import annotations

import re
from typing import Any

import click

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt]?)(i?)b?)", re.IGNORECASE | re.ASCII)


class Size(click.ParamType[int]):
    """``2GiB``, ``512MiB``, ``500MB``, ``2g`` (as GiB) or plain bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes."""
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no size; write it as 2GiB or 512MiB", param, ctx)
        number, prefix, binary = found.groups()
        # Only "GB" and the like are decimal: a lone letter means what memory is counted in.
        decimal = prefix and not binary and str(value).strip()[-1] in "bB"
        return int(float(number) * (1000 if decimal else 1024) ** _POWERS[prefix.lower()])
