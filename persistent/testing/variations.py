"""A variation runs a task over the same records in another way; the result must not change.

A shuffled variation keeps the order of records with equal timestamps, whose positions break ties.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from persistent.message import Batch
from persistent.processing import key_columns
from persistent.session_window import values_of
from persistent.sources.protocol import Budget, SourceState
from persistent.task import PersistentTask, named_states, operator_name
from persistent.testing.clock import START_MS
from persistent.testing.outcome import Outcome
from persistent.testing.running import (
    Calling,
    InputRecords,
    MakeTask,
    PartSource,
    Settings,
    at_once,
    standing_clock,
    task_run,
)
from persistent.testing.seeded import draw
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


def _once_more(make: MakeTask, records: InputRecords, settings: Settings) -> Outcome:
    return at_once(make, records, settings)


def _another_day(make: MakeTask, records: InputRecords, settings: Settings) -> Outcome:
    return at_once(make, records, settings, LATER_MS)


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
    _once_more,
)
ANOTHER_DAY = Variation(
    "at another time of day",
    "A step repeated after a crash runs later: use message.timestamp instead of the time of day.",
    _another_day,
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
    given = type(task)
    if given.process_batch is PersistentTask.process_batch or given.process_message is PersistentTask.process_message:
        return
    class_ = type(given.__name__, (given,), {"process_batch": PersistentTask.process_batch})

    def run(make: MakeTask, records: InputRecords, settings: Settings) -> Outcome:
        def by_message() -> PersistentTask:
            made = make()
            made.name = operator_name(made)
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
    for found in source.read(plan.splits[0], plan.recorded):
        batch = Batch(found.batch, found.timestamps, "memory", 0, found.offsets, key_columns(task))
        columns = [readable_list(column) for column in batch.keys]
        for row, offset in enumerate(found.offsets.tolist()):
            times[offset] = int(found.timestamps[row])
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
        numbers[key] = iter([number for number, other in enumerate(keys) if other == key])
    mixed = sorted(range(len(keys)), key=lambda number: (draw(1 << 32, seed, number), number))
    return [next(numbers[keys[number]]) for number in mixed]
