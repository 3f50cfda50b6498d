"""A variation runs a task over the same records in another way; the result must not change.

A shuffled variation keeps the order of records with equal timestamps, whose positions break ties.
"""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import ModuleType

import cloudpickle
import pyarrow as pa

from persistent.connect.source import Budget, SourceState
from persistent.errors import EngineError, InvalidPipeline
from persistent.state.rows import values_of
from persistent.task.message import Batch
from persistent.task.processing import key_columns
from persistent.task.task import PersistentTask, named_states, node_name
from persistent.testing.faults import draw
from persistent.testing.outcome import Outcome
from persistent.testing.running import (
    START_MS,
    Calling,
    InputRecords,
    MakeTask,
    PartSource,
    Settings,
    at_once,
    maker,
    standing_clock,
    task_run,
)
from persistent.testing.watching import draws_lots
from persistent.text.readable import readable_list

LATER_MS = START_MS + 100 * 86_400_000 + 12_345_678
_PARALLEL = (1, 3, 2, 5)
_LIVES = 5


@dataclass(frozen=True)
class Variation:
    """``name``: as errors show it; ``remedy``: the usual cause of a difference."""

    name: str
    remedy: str
    run: Callable[[MakeTask, InputRecords, Settings], Outcome]


def variations_of(
    task: PersistentTask, steps: int, shuffles: int, disorder_ms: int | None, commutative: bool
) -> list[Variation]:
    """The variations of this task within this process, those with the clearest message first."""
    ways = [ONCE_MORE, ANOTHER_DAY, *_by_message_and_batch(task)]
    ways += [one_by_one(steps), reborn(steps), RESCALED, TWICE]
    ways += [shuffled(seed, disorder_ms, commutative) for seed in range(shuffles)]
    return ways


def _rescaled(make: MakeTask, records: InputRecords, settings: Settings) -> Outcome:
    rows = math.ceil(len(records) / _LIVES)
    with standing_clock(make()), task_run(make, records, settings) as run:
        life = 0
        while run.die_after_a_step(rows, Calling(_PARALLEL[life % len(_PARALLEL)])):
            life += 1
        return run.outcome()


def _twice(make: MakeTask, records: InputRecords, settings: Settings) -> Outcome:
    with standing_clock(make()), task_run(make, records, settings) as run:
        run.live(max(len(records), 1), Calling(2, twice=True))
        return run.outcome()


ONCE_MORE = Variation(
    "once more, just the same",
    "Random numbers, and values kept in the class or module, differ when a step is repeated: use only the message.",
    at_once,
)
ANOTHER_DAY = Variation(
    "at another time of day",
    "A step repeated after a crash runs later: use message.timestamp instead of the time of day.",
    lambda make, records, settings: at_once(make, records, settings, LATER_MS),
)
RESCALED = Variation(
    "rescaled: 1, 3, 2, then 5 workers",
    "Each worker gets some of the messages and its own task: keep nothing on self, and nothing about a batch.",
    _rescaled,
)
TWICE = Variation(
    "each piece of work twice, as when a worker dies",
    "The repeated work may use the same task object: keep nothing on self, only update the state.",
    _twice,
)


def one_by_one(steps: int) -> Variation:
    """A step for each message, or ``steps`` steps for more messages."""

    def run(make: MakeTask, records: InputRecords, settings: Settings) -> Outcome:
        with standing_clock(make()), task_run(make, records, settings) as lived:
            lived.live(_step_rows(records, steps))
            return lived.outcome()

    remedy = "A step can end anywhere: add up contributions of single messages, nothing about a batch."
    return Variation("one by one", remedy, run)


def reborn(steps: int) -> Variation:
    """Killed after each step, and restarted by another process."""

    def run(make: MakeTask, records: InputRecords, settings: Settings) -> Outcome:
        with standing_clock(make()), task_run(make, records, settings) as lived:
            while lived.die_after_a_step(_step_rows(records, steps)):
                pass
            return lived.outcome()

    remedy = "A crash loses the attributes on self, because the task is created again: keep them in the state."
    return Variation("reborn between messages", remedy, run)


def shuffled(seed: int, disorder_ms: int | None, commutative: bool) -> Variation:
    """In another order, within ``disorder_ms``; for a state that is not commutative, across keys only.

    If a state samples by ``message.order``, each record keeps its position: another position would give another sample.
    """

    def run(make: MakeTask, records: InputRecords, settings: Settings) -> Outcome:
        task = make()
        times, keys = _times_and_keys(task, records, settings)
        states = named_states(task.persistent_state()).values()
        lots = any(draws_lots(values_of(state.monoid)) for state in states)
        if commutative:
            order = _by_time(times, disorder_ms, seed)
        else:
            order = _interleaved(keys, seed)
        taken = records.take(order) if isinstance(records, pa.Table) else [records[number] for number in order]
        return at_once(make, taken, replace(settings, positions=order) if lots else settings)

    if commutative:
        remedy = "The monoid has commutative = True, so the order of messages must not matter."
    else:
        remedy = "Messages of different keys arrive in any order."
    return Variation(f"shuffled (seed {seed})", remedy, run)


def _by_message_and_batch(task: PersistentTask) -> Iterator[Variation]:
    base = type(task)
    if base.process_batch is PersistentTask.process_batch or base.process_message is PersistentTask.process_message:
        return
    class_ = type(base.__name__, (base,), {"process_batch": PersistentTask.process_batch})

    def run(make: MakeTask, records: InputRecords, settings: Settings) -> Outcome:
        def by_message() -> PersistentTask:
            made = make()
            made.name = node_name(made)
            made.__class__ = class_
            return made

        return at_once(by_message, records, settings)

    remedy = "process_message and process_batch must agree: check nulls, filters, and the types of values."
    yield Variation("by process_message instead of process_batch", remedy, run)


