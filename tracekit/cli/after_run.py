"""What `tracekit run` does once the command has ended: ingest, report, and say how to go on."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from tracekit.cli.say import say
from tracekit.errors import TracekitError
from tracekit_collectors import records

_MOST = 4  # files named in a line


def ingest_and_report(directory: Path, output: Path, *, quiet: bool) -> None:
    """Of the run directory; what the program recorded itself counts where we have nothing.

    What goes wrong here is said, and never changes how the command ended.
    """
    from tracekit.cli.ingest import ingest_aloud
    from tracekit.cli.report import print_to_stdout
    from tracekit.store import open_run

    if not any(directory.glob("rank-*.json")):
        _say(
            "no rank was captured: no process of the command stepped a torch optimizer "
            f"(tracekit's own log: {directory / 'tracekit.log'})",
            quiet,
        )
        return
    try:
        paths = (directory, *_traces_to_read(directory, quiet=quiet))
        ingest_aloud(paths, output, force=True, quiet=quiet)
        if not quiet:
            with open_run(output) as reader:
                print_to_stdout(reader)
            click.echo(f"Go on:  tracekit tui {output}    tracekit report {output} --help")
    except TracekitError as error:
        _say(str(error), quiet)
    except Exception as error:  # noqa: BLE001 - the command's own status must come through
        _say(f"{output}: {type(error).__name__}: {error}", quiet)


def own_traces(directory: Path) -> tuple[list[Path], bool]:
    """The traces that the program wrote itself and that are still there, and whether there are any
    of ours."""
    own: dict[Path, None] = {}
    ours = False
    for path in records.manifests_in(directory):
        try:
            manifest = records.read_manifest(path)
        except (ValueError, TypeError, OSError):  # the ingest says so
            continue
        ours |= any(window.trace for window in manifest.windows)
        own |= dict.fromkeys(Path(trace) for trace in manifest.own_traces)
    return [path for path in own if path.is_file()], ours


def _traces_to_read(directory: Path, *, quiet: bool) -> list[Path]:
    own, ours = own_traces(directory)
    if not own:
        return []
    if not ours:
        _say(f"the command records itself: its own traces are read ({_listed(own)})", quiet)
        return own
    words = " ".join(shlex.quote(str(path)) for path in own[:_MOST])
    more = "" if len(own) <= _MOST else f" and {len(own) - _MOST} more, named in the manifests"
    _say(f"the command recorded itself as well: tracekit ingest -o own.db {words}{more}", quiet)
    return []


def _listed(paths: list[Path]) -> str:
    more = f" and {len(paths) - _MOST} more" if len(paths) > _MOST else ""
    return ", ".join(str(path) for path in paths[:_MOST]) + more


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        say(text)
