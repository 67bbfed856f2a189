"""Facts that a training script states about itself, kept for the manifest of its capture."""

from __future__ import annotations

NoteValue = str | int | float | bool

_notes: dict[str, NoteValue] = {}


def note(key: str, value: NoteValue) -> None:
    """State a fact about this run, for example ``note("tokens_per_step", 4096)``.

    It goes into the manifest of the rank; outside a capture it does nothing that can be seen.
    """
    _notes[key] = value


def stated() -> dict[str, NoteValue]:
    """What has been stated so far."""
    return dict(_notes)
