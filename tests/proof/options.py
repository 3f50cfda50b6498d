"""The section "options": a job goes on with another value of an option, after a clean stop or a kill.

Of each option and pair of values part of the job is run with one, then it goes on with the other. What must come of it
is what ``persistent.driver.changes`` says of the option:

    NONE        the outcome of a job that never changed
    PLAN        that of a job that was stopped cleanly once all its planned steps were done, and then changed; where the
                twin knows the option, what the twin says
    STEP        that of one which was stopped cleanly once all its committed steps were done, and then changed
    RECORDED    refused, with what must be told, and nothing written; with the old value that of a job never changed

    python -m tests.proof --only options [--seed s] [--scale x]
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from persistent.checkpoint import running
from persistent.connect import options
from persistent.driver import commit, next_step, open_job
from persistent.driver.changes import OnChange
from persistent.errors import CorruptCheckpoint, PersistentError, SourceError, StagedMissing, UserCodeError
from persistent.storage.process import Process
from persistent.testing.faults import DEATHS, Killed, Operations
from persistent.testing.outcome import Outcome, first_difference
from persistent.testing.running import START_MS, ManualClock
from persistent.time.clock import duration_ms
from tests.proof import options_twin
from tests.proof.options_changes import CHANGES, Change
from tests.proof.options_job import (
    ROWS,
    Setting,
    World,
    as_of_faults,
    grouped,
    inputs,
    live,
    outcome,
    steps_done,
)
from tests.proof.result import Result

KILLS = 8
STOPS = 3
_FAILURES_MAX = 20
_STEPS_MAX = 8
_MAY_STOP = (SourceError, UserCodeError)


@dataclass
class Cases:
    """The cases of one change in one direction, counted."""

    change: Change
    folder: Path
    back: bool = False
    seed: object = 0
    cases: int = 0
    failures: list[str] = field(default_factory=list)
    _came_to: dict[int, Outcome] = field(default_factory=dict)

    def run(self, stops: int = STOPS, kills: int = KILLS, until: float = float("inf")) -> Cases:
        """So many drawn places to stop, and to be killed at."""
        drawn = random.Random(f"options {self.change} {self.back} {self.seed}")
        first, _ = self.change.settings(back=self.back)
        with self.world() as world:
            operations = Operations()
            self.stopping(world, first, operations)
            begins = self.begins(operations.log)
        stories: list[tuple[str, int, str]] = [
            ("stop", steps, "") for steps in drawn.sample(range(1, _STEPS_MAX), min(stops, _STEPS_MAX - 1))
        ]
        places = range(begins, operations.count)
        stories += [("kill", drawn.choice(places), drawn.choice(DEATHS)) for _ in range(kills if places else 0)]
        for story in stories:
            if self.failures or time.monotonic() > until:
                break
            self.case(*story)
        return self

    def begins(self, log: list[tuple[str, str, str]]) -> int:
        """The first operation after the first plan; for what needs a commit, after that."""
        puts = [at for at, (verb, _, name) in enumerate(log) if verb == "put_if_absent" and name.startswith("p/")]
        if self.change.effect is not OnChange.RECORDED or not puts:
            return min(puts, default=0) + 1
        # The second plan is put when the first step has been committed.
        return puts[1] + 1 if len(puts) > 1 else len(log)

    @contextmanager
    def world(self) -> Iterator[World]:
        world = World(self.folder)
        # All drivers are of one process here; as in life, none can tell whether another lives.
        with mock.patch.object(running, "this_process", lambda: Process("elsewhere", 1)):
            try:
                if self.change.prepare is not None:
                    self.change.prepare(world)
                yield world
            finally:
                world.clear()

    def case(self, how: str, at: int, death: str) -> None:
        """Run a part with one value, then go on with the other."""
        self.cases += 1
        first, second = self.change.settings(back=self.back)
        try:
            with self.world() as world:
                if how == "stop":
                    self.stopping(world, first, steps=at)
                else:
                    self.killed(world, first, Operations(at=at, how=death))
                self.judge(world, first, second)
        except Exception as error:
            way = " back" if self.back else ""
            where = f"{self.change}{way}, seed {self.seed}: {how} {death} at {at}"
            self.failures.append(f"{where}: {type(error).__name__}: {error}"[:900])

    def stopping(
        self, world: World, setting: Setting, operations: Operations | None = None, steps: int | None = None
    ) -> None:
        """A life that may end with the error that the other value is there for."""
        try:
            live(world, setting, operations, steps)
        except _MAY_STOP:
            if self.change.effect is not OnChange.STEP:
                raise

    def killed(self, world: World, setting: Setting, operations: Operations) -> None:
        try:
            self.stopping(world, setting, operations)
        except Killed:
            return

    def judge(self, world: World, first: Setting, second: Setting) -> None:
        committed, planned = steps_done(world, first)
        effect = self.change.effect
        if effect is OnChange.RECORDED:
            self.refused(world, second)
            live(world, first)
            self.compare(outcome(world, first), self.reference(first, 0, first))
            return
        self.to_the_end(world, first, second)
        steps = {OnChange.NONE: 0, OnChange.PLAN: planned, OnChange.STEP: committed}[effect]
        found = outcome(world, second)
        self.compare(found, self.reference(first, steps, second))
        if self.change.twin:
            self.compare_twin(found, options_twin.expected(ROWS, START_MS, given(first), steps, given(second)))
        faults = as_of_faults(world, second) if "NonWindowState.history" in second else []
        assert not faults, faults

    def refused(self, world: World, setting: Setting) -> None:
        before = world.files()
        try:
            live(world, setting)
        except (CorruptCheckpoint, StagedMissing):
            raise
        except PersistentError as error:
            missing = [words for words in self.change.told if words not in str(error)]
            assert not missing, f"does not tell {missing}: {error}"
        else:
            raise AssertionError("was not refused")
        assert world.files() == before, f"wrote {sorted(world.files().keys() ^ before.keys())} and was refused"

    def to_the_end(self, world: World, first: Setting, second: Setting) -> None:
        """With the other value; where that stops at what the first puts aside, with the first."""
        try:
            live(world, second)
        except _MAY_STOP:
            if self.change.effect is not OnChange.STEP:
                raise
            live(world, first)

    def reference(self, first: Setting, steps: int, second: Setting) -> Outcome:
        """What a job comes to that is stopped cleanly after so many steps, and then changed."""
        if steps not in self._came_to:
            with self.world() as world:
                if steps:
                    self.stopping(world, first, steps=steps)
                if first is second:
                    live(world, second)
                else:
                    self.to_the_end(world, first, second)
                self._came_to[steps] = outcome(world, second)
        return self._came_to[steps]

    def compare(self, found: Outcome, expected: Outcome) -> None:
        if self.change.loose:
            found, expected = (replace(one, rows=_without_outputs(one)) for one in (found, expected))
        difference = first_difference(expected, found, None)
        assert difference is None, "; ".join([*difference.where(), *difference.values("expected", "found")])

    def compare_twin(self, found: Outcome, expected: options_twin.Expected) -> None:
        sums = {part: _sums(found, part) for part in ("state", "outputs")}
        assert sums["state"] == expected.state, f"state {sums['state']}, the twin says {expected.state}"
        assert sums["outputs"] == expected.outputs, f"outputs {sums['outputs']}, the twin says {expected.outputs}"
        for part, wanted in (("late", expected.late), ("dead letters", expected.dead)):
            numbers = sorted(row["offset"] for _, rows in found.at(part) for row in rows)
            assert numbers == sorted(wanted), f"{part} {numbers}, the twin says {wanted}"


def _sums(found: Outcome, part: str) -> dict[tuple[Any, int], int]:
    return {
        (place.key[0], place.window[0] if place.window else 0): row["value"]
        for place, rows in found.at(part)
        for row in rows
    }


def _without_outputs(found: Outcome) -> Any:
    return {place: rows for place, rows in found.rows.items() if place.part != "outputs"}


def given(setting: Setting) -> options_twin.Given:
    """The options that the twin knows."""
    of = grouped(setting)
    source, run, pipeline = of["MemorySource"], of["Pipeline.run"], of["Pipeline"]
    return options_twin.Given(
        pipeline["step_rows"],
        duration_ms(pipeline["max_future"], "max_future"),
        source.get("max_out_of_orderness", 0),
        source["ordered"],
        run["end_of_input"],
    )


# -- planted defects ---------------------------------------------------------------------------------------------


def _nothing(*arguments: Any, **named: Any) -> None:
    return None


MUTANTS: dict[str, tuple[str, Any, str, Callable[..., Any]]] = {
    "a plan is run with options of before": ("Pipeline.max_future", next_step, "_corrected_step", _nothing),
    "what a source has recorded is not compared": ("MemorySource.timestamp", options, "require_recorded", _nothing),
    "a folder without what was published is taken": ("FileSink.url", open_job, "check_folder", _nothing),
    "what was folded is known under a longer history": ("NonWindowState.history", commit, "known_from", _nothing),
}
"""The option that shows it, and what is put in place of the code."""


def finds(mutant: str, seed: object = 0) -> bool:
    """Whether some case of the option fails with the defect."""
    option, where, what, instead = MUTANTS[mutant]
    assert hasattr(where, what)
    with ManualClock(), inputs() as folder, mock.patch.object(where, what, instead):
        parts = [
            Cases(change, folder, back, f"{mutant} {seed}")
            for change in CHANGES
            if change.option == option
            for back in ((False, True) if change.both else (False,))
        ]
        return any(part.run(2, 20).failures for part in parts)


def tried(
    folder: Path, seed: object, stops: int, kills: int, until: float = float("inf"), changes: Any = CHANGES
) -> list[Cases]:
    """Every change, there and back."""
    done: list[Cases] = []
    with ManualClock():
        for change in changes:
            for back in (False, True) if change.both else (False,):
                if time.monotonic() < until and sum(len(one.failures) for one in done) < _FAILURES_MAX:
                    done.append(Cases(change, folder, back, seed).run(stops, kills, until))
    return done


def prove(seconds_max: float | None = None, seed: int = 0, scale: float = 1.0) -> Result:
    """Every change at drawn places, and the planted defects."""
    began = time.monotonic()
    found = sum(finds(name, seed) for name in MUTANTS)
    until = began + (seconds_max or float("inf"))
    with inputs() as folder:
        done = tried(folder, seed, max(1, round(STOPS * scale)), max(1, round(KILLS * scale)), until)
    wanted = sum(2 if change.both else 1 for change in CHANGES)
    note = "" if len(done) == wanted else f"stopped, {len(done)} of {wanted} changes"
    failures = tuple(line for one in done for line in one.failures)
    cases = sum(one.cases for one in done)
    return Result("options", cases, failures, (found, len(MUTANTS)), time.monotonic() - began, note)
