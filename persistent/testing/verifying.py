"""Verifying a task checks that reordering, restarts and repetition do not change its results.

Shrinking drops half of the records, then quarters, while the defect still shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

import pyarrow as pa

from persistent.errors import InvalidPipeline, PersistentError
from persistent.names import STATE
from persistent.state.rows import values_of
from persistent.state.state import PersistentState
from persistent.task.task import PersistentTask, check_task, named_states, task_name
from persistent.testing.outcome import (
    ENDED,
    NOTHING,
    Difference,
    Outcome,
    Raised,
    Slot,
    first_difference,
    part_of,
    same,
)
from persistent.testing.running import InputRecords, MakeTask, Settings, at_once, maker, settings_of
from persistent.testing.variations import OtherProcess, Variation, variations_of
from persistent.testing.watching import Changed, Seen, law_broken, watch
from persistent.text.readable import readable_list
from persistent.time.clock import Duration, duration_ms
from persistent.time.window import AnyWindow
from persistent.worker.output_tables import START

Expected = Mapping[Any, Any]
"""Key to value; with windows (key, start of the window in ms) to value. A key of several columns is a tuple. Of a task
with several states, such a mapping by state."""

_REFERENCE = "all at once"
_RECORDS_SHOWN = 20


class TaskDiffers(AssertionError):
    """A task has another result when it runs in another way.

    ``way``: the name of that way; ``key``, ``window``: the place, or None; ``expected``, ``found``: the values;
    ``records``: a small part of the records that shows the difference.
    """

    def __init__(self, message: str, way: str, difference: Difference | None, records: InputRecords) -> None:
        super().__init__(message)
        self.way = way
        self.key = difference.key if difference else None
        self.window = difference.place.window if difference else None
        self.expected = difference.expected if difference else None
        self.found = difference.found if difference else None
        self.records = records


def verify_task(
    task: Any,
    records: InputRecords,
    *,
    timestamp: str = "ts",
    timestamp_unit: str | None = "ms",
    expected: Expected | Callable[[InputRecords], Expected] | None = None,
    max_out_of_orderness: Duration | None = None,
    on_error: str = "stop",
    steps: int = 64,
    shuffles: int = 3,
    elsewhere: bool = True,
    tolerance: float = 1e-9,
) -> None:
    """Run a task over records in every way it can run; raise ``TaskDiffers`` at the first different result.

    ``task``: a task that has not run, its class, or a function that creates it. ``records``: mappings, or an Arrow
    table.

    All records run at once, and then: once more; at another time of day; by ``process_message`` if there is also a
    ``process_batch``; one by one; killed after each step and restarted with a new task; with changing numbers of
    workers; each item twice; shuffled, ``shuffles`` times; and, with ``elsewhere``, in another process with another
    seed of ``hash``. The laws of the user's own monoids are tested with the task's values. Changing a message is an
    error.

    ``expected``: the expected result, or a function of the records that computes it. ``max_out_of_orderness``: how much
    older than its predecessor a record can be in a shuffle; None: any order. A state that is not commutative is
    shuffled across keys only, and not at all if updates give keys. ``steps``: the maximum number of steps of each way.
    ``tolerance``: the allowed relative difference between numbers, for monoids with ``exact = False``.

    >>> from monoids import Count
    >>> from persistent import NonWindowState, PersistentTask
    >>> class Visits(PersistentTask):
    ...     key = "page"
    ...     def persistent_state(self): return NonWindowState(Count())
    ...     def process_message(self, state, message): state.update(message.timestamp, 1)
    >>> verify_task(Visits, [{"ts": 1, "page": "a"}, {"ts": 2, "page": "a"}], expected={"a": 2}, elsewhere=False)
    """
    make = maker(task)
    states = named_states(check_task(make()))
    _check_options(records, on_error, steps, shuffles)
    settings = settings_of(records, timestamp, timestamp_unit, on_error)
    verifying = _Verifying(make, records, settings, states, tolerance)
    verifying.expect(expected)
    seen = verifying.watch()
    disorder = None if max_out_of_orderness is None else duration_ms(max_out_of_orderness, "max_out_of_orderness")
    commutative = all(state.monoid.commutative for state in states.values())
    if not commutative and (seen.gives_keys or _gives_keys(make())):
        shuffles = 0
    with ExitStack() as ended:
        process = ended.enter_context(OtherProcess()) if elsewhere else None
        for way in variations_of(make(), steps, shuffles, disorder, commutative):
            verifying.try_way(way)
        if process is not None:
            verifying.try_way(_elsewhere(process))


class _Verifying:
    """A task with its records; ``reference`` is the outcome that every way must have."""

    def __init__(
        self,
        make: MakeTask,
        records: InputRecords,
        settings: Settings,
        states: Mapping[str, PersistentState],
        tolerance: float,
    ) -> None:
        self.make = make
        self.records = records
        self.settings = settings
        self.states = states
        self.tolerance = None if all(state.monoid.exact for state in states.values()) else tolerance
        self.name = task_name(make())
        self.reference = at_once(make, records, settings)

    def watch(self) -> Seen:
        """Raise TaskDiffers if the task changes its input, or its values break a law."""
        try:
            seen = watch(self.make, self.records, self.settings)
        except Changed as changed:
            message = (
                f"{self.name} changes its input\n  {changed.what}, before: {changed.before!r}\n"
                f"  {changed.what}, after: {changed.after!r}\n  in the record: {changed.record!r}\n"
                "A message can be processed again, and other code sees it: work on a copy."
            )
            difference = Difference(Slot("state"), (), None, changed.before, changed.after)
            raise TaskDiffers(message, "watched", difference, [changed.record]) from None
        for name, state in self.states.items():
            violation = law_broken(values_of(state.monoid), seen.values.get(name, []))
            if violation is not None:
                its = "its state" if name == STATE else f"its state {name!r}"
                message = f"{self.name}: {its} is not a sum, because\n{violation}\nSee docs/monoids.md."
                raise TaskDiffers(message, "laws", None, self.records) from violation
        return seen

    def expect(self, expected: Expected | Callable[[InputRecords], Expected] | None) -> None:
        """Compare the reference with the user's expectation."""
        if expected is None:
            return
        if not callable(expected):
            difference = self._unexpected(self.reference, expected)
            if difference is not None:
                raise self._differs("expected", "Check the task, or expected=.", difference, self.records)
            return

        def look(records: InputRecords) -> Difference | None:
            outcome = self._run(at_once, records)
            return None if isinstance(outcome, Raised) else self._unexpected(outcome, expected(records))

        seen = look(self.records)
        if seen is not None:
            records, defect = smallest(self.records, seen, look)
            raise self._differs("expected", "Check the task, or expected=.", defect, records)

    def try_way(self, way: Variation) -> None:
        """Raise TaskDiffers, with few records, if this way has a different result."""

        def look(records: InputRecords) -> Difference | None:
            reference = self.reference if records is self.records else self._run(at_once, records)
            if isinstance(reference, Raised):
                return None
            outcome = self._run(way.run, records)
            if isinstance(outcome, Raised):
                return Difference(Slot("state"), (), None, ENDED, outcome)
            return first_difference(reference, outcome, self.tolerance)

        seen = look(self.records)
        if seen is not None:
            records, difference = smallest(self.records, seen, look)
            raise self._differs(way.name, way.remedy, difference, records)

    def _run(
        self, run: Callable[[MakeTask, InputRecords, Settings], Outcome], records: InputRecords
    ) -> Outcome | Raised:
        try:
            return run(self.make, records, self.settings)
        except InvalidPipeline:
            raise
        except PersistentError as error:
            return Raised(f"{type(error).__name__}: {error}")

    def _unexpected(self, outcome: Outcome, expected: Expected) -> Difference | None:
        """The first difference from the expected result, of the only state or by state."""
        if self.states.keys() == {STATE}:
            return self._unexpected_of(outcome, STATE, expected)
        for name, of_state in expected.items():
            if name not in self.states or not isinstance(of_state, Mapping):
                raise InvalidPipeline(
                    f"expected= has {name!r}: the task has the states {', '.join(self.states)}: give what is expected "
                    "by state"
                )
        differences = (self._unexpected_of(outcome, name, of_state) for name, of_state in expected.items())
        return next((difference for difference in differences if difference is not None), None)

    def _unexpected_of(self, outcome: Outcome, name: str, expected: Expected) -> Difference | None:
        """The first difference from the expected result of one state."""
        window = self.states[name].window
        part = part_of("outputs" if window is not None else "state", name)
        rows_by_key = {_expected_place(place): (place, rows) for place, rows in outcome.at(part)}
        for key in sorted({**dict.fromkeys(rows_by_key), **dict.fromkeys(expected)}, key=repr):
            place, rows = rows_by_key.get(key) or (_place(part, key, window), [])
            values = [_presented(row) for row in rows]
            got = values[0] if len(values) == 1 else values or NOTHING
            wanted = expected.get(key, NOTHING)
            if isinstance(wanted, Mapping) and isinstance(got, Mapping):
                got = {name: value for name, value in got.items() if name in wanted}
            if not same(wanted, got, self.tolerance):
                return Difference(place, outcome.key_names, None, wanted, got)
        return None

    def _differs(self, way: str, remedy: str, difference: Difference, records: InputRecords) -> TaskDiffers:
        first = _REFERENCE if way != "expected" else "expected"
        second = way if way != "expected" else "the task"
        verdict = "differs from the expected result" if way == "expected" else f"run {way}, has a different result"
        lines = [f"{self.name}{' ' if way == 'expected' else ', '}{verdict}"]
        lines += [f"  {line}" for line in [*difference.where(), *difference.values(first, second)]]
        lines.append(f"  shown by {len(records)} of {len(self.records)} records:")
        rows = readable_list(records) if isinstance(records, pa.Table) else list(records)
        lines += [f"    {record!r}" for record in rows[:_RECORDS_SHOWN]]
        if len(rows) > _RECORDS_SHOWN:
            lines.append(f"    and {len(rows) - _RECORDS_SHOWN} more")
        return TaskDiffers("\n".join([*lines, remedy]), way, difference, records)


