"""A task is run over records in a pipeline of its own, in memory.

The clock stands still, no record is late, and every window is closed at the end.

User time is the time of day that the task's module reads from Python: here, a chosen time. It replaces ``time.time()``
and ``time.time_ns()`` everywhere; and these, ``datetime`` and ``date``, under any name in the modules of the task's
classes.

A manual clock replaces the time in ``persistent``, and stands still until the test moves it.
"""

from __future__ import annotations

import copy
import datetime
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from persistent.connect.memory import MemorySink, MemorySource
from persistent.connect.source import Budget, SourcePlan, SourceState
from persistent.connect.source import Records as Read
from persistent.driver.report import StepReport
from persistent.engines.embedded import Embedded
from persistent.engines.protocol import Engine
from persistent.errors import InvalidPipeline
from persistent.names import STATE
from persistent.pipeline import Pipeline
from persistent.storage.memory import MemoryStorage
from persistent.task.task import PersistentTask, named_states
from persistent.testing.faults import Killed
from persistent.testing.outcome import Outcome, all_states, outcome_of
from persistent.time import clock
from persistent.time.clock import Duration, duration_ms

START_MS = 1_900_000_000_000
"""The first time of a manual clock: 17 March 2030."""


class ManualClock:
    """Replaces, within ``with``, the time of day and the measuring clock of ``persistent`` in the whole process.

    Code that reads the time from Python itself still sees the true time.

    >>> from persistent.time.clock import wall_ms
    >>> with ManualClock(1_000) as manual:
    ...     manual.advance("1 min")
    ...     wall_ms()
    61000
    """

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms
        self._passed_ms = 0
        self._before: list[Any] = []

    def __repr__(self) -> str:
        return f"ManualClock({self.now_ms})"

    def advance(self, duration: Duration) -> None:
        """Let time pass: milliseconds, a ``timedelta``, or text such as "1 min"."""
        passed = duration_ms(duration)
        self.now_ms += passed
        self._passed_ms += passed

    def set(self, now_ms: int) -> None:
        """Set the time of day, forward or back, as an operator does; measured durations do not change."""
        self.now_ms = now_ms

    def __enter__(self) -> ManualClock:
        self._before.append(vars(clock)["time"])
        setattr(clock, "time", _TimeModule(self, self._before[-1]))  # noqa: B010
        return self

    def __exit__(self, *raised: object) -> None:
        setattr(clock, "time", self._before.pop())  # noqa: B010

    # Called by ``persistent.time.clock``.

    def _read(self, name: str) -> int | float:
        ms = self.now_ms if name.startswith("time") else self._passed_ms
        return ms * 1_000_000 if name.endswith("_ns") else ms / 1_000


class _TimeModule:
    """The module ``time`` with the readings of the manual clock."""

    def __init__(self, manual: ManualClock, module: Any) -> None:
        self._manual = manual
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name in READINGS:
            return lambda: self._manual._read(name)
        return getattr(self._module, name)


READINGS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
"""The functions of ``time`` that read a clock."""


T = TypeVar("T")
R = TypeVar("R")

InputRecords: TypeAlias = Sequence[Any] | pa.Table
MakeTask = Callable[[], PersistentTask]

_EVER_MS = 1 << 60


@dataclass(frozen=True)
class Settings:
    """The options that all runs share."""

    timestamp: str = "ts"
    timestamp_unit: str | None = "ms"
    on_error: str = "stop"
    recorded: Mapping[str, Any] = field(default_factory=dict)
    """The schema of all records, so that a part is read in the same way as the whole."""
    positions: Sequence[int] | None = None
    """The position of each record, if records are read in another order."""


