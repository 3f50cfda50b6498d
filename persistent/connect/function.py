"""A function sink hands the outputs of each checkpoint to a function of the user's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from persistent.connect.promises import AT_LEAST_ONCE, Promise
from persistent.connect.sink import BatchSink, Claim, OutputBatch
from persistent.errors import InvalidPipeline, UserCodeError
from persistent.text.spelling import spelled


def _takes_two(function: Callable[..., Any]) -> bool:
    """Whether it can be called with two arguments; True if its signature is unknown."""
    try:
        inspect.signature(function).bind(None, 0)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


class FunctionSink(BatchSink):
    """Calls ``function(table, id)`` for each checkpoint with outputs. ``table``: all of them. ``id``: a number that
    grows with each call, and is the same when outputs are delivered again, as after a crash. A function that stores the
    id together with its effect has each output once. An exception stops the run at its last checkpoint.
    """

    @spelled
    def __init__(self, function: Callable[[pa.Table, int], Any]) -> None:
        if not callable(function):
            raise InvalidPipeline(f"FunctionSink function={function!r}: give a function of a table and an id")
        if not _takes_two(function):
            raise InvalidPipeline(
                f"FunctionSink function={function!r} is called with a table and an id, but does not accept two "
                "arguments: write it as def publish(table, id)"
            )
        self.function = function
        self.address = f"function {id(function)}"

    def __repr__(self) -> str:
        return f"FunctionSink({getattr(self.function, '__qualname__', self.function)!r})"

    def guarantee(self) -> Promise:
        """At-least-once."""
        return Promise(AT_LEAST_ONCE, "after a crash the function is called again, with the same id")

    def claim(self, claim: Claim) -> None:
        """Does nothing: only the user knows which job the function belongs to."""

    def deliver(self, batch: OutputBatch) -> None:
        """Call the function. UserCodeError, StagedMissing."""
        if not batch.staged:
            return
        table = pa.concat_tables(batch.tables())
        try:
            self.function(table, batch.number)
        except Exception as error:
            raise UserCodeError(
                f"{self!r} raised {type(error).__name__}: {error}, for the outputs of checkpoint {batch.id} "
                f"(id={batch.number}). They are kept, and the next run delivers them again"
            ) from error
