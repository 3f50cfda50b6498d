"""A simulation runs a pipeline many times with faults at random places, and checks that its results do not change.

crash           the process is killed before or after a storage operation
    torn            it is killed in the middle of an operation
    lost answer     an operation is done, or is not, and its answer is lost
error           an operation is refused once
    pause           the driver stops before an operation while another one runs to the end
    second driver   another driver starts at the same time, and their operations alternate

A seed selects one to three faults, one after the other; then the pipeline runs undisturbed to its end.
"""

from __future__ import annotations

import copy
import json
import math
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from persistent.connect.files.sink import FileSink
from persistent.driver.report import RunReport
from persistent.errors import Fenced, InvalidPipeline, StorageError
from persistent.pipeline import Pipeline
from persistent.storage.memory import MemoryStorage
from persistent.storage.protocol import Storage
from persistent.task.task import named_states, task_name
from persistent.testing.faults import (
    AskingStorage,
    Before,
    FaultyStorage,
    Interleaving,
    Killed,
    Once,
    Operations,
    choose,
    draw,
    run_both,
)
from persistent.testing.outcome import Difference, Outcome, all_outputs, all_states, first_difference, outcome_of
from persistent.testing.running import Calling, ManualClock, maker, user_time
from persistent.text.readable import readable_list
from persistent.time.clock import wall_ms
from persistent.worker.job import Node

FAULTS = ("crash", "lost answer", "error", "pause", "second driver", "torn")

SEEDS: ContextVar[int] = ContextVar("SEEDS", default=100)
"""The default number of seeds."""

_HOW = {
    "crash": ("before", "after"),
    "torn": ("half",),
    "lost answer": ("lost", "lost-undone"),
    "error": ("error", "full-once"),
}
_FAULTS_MAX = 3
_STEPS = 8
_LIFE_MS = 90_000_000


class SimulationFailed(AssertionError):
    """A run with faults differs from the calm run. ``seed`` reproduces it; ``story`` lists its faults."""

    def __init__(self, message: str, seed: int, story: Sequence[str], difference: Difference | None) -> None:
        super().__init__(message)
        self.seed = seed
        self.story = tuple(story)
        self.difference = difference


@dataclass(frozen=True)
class Simulated:
    """A simulation's seeds, the storage operations of the calm run, and the number of times each fault struck."""

    seeds: int
    operations: int
    struck: Counter[str]


def simulate(
    pipeline: Pipeline | Callable[[], Pipeline],
    seeds: Iterable[int] | None = None,
    faults: Sequence[str] = FAULTS,
    *,
    end_of_input: bool = True,
    tolerance: float = 1e-9,
) -> Simulated:
    """Run a pipeline with faults, once per seed; raise ``SimulationFailed`` at the first different result.

    ``pipeline``: a pipeline that has not run, or a function that creates it as a process does. Its source is read
    unchanged; checkpoint and sink are replaced by ones in memory, and without ``step_rows`` the input makes about eight
    steps.

    State, published rows, late rows, dead letters and ledger are compared. ``seeds``: by default 0 to 99, or as many as
    ``pytest --persistent-seeds=N`` says. ``tolerance``: the allowed relative difference between numbers, for monoids
    with ``exact = False``.

    >>> from monoids import Count
    >>> from persistent import MemorySource, NonWindowState, PersistentTask
    >>> class Visits(PersistentTask):
    ...     key = "page"
    ...     def persistent_state(self): return NonWindowState(Count())
    ...     def process_message(self, state, message): state.update(message.timestamp, 1)
    >>> source = MemorySource([{"ts": number, "page": "ab"[number % 2]} for number in range(6)])
    >>> pipeline = Pipeline(source=source, task=Visits(), checkpoint="visits/")
    >>> simulate(pipeline, seeds=range(5)).seeds
    5
    """
    unknown = [fault for fault in faults if fault not in FAULTS]
    if unknown or not faults:
        raise InvalidPipeline(f"faults={list(faults)!r}: choose some of {', '.join(FAULTS)}")
    chosen = list(range(SEEDS.get()) if seeds is None else seeds)
    if not chosen:
        raise InvalidPipeline("seeds= is empty: give some numbers, for example range(100)")
    simulation = _Simulation(pipeline, tuple(faults), end_of_input, tolerance)
    for seed in chosen:
        simulation.check(seed)
    return Simulated(len(chosen), len(simulation.operations), simulation.struck)


