"""A scripted source is a list of records with events between them: a crash, a pause, a time without input.

    {"ts": 1, ...}   a record; record n has position (0, n), whatever events are between the records
    CRASH            the reader is killed: ``Killed`` is raised
    PAUSE            the reader waits while ``on_pause()`` runs, for example as another driver
    IDLE             no more input for now: a step ends here, and one plan finds nothing; later records do not exist
                     yet, so the watermark does not wait for them
    a function       is called

Each event happens once, when a reader first reaches it: a restart continues with the same records.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import Any

import pyarrow as pa

from persistent.connect.memory import MemorySource
from persistent.connect.source import Budget, Records, Source, SourcePlan, SourceState, Span, Split
from persistent.errors import InvalidPipeline
from persistent.testing.faults import Killed
from persistent.time.clock import Duration


class Event(Enum):
    """An event between the records of a script."""

    CRASH = "CRASH"
    PAUSE = "PAUSE"
    IDLE = "IDLE"


CRASH, PAUSE, IDLE = Event.CRASH, Event.PAUSE, Event.IDLE

Happening = Event | Callable[[], object]


class ScriptedSource(Source):
    """Replays ``script``; the rest is as in ``MemorySource``. Works on the embedded engine, in this process.

    >>> from monoids import Count
    >>> from persistent import NonWindowState, PersistentTask, Pipeline
    >>> class Visits(PersistentTask):
    ...     def persistent_state(self): return NonWindowState(Count())
    ...     def process_message(self, state, message): state.update(message.timestamp, 1)
    >>> source = ScriptedSource([{"ts": 1}, {"ts": 2}, CRASH, {"ts": 3}])
    >>> pipeline = Pipeline(source=source, task=Visits(), checkpoint="memory://doctest-scripted", step_rows=1)
    >>> pipeline.run(engine="embedded")
    Traceback (most recent call last):
    ...
    persistent.testing.faults.Killed: CRASH before record 2
    >>> pipeline.run(engine="embedded").rows, pipeline.state().to_pylist()
    (1, [{'value': 3}])
    """

    kind: str = "ScriptedSource"

    def __init__(
        self,
        script: Sequence[Any],
        *,
        timestamp: str = "ts",
        timestamp_unit: str | None = "ms",
        max_out_of_orderness: Duration = 0,
        on_pause: Callable[[], object] | None = None,
    ) -> None:
        self.on_pause = on_pause
        self.records: list[Any] = []
        """The records of the script, for computing the expected result."""
        self._waiting: dict[int, list[Happening]] = {}
        for item in script:
            if isinstance(item, Event) or callable(item):
                self._waiting.setdefault(len(self.records), []).append(item)
            else:
                self.records.append(item)
        self._lock = threading.Lock()
        self._options: dict[str, Any] = {"timestamp": timestamp, "timestamp_unit": timestamp_unit}
        self._all = MemorySource(self.records, max_out_of_orderness=max_out_of_orderness, **self._options)
        self.max_out_of_orderness = self._all.max_out_of_orderness

    def __repr__(self) -> str:
        return f"ScriptedSource({len(self.records):,} records, {self.left()} events left)"

    def __reduce__(self) -> Any:
        raise InvalidPipeline(
            "ScriptedSource counts past events in one process, so it works only on the embedded engine: "
            'run(engine="embedded")'
        )

    def left(self) -> int:
        """The number of events that have not happened yet."""
        return sum(len(events) for events in self._waiting.values())

    def partitions(self) -> Sequence[str]:
        return self._all.partitions()

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        """The new records up to the next IDLE, within the budget. Events after the last record happen here."""
        (partition,) = self.partitions()
        start = state.positions.get(partition, (0, 0))[1]
        idle = self._end(start) == start < len(self.records) or start == len(self.records)
        if idle:
            self._reach(start, planning=True)
        recorded = state.recorded
        if not recorded and self.records:
            # The schema of all records, as for a table: a field may first occur after an IDLE.
            recorded = self._all.plan(SourceState({}), Budget(1)).recorded
        visible = self.records[: start if idle else self._end(start)]
        source = MemorySource(visible, max_out_of_orderness=self.max_out_of_orderness, **self._options)
        return source.plan(SourceState(state.positions, recorded), budget, follow=follow or bool(self.records))

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        return self._all.schema(recorded)

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        for span in split.spans:
            with self._lock:
                cuts = sorted({span.start, span.stop, *(n for n in self._waiting if span.start < n < span.stop)})
            for start, stop in pairwise(cuts):
                self._reach(start)
                yield from self._all.read(Split(split.partition, (Span(span.ordinal, start, stop),)), recorded)

    def _end(self, start: int) -> int:
        """The number of the first record, from ``start`` on, that an IDLE hides."""
        with self._lock:
            hidden = [number for number, events in self._waiting.items() if IDLE in events and number >= start]
        return min(hidden, default=len(self.records))

    def _reach(self, number: int, *, planning: bool = False) -> None:
        """Run the events before this record; while planning, up to the first IDLE."""
        while True:
            with self._lock:
                if number not in self._waiting:
                    return
                event, *later = self._waiting.pop(number)
                if later:
                    self._waiting[number] = later
            if event is IDLE and planning:
                return
            self._happen(event, number)

    def _happen(self, event: Happening, number: int) -> None:
        if event is CRASH:
            raise Killed(f"CRASH before record {number}")
        if event is PAUSE and self.on_pause is None:
            raise InvalidPipeline(
                "the script has a PAUSE but no on_pause: give ScriptedSource(..., on_pause=function), or later set "
                "source.on_pause = lambda: other_pipeline.run()"
            )
        action = self.on_pause if event is PAUSE else event
        if callable(action):
            action()
