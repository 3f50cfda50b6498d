"""Processing runs a task over a batch: the columns of its keys, its updates, and the messages for which it raises.

A batch that fails is halved until the failing message is alone; the updates of a message count together or not at all,
in all states of the task. A task of several states is given their deltas by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from persistent.errors import AssignerFailed
from persistent.names import STATE
from persistent.state.updates import KeysRefused, listed_key, readable_key
from persistent.storage.failures import without_secrets
from persistent.task.delta import Delta
from persistent.task.message import Batch, Message, readable_fields
from persistent.task.task import PersistentTask, key_names
from persistent.text.readable import readable
from persistent.text.user_errors import Line, error_text, line_of, message_text, users_line


class Deltas(Mapping[str, Delta]):
    """The states as a task sees them in a pipeline: ``state["hourly"].update(...)``."""

    def __init__(self, deltas: Mapping[str, Delta], *, named: bool = True) -> None:
        self._deltas = dict(deltas)
        self._named = named

    # -- what a task calls -----------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Delta:
        try:
            return self._deltas[name]
        except KeyError:
            raise KeyError(f"the task has no state {name!r}: its states are {', '.join(self._deltas)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._deltas)

    def __len__(self) -> int:
        return len(self._deltas)

    def __contains__(self, name: object) -> bool:
        return name in self._deltas

    def update(self, *arguments: Any, **options: Any) -> None:
        raise TypeError(self._several("update"))

    def update_batch(self, *arguments: Any, **options: Any) -> None:
        raise TypeError(self._several("update_batch"))

    def _several(self, method: str) -> str:
        first, *_ = self._deltas
        return (
            f"state.{method}(...): the task has the states {', '.join(self._deltas)}. Name one: "
            f"state[{first!r}].{method}(...)"
        )

    # -- what the step calls ---------------------------------------------------------------------------------

    @property
    def given(self) -> Any:
        """What the task takes as its ``state``: these deltas; or the only delta, if its state has no name."""
        return self if self._named else self._deltas[STATE]

    @property
    def row(self) -> int | None:
        """The row of the batch that updates belong to; None: they must give their key."""
        first, *_ = self._deltas.values()
        return first.row

    @row.setter
    def row(self, row: int | None) -> None:
        for delta in self._deltas.values():
            delta.row = row

    def begin(self, batch: Batch) -> None:
        """The following updates belong to this batch."""
        for delta in self._deltas.values():
            delta.begin(batch)

    def at_once(self) -> Deltas:
        """Empty deltas that check each update at once."""
        return Deltas({name: delta.at_once() for name, delta in self._deltas.items()}, named=self._named)

    def of(self, batch: Batch) -> None:
        """The following rows belong to this batch: the one begun, or one filtered from it."""
        for delta in self._deltas.values():
            delta.of(batch)

    def end(self) -> None:
        """Lift and check the updates of all states since ``begin``, then keep them."""
        for delta in self._deltas.values():
            delta.check()
        for delta in self._deltas.values():
            delta.end()

    def noted(self) -> dict[str, Any]:
        """``Delta.noted`` of each state with such messages, by the name of the state."""
        offsets_by_state = {name: delta.noted() for name, delta in self._deltas.items()}
        return {name: offsets for name, offsets in offsets_by_state.items() if len(offsets)}

    def settle(self) -> None:
        """Fold the kept sums of each state once they are many."""
        for delta in self._deltas.values():
            delta.settle()

    def abandon(self) -> None:
        """Drop the updates since ``begin``."""
        for delta in self._deltas.values():
            delta.abandon()


_MESSAGES = 1 << 16
_INTEGERS_END: Final = 2.0**53
"""From here on, not every integer has a float of its own."""


class KeyFailed(Exception):
    """A key function raised, or its result, or the value of a field, is not a key; ``__cause__`` says why."""

    def __init__(self, name: str, function: Callable[[Message], Any] | None = None) -> None:
        super().__init__(f"key {name!r}")
        self.function = function


@dataclass(frozen=True)
class TaskFailure:
    """The task raised for a message: ``message`` is a batch of one, ``raised_by`` the function, ``line`` its line."""

    message: Batch
    error: Exception
    raised_by: str
    line: Line | None

    def text(self, file: str) -> str:
        """What was raised, in which line, and for which message of ``file``."""
        place = self.message
        (position,) = place.positions
        record = f"partition {place.partition!r}, position {position}, {_shown_key(place)}"
        where = f"{file}, the record at offset {position[1]} ({record})" if file else record
        (message,) = place.messages()
        return without_secrets(
            f"{self.raised_by} raised{f' at {self.line}' if self.line else ''}: {error_text(self.error)}. "
            f"The message is {message_text(readable_fields(message))}, in {where}"
        )

    @property
    def reason(self) -> str:
        """Why the message is a dead letter."""
        return f"{error_text(self.error)}{f' ({self.line.short})' if self.line else ''}"


def key_columns(task: PersistentTask) -> Callable[[Batch], tuple[pa.Array, ...]]:
    """The function that makes the key columns of a batch."""
    key = task.key
    if isinstance(key, Mapping):
        functions = dict(key)

        def by_function(batch: Batch) -> tuple[pa.Array, ...]:
            missing = [name for name, function in functions.items() if function is None]
            if missing:
                raise TypeError(f"key {missing[0]!r} is given by each update: state.update(..., key=...)")
            return tuple(_function_column(batch, name, function) for name, function in functions.items() if function)

        return by_function
    names = key_names(task)
    return lambda batch: tuple(_field_column(batch, name) for name in names)


def process(task: PersistentTask, deltas: Deltas, batch: Batch, failures: list[TaskFailure], *, stop: bool) -> None:
    """Run the task over a batch. A failing batch is halved until the failing message is alone; all others count.
    ``stop``: end at the first failure."""
    if type(task).process_batch is PersistentTask.process_batch:
        for start in range(0, len(batch), _MESSAGES):
            _attempt(task, deltas, batch.slice(start, start + _MESSAGES), failures, stop)
            if failures and stop:
                return
    else:
        _attempt(task, deltas, batch, failures, stop)


def _attempt(task: PersistentTask, deltas: Deltas, batch: Batch, failures: list[TaskFailure], stop: bool) -> None:
    try:
        deltas.begin(batch)
        task.process_batch(deltas.given, batch)
        deltas.end()
    except AssignerFailed:
        # Not the message's fault: as a dead letter it would be missing from its window.
        raise
    except Exception as error:
        deltas.abandon()
        refused = list(error.reasons) if isinstance(error, KeysRefused) else []
        alone = np.isin(batch.offsets, refused) | (len(batch) == 1)
        for row in np.flatnonzero(alone)[: 1 if stop else None].tolist():
            failures.append(_failure(task, deltas, batch.slice(row, row + 1), error))
    else:
        deltas.settle()
        return
    middle = len(batch) // 2
    halves = (batch.slice(0, middle), batch.slice(middle, len(batch)))
    for part in (batch.take(np.flatnonzero(~alone)),) if alone.any() else halves:
        if len(part) and not (failures and stop):
            _attempt(task, deltas, part, failures, stop)


def _failure(task: PersistentTask, deltas: Deltas, batch: Batch, error: Exception) -> TaskFailure:
    """The failure of a batch of one message."""
    name = type(task).__name__
    if isinstance(error, KeysRefused):
        return TaskFailure(batch, error.of(int(batch.offsets[0])), f"{name}: the key", None)
    if isinstance(error, KeyFailed) and isinstance(error.__cause__, Exception):
        line = users_line(error.__cause__) or (line_of(error.function) if error.function else None)
        return TaskFailure(batch, error.__cause__, f"{name}: {error}", line)
    by_message = type(task).process_batch is PersistentTask.process_batch
    method = type(task).process_message if by_message else type(task).process_batch
    line = users_line(error)
    if line is None:
        error = _raised_at_once(task, deltas.at_once(), batch, error)
        line = users_line(error) or line_of(method)
    return TaskFailure(batch, error, f"{name}.{method.__name__}", line)


def _raised_at_once(task: PersistentTask, deltas: Deltas, batch: Batch, error: Exception) -> Exception:
    """Run the message again with immediate updates, so that the error is raised in the line that causes it."""
    try:
        deltas.begin(batch)
        task.process_batch(deltas.given, batch)
    except Exception as again:
        return again if type(again) is type(error) else error
    return error


def _field_column(batch: Batch, name: str) -> pa.Array:
    """A field as a key. KeyFailed for a float that represents several integers: as a key it would merge theirs."""
    try:
        column = readable_key(batch[name], name)
    except pa.ArrowInvalid as error:
        remedy = f"make it text, key = {{{name!r}: lambda message: str(message.value[{name!r}])}}"
        raise KeyFailed(name) from ValueError(f"{error}. No key has that value: {remedy}")
    except ValueError as error:
        raise KeyFailed(name) from error
    if column.type == pa.float64():
        values = column.to_numpy(zero_copy_only=False)
        merged = np.isfinite(values) & (np.abs(values) >= _INTEGERS_END)
        if merged.any():
            text = f"it is {float(values[merged][0])!r}, a float that represents several integers. Write integers; or, "
            remedy = "where it is text, give all columns types: schema=, here 'int64' or, longer, pa.decimal128(38, 0)"
            raise KeyFailed(name) from ValueError(text + remedy)
    return column


def _function_column(batch: Batch, name: str, function: Callable[[Message], Any]) -> pa.Array:
    try:
        return listed_key([function(message) for message in batch.messages()], name)
    except Exception as error:
        raise KeyFailed(name, function) from error


def _shown_key(message: Batch) -> str:
    try:
        values = [readable(column[0]) for column in message.keys]
    except Exception:
        return "key unknown"
    return f"key {repr(values[0] if len(values) == 1 else tuple(values) or None)[:100]}"
