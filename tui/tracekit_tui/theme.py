"""Colours: two themes of our own, and the colours of what ranks do for any theme."""

from __future__ import annotations

from textual.color import Color
from textual.theme import Theme

DARK = Theme(
    name="tracekit-dark",
    primary="#6cb2f0",
    secondary="#8aa4c0",
    accent="#f0b35a",
    warning="#e8b04b",
    error="#f2715f",
    success="#67c587",
    foreground="#d3dbe4",
    background="#0e1217",
    surface="#141a21",
    panel="#1d252e",
    dark=True,
    variables={"footer-key-foreground": "#6cb2f0", "footer-description-foreground": "#8c98a5"},
)

LIGHT = Theme(
    name="tracekit-light",
    primary="#1f66ad",
    secondary="#4d6580",
    accent="#a05a00",
    warning="#9a6700",
    error="#c43a25",
    success="#1e7d45",
    foreground="#1f2730",
    background="#fbfcfd",
    surface="#f1f4f7",
    panel="#e3e8ee",
    dark=False,
    variables={"footer-key-foreground": "#1f66ad", "footer-description-foreground": "#5b6773"},
)

_ON_DARK = {
    "tk-compute": "#4f8fd6",
    "tk-overlapped": "#3fb6a8",
    "tk-exposed": "#f2715f",
    "tk-copies": "#d9b44a",
    "tk-forward": "#5fa8e8",
    "tk-forward-alt": "#4289c9",
    "tk-backward": "#7ccb94",
    "tk-backward-alt": "#5aae75",
    "tk-input": "#5cc8cc",
    "tk-input-alt": "#42a9ad",
    "tk-weight": "#c39ae6",
    "tk-weight-alt": "#a67cc9",
    "tk-on-action": "#0b1016",
    "tk-muted": "#84909d",
    "tk-faint": "#36414c",
    "tk-good": "#67c587",
    "tk-bad": "#f2715f",
}

_ON_LIGHT = {
    "tk-compute": "#3f7fc4",
    "tk-overlapped": "#17907f",
    "tk-exposed": "#d6452f",
    "tk-copies": "#b98a0a",
    "tk-forward": "#8cc0ee",
    "tk-forward-alt": "#6aa8e0",
    "tk-backward": "#98d6aa",
    "tk-backward-alt": "#77c28d",
    "tk-input": "#8ad8db",
    "tk-input-alt": "#68c3c7",
    "tk-weight": "#d5b8ee",
    "tk-weight-alt": "#c09ae0",
    "tk-on-action": "#10202f",
    "tk-muted": "#616c78",
    "tk-faint": "#c2c9d1",
    "tk-good": "#1e7d45",
    "tk-bad": "#c43a25",
}


# How much of the foreground is in quiet text, and in what is only just there.
_MUTED, _FAINT = 0.6, 0.2


def variables(theme: Theme) -> dict[str, str]:
    """CSS variables for a theme that has none of its own, named ``$tk-...``."""
    found = dict(_ON_DARK if theme.dark else _ON_LIGHT)
    colours = theme.to_color_system().generate()
    ground, ink = Color.parse(colours["background"]), Color.parse(colours["foreground"])
    if ground.ansi is None and ink.ansi is None:
        # Lines drawn from segments know no transparency: blend here.
        found["tk-muted"] = ground.blend(ink, _MUTED, 1).hex
        found["tk-faint"] = ground.blend(ink, _FAINT, 1).hex
    return found
