"""`tracekit`: a group that loads a command's module only when the command is used."""

from __future__ import annotations

import importlib
import sys
import traceback
from typing import Any

import click

from tracekit import __version__
from tracekit.cli.ending import interrupts_kept
from tracekit.cli.say import say
from tracekit.errors import ExitCode, TracekitError

# Name -> (module, first line of its help): the overview needs no command's imports.
_COMMANDS = {
    "run": ("tracekit.cli.run", "Run a training command and trace every rank of it."),
    "attach": ("tracekit.cli.attach", "Print how a run that is being captured is doing."),
    "trigger": ("tracekit.cli.trigger", "Record a window of a run that is being captured."),
    "ingest": ("tracekit.cli.ingest", "Load traces or a run directory into a database."),
    "report": ("tracekit.cli.report", "Print where the step time and the memory go."),
    "tui": ("tracekit.cli.tui", "Browse a run in the terminal."),
    "query": ("tracekit.cli.query", "Ask the database in SQL, read-only."),
    "info": ("tracekit.cli.info", "Say what a database holds, and what is damaged in it."),
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = importlib.import_module(_COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.command(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 ok, 1 internal error, 2 usage, 3 unreadable input, 4 database, "
    "5 the run cannot answer, 6 damage under --strict, 130 interrupted. "
    "`run` returns the status of the command it ran.",
)
@click.version_option(__version__, prog_name="tracekit")
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
def cli(debug: bool) -> None:
    """Find where the step time of a parallel training run goes.

    \b
      tracekit run -o run.db -- torchrun --nproc-per-node 8 train.py
      tracekit tui run.db
    """


def main(arguments: list[str] | None = None) -> Any:
    """Entry point: expected errors become one line on stderr and their exit status."""
    debug = "--debug" in (sys.argv[1:2] if arguments is None else arguments[:1])
    try:
        with interrupts_kept():
            status = cli.main(args=arguments, prog_name="tracekit", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        say("interrupted")
        # An interrupt inside an `exec` of text, as dataclasses use it, leaves a mark that makes
        # `python -m` end as if nobody had caught it; the next `exec` of text takes it away.
        exec("")  # noqa: S102
        sys.exit(ExitCode.INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(ExitCode.USAGE)
    except BrokenPipeError:
        # The reader of our output has gone (head, less): nothing to say, nothing to fail on.
        sys.stderr.close()
        sys.exit(ExitCode.OK)
    except TracekitError as error:
        if debug:
            traceback.print_exc()
        say(str(error))
        sys.exit(error.exit_code)
    except OSError as error:
        if debug:
            traceback.print_exc()
        where = f"{error.filename}: " if error.filename is not None else ""
        say(f"{where}{error.strerror or error}")
        sys.exit(ExitCode.INPUT)
    except Exception as error:  # noqa: BLE001 - a fault of ours is one line too
        if debug:
            traceback.print_exc()
        say(
            f"internal error: {type(error).__name__}: {' '.join(str(error).split())} "
            "(`tracekit --debug ...` shows where; please report it)"
        )
        sys.exit(ExitCode.INTERNAL)
    sys.exit(status if isinstance(status, int) else ExitCode.OK)
