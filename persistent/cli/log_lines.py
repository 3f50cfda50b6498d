"""A log line is one JSON object, for whatever collects the logs of a machine: time, level, logger, message, fields.

With ``json_lines``, everything that a run writes to the standard error is such a line: its progress, the log of this
package and of other packages, and the error that ends the run, with its traceback.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import click

from persistent.cli.exits import FAILED, exit_code
from persistent.errors import PersistentError
from persistent.storage.failures import without_secrets

RUN = "persistent.run"
"""The logger of the lines of a run: its progress, notes and errors."""


class JsonFormat(logging.Formatter):
    """Formats a record. ``common``: fields of every line, which change as the run goes on."""

    def __init__(self, common: Mapping[str, Any]) -> None:
        super().__init__()
        self._common = common

    def format(self, record: logging.LogRecord) -> str:
        """One object, in ASCII, whatever the message holds. A record that cannot be formatted keeps its template, and
        says why in ``unformatted``."""
        try:
            return self._line(record, record.getMessage(), getattr(record, "fields", {}))
        except Exception as error:
            return self._line(record, _template(record), {"unformatted": type(error).__name__})

    def _line(self, record: logging.LogRecord, message: str, extra: Any) -> str:
        body: dict[str, Any] = {
            "time": time_text(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(message),
        }
        fields = {**self._common, **(extra if isinstance(extra, Mapping) else {"fields": extra})}
        body |= {str(name): value for name, value in fields.items() if name not in body}
        if record.exc_info:
            body["traceback"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(body, default=str, allow_nan=False)


def _template(record: logging.LogRecord) -> str:
    """The message without its values; its type, if it has no text."""
    try:
        return str(record.msg)
    except Exception:
        return type(record.msg).__name__


class ToStderr(logging.Handler):
    """Writes to the current standard error, so that log lines do not break a progress line.

    It never raises: a log that nobody can read, or write, does not change what a job counts.
    """

    def emit(self, record: logging.LogRecord) -> None:
        # As in logging.Handler.handleError, but its text is no JSON, and there may be no one left to read it.
        with suppress(Exception):
            click.echo(self.format(record), err=True)


def time_text(seconds: float) -> str:
    """A time as RFC 3339 has it, in UTC.

    >>> time_text(1_700_000_000.5)
    '2023-11-14T22:13:20.500000Z'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@contextmanager
def json_lines(common: Mapping[str, Any]) -> Iterator[None]:
    """Within, every log line is a JSON object with the ``common`` fields. An error becomes such a line, and then the
    exit code of the command."""
    written = ToStderr()
    written.setFormatter(JsonFormat(common))
    root, ours, run = logging.getLogger(), logging.getLogger("persistent"), logging.getLogger(RUN)
    before = root.handlers, ours.handlers, run.level
    root.handlers, ours.handlers = [written], []
    run.setLevel(logging.INFO)
    logging.captureWarnings(True)
    try:
        yield
    except click.ClickException as error:
        run.error(error.format_message())
        raise click.exceptions.Exit(error.exit_code) from error
    except PersistentError as error:
        run.error("%s", error, exc_info=error, extra={"fields": {"error": type(error).__name__}})
        raise click.exceptions.Exit(exit_code(error)) from error
    except (click.exceptions.Exit, click.Abort):
        raise
    except Exception as error:
        run.critical("%s", error, exc_info=error, extra={"fields": {"error": type(error).__name__}})
        raise click.exceptions.Exit(FAILED) from error
    finally:
        logging.captureWarnings(False)
        root.handlers, ours.handlers = before[0], before[1]
        run.setLevel(before[2])
