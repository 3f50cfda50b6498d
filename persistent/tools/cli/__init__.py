"""The command line: runs pipelines, reads their checkpoints, and operates on them.

A command is loaded when it is called: the list of the commands, and the completion of a shell, work without it.
"""

from __future__ import annotations

import logging
import traceback
from importlib import import_module
from typing import Any, Final

import click

import persistent
from persistent.errors import PersistentError, explanation
from persistent.tools.cli.exits import EXITS, STOPPED, CommandFailed, exit_code, worded

COMMANDS: Final = {
    "init": ("init.init", "Make a project: a task, its test, and a page that says how to run both."),
    "run": ("run.run", "Process the available input, exactly once."),
    "explain": ("inspect.explain", "What a step of the pipeline will do, and why its guarantee holds."),
    "serve": ("serve.serve", "Show jobs on a page, running or stopped."),
    "history": ("inspect.history", "The kept checkpoints, oldest first."),
    "show": ("inspect.show", "One checkpoint: clock, positions, files."),
    "clock": ("clock.clock_command", "Where the clock stands, and what holds it back."),
    "diff": ("inspect.diff_command", "What changed from one checkpoint to another."),
    "state": ("rows.state", "The folded state, or that of one key."),
    "late": ("rows.late", "The late records."),
    "dead-letters": ("rows.dead_letters", "The records that could not be processed."),
    "verify": ("check.verify_command", "Read and check every byte of a checkpoint."),
    "export": ("rows.export_command", "The folded state as Parquet files, however large."),
    "savepoint": ("operate.savepoint_command", "Copy a checkpoint, self-contained, to s/NAME."),
    "rollback": ("operate.rollback_command", "Go back to an earlier checkpoint."),
    "restart": ("operate.restart_command", "Keep the state as of a clock, and read the rest again."),
    "pin": ("operate.pin_command", "Pin a checkpoint, so that it is kept however many follow."),
    "gc": ("operate.gc", "Delete files that no kept checkpoint names."),
    "compact": ("operate.compact_command", "Fold all runs of a state into as few as possible."),
    "correct": (
        "operate.correct_command",
        "Add the records of a file to the state, or take them out; of several states, each. A NAME is applied once.",
    ),
    "merge": ("operate.merge_command", "Merge two jobs over different sources into one."),
    "doctor": ("check.doctor", "Test whether checkpoints can be committed to a store."),
    "laws": ("check.laws", "Test the laws of a monoid."),
    "why": ("why.why", "Explain an error: what it means for the data, and what to do."),
}
"""In the order in which they are listed."""


def command_of(name: str) -> click.Command:
    """The command of this name."""
    module, _, function = COMMANDS[name][0].partition(".")
    command = getattr(import_module(f"persistent.tools.cli.{module}"), function)
    assert isinstance(command, click.Command)
    return command


class CommandsOnDemand(click.Group):
    """Lists the commands in their order, and loads the one that is called. Prints a PersistentError in one line; with
    -v also its traceback."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.commands.update((name, click.Command(name, help=sentence)) for name, (_, sentence) in COMMANDS.items())

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, command_of(name) if name and listed else None, rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PersistentError as error:
            if ctx.params.get("verbose"):
                traceback.print_exception(error)
            raise CommandFailed(f"{worded(str(error))} ({explanation(error)})", exit_code(error)) from error
        except KeyboardInterrupt:
            ctx.exit(STOPPED)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(exit_.code), exit_.text) for exit_ in sorted(EXITS, key=lambda exit_: exit_.code)])


_NAME = "persistent"
_VARIABLE = "_PERSISTENT_COMPLETE"
"""The variable by which the sourced function of a shell asks for completions."""


def print_completion(ctx: click.Context, option: click.Parameter, shell: str | None) -> None:
    """Print what ``shell`` sources to complete commands and options, click's own, and end."""
    if shell is None or ctx.resilient_parsing:
        return
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None, f"{shell} is one of click's"
    click.echo(made(ctx.command, {}, _NAME, _VARIABLE).source())
    ctx.exit()


@click.group(cls=CommandsOnDemand, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", count=True, help="Log the actions; -vv: every step. Errors include a traceback.")
@click.version_option(persistent.__version__, prog_name="persistent")
@click.option(
    "--completion",
    type=click.Choice(["bash", "zsh", "fish"]),
    is_eager=True,
    expose_value=False,
    callback=print_completion,
    help="Print the completion of this command for a shell, to be sourced there.",
)
def main(verbose: int) -> None:
    """Exactly-once stateful processing: run a pipeline, inspect its checkpoint, operate on it.

    TARGET is the URL of a checkpoint or savepoint (a path, s3://..., hdfs://...), or FILE.py:NAME or
    package.module:NAME of its pipeline: a Pipeline, or a function without arguments that returns one.

    \b
    persistent init visits                              a project: a task, its test, how to run both
    persistent run visits.py:pipeline                   process the available input
    persistent run visits.py:pipeline --end-of-input    ... and close every window
    persistent run visits.py:pipeline --follow          ... and new input, until Ctrl-C
    persistent explain visits.py:pipeline               what a run will do, and what it guarantees
    persistent state visits.py:pipeline --key /home     the state of one key
    persistent serve visits.py:pipeline                 a page that shows the job
    persistent history visits-checkpoint                its checkpoints
    persistent clock visits-checkpoint                  where its clock stands, and what holds it back
    persistent verify visits-checkpoint                 read and check every byte of it
    persistent savepoint visits-checkpoint monday       a copy to keep, or to start from
    persistent laws visits.py:pipeline                  test the laws of its state's monoid
    persistent why CorruptCheckpoint                    what an error means, and what to do
    """
    # Also loads the storage, which the list of the commands does without.
    from persistent.tools.cli.run import ToStderr

    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    handler = ToStderr()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("persistent")
    logger.handlers = [handler]
    logger.setLevel(level)