def _elsewhere(process: OtherProcess) -> Variation:
    remedy = "hash(), the order of a set, and values kept in a module differ between processes."
    return Variation(
        "in another process", remedy, lambda make, records, settings: process.run(make(), records, settings)
    )


def _gives_keys(task: PersistentTask) -> bool:
    return isinstance(task.key, Mapping) and None in task.key.values()


def _expected_place(place: Slot) -> Any:
    key = place.key[0] if len(place.key) == 1 else place.key or None
    return key if place.window is None else (key, place.window[0])


def _place(part: str, key: Any, window: AnyWindow | None) -> Slot:
    if window is not None:
        if not isinstance(key, tuple) or len(key) != 2:
            raise InvalidPipeline(f"expected= has the key {key!r}: for a state with windows give (key, {START} in ms)")
        key, start = key
        return Slot(part, key if isinstance(key, tuple) else () if key is None else (key,), (start, window.ends(start)))
    return Slot(part, key if isinstance(key, tuple) else () if key is None else (key,))


def _presented(row: Mapping[str, Any]) -> Any:
    """The value of a row: its only column ``value``, otherwise its fields."""
    return row["value"] if tuple(row) == ("value",) else dict(row)


def _check_options(records: Any, on_error: str, steps: int, shuffles: int) -> None:
    if not isinstance(records, list | tuple | pa.Table) or not len(records):
        raise InvalidPipeline("records: give a list of mappings, or an Arrow table, with at least one record")
    if on_error not in ("stop", "dead-letter"):
        raise InvalidPipeline(f'on_error={on_error!r}: choose "stop" or "dead-letter"')
    for name, number, least in (("steps", steps, 1), ("shuffles", shuffles, 0)):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise InvalidPipeline(f"{name}={number!r}: give a whole number, at least {least}")


S = TypeVar("S")

TRIES_MAX = 120


def smallest(records: InputRecords, seen: S, look: Callable[[InputRecords], S | None]) -> tuple[InputRecords, S]:
    """A small part of the records for which ``look`` still finds a defect, and that defect.

    >>> smallest([1, 2, 3, 4, 5, 6], "both", lambda some: "both" if {2, 5} <= set(some) else None)
    ([2, 5], 'both')
    """
    size, tries = len(records) // 2, 0
    while size and tries < TRIES_MAX:
        start, shorter = 0, False
        while start < len(records) and tries < TRIES_MAX:
            less = _without(records, start, start + size)
            defect = look(less) if len(less) else None
            tries += 1
            if defect is None:
                start += size
            else:
                records, seen, shorter = less, defect, True
        if size > 1:
            size = min(size // 2, max(len(records) // 2, 1))
        elif not shorter:
            break
    return records, seen


def _without(records: InputRecords, start: int, stop: int) -> Any:
    if isinstance(records, pa.Table):
        return pa.concat_tables([records.slice(0, start), records.slice(stop)])
    return [*records[:start], *records[stop:]]