def _step_rows(records: InputRecords, steps: int) -> int:
    return max(math.ceil(len(records) / steps), 1)


def _times_and_keys(task: PersistentTask, records: InputRecords, settings: Settings) -> tuple[list[int], list[str]]:
    """The timestamp and the key of each record; a record without a timestamp uses its predecessor's."""
    source = PartSource(records, settings)
    plan = source.plan(SourceState({}), Budget(max(len(records), 1)))
    times, keys = [-1] * len(records), [""] * len(records)
    for chunk in source.read(plan.splits[0], plan.recorded):
        batch = Batch(chunk.batch, chunk.timestamps, "memory", 0, chunk.offsets, key_columns(task))
        columns = [readable_list(column) for column in batch.keys]
        for row, offset in enumerate(chunk.offsets.tolist()):
            times[offset] = int(chunk.timestamps[row])
            keys[offset] = repr([column[row] for column in columns])
    for number in range(1, len(records)):
        times[number] = times[number] if times[number] >= 0 else times[number - 1]
    return times, keys


def _by_time(times: Sequence[int], disorder_ms: int | None, seed: int) -> list[int]:
    """Record numbers in an order in which no record follows one that is more than ``disorder_ms`` newer."""
    if disorder_ms is None:
        return sorted(range(len(times)), key=lambda number: (draw(1 << 32, seed, times[number]), number))
    return sorted(
        range(len(times)), key=lambda number: (times[number] + draw(disorder_ms + 1, seed, times[number]), number)
    )


def _interleaved(keys: Sequence[str], seed: int) -> list[int]:
    """Record numbers in an order that keeps the order within each key."""
    numbers: dict[str, Iterator[int]] = {}
    for key in dict.fromkeys(keys):
        numbers[key] = iter([number for number, record_key in enumerate(keys) if record_key == key])
    mixed = sorted(range(len(keys)), key=lambda number: (draw(1 << 32, seed, number), number))
    return [next(numbers[keys[number]]) for number in mixed]


_OURS = ("persistent", "monoids", "builtins", "__main__")
_SEEDS = ("1", "2")


class OtherProcess:
    """Runs a task in one other Python process, which starts at first use and ends with ``with``.

    It has another seed of ``hash``, as after a crash or on a worker. The task is sent to it by cloudpickle, as to
    Spark's workers.
    """

    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> OtherProcess:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._process is not None:
            self._pipe.close()
            self._process.kill()
            self._process.wait()

    def _begin(self) -> None:
        self._pipe, there = Pipe()
        seed = _SEEDS[os.environ.get("PYTHONHASHSEED") == _SEEDS[0]]
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-c", f"from persistent.testing.variations import serve; serve({there.fileno()})"]
        self._process = subprocess.Popen(command, env=environment, pass_fds=[there.fileno()])
        there.close()

    def run(self, task: PersistentTask, records: InputRecords, settings: Settings) -> Outcome:
        """Run all records at once in the other process. Its errors are raised here as ``EngineError``."""
        data = _pickled(task, records, settings, ())
        if self._process is None:
            self._begin()
        answer = self._ask(data)
        if isinstance(answer, _NotFound):
            answer = self._ask(_pickled(task, records, settings, _modules_of(task)))
        if not isinstance(answer, Outcome):
            raise EngineError(answer.error)
        return answer

    def _ask(self, data: bytes) -> Outcome | _Failed:
        try:
            self._pipe.send_bytes(data)
            answer: Outcome | _Failed = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError) as gone:
            raise EngineError("the other process ended without an answer: see its output for the cause") from gone
        return answer


@dataclass(frozen=True)
class _Failed:
    """The other process failed."""

    error: str


class _NotFound(_Failed):
    """The other process cannot import the task's module."""


def serve(descriptor: int) -> None:
    """Answer requests until the pipe closes."""
    pipe = Connection(descriptor)
    while True:
        try:
            data = pipe.recv_bytes()
        except EOFError:
            return
        pipe.send_bytes(pickle.dumps(_answer(data)))


def _answer(data: bytes) -> Outcome | _Failed:
    try:
        task, records, settings = pickle.loads(data)
    except Exception as error:
        return _NotFound(f"{type(error).__name__}: {error}")
    try:
        return at_once(maker(task), records, settings)
    except Exception as error:
        return _Failed(f"{type(error).__name__}: {error}")


def _modules_of(task: PersistentTask) -> list[ModuleType]:
    """The modules of the task's classes, except those of Python and of this project."""
    names = {cls.__module__ for cls in type(task).__mro__ if cls.__module__.split(".")[0] not in _OURS}
    return [sys.modules[name] for name in sorted(names) if name in sys.modules]


def _pickled(task: PersistentTask, records: InputRecords, settings: Settings, by_value: Sequence[ModuleType]) -> bytes:
    """Pickle as Spark does: importable code by reference, the modules of ``by_value`` as code."""
    registered = [module for module in by_value if module.__name__ not in cloudpickle.list_registry_pickle_by_value()]
    try:
        for module in registered:
            cloudpickle.register_pickle_by_value(module)
        return cloudpickle.dumps((task, records, settings))  # type: ignore[no-any-return]
    except Exception as error:
        raise InvalidPipeline(
            f"{type(task).__name__} cannot be sent to another process ({type(error).__name__}: {error}), and so not "
            "to a Spark worker: create its unpicklable parts where they are used; or verify_task(..., elsewhere=False)"
        ) from error
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)
