"""Text from the run on the screen: literal, printable, and as wide as it has to be."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from tracekit.plain import plain


def narrow(text: str) -> str:
    """One cell a character: what is drawn cell by cell."""
    text = plain(text)
    return text if text.isascii() else "".join(c if cell_len(c) == 1 else "?" for c in text)


def fit(text: str, width: int, right: bool = False) -> str:
    """Exactly ``width`` cells: padded, or cut with an ellipsis."""
    text = plain(text)
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, max(0, width - 1)) + "…" if width > 0 else ""
    space = " " * (width - length)
    return space + text if right else text + space
