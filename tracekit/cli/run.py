"""`tracekit run`: launch a command, capture its ranks, ingest, report, end as the command ended."""

from __future__ import annotations

import re
from pathlib import Path

import click

from tracekit.cli.after_run import ingest_and_report
from tracekit.cli.run_directory import prepare, prepare_shared
from tracekit.cli.say import say
from tracekit.errors import UsageError
from tracekit_collectors.options import COLLECT, COLLECT_BY_DEFAULT, Options


@click.command(
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("run.db"),
    show_default=True,
    help="Database to make.",
)
@click.option(
    "--run-dir",
    type=click.Path(path_type=Path),
    help="Folder for the traces as they are captured. [default: OUTPUT with suffix .run]",
)
@click.option("-f", "--force", is_flag=True, help="Replace the database and run directory.")
@click.option(
    "--wait",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Whole steps to let pass first.",
)
@click.option(
    "--warmup",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Steps with the profiler on and nothing kept.",
)
@click.option(
    "--active", type=click.IntRange(1), default=3, show_default=True, help="Steps to record."
)
@click.option(
    "--repeat",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Windows of that kind, one after the other; 0: only those that `tracekit trigger` asks "
    "for.",
)
@click.option(
    "--every", type=click.IntRange(1), help="Record a window every so many steps instead."
)
@click.option(
    "--at-step",
    "at_steps",
    type=click.IntRange(1),
    multiple=True,
    help="Record a window at this step instead; may be given several times.",
)
@click.option(
    "--collect",
    default=",".join(COLLECT_BY_DEFAULT),
    show_default=True,
    metavar="LIST",
    help=f"What to record, of {', '.join(COLLECT)}.",
)
@click.option(
    "--nvml-interval",
    default="100ms",
    show_default=True,
    metavar="TIME",
    help="How often to sample the GPUs, for example 50ms or 1s.",
)
@click.option(
    "--shared",
    is_flag=True,
    help="Other nodes of the job write into the same --run-dir; implies --no-ingest.",
)
@click.option("--no-ingest", is_flag=True, help="Only capture; `tracekit ingest` later.")
@click.option("-q", "--quiet", is_flag=True, help="No report and nothing on stderr from us.")
@click.argument(
    "command_line", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND..."
)
def command(
    output: Path,
    run_dir: Path | None,
    force: bool,
    wait: int,
    warmup: int,
    active: int,
    repeat: int,
    every: int | None,
    at_steps: tuple[int, ...],
    collect: str,
    nvml_interval: str,
    shared: bool,
    no_ingest: bool,
    quiet: bool,
    command_line: tuple[str, ...],
) -> int:
    """Run a training command unchanged and trace every rank of it.

    \b
      tracekit run -o run.db -- torchrun --nproc-per-node 8 train.py --lr 3e-4

    The command keeps its own arguments, input, output, signals and exit status.
    """
    from tracekit.ingest.telemetry_file import open_sink
    from tracekit_collectors.launch import end_like, run

    wanted = tuple(name for part in collect.split(",") if (name := part.strip()))
    try:
        options = Options(wait, warmup, active, repeat, every, at_steps, wanted)
        interval = _seconds(nvml_interval)
    except ValueError as error:
        raise UsageError(str(error)) from error
    directory = run_dir or output.with_suffix(".run")
    no_ingest = no_ingest or shared
    _check(output, directory, force=force, ingests=not no_ingest)
    if shared:
        prepare_shared(directory, force=force)
    else:
        prepare(directory, force=force)
    if options.left_out:
        steps = ", ".join(map(str, options.left_out))
        _say(f"no window at step {steps}: it would overlap the one before", quiet)
    try:
        status, problem = run(
            command_line, options, directory, open_sink, interval=interval, shared=shared
        )
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{command_line[0]}: cannot be started: {reason}") from error
    if problem:
        _say(problem, quiet)
    if status != 0 and not quiet:
        how = f"exit status {status}" if status > 0 else f"signal {-status}"
        say(f"the command ended with {how}")
    if no_ingest:
        if not quiet:
            say(f"captured in {directory}")
    else:
        ingest_and_report(directory, output, quiet=quiet)
    return end_like(status)


def _seconds(text: str) -> float:
    """A time such as 100ms, 0.5s or 2m.

    Raises:
        ValueError: it is none, or shorter than a millisecond.
    """
    units = {"ms": 0.001, "s": 1.0, "m": 60.0}
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*(ms|s|m)\s*", text)
    seconds = float(found[1]) * units[found[2]] if found else 0.0
    if not 0.001 <= seconds <= 3600:
        raise ValueError(f"{text!r} is no interval: give 1ms to 60m, for example 100ms")
    return seconds


def _check(output: Path, directory: Path, *, force: bool, ingests: bool) -> None:
    """Refuse before the training starts what would fail after it."""
    from tracekit.store.store import refuse_to_replace

    if not ingests:
        return
    if output.exists() and not force:
        raise UsageError(f"{output}: exists; give -f to replace it")
    if output.resolve() == directory.resolve():
        raise UsageError(f"{output}: is the run directory too; give another --run-dir")
    if not output.resolve().parent.is_dir():
        raise UsageError(f"{output}: there is no folder {output.parent}")
    if force:
        refuse_to_replace(output)


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        say(text)