class _Simulation:
    """A pipeline, and its calm run, which every other run must equal."""

    def __init__(self, pipeline: Any, faults: tuple[str, ...], end_of_input: bool, tolerance: float) -> None:
        self._make = _making(pipeline)
        self._faults = faults
        self._end_of_input = end_of_input
        self._now_ms = wall_ms()
        first = self._make()
        exact = all(state.monoid.exact for state in named_states(first.task.persistent_state()).values())
        self._tolerance = None if exact else tolerance
        self.name = task_name(first.task)
        self._step_rows = first.step_rows or self._fitting_steps()
        self.struck: Counter[str] = Counter()
        with self._world(self._step_rows) as world:
            counted = Operations()
            world.run(operations=counted)
            self.operations = counted.log
            self.calm = world.outcome()

    def check(self, seed: int) -> None:
        """Raise SimulationFailed if the run of this seed differs from the calm run."""
        with self._world(self._step_rows) as world:
            try:
                difference = self._lived(world, seed)
            except SimulationFailed:
                raise
            except Exception as error:
                raise self._failed(seed, world.story, [f"raises {type(error).__name__}: {error}"], None) from error
        if difference is not None:
            lines = [*difference.where(), *difference.values("calm", "after the faults")]
            raise self._failed(seed, world.story, lines, difference)

    def _lived(self, world: _World, seed: int) -> Difference | None:
        for number in range(1 + draw(_FAULTS_MAX, seed, "faults")):
            fault = choose(self._faults, seed, number, "fault")
            at = draw(len(self.operations), seed, number, "place")
            self.struck[fault] += _FATES[fault](world, fault, at, (seed, number))
        world.run()
        outcome = world.outcome()
        again = world.run()
        if again.steps:
            raise self._failed(seed, world.story, [f"run again undisturbed, it made {again.steps} more steps"], None)
        return first_difference(self.calm, outcome, self._tolerance)

    def _failed(
        self, seed: int, story: Sequence[str], lines: Sequence[str], difference: Difference | None
    ) -> SimulationFailed:
        report = [f"{self.name} with seed {seed}: faults change the result of the calm run"]
        report += [f"  {number}. {life}" for number, life in enumerate(story, 1)]
        report += [f"  {line}" for line in lines]
        faults = "" if self._faults == FAULTS else f", faults={list(self._faults)!r}"
        report.append(f"To reproduce: simulate(..., seeds=[{seed}]{faults})")
        return SimulationFailed("\n".join(report), seed, story, difference)

    def _fitting_steps(self) -> int:
        with self._world(None) as world:
            rows = world.run().rows
        if not rows:
            raise InvalidPipeline(f"{self.name}: its source has no records, so there is nothing to simulate")
        return math.ceil(rows / _STEPS)

    @contextmanager
    def _world(self, step_rows: int | None) -> Iterator[_World]:
        world = _World(self._make, self._end_of_input, self._now_ms, step_rows)
        with ManualClock(self._now_ms):
            try:
                yield world
            finally:
                world.forget()


