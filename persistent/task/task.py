"""A task declares its state, and what each message contributes to it.

``process_message`` and ``process_batch`` mean the same; the second works on columns. Both may run more than once for
a message (after a crash, or to find a failing one), so they only update the state and have no other effects.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa

from monoids.hashing import key_type
from persistent.errors import InvalidPipeline
from persistent.names import STATE
from persistent.state.state import NonWindowState, PersistentState, WindowState
from persistent.task.message import Batch, Message

_STATE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=@+-]{0,99}")

Declared = PersistentState | Mapping[str, PersistentState]
"""What a task declares: its only state, or several by name."""
Key = str | tuple[str, ...] | Mapping[str, Callable[[Message], Any] | None] | None


class State(Protocol):
    """The state as ``process_message`` and ``process_batch`` see it."""

    def update(self, timestamp: int, value: Any, *, key: Any = ...) -> None:
        """Add one value at a time (ms). ``key``: instead of the message's key; a tuple for several columns."""

    def update_batch(self, timestamps: Any, values: Any, *, keys: Any = ...) -> None:
        """Add many. Arrays, lists, generators and Series are columns, anything else is one value for every row."""

    def get(self) -> Any:
        """The presented value."""


class PersistentTask:
    """Subclass it and define ``persistent_state``, ``process_message`` and, unless one state serves all, ``key``.

    ``key``: a field; a tuple of fields; ``{"campaign": function of the message}``, where None in place of a function
    means that every update gives ``key=``; or None. ``name``: of the state in the checkpoint, by default the class's.
    """

    key: Key = None
    name: str = ""

    def persistent_state(self) -> Declared:
        """The state: a ``WindowState`` or ``NonWindowState`` of some monoid; or several, by name."""
        raise NotImplementedError(f"{type(self).__name__} does not define persistent_state(self)")

    def process_message(self, state: Any, message: Message) -> None:
        """Update the state by one message: any number of updates, under any keys. Without an update it is filtered
        out. ``state``: a ``State``; of several states, ``state["name"]`` is one."""
        raise NotImplementedError(f"{type(self).__name__} does not define process_message(self, state, message)")

    def process_batch(self, state: Any, batch: Batch) -> None:
        """Optional: the same for many messages at once."""
        if isinstance(state, PersistentState):
            raise TypeError("process_batch runs in a pipeline; a state on its own takes updates directly")
        state.of(batch)
        process: Callable[[Any, Message], object] = self.process_message
        for state.row, message in enumerate(batch.messages()):
            if process(state, message) is not None:
                raise TypeError("process_message returned something: it updates the state and returns None")
        state.row = None


def task_name(task: PersistentTask) -> str:
    """The name of the task in the checkpoint."""
    return task.name or type(task).__name__


def node_name(task: PersistentTask, state: str = STATE) -> str:
    """The name of a state of the task in the checkpoint: that of the task for its only one, if it has no name.

    >>> node_name(PersistentTask()), node_name(PersistentTask(), "hourly")
    ('PersistentTask', 'PersistentTask/hourly')
    """
    return task_name(task) if state == STATE else f"{task_name(task)}/{state}"


def named_states(declared: Declared) -> dict[str, PersistentState]:
    """The states of a task by name."""
    return {STATE: declared} if isinstance(declared, PersistentState) else dict(declared)


def key_names(task: PersistentTask) -> tuple[str, ...]:
    """The names of the key columns."""
    if task.key is None:
        return ()
    return (task.key,) if isinstance(task.key, str) else tuple(task.key)


def check_task(task: Any) -> Declared:
    """The state of a task, or its states by name. InvalidPipeline, with the remedy, if it is not a task."""
    if isinstance(task, type) and issubclass(task, PersistentTask):
        raise InvalidPipeline(f"task={task.__name__}: give an instance, {task.__name__}()")
    if not isinstance(task, PersistentTask):
        raise InvalidPipeline(
            f"task={task!r} is not a task: give an instance of a class that subclasses PersistentTask"
        )
    class_ = type(task)
    _check_methods(task)
    declared = task.persistent_state()
    if isinstance(declared, Mapping):
        _check_names(class_.__name__, declared)
        for name, state in declared.items():
            _check_state(f"{class_.__name__}.persistent_state()[{name!r}]", class_.__name__, state)
    else:
        _check_state(f"{class_.__name__}.persistent_state() returned", class_.__name__, declared)
    names = _checked_key(task)
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidPipeline(f"{class_.__name__}.key: {name!r} is not a column name: give names of columns")
    if len(set(names)) != len(names):
        raise InvalidPipeline(f"{class_.__name__}.key names a column twice: {', '.join(names)}: name each once")
    return declared


