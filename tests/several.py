"""A task with several states, and the tasks of one state that it must equal: each over the same records and steps."""

from __future__ import annotations

import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from monoids import Count, Max, Sum, record
from persistent import (
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    RunReport,
    WindowState,
    calendar,
    session,
    sliding,
    tumbling,
)
from persistent.engines.embedded import Embedded
from persistent.storage import MemoryStorage
from persistent.testing.faults import Killed

Row = dict[str, Any]
Making = Callable[[], Any]
KEYS = ("a", "b", "c")


def _counted() -> Any:
    return record(rows=Count(), total=Sum(int), most=Max())


KINDS: Mapping[str, Making] = {
    "short": lambda: WindowState(_counted(), tumbling("10 ms")),
    "sliding": lambda: WindowState(_counted(), sliding("30 ms", every="20 ms"), allowed_lateness="20 ms"),
    "gaps": lambda: WindowState(_counted(), sliding("10 ms", every="15 ms")),
    "retracting": lambda: WindowState(_counted(), tumbling("15 ms"), allowed_lateness="40 ms", late="retract"),
    "final": lambda: WindowState(_counted(), tumbling("10 ms"), allowed_lateness="25 ms", emit="final"),
    "changing": lambda: WindowState(_counted(), tumbling("20 ms"), emit="change", changes="retract"),
    "early": lambda: WindowState(_counted(), tumbling("40 ms"), early="15 ms", allowed_lateness="10 ms"),
    "sessions": lambda: WindowState(_counted(), session("5 ms")),
    "days": lambda: WindowState(_counted(), calendar("day", tz="Europe/Berlin")),
    "total": lambda: NonWindowState(_counted()),
    "known": lambda: NonWindowState(_counted(), interval_ms="10 ms", history="60 ms"),
    "changes": lambda: NonWindowState(_counted(), emit="change", changes="retract"),
    "living": lambda: NonWindowState(_counted(), ttl="25 ms"),
    "lives": lambda: NonWindowState(_counted(), ttl="10 ms", emit="change", changes="retract"),
    "alive": lambda: NonWindowState(_counted(), ttl="40 ms", emit="change"),
}
"""The kinds of states, by name."""


class Several(PersistentTask):
    """Gives each of its states what it counts: not every record, and some under another key. ``by``: "message", or
    "batch" for the same in columns."""

    name = "Several"
    key = "key"

    def __init__(self, states: Mapping[str, Making], by: str = "message") -> None:
        self.states = dict(states)
        self.process_batch = self._by_batch if by == "batch" else super().process_batch  # type: ignore[method-assign]

    def persistent_state(self) -> Any:
        return {name: make() for name, make in self.states.items()}

    def process_message(self, state: Any, message: Any) -> None:
        for name, one in state.items():
            if _counts(name, message.value["value"]):
                one.update(message.timestamp, self._value(name, message.value["value"]))

    def _by_batch(self, state: Any, batch: Any) -> None:
        import numpy as np

        values = batch["value"].to_numpy(zero_copy_only=False)
        for name, one in state.items():
            some = batch.filter(np.array([_counts(name, int(value)) for value in values], bool))
            if len(some):
                one.update_batch(some.timestamps, self._value(name, some["value"]))

    def _value(self, name: str, value: Any) -> Any:
        return {"rows": 1, "total": value, "most": value}


def _counts(name: str, value: int) -> bool:
    """Whether a state of that name counts a record."""
    return (value + len(name)) % 5 != 0


def disordered(seed: int, count: int = 60, behind: int = 60) -> list[Row]:
    """Records in an order that is not quite that of their times."""
    draw = random.Random(seed)
    time, rows = 0, []
    for _ in range(count):
        time += draw.choice((0, 1, 2, 3, 7, 30))
        late = draw.choice((0, 0, 0, 0, draw.randrange(behind)))
        rows.append({"ts": max(0, time - late), "key": draw.choice(KEYS), "value": draw.randrange(100)})
    return rows


