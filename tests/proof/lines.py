"""The section "lines": an exception at every line of the code that commits, publishes, collects and stores.

At the first visit of each line a plain error, at a later one, drawn, the interrupt of a user. Whatever the run makes of
it, the oracle has agreed with every commit, and a calm run afterwards comes to the twin's result: on the disk as it was
left, and on one that has lost its power as well.

    python -m tests.proof --only lines [--seed s] [--scale x]
"""

from __future__ import annotations

import importlib
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from persistent.errors import CorruptCheckpoint
from tests.proof.errors import S3, System
from tests.proof.result import Result, in_turn
from tests.proof.worlds import FILES, LONG, TOTALS, VISITS, DiskJob, drawn_names

MODULES = (
    "persistent.names",
    "persistent.checkpoint.log",
    "persistent.checkpoint.manifest",
    "persistent.checkpoint.parts",
    "persistent.checkpoint.plan",
    "persistent.codec.fields",
    "persistent.checkpoint.successor",
    "persistent.driver.commit",
    "persistent.driver.next_step",
    "persistent.driver.open_job",
    "persistent.driver.publish",
    "persistent.driver.recover",
    "persistent.driver.step",
    "persistent.driver.step_effects",
    "persistent.driver.workbench",
    "persistent.connect.files.sink",
    "persistent.storage.fsspec_storage",
    "persistent.storage.local",
    "persistent.storage.failures",
)
_FAILURES_MAX = 20
_SOURCES: dict[str, str] = {str(importlib.import_module(name).__file__): name for name in MODULES}
"""Module by file."""

Place = tuple[str, int]
"""A file and a line of it."""


class Struck(Exception):
    """The error that befalls a line."""


@dataclass(frozen=True)
class Strike:
    """``error`` at the ``visit``-th time that the line is reached."""

    place: Place
    visit: int
    error: type[BaseException]

    def __str__(self) -> str:
        return f"{self.error.__name__} at visit {self.visit} of {_SOURCES[self.place[0]]}:{self.place[1]}"


class Tracer:
    """Counts the visits of every line of these files; strikes at one of them."""

    def __init__(self, strike: Strike | None = None) -> None:
        self.visits: Counter[Place] = Counter()
        self._strike = strike
        self._files = {strike.place[0]} if strike is not None else set(_SOURCES)

    @contextmanager
    def tracing(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._reached if frame.f_code.co_filename in self._files else None

    def _reached(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            place = frame.f_code.co_filename, frame.f_lineno
            self.visits[place] += 1
            strike = self._strike
            if strike is not None and place == strike.place and self.visits[place] == strike.visit:
                raise strike.error(str(strike))
        return self._reached


@dataclass
class Cases:
    """The lines that one job reaches on one ground, struck; without those in ``struck``, which it adds to."""

    ground: System
    job: DiskJob
    seed: object = 0
    struck: set[Place] = field(default_factory=set)
    until: float = float("inf")
    cases: int = 0
    wanted: int = 0
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.oracle = self.job.oracle()
        self.drawn = random.Random(f"lines {self.ground.name} {self.job.name} {self.seed}")

    def run(self, share: float = 1.0) -> Cases:
        """All lines, or that share of them, drawn."""
        strikes = list(self.strikes())
        self.wanted = max(1, round(len(strikes) * share))
        for strike in self.drawn.sample(strikes, self.wanted):
            if len(self.failures) >= _FAILURES_MAX or time.monotonic() > self.until:
                break
            self.case(strike)
        return self

    def strikes(self) -> Iterator[Strike]:
        tracer, process = Tracer(), self.ground.calm(self.job, self.oracle, self.ground.disk())
        with tracer.tracing():
            process.run()
        new = {place: count for place, count in tracer.visits.items() if place not in self.struck}
        self.struck.update(new)
        for place, count in sorted(new.items()):
            yield Strike(place, 1, Struck)
            if count > 1:
                yield Strike(place, self.drawn.randint(2, count), KeyboardInterrupt)

    def case(self, strike: Strike) -> None:
        """One run that is struck, and calm ones after it."""
        self.cases += 1
        try:
            disk = self.ground.disk()
            process = self.ground.calm(self.job, self.oracle, disk)
            try:
                with Tracer(strike).tracing():
                    process.run()
                self.oracle.at_edge(disk, ended=True)
            except (AssertionError, CorruptCheckpoint):
                raise
            except (Exception, KeyboardInterrupt):
                pass
            survivors = getattr(disk, "survivors", None)
            for left in [disk.copy(), *(survivors(self.drawn, 1) if survivors is not None else ())]:
                self.ground.recover(self.job, self.oracle, left, process.acknowledged)
        except Exception as error:
            where = f"{self.ground.name}, {self.job.name}, seed {self.seed}"
            self.failures.append(f"{where}: {strike}: {type(error).__name__}: {error}"[:600])


PLAN = ((System(), VISITS), (System(), TOTALS), (System(), FILES), (System(), LONG), (S3(), VISITS))
"""Each job adds the lines that those before it did not reach."""
_WEIGHTS = (6.0, 1.0, 2.0, 3.0, 2.0)
"""About how long each takes."""


def prove(seconds_max: float | None = None, seed: int = 0, scale: float = 1.0) -> Result:
    """Every line that the jobs reach."""
    began = time.monotonic()
    until = began + (seconds_max or float("inf"))
    done: list[Cases] = []
    struck: set[Place] = set()
    for (ground, job), job_until in in_turn(PLAN, _WEIGHTS, until):
        with drawn_names((ground.name, job.name, seed)):
            done.append(Cases(ground, job, seed, struck, job_until).run(scale))
    failures = tuple(line for cases in done for line in cases.failures)
    wanted = sum(cases.wanted for cases in done)
    note = f"{len(struck):,} lines" if all(c.cases == c.wanted for c in done) else f"stopped, {wanted:,} were planned"
    return Result("lines", sum(cases.cases for cases in done), failures, None, time.monotonic() - began, note)