def _check_methods(task: PersistentTask) -> None:
    """InvalidPipeline unless the class, or the instance, says what its state is, and what a message adds to it."""
    class_ = type(task)
    name = class_.__name__
    ours = {
        "persistent_state": class_.persistent_state is PersistentTask.persistent_state,
        "process_message": class_.process_message is PersistentTask.process_message,
        "process_batch": class_.process_batch is PersistentTask.process_batch,
    }
    lacks = {method for method, is_ours in ours.items() if is_ours and method not in vars(task)}
    if lacks >= {"process_message", "process_batch"}:
        raise InvalidPipeline(
            f"{name} defines neither process_message nor process_batch{_meant(class_, 'process_message')}: define what "
            "a message adds, as in def process_message(self, state, message): state.update(message.timestamp, 1)"
        )
    if "persistent_state" in lacks:
        raise InvalidPipeline(
            f"{name} does not define persistent_state(self){_meant(class_, 'persistent_state')}: define the state that "
            'its messages add up to, as in return WindowState(Count(), tumbling("1 min"))'
        )
    for method in (class_.process_message, class_.process_batch):
        if inspect.isgeneratorfunction(method):
            raise InvalidPipeline(f"{name}.{method.__name__} yields: it updates the state and returns None")
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            raise InvalidPipeline(
                f"{name}.{method.__name__} is async, and nobody would await it: write it without async, as it only "
                "updates the state"
            )


def _meant(class_: type[PersistentTask], method: str) -> str:
    """What the user may have written in place of a method."""
    near = difflib.get_close_matches(method, [name for cls in class_.__mro__[:-2] for name in vars(cls)], 1)
    return f", but {near[0]!r}" if near and near[0] != method else ""


def _check_names(task: str, states: Mapping[Any, Any]) -> None:
    """InvalidPipeline unless there are states, and a checkpoint can hold their names."""
    if not states:
        raise InvalidPipeline(f"{task}.persistent_state() returned no state: return at least one")
    for name in states:
        if not isinstance(name, str) or not _STATE_NAME.fullmatch(name):
            raise InvalidPipeline(
                f"{task}.persistent_state() has a state of the name {name!r}: use letters, digits and . _ = @ + - (at "
                "most 100), starting with a letter or digit"
            )


def _check_state(place: str, task: str, state: Any) -> None:
    """InvalidPipeline unless it is a state, whose sums do not depend on an order that is lost."""
    if not isinstance(state, WindowState | NonWindowState):
        raise InvalidPipeline(f"{place} {state!r}: return a WindowState or a NonWindowState, or several by name")
    if state.window is not None and not state.panes.is_window and not state.monoid.commutative:
        raise InvalidPipeline(
            f"{task}: {state.monoid!r} is not declared commutative, and these windows are folded pane by "
            "pane, not in the order of their messages. If order does not matter to it, set commutative = True in its "
            "class"
        )


def _checked_key(task: PersistentTask) -> tuple[str, ...]:
    """The names of the key columns. InvalidPipeline if ``key`` has another form."""
    key, name = task.key, type(task).__name__
    if callable(key):
        raise InvalidPipeline(
            f'{name}.key is a function, and its column has no name: give key = {{"name": lambda message: ...}}'
        )
    if isinstance(key, Mapping):
        for column, function in key.items():
            if function is not None and not callable(function):
                raise InvalidPipeline(
                    f"{name}.key: {column!r} is made by {function!r}, which is not a function of the message. For the "
                    f"field of that name give lambda message: message.value[{function!r}]; None if every update "
                    "gives it with key="
                )
    elif key is not None and not isinstance(key, str | tuple | list):
        raise InvalidPipeline(
            f'{name}.key = {key!r}: name a field, key = "page"; several, key = ("page", "user"); or make it, '
            'key = {"name": lambda message: ...}'
        )
    return key_names(task)


def check_key(task: PersistentTask, schema: pa.Schema) -> None:
    """InvalidPipeline if the source lacks a key field, or if its type cannot be a key."""
    if isinstance(task.key, Mapping):
        return
    fields = schema.names
    missing = [name for name in key_names(task) if name not in fields]
    if missing:
        parts = tuple(part.strip() for part in missing[0].split(","))
        several = f"For several fields give key = {parts!r}. " if len(parts) > 1 and {*parts} <= {*fields} else ""
        names = ", ".join(name if name == name.strip() else repr(name) for name in fields)
        raise InvalidPipeline(
            f"{type(task).__name__}.key: the source has no field {missing[0]!r}; its fields are {names}. {several}"
            'Name one of them, or make the key: key = {"name": lambda message: ...}'
        )
    for name in key_names(task):
        try:
            key_type(schema.field(name).type)
        except TypeError as error:
            raise InvalidPipeline(
                f"{type(task).__name__}.key: field {name!r}: {error}. Or convert it: "
                f"key = {{{name!r}: lambda message: ...}}"
            ) from error
