"""`tracekit trigger`: capture a window of a run that goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from tracekit.cli.say import say
from tracekit.errors import UnavailableError, UsageError


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--active", type=click.IntRange(1), help="Steps to record. [default: as the run]")
@click.option("--warmup", type=click.IntRange(0), help="Steps before them. [default: as the run]")
@click.option(
    "--at-step",
    type=click.IntRange(1),
    help="First step to record. [default: as soon as all ranks can have heard of it]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    default=60,
    show_default=True,
    help="Seconds to wait for a rank to take the request.",
)
def command(
    directory: Path, active: int | None, warmup: int | None, at_step: int | None, timeout: float
) -> None:
    """Ask a run that is being captured for one more window.

    The same as `touch DIR/trigger`. All ranks that see DIR record the same steps. Where each node
    has a directory of its own, ask in each with the same --at-step.
    """
    from tracekit.ingest.live import look
    from tracekit_collectors import records

    if not look(directory).goes_on:
        raise UnavailableError(f"{directory}: the run has ended: nothing more can be recorded")
    trigger = directory / records.TRIGGER_FILE
    if trigger.exists():
        raise UsageError(f"{trigger}: another request waits for the ranks to take it")
    asked = _asked(directory)
    wanted = {"active": active, "warmup": warmup, "at_step": at_step}
    said = {name: value for name, value in wanted.items() if value is not None}
    records.write_json(trigger, said)
    until = time.monotonic() + timeout
    while trigger.exists() or not _asked(directory) - asked:
        if time.monotonic() > until:
            if trigger.exists():
                say(f"{trigger}: no rank has taken it in {timeout:g} s; it stays for them")
            else:
                say(f"{trigger}: taken, and no answer in {timeout:g} s: see {records.LOG_FILE}")
            return
        if not trigger.exists() and not look(directory).goes_on:
            raise UnavailableError(f"{directory}: the run has ended meanwhile")
        time.sleep(0.1)
    for path in sorted(_asked(directory) - asked):
        window = json.loads(path.read_text(encoding="utf-8"))
        say(f"steps {window['first']} to {window['last']} will be recorded (see tracekit attach)")


def _asked(directory: Path) -> set[Path]:
    return set(directory.glob("asked-*.json"))