class PartSource(MemorySource):
    """A part of the records, in the schema of all, each at its own position."""

    def __init__(self, records: InputRecords, settings: Settings) -> None:
        super().__init__(records, timestamp=settings.timestamp, timestamp_unit=settings.timestamp_unit)
        self._given = settings.recorded
        self._positions = settings.positions

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        fixed = replace(state, recorded=state.recorded or self._given)
        return super().plan(fixed, budget, follow=follow)

    def _records(self, start: int, stop: int, schema: pa.Schema) -> Read:
        read = super()._records(start, stop, schema)
        if self._positions is None:
            return read
        positions = np.asarray(self._positions, np.int64)
        dead = [replace(record, offset=int(positions[record.offset])) for record in read.dead]
        return replace(read, offsets=positions[read.offsets], dead=dead)


class Calling:
    """An engine in the calling thread that claims ``parallelism`` workers.

    ``twice``: each item first runs on a worker that dies before it returns its result.
    """

    name = "embedded"
    in_process = True

    def __init__(self, parallelism: int = 1, *, twice: bool = False) -> None:
        self.parallelism = parallelism
        self._twice = twice
        self._inner = Embedded(threads=1)

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if self._twice:
            self._inner.map(function, items)
        return self._inner.map(function, items)

    def stop(self) -> None:
        self._inner.stop()


class TaskRun:
    """A task run over records from an empty checkpoint to the end of the input, in any number of processes."""

    def __init__(self, make: MakeTask, records: InputRecords, settings: Settings) -> None:
        self._make = make
        self._records = records if isinstance(records, pa.Table) else list(records)
        self._settings = settings
        self._storage = MemoryStorage(f"testing-{uuid.uuid4().hex}")
        self._task = make()
        self._states = named_states(self._task.persistent_state())
        self._sinks = {name: MemorySink() for name in self._states}

    def pipeline(self, step_rows: int | None = None) -> Pipeline:
        """The pipeline as one process creates it."""
        settings, by_name = self._settings, isinstance(self._task.persistent_state(), Mapping)
        return Pipeline(
            source=PartSource(self._records, settings),
            task=self._task,
            sink=self._sinks if by_name else self._sinks[STATE],
            checkpoint=self._storage,
            step_rows=step_rows,
            on_error=settings.on_error,
            max_future=f"{_EVER_MS} ms",
        )

    def live(self, step_rows: int | None = None, engine: Engine | None = None) -> None:
        """Run one process to the end."""
        self.pipeline(step_rows).run(engine=engine or Calling(), end_of_input=True)

    def die_after_a_step(self, step_rows: int | None, engine: Engine | None = None) -> bool:
        """Run one process, kill it after its first step, and create the task again. False if no work was left."""
        try:
            self.pipeline(step_rows).run(engine=engine or Calling(), end_of_input=True, on_step=_die)
        except Killed:
            self._task = self._make()
            return True
        return False

    def outcome(self) -> Outcome:
        """The outcome so far."""
        pipeline = self.pipeline()
        return all_states({name: outcome_of(pipeline, sink.rows(), state=name) for name, sink in self._sinks.items()})

    def forget(self) -> None:
        """Free the memory."""
        self._storage.clear()


@contextmanager
def task_run(make: MakeTask, records: InputRecords, settings: Settings) -> Iterator[TaskRun]:
    """A run of the task; its memory is released at the end."""
    begun = TaskRun(make, records, settings)
    try:
        yield begun
    finally:
        begun.forget()


def settings_of(records: InputRecords, timestamp: str, timestamp_unit: str | None, on_error: str) -> Settings:
    """The settings for running these records, or parts of them."""
    settings = Settings(timestamp, timestamp_unit, on_error)
    return replace(settings, recorded=PartSource(records, settings).plan(SourceState({}), Budget(1)).recorded)


@contextmanager
def standing_clock(task: PersistentTask, now_ms: int = START_MS) -> Iterator[None]:
    """While the context is open, time stands still, for this package and for the task's module."""
    with ManualClock(now_ms), user_time(task, now_ms):
        yield


