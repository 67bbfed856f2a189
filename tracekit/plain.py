"""Text from files, for a terminal: it is shown and never obeyed."""

from __future__ import annotations

# Spaces that only divide, which the figures use too.
_KEPT = "\u00a0\u202f"


def plain(text: str) -> str:
    """One line without characters that would move the cursor, colour or reorder the terminal's
    text, and without halves of characters; brackets and all else stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _KEPT else "�" for c in text)


def plain_lines(text: str) -> str:
    """The same for text of several lines."""
    if text.isprintable():
        return text
    return "\n".join(map(plain, text.expandtabs(4).split("\n")))