@dataclass
class _World:
    """The checkpoint and sinks, which survive a process. ``story``: a line for each fault that struck."""

    make: Callable[[], Pipeline]
    end_of_input: bool
    now_ms: int
    step_rows: int | None
    story: list[str] = field(default_factory=list)
    lives: int = 0

    def __post_init__(self) -> None:
        self.name = uuid.uuid4().hex
        self.checkpoint = MemoryStorage(f"{self.name}-checkpoint")
        self.sinks: dict[str, tuple[MemoryStorage, str]] = {}

    def pipeline(self, operations: Operations | None = None, before: Before | None = None) -> Pipeline:
        """The pipeline as one process creates it."""

        def seen(storage: Storage) -> Storage:
            if before is not None:
                return AskingStorage(storage, before)
            return FaultyStorage(storage, operations) if operations is not None else storage

        made = copy.copy(self.make())
        made.storage = seen(self.checkpoint)
        made.sinks = {
            name: self._sink(name, sink.format if isinstance(sink, FileSink) else "parquet", seen)
            for name, sink in made.sinks.items()
        }
        # Its late records are compared where they stand in the checkpoint.
        made.late_sink = None
        made.step_rows = self.step_rows
        return made

    def run(self, *, operations: Operations | None = None, before: Before | None = None) -> RunReport:
        """Run one process to its end, some hours after the previous one."""
        with self.later():
            return self.live(self.pipeline(operations, before))

    def live(self, pipeline: Pipeline) -> RunReport:
        """Run one process, at the current time."""
        return pipeline.run(engine=Calling(), end_of_input=self.end_of_input)

    @contextmanager
    def later(self) -> Iterator[None]:
        """While the context is open, it is some hours later for the task."""
        self.lives += 1
        with user_time(self.make().task, self.now_ms + _LIFE_MS * self.lives):
            yield

    def outcome(self) -> Outcome:
        """The outcome so far."""
        pipeline = self.pipeline()
        return all_states({node.name: self._of_state(pipeline, node) for node in pipeline.job().nodes.values()})

    def _of_state(self, pipeline: Pipeline, node: Node) -> Outcome:
        """The outcome of one state, with the outputs of each sink that takes it."""
        rows = [_rows_in(*self.sinks[sink]) for sink in node.sinks if sink in self.sinks] or [iter(())]
        return all_outputs([outcome_of(pipeline, sink_rows, positions=True, state=node.name) for sink_rows in rows])

    def forget(self) -> None:
        """Free the memory."""
        for storage in (self.checkpoint, *(storage for storage, _ in self.sinks.values())):
            storage.clear()

    def _sink(self, name: str, format: str, seen: Callable[[Storage], Storage]) -> FileSink:
        """The sink of that name, in memory."""
        storage, _ = self.sinks.setdefault(name, (MemoryStorage(f"{self.name}-{name}-sink"), format))
        return FileSink(seen(storage), format=format)


def _rows_in(sink: MemoryStorage, format: str) -> Iterator[dict[str, Any]]:
    for name in sink.list(""):
        data = sink.read(name)
        if format == "parquet":
            yield from readable_list(pq.read_table(pa.BufferReader(data)))
        else:
            yield from (json.loads(line) for line in data.to_pybytes().decode().splitlines())


def _strike(world: _World, fault: str, at: int, seed: tuple[int, int]) -> int:
    """Run one process with a storage fault; 1 if it struck."""
    operations = Operations(at, choose(_HOW[fault], *seed, "how"))
    try:
        world.run(operations=operations)
        ended = "survived"
    except Killed:
        ended = "killed"
    except StorageError as error:
        ended = f"ended by {type(error).__name__}"
    if operations.count <= at:
        return 0
    verb, url, name = operations.log[at]
    world.story.append(f"{fault} ({operations.how}) at operation {at}, {verb} {url.rpartition('-')[2]}/{name}: {ended}")
    return 1


def _pause(world: _World, fault: str, at: int, seed: tuple[int, int]) -> int:
    """Run one process that pauses while another runs to its end."""
    seen: list[str] = []

    def here(verb: str, name: str) -> bool:
        seen.append(f"{verb} {name}")
        return len(seen) == at + 1

    pause = Once(here, world.run)
    try:
        world.run(before=pause)
        ended = "continued"
    except Fenced:
        ended = "was fenced"
    if pause.happened:
        world.story.append(f"{fault} before operation {at}, {seen[at]}, while another driver runs: {ended}")
    return int(pause.happened)


def _second_driver(world: _World, fault: str, at: int, seed: tuple[int, int]) -> int:
    """Run two processes at once."""
    turns = Interleaving(*seed)

    def life(me: int) -> Callable[[], str]:
        def live() -> str:
            try:
                report = world.live(world.pipeline(before=turns.before(me)))
            except Fenced:
                return "was fenced"
            return f"did {report.steps} steps"

        return live

    with world.later():
        ends = run_both(life(0), life(1), turns)
    world.story.append(f"{fault}: the first {ends[0]}, the second {ends[1]}")
    return 1


_FATES: dict[str, Callable[[_World, str, int, tuple[int, int]], int]] = {
    **dict.fromkeys(_HOW, _strike),
    "pause": _pause,
    "second driver": _second_driver,
}


def _making(pipeline: Any) -> Callable[[], Pipeline]:
    """A function that creates the pipeline as a new process does, with a task of its own."""
    if isinstance(pipeline, Pipeline):
        task = maker(pipeline.task)

        def anew() -> Pipeline:
            made = copy.copy(pipeline)
            made.task = task()
            return made

        return anew
    if callable(pipeline) and not isinstance(pipeline, type):
        return pipeline  # type: ignore[no-any-return]
    raise InvalidPipeline(f"simulate({pipeline!r}): give a Pipeline, or a function that creates one")