def at_once(make: MakeTask, records: InputRecords, settings: Settings, now_ms: int = START_MS) -> Outcome:
    """All records in one step."""
    with standing_clock(make(), now_ms), task_run(make, records, settings) as run:
        run.live(step_rows=max(len(records), 1))
        return run.outcome()


def maker(task: Any) -> MakeTask:
    """A function that creates the task as a new process does, from an unused task, its class, or such a function."""
    if isinstance(task, PersistentTask):
        return lambda: _copied(task)
    if callable(task):
        return task  # type: ignore[no-any-return]
    raise InvalidPipeline(f"task={task!r}: give a task, its class, or a function that creates it")


def _copied(task: PersistentTask) -> PersistentTask:
    try:
        return copy.deepcopy(task)
    except Exception as error:
        raise InvalidPipeline(
            f"{type(task).__name__} cannot be copied ({type(error).__name__}: {error}), but every process needs its "
            "own task: give its class, or a function that creates it"
        ) from error


def _die(report: StepReport) -> None:
    raise Killed(f"after step {report.id}")


_TIME = vars(sys.modules["time"])
_OF_DAY = ("time", "time_ns")
_OTHERS = ("persistent", "monoids", "builtins")


@contextmanager
def user_time(task: PersistentTask, now_ms: int) -> Iterator[None]:
    """While the context is open, it is ``now_ms`` for the task."""
    known = _replacements(now_ms)
    with ExitStack() as restored:
        for name in _OF_DAY:
            _replace(_TIME, name, known[id(_TIME[name])], restored)
        for names in _globals_of(task):
            for name, value in list(names.items()):
                if id(value) in known:
                    _replace(names, name, known[id(value)], restored)
        yield


def _replace(names: dict[str, Any], name: str, value: Any, restored: ExitStack) -> None:
    restored.callback(names.__setitem__, name, names[name])
    names[name] = value


def _globals_of(task: PersistentTask) -> list[dict[str, Any]]:
    """The global names of the functions of the task's own classes, its key functions included."""
    classes = [cls for cls in type(task).__mro__ if cls.__module__.split(".")[0] not in _OTHERS]
    functions = [value for cls in classes for value in vars(cls).values()]
    if isinstance(task.key, Mapping):
        functions += task.key.values()
    namespaces = [getattr(function, "__globals__", None) for function in functions]
    return list({id(names): names for names in namespaces if names is not None}.values())


def _replacements(now_ms: int) -> dict[int, Any]:
    """The replacement of each object that reads the time, by its ``id``."""

    def reading(name: str) -> Any:
        return lambda: now_ms * 1_000_000 if name.endswith("_ns") else now_ms / 1_000

    readings = {name: reading(name) for name in _OF_DAY}
    known: dict[int, Any] = {id(_TIME[name]): value for name, value in readings.items()}
    days = _standing(datetime.datetime, now_ms), _standing(datetime.date, now_ms)
    known |= {id(datetime.datetime): days[0], id(datetime.date): days[1]}
    module = ModuleType("datetime")
    vars(module).update(vars(datetime), datetime=days[0], date=days[1])
    known[id(datetime)] = module
    return known


def _standing(kind: type[Any], now_ms: int) -> type[Any]:
    """``datetime`` or ``date`` that always read ``now_ms``; true values are instances too."""

    class Meta(type(kind)):  # type: ignore[misc]
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, kind)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, kind)

    def at(cls: Any, zone: Any = None, tz: Any = None) -> Any:
        return datetime.datetime.fromtimestamp(now_ms / 1_000, zone or tz)

    def utc(cls: Any) -> Any:
        return datetime.datetime.fromtimestamp(now_ms / 1_000, datetime.UTC).replace(tzinfo=None)

    def day(cls: Any) -> Any:
        return at(cls) if kind is datetime.datetime else at(cls).date()

    methods = {"now": classmethod(at), "utcnow": classmethod(utc), "today": classmethod(day)}
    return Meta(kind.__name__, (kind,), methods)
