"""Watching a task shows whether it changes its input, and which values it gives the state."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from monoids import HeavyHitters, Monoid, Reservoir
from persistent.names import STATE
from persistent.task.message import Batch, Message, readable_fields
from persistent.task.task import PersistentTask, node_name
from persistent.testing.outcome import same
from persistent.testing.running import InputRecords, MakeTask, Settings, standing_clock, task_run
from persistent.text.readable import readable_list

_VALUES_MAX = 60
_EXAMPLES = 30


class Changed(BaseException):
    """The task changed its input: ``what``, ``before`` and ``after``, in ``record``. Stops the run at once."""

    def __init__(self, what: str, before: Any, after: Any, record: Any) -> None:
        super().__init__(f"{what} was {before!r}, is {after!r}")
        self.what, self.before, self.after, self.record = what, before, after, record


@dataclass
class Seen:
    """The first values given to ``update`` of each state, and whether any update gave ``key=``."""

    values: dict[str, list[Any]] = field(default_factory=dict)
    gives_keys: bool = False


def watch(make: MakeTask, records: InputRecords, settings: Settings) -> Seen:
    """Run the task by message and by batch, as it defines them; raise ``Changed`` if it changes its input."""
    task, seen = make(), Seen()
    has_message = type(task).process_message is not PersistentTask.process_message
    has_batch = type(task).process_batch is not PersistentTask.process_batch
    watched = ([_by_message] if has_message else []) + ([_by_batch] if has_batch else [])
    for how in watched:

        def made(how: Any = how) -> PersistentTask:
            inner = make()
            inner.name = node_name(inner)
            inner.__class__ = type(type(inner).__name__, (type(inner),), how(type(inner), seen))
            return inner

        with standing_clock(task), task_run(made, records, settings) as run:
            run.live(max(len(records), 1))
    return seen


def _by_message(task_class: type[PersistentTask], seen: Seen) -> dict[str, Any]:
    def process_message(self: PersistentTask, state: Any, message: Message) -> Any:
        before = copy.deepcopy(readable_fields(message))
        answer: Any = task_class.process_message(self, _Recorded(state, seen), message)
        for name, value in readable_fields(message).items():
            if not same(before.get(name), value):
                raise Changed(f"message.value[{name!r}]", before.get(name), value, before)
        return answer

    return {"process_message": process_message, "process_batch": PersistentTask.process_batch}


def _by_batch(task_class: type[PersistentTask], seen: Seen) -> dict[str, Any]:
    def process_batch(self: PersistentTask, state: Any, batch: Batch) -> Any:
        before = batch.timestamps.copy(), batch.offsets.copy()
        answer: Any = task_class.process_batch(self, state, batch)
        for what, old, new in zip(("timestamps", "offsets"), before, (batch.timestamps, batch.offsets)):
            changed = np.flatnonzero(old != new)
            if len(changed):
                row = int(changed[0])
                record = readable_list(batch.table.slice(row, 1))[0]
                raise Changed(f"batch.{what}[{row}]", int(old[row]), int(new[row]), record)
        return answer

    return {"process_batch": process_batch}


class _Recorded:
    """A state that records its updates in ``seen``; of a task with several states, each of them does."""

    def __init__(self, state: Any, seen: Seen, name: str = STATE) -> None:
        self._state = state
        self._seen = seen
        self._values = seen.values.setdefault(name, [])

    def __getitem__(self, name: str) -> Any:
        return _Recorded(self._state[name], self._seen, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)

    def items(self) -> Iterator[tuple[str, Any]]:
        return ((name, self[name]) for name in self._state)

    def values(self) -> Iterator[Any]:
        return (self[name] for name in self._state)

    def update(self, timestamp: int, value: Any, **key: Any) -> None:
        self._seen.gives_keys |= bool(key)
        if len(self._values) < _VALUES_MAX:
            self._values.append(copy.deepcopy(value))
        self._state.update(timestamp, value, **key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)


def law_broken(monoid: Monoid[Any], values: list[Any]) -> AssertionError | None:
    """The first law that these values break. Monoids of this package are not tested again."""
    inputs = [value for value in values if value is not None]
    if not inputs or _is_ours(monoid):
        return None
    from hypothesis import strategies

    from monoids.laws import LawViolation, assert_monoid_laws

    try:
        assert_monoid_laws(monoid, strategies.sampled_from(inputs), examples=_EXAMPLES)
    except LawViolation as violation:
        return violation
    return None


def draws_lots(monoid: Monoid[Any]) -> bool:
    """Whether the monoid samples by the ids of messages, so that other ids give another sample."""
    return any(isinstance(part, Reservoir | HeavyHitters) for part in _parts(monoid))


def _is_ours(monoid: Monoid[Any]) -> bool:
    """Whether a monoid and all its parts come from the package ``monoids``."""
    return all(type(part).__module__.split(".")[0] == "monoids" for part in _parts(monoid))


def _parts(monoid: Any) -> list[Monoid[Any]]:
    """A monoid and all its parts, each once: some contain themselves."""
    seen: dict[int, Any] = {}
    rest = [monoid]
    while rest:
        part = rest.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part
        if isinstance(part, Monoid):
            # The attributes, and those in slots, even if the class pickles something else.
            rest.append(object.__getstate__(part))
        elif isinstance(part, dict):
            rest += part.values()
        elif isinstance(part, list | tuple):
            rest += part
    return [part for part in seen.values() if isinstance(part, Monoid)]
