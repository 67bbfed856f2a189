"""The errors that tracekit raises on purpose, and the exit status of each.

TracekitError            one clear line: what, where, what to do
|- UsageError            wrong options or arguments                    exit 2
|- InputError            a file that cannot be read as what it should be   exit 3
|- StoreError            a database that cannot be opened or is too new    exit 4
|- UnavailableError      the run cannot answer what was asked              exit 5
`- DamageError           a damaged file, where --strict forbids it         exit 6
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit status of every command except ``run``, which returns its child's own."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    INPUT = 3
    STORE = 4
    UNAVAILABLE = 5
    DAMAGED = 6
    INTERRUPTED = 130


class TracekitError(Exception):
    """Base of every expected error: its text is one line for the user."""

    exit_code = ExitCode.INTERNAL


class UsageError(TracekitError):
    """Options or arguments that do not fit together."""

    exit_code = ExitCode.USAGE


class InputError(TracekitError):
    """A file that cannot be read as what it should be; the text names file and place."""

    exit_code = ExitCode.INPUT


class StoreError(TracekitError):
    """A database that cannot be opened, is locked, or has another schema version."""

    exit_code = ExitCode.STORE


class UnavailableError(TracekitError):
    """Only what the run cannot answer was asked for; the text says why it cannot."""

    exit_code = ExitCode.UNAVAILABLE


class DamageError(TracekitError):
    """A damaged file where damage is forbidden; the text names file, rank, kind and place."""

    exit_code = ExitCode.DAMAGED
