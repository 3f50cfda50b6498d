"""A function sink hands the outputs of each checkpoint to a function of the user's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from persistent.errors import InvalidPipeline, UserCodeError
from persistent.promises import AT_LEAST_ONCE, Promise
from persistent.sinks.protocol import Claim, OutputBatch
from persistent.text.spelling import spelled


def _takes_two(function: Callable[..., Any]) -> bool:
    """Whether it can be called with two arguments; True of one that does not say."""
    try:
        inspect.signature(function).bind(None, 0)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


class FunctionSink:
    """Calls ``function(table, id)`` for each checkpoint with outputs. ``table``: all of them. ``id``: a number that
    grows from one to the next, and is the same if they are given again, as after a crash: a function that remembers
    it, together with what it does, has each once. An exception stops the run at its last checkpoint.
    """

    @spelled
    def __init__(self, function: Callable[[pa.Table, int], Any]) -> None:
        if not callable(function):
            raise InvalidPipeline(f"FunctionSink function={function!r}: give a function of a table and an id")
        if not _takes_two(function):
            raise InvalidPipeline(
                f"FunctionSink function={function!r} is called with a table and an id, and takes no two arguments: "
                "write it as def publish(table, id)"
            )
        self.function = function
        self.address = f"function {id(function)}"

    def __repr__(self) -> str:
        return f"FunctionSink({getattr(self.function, '__qualname__', self.function)!r})"

    def guarantee(self) -> Promise:
        """At-least-once."""
        return Promise(AT_LEAST_ONCE, "after a crash the function is called again, with the same id")

    def claim(self, claim: Claim) -> None:
        """Nothing: whose the function is, only the user knows."""

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
                f"(id={batch.number}). They are kept, and the next run gives them again"
            ) from error
