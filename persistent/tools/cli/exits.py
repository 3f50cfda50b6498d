"""An exit code says how a command ended. Codes never change their meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass

import click

from persistent.errors import (
    CorruptCheckpoint,
    CorruptLog,
    Fenced,
    NoCheckpoint,
    PersistentError,
    SinkMismatch,
    StagedMissing,
    StillRunning,
    Stopped,
    StorageError,
    UnknownCheckpoint,
)

_NAME = re.compile(r"(^|say which, )name='([^']*)'")
_OPTION = re.compile(
    r"(?<!\()(?<!Python )\b(?:outputs=\"(?P<outputs>\w+)\"(?: \(--outputs=\w+\))?"
    r"|(?P<flag>end_of_input|follow|take_over)=True"
    r"|(?P<given>add|remove)=(?!\w))"
)


@dataclass(frozen=True)
class Exit:
    """A code, its meaning, and its errors."""

    code: int
    text: str
    errors: tuple[type[PersistentError], ...] = ()


DONE, FAILED, USAGE, NOT_FOUND, CORRUPT, RUNNING, REFUSED, STOPPED = 0, 1, 2, 3, 4, 5, 6, 130

EXITS = (
    Exit(DONE, "done"),
    Exit(NOT_FOUND, "there is no checkpoint, or it does not keep that id or clock", (NoCheckpoint, UnknownCheckpoint)),
    Exit(
        CORRUPT,
        "the checkpoint or log is corrupt, or verify found faults",
        (CorruptCheckpoint, CorruptLog, StagedMissing),
    ),
    Exit(RUNNING, "the job is running, or another driver took over", (StillRunning, Fenced)),
    Exit(REFUSED, "the store refused: no permission, not reachable, not supported", (StorageError,)),
    Exit(STOPPED, "stopped by a signal before the end, everything so far committed", (Stopped,)),
    Exit(FAILED, "another error, in one line", (PersistentError, SinkMismatch)),
    Exit(USAGE, "a wrong command line"),
)
"""The code of an error is that of the exit that lists its class, or else its nearest base class."""


def worded(text: str) -> str:
    """A message about an argument of a method, in the words of the command line.

    >>> worded("Two has the states short, total: say which, name='short'")
    'Two has the states short, total: say which, --name short'
    >>> worded("omit add= and remove=, or run with follow=True")
    'omit --add and --remove, or run with --follow'
    """
    return _OPTION.sub(_in_words, _NAME.sub(r"\1--name \2", text))


def _in_words(match: re.Match[str]) -> str:
    groups = match.groupdict()
    if groups["outputs"]:
        return f"--outputs={groups['outputs']}"
    return f"--{(groups['flag'] or groups['given']).replace('_', '-')}"


def exit_code(error: PersistentError) -> int:
    """The code of an error.

    >>> exit_code(NoCheckpoint("...")), exit_code(StillRunning("...")), exit_code(PersistentError("..."))
    (3, 5, 1)
    """
    return next(exit_.code for kind in type(error).__mro__ for exit_ in EXITS if kind in exit_.errors)


class CommandFailed(click.ClickException):
    """An error in one line, with its exit code."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(" ".join(text.splitlines()))
        self.exit_code = code  # type: ignore[misc]