@dataclass(frozen=True)
class Run:
    """One run of a job: over the records up to ``stop``, in steps of ``step_rows``, perhaps killed after some."""

    stop: int
    step_rows: int
    threads: int = 1
    end_of_input: bool = False
    killed_after: int | None = None


def drawn_runs(seed: int, rows: int) -> list[Run]:
    """Some runs, the last of which ends the input."""
    draw = random.Random(seed)
    stops = sorted(draw.randrange(1, rows + 1) for _ in range(draw.randrange(4)))
    runs = [
        Run(
            stop,
            draw.choice((1, 2, 3, 7, 20)),
            draw.choice((1, 2, 3)),
            draw.random() < 0.2,
            draw.choice((None, None, draw.randrange(1, 20))),
        )
        for stop in stops
    ]
    return [*runs, Run(rows, draw.choice((2, 5, 50)), 2, True)]


@dataclass
class World:
    """A job over some states, with a sink in memory for each."""

    states: Mapping[str, Making]
    rows: Sequence[Row]
    by: str = "message"
    storage: Any = field(default_factory=lambda: MemoryStorage(f"several-{uuid.uuid4().hex}"))
    sinks: dict[str, Any] = field(default_factory=dict)
    refused: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    expired: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    late: int = 0

    def pipeline(self, run: Run | None = None, **options: Any) -> Pipeline:
        rows = self.rows if run is None else self.rows[: run.stop]
        for name in self.states:
            self.sinks.setdefault(name, MemorySink())
        given: dict[str, Any] = {
            "source": MemorySource(list(rows), timestamp="ts", ordered=True),
            "task": Several(self.states, self.by),
            "checkpoint": self.storage,
            "sink": {name: self.sinks[name] for name in self.states},
            "step_rows": None if run is None else run.step_rows,
        }
        return Pipeline(**{**given, **options})

    def run(self, run: Run | None = None, **options: Any) -> RunReport | None:
        """Run once; None if it was killed."""
        run = run or Run(len(self.rows), 7, end_of_input=True)
        read = 0

        def step(report: Any) -> None:
            nonlocal read
            read += report.rows
            self.late += report.late
            for name, missed in report.late_windows.items():
                # Of an only state without windows, what it refuses is what is late.
                counted = missed or ({} if len(self.states) > 1 else {None: report.late})
                self.refused[name.partition("/")[2]] += sum(counted.values())
            for name, count in report.expired_in.items():
                self.expired[name.partition("/")[2]] += count
            if run.killed_after is not None and report.rows and read >= run.killed_after:
                raise Killed("after a step")

        try:
            return self.pipeline(run, **options).run(
                engine=Embedded(run.threads), end_of_input=run.end_of_input, on_step=step
            )
        except Killed:
            return None

    def alone(self, name: str) -> World:
        """The job of one of the states, which has no other."""
        return World({name: self.states[name]}, self.rows, self.by)

    def published(self, name: str) -> dict[Any, list[Any]]:
        """What a sink was given for each key and window, in the order of the checkpoints."""
        found: dict[Any, list[Any]] = defaultdict(list)
        ordered = sorted(self.sinks[name].rows(), key=lambda row: (row.get("revision", 0), not row.get("retracted")))
        for row in ordered:
            place = row["key"], row.get("window_start"), row.get("window_end")
            apart = {"key", "window_start", "window_end", "revision"}
            found[place].append({column: value for column, value in row.items() if column not in apart})
        return dict(found)

    def shown(self, name: str, **options: Any) -> list[Row]:
        """The state of that name."""
        rows: list[Row] = self.pipeline().state(name=name, **options).to_pylist()
        return sorted(rows, key=repr)


def newest(published: Mapping[Any, list[Any]]) -> dict[Any, Any]:
    """What counts at each place: the last row, or nothing once it is taken back."""
    last = {place: rows[-1] for place, rows in published.items()}
    return {place: row for place, row in last.items() if not row.get("retracted")}
