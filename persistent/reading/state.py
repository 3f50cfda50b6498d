"""Reading a state returns a table in output columns: all of it, one key or one window, now or at an earlier time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from persistent.checkpoint.as_of import checkpoint_as_of
from persistent.checkpoint.copies import checkpoint_at, read_while_running
from persistent.checkpoint.log import Log
from persistent.checkpoint.successor import Entry
from persistent.codec.decimals import from_text
from persistent.codec.fields import type_of
from persistent.errors import InvalidPipeline
from persistent.pipeline import Pipeline
from persistent.reading.place import Place, checked_node, place
from persistent.task.task import key_names
from persistent.text.figures import utc_text
from persistent.time.clock import Instant, instant_ms
from persistent.time.session_window import SessionWindow
from persistent.time.window import AnyWindow
from persistent.worker.job import Node
from persistent.worker.state_tables import OneKey, StatePart, empty_table, folded_tables


def state_table(
    pipeline: Pipeline,
    *,
    name: str | None = None,
    at: int | None = None,
    as_of: Instant | None = None,
    key: Any = None,
    window: Instant | None = None,
) -> pa.Table:
    """The folded state as an Arrow table in output columns. A state with windows shows every open window that holds
    records.

    ``name``: the state, if the task has several. ``at``: the state of that kept checkpoint. ``as_of``: the state
    before that clock. ``key``: only this key, a value or a tuple of values (``(None,)`` is the null key); this reads
    little more than the key's slice of the runs. ``window``: only the window that starts then. Times are ms since the
    epoch, datetimes or ISO 8601.

    >>> from monoids import Count
    >>> from persistent import MemorySource, NonWindowState, PersistentTask
    >>> class Visits(PersistentTask):
    ...     key = "page"
    ...     def persistent_state(self): return NonWindowState(Count())
    ...     def process_message(self, state, message): state.update(message.timestamp, 1)
    >>> source = MemorySource([{"ts": 1, "page": "a"}, {"ts": 2, "page": "b"}], timestamp="ts")
    >>> pipeline = Pipeline(source=source, task=Visits(), checkpoint="memory://doctest-reading")
    >>> pipeline.run(engine="embedded").rows
    2
    >>> state_table(pipeline, key="b").to_pylist()
    [{'page': 'b', 'value': 1}]
    """
    if at is not None and as_of is not None:
        raise InvalidPipeline("at= names a checkpoint, as_of= a clock: give one of them")
    log, node = Log(pipeline.storage), checked_node(pipeline, place(pipeline.storage, at), name)
    number = None if window is None else _number(node.state.window, instant_ms(window, "window"))
    part = StatePart(window=number, as_of=None if as_of is None else instant_ms(as_of, "as_of"))

    def find() -> Entry:
        if part.as_of is None:
            return checkpoint_at(log, at)
        return checkpoint_as_of(log, node.task, {node.name: node.state}, part.as_of)

    def read(entry: Entry) -> pa.Table:
        return _table(checked_node(pipeline, Place(log.storage, entry), name), entry, part, key)

    return read_while_running(log, find, read)


def _table(node: Node, entry: Entry, part: StatePart, key: Any) -> pa.Table:
    names, types = key_names(node.task), entry.manifest.nodes[node.id].key_types
    empty = empty_table(node, entry.manifest)
    if key is not None:
        values = _checked(names, key if isinstance(key, tuple) else (key,))
        if names and not types:
            return empty
        typed_key = OneKey.of(_columns(values, names, types))
        part = replace(StatePart.of_key(typed_key, part.window), as_of=part.as_of)
    return pa.concat_tables([empty, *folded_tables(node, entry.manifest, part)])


def check_key(pipeline: Pipeline, here: Place, values: Sequence[Any], name: str | None = None) -> None:
    """InvalidPipeline unless every key column has a value, of its type or as text."""
    node = checked_node(pipeline, here, name)
    names, types = key_names(node.task), here.manifest.nodes[node.id].key_types
    _columns(_checked(names, values), names[: len(types)], types)


def check_window(pipeline: Pipeline, here: Place, start: Instant, name: str | None = None) -> None:
    """InvalidPipeline unless a window starts at that time."""
    _number(checked_node(pipeline, here, name).state.window, instant_ms(start, "window"))


def _checked(names: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
    if len(values) != len(names):
        expected = f"the key is ({', '.join(names)}): give {len(names)}" if names else "the task has no key"
        raise InvalidPipeline(f"the given key has {len(values)} values, but {expected}")
    return tuple(values)


def _number(window: AnyWindow | None, start: int) -> int:
    if window is None:
        raise InvalidPipeline("this state has no windows")
    if isinstance(window, SessionWindow):
        raise InvalidPipeline(
            f"{window} has no windows that are the same for all keys: omit window=, and choose from the sessions of "
            "the state, or of one key"
        )
    try:
        number = int(window.last_number(start))
    except ValueError as error:
        raise InvalidPipeline(str(error)) from error
    before = int(window.start_of(number))
    if start != before:
        raise InvalidPipeline(
            f"no window starts at {utc_text(start)}: the previous one starts at {utc_text(before)}, the next at "
            f"{utc_text(int(window.start_of(number + 1)))}"
        )
    return number


def _columns(values: Sequence[Any], names: Sequence[str], types: Sequence[str]) -> list[pa.Array]:
    columns = []
    for value, name, type_ in zip(values, names, types):
        try:
            columns.append(from_text(pa.array([value]), type_of(type_)))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise InvalidPipeline(f"the key {value!r}: column {name} holds {type_}: {error}") from error
    return columns
