"""A simulation runs whole jobs with several drivers and commands, taking turns at their operations as a seed says.

    python -m tests.proof.simulation --seed 17      that run again, with its schedule
    python -m tests.proof.simulation --seeds 200    the seeds from 0 on

The drivers are the production ones; stores are in memory, so that an operation costs next to nothing. They fall asleep
and wake up, die, lose answers, have requests arrive late; more input comes meanwhile; each of them works with other
options than the last. Steps, folds and retention are made small, so that all of them happen in a job of forty rows.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

from persistent import FileSink, Pipeline, Retention
from persistent.checkpoint.output_parts import LATE_SINK
from persistent.driver.open_job import Driver
from persistent.driver.options import Options
from persistent.errors import EngineError, Fenced, PersistentError, Refused, StorageError, UnknownCheckpoint
from persistent.storage import MemoryStorage
from persistent.testing.faults import Killed
from persistent.testing.running import ManualClock
from persistent.time.clock import StopRequest
from tests.proof.emission import Emission, drawn_emission
from tests.proof.result import Result
from tests.proof.simulation_copies import drawn_copies, sent_again
from tests.proof.simulation_input import Input, drawn_border
from tests.proof.simulation_mutants import MUTANTS, NEEDS, mutated
from tests.proof.simulation_oracle import Oracle
from tests.proof.simulation_schedule import Process, Schedule, SimulatedStorage
from tests.proof.simulation_small import small
from tests.proof.simulation_twin import Counts
from tests.single import only

try:
    from persistent import operations
except ImportError:
    operations = None  # type: ignore[assignment]

SEEDS = 2_000
COMMANDS = ("rollback", "pin", "unpin", "compact", "collect") if operations else ()
WINDOWS = ((10, 10, 0), (10, 4, 0), (10, 10, 3), (10, 4, 1), None)
_ALIVE_MAX = 3
_MUTANT_SEEDS = 300
_PAGES = ("a", "b", None, "é")


@dataclass(frozen=True)
class Story:
    """What became of a seed. ``faults``: empty if every law held."""

    seed: int
    faults: tuple[str, ...]
    schedule: tuple[str, ...]
    commits: int
    happened: frozenset[str]

    def told(self, lines_max: int = 40) -> str:
        """The end of the schedule, the faults, and how to see all of it."""
        lines = [f"seed {self.seed}:", *self.schedule[-lines_max:], *self.faults]
        return "\n".join([*lines, f"see it again: python -m tests.proof.simulation --seed {self.seed}"])


class Engine:
    """Works on the items of a step in a drawn order, on some of them twice, as if on so many workers."""

    name = "simulated"
    in_process = True

    def __init__(self, parallelism: int, drawn: random.Random) -> None:
        self.parallelism = parallelism
        self._drawn = drawn

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        results: dict[int, Any] = {}
        order = list(range(len(items))) + [number for number in range(len(items)) if self._drawn.random() < 0.1]
        self._drawn.shuffle(order)
        try:
            for number in order:
                results[number] = function(items[number])
        except PersistentError:
            raise
        except Exception as error:
            raise EngineError(f"{type(error).__name__}: {error}") from error
        return [results[number] for number in range(len(items))]

    def stop(self) -> None:
        """There are no workers."""


@dataclass
class Simulation:
    """One seed: what is drawn from it, and the world it happens to."""

    seed: int
    folder: Path
    clock: ManualClock
    schedule: Schedule = field(init=False)

    def __post_init__(self) -> None:
        drawn = self.drawn = random.Random(f"simulation {self.seed}")
        self.schedule = Schedule(self.seed, drawn.choice((0, 0.02, 0.06)), drawn.choice((0.005, 0.02, 0.05)))
        # By a random of its own: what else is drawn from a seed stays as it was.
        emitted = random.Random(f"late rows {self.seed}")
        self.emission = emission_of(self.seed)
        # Sessions, and lives, grow into each other over steps where the clock waits, or where they take what is late.
        waits = self.emission.joins and not self.emission.allowed
        lag_ms = drawn.choice((5, 10, 15) if waits else (0, 0, 5)) * self.emission.tick_ms
        ordered, files = drawn.random() < 0.6, drawn.random() < 0.25
        self.step_rows = drawn.choice((None, 1, 3, 5))
        self.retention = Retention(last=drawn.choice((1, 2, 3, 10)))
        self.runs_left = drawn.randrange(2, 9)
        self.commands_left = drawn.choice((0, 0, 1, 2, 4)) if COMMANDS else 0
        coming = [_row(drawn, number) for number in range(drawn.randrange(8, 40))]
        rows = [{**row, "ts": self.emission.at(self._later(row["ts"], emitted))} for row in coming]
        self.copies = random.Random(f"copies {self.seed}").random() < 0.4
        again = random.Random(f"sent again {self.seed}")
        self.recognised = drawn_copies(again)
        halves = random.Random(f"halves {self.seed}")
        border = None if self.recognised else drawn_border(halves, rows, self.emission.tick_ms)
        if self.recognised is not None:
            rows = sent_again(rows, self.recognised, again)
        self.input = Input(self.folder, rows, files, ordered, lag_ms, border)
        if border is not None:
            self.input.split(halves)
        self.time = random.Random(f"time {self.seed}")
        quiet = quiet_after(self.seed)
        self.quiet_ms = None if quiet is None else quiet * self.emission.tick_ms
        if self.quiet_ms is not None and self.time.random() < 0.7:
            self.schedule.faults = 0.0
        self.followers: list[Process] = []
        self.watched_ms = 0
        self.happened: set[str] = set()
        name = f"simulation-{self.seed}"
        self.checkpoint, self.sink = MemoryStorage(f"{name}-c"), MemoryStorage(f"{name}-s")
        self.sinks = {"sink": self.sink}
        if random.Random(f"sinks {self.seed}").random() < 0.3:
            self.sinks["second"] = MemoryStorage(f"{name}-s2")
        self.states = ("state", "twin") if random.Random(f"states {self.seed}").random() < 0.25 else ()
        if self.states:
            self.sinks["twin"] = MemoryStorage(f"{name}-t")
        may_be_late = self.emission.has_windows or self.emission.has_lives
        if may_be_late and random.Random(f"late sink {self.seed}").random() < 0.3:
            self.sinks[LATE_SINK] = MemoryStorage(f"{name}-l")
        self.come(drawn.randrange(1, len(self.input.coming)))
        self.oracle = Oracle(
            self.checkpoint,
            self.sinks,
            self.emission,
            lag_ms,
            self.input.rows_of,
            self._reader,
            self.recognised,
            lambda: self.watched_ms,
            self.states or (None,),
        )

    # -- the input -------------------------------------------------------------------------------------------------

    def come(self, count: int) -> None:
        """More input is there."""
        new = self.input.come(count)
        if new:
            self.schedule.story.append(f"{new} rows come")

    def passes(self, ticks: Sequence[int]) -> None:
        """Time passes, of which only that counts as quiet in which a driver that follows is there."""
        if self.quiet_ms is None:
            return
        passed_ms = self.time.choice(ticks) * self.emission.tick_ms
        self.clock.advance(passed_ms)
        if any(not (process.done or process.dead) for process in self.followers):
            self.watched_ms += passed_ms
        if passed_ms:
            self.schedule.story.append(f"{passed_ms} ms pass")

    def _later(self, tick: int, drawn: random.Random) -> int:
        """When a row is from: where windows take late rows, some correct what was published long ago; and some bring
        back keys that have expired."""
        takes_late = self.emission.allowed or self.emission.has_lives
        behind = drawn.choice((0, 0, 10, 25, 40)) if takes_late else 0
        return max(tick - behind, 0) if tick >= 0 else tick

    # -- who works -------------------------------------------------------------------------------------------------

    def pipeline(self, checkpoint: Any, *sinks: Any) -> Pipeline:
        """The job over these stores. Of two states both are the same, and one sink takes the second. One may take what
        is late."""
        given: Any = {name: FileSink(sink, format="jsonl") for name, sink in zip(self.sinks, sinks, strict=True)}
        late_sink = given.pop(LATE_SINK, None)
        if self.states:
            given = {"twin": given.pop("twin"), "state": given}
        return Pipeline(
            source=self.input.source(),
            task=Counts(self.emission, self.states),
            sink=given,
            late_sink=late_sink,
            checkpoint=checkpoint,
            step_rows=self.step_rows,
            on_error="dead-letter",
            retention=self.retention,
            dedupe=self.recognised.dedupe if self.recognised else None,
        )

    def _reader(self) -> Pipeline:
        return self.pipeline(self.checkpoint, *self.sinks.values())

    def _stores(self, process: Process) -> tuple[Any, ...]:
        return tuple(
            SimulatedStorage(inner, where, process, self.schedule, self.oracle.watch, copies=self.copies)
            for where, inner in {"checkpoint": self.checkpoint, **self.sinks}.items()
        )

    def start_run(self, *, last: bool = False) -> Process:
        """A driver begins, with a parallelism of its own."""
        drawn = self.drawn
        parallelism, number = drawn.choice((1, 1, 2, 3)), len(self.schedule.processes)
        follow = not last and drawn.random() < (0.2 if self.quiet_ms is None else 0.6)
        ends = last or (not follow and drawn.random() < 0.3)

        def work(process: Process) -> Any:
            pipeline = self.pipeline(*self._stores(process))
            retention, quiet_ms = self.retention, self.quiet_ms
            options = Options(self.step_rows, follow, ends, 86_400_000, retention, quiet_after_ms=quiet_ms)
            driver = Driver(pipeline.job(), Engine(parallelism, drawn), options)
            assert isinstance(driver._stop, StopRequest), "it would wait in real time"
            driver._stop = _HandingOver(process, self.schedule, lambda: self.passes((0, 1, 5, 20)))
            process.stop = driver.stop
            return driver.run()

        kind = "follows" if follow else "ends the input" if ends else "drains"
        process = self.schedule.start(f"driver {number} ({kind}, {parallelism} at once)", work)
        self.followers += [process] if follow else []
        return process

    def start_command(self) -> Process | None:
        """A command begins, on whatever is there."""
        drawn, command = self.drawn, self.drawn.choice(COMMANDS)
        if not self.oracle.chain:
            return None
        newest = self.oracle.newest
        kept = [id for id, (one, _) in self.oracle.chain.items() if newest.keeps(id) and one.is_base]
        target = drawn.choice(kept or [newest.base])

        def work(process: Process) -> Any:
            checkpoint, *sinks = self._stores(process)
            return _command(command, checkpoint, lambda: self.pipeline(checkpoint, *sinks), target)

        return self.schedule.start(f"{command} {len(self.schedule.processes)} ({target})", work)

    # -- what happens ----------------------------------------------------------------------------------------------

    def run(self) -> Story:
        """Chaos, then peace."""
        try:
            self._chaos()
            if not self.oracle.faults:
                self._peace()
        except Exception as error:
            self.oracle.faults.append(f"{type(error).__name__}: {error}")
        finally:
            self.schedule.end()
            self.checkpoint.clear()
            for sink in self.sinks.values():
                sink.clear()
        faults, schedule = tuple(self.oracle.faults), tuple(self.schedule.story)
        return Story(self.seed, faults, schedule, self.oracle.commits, frozenset(self.happened | self.oracle.happened))

    def _chaos(self) -> None:
        drawn, schedule = self.drawn, self.schedule
        # A driver must be left alone for a while to see that a stream has gone quiet.
        hurry = 1.0 if self.quiet_ms is None else 0.05
        self.start_run()
        while (schedule.alive or self.runs_left) and not self.oracle.faults:
            chance = drawn.random()
            room = len(schedule.alive) < _ALIVE_MAX
            if self.runs_left and room and (schedule.all_asleep or chance < 0.01 * hurry):
                self.runs_left -= 1
                self.start_run()
            elif self.commands_left and room and chance > 1 - 0.01 * hurry:
                self.commands_left -= 1
                self.start_command()
            elif chance < 0.03 and self.input.coming:
                self.come(drawn.randrange(1, 12))
            elif chance < 0.08 and schedule.delayed:
                schedule.land()
            elif chance < 0.1 and self.time.random() < hurry:
                self._stop_one()
            if self.time.random() < 0.03:
                self.passes((1, 5, 40, 1_000))
            if schedule.alive:
                schedule.go_on()
                self._judge()

    def _stop_one(self) -> None:
        """Someone asks a driver that follows to stop; at the latest when no other will come."""
        for process in self.schedule.alive:
            if process.stop is not None and (not self.runs_left or self.drawn.random() < 0.3):
                process.stop()

    def _judge(self) -> None:
        """Those that have ended must have had a reason."""
        for process in self.schedule.processes:
            if process.done and process.answer is not None:
                answer, process.answer = process.answer, None
                self.happened.add(type(answer).__name__)
                if not isinstance(answer, BaseException):
                    self._check_done(process, answer)
                elif not _expected(process, answer):
                    self.oracle.faults.append(f"{process.name}: {type(answer).__name__}: {answer}")

    def _check_done(self, process: Process, answer: Any) -> None:
        """A command that says it has committed has: its manifest is in the log."""
        self.happened.add(process.name.partition(" ")[0])
        manifest = getattr(answer, "manifest", None)
        if manifest is not None:
            known = self.oracle.chain.get(manifest.id)
            if known is None or known[0].nonce != manifest.nonce:
                self.oracle.faults.append(f"{process.name}: says it put {manifest.id}, which is not in the log")

    def _peace(self) -> None:
        schedule = self.schedule
        schedule.land(every=True)
        schedule.faults = schedule.sleeps = 0
        self.come(len(self.input.coming))
        for _ in range(2):
            last = self.start_run(last=True)
            while not last.done:
                schedule.go_on()
            report = last.answer
            self._judge()
        if not self.oracle.faults:
            self.oracle.at_end(self.input.count(only(self.oracle.newest.sources).recorded))
            assert report.steps == 0, f"run again in peace, it found {report.steps} steps to do"


def emission_of(seed: int) -> Emission:
    """What the job of a seed publishes, and when."""
    drawn = random.Random(f"emission {seed}")
    return drawn_emission(drawn, drawn.choice(WINDOWS))


def quiet_after(seed: int) -> int | None:
    """After how many ticks without a record the clock of the job of a seed moves on; None for most jobs."""
    return random.Random(f"quiet {seed}").choice((None, None, None, 10, 30))


class _HandingOver(StopRequest):
    """A driver that waits for input hands over."""

    def __init__(self, process: Process, schedule: Schedule, passes: Callable[[], None]) -> None:
        super().__init__()
        self._process, self._schedule, self._passes = process, schedule, passes

    def wait(self, seconds: float) -> None:
        self._passes()
        self._schedule.turn_of(self._process, "wait", "", fated=False)


def _command(command: str, checkpoint: Any, pipeline: Callable[[], Pipeline], target: int) -> Any:
    if command == "rollback":
        return operations.rollback(checkpoint, target, outputs="retract", take_over=True)
    if command in ("pin", "unpin"):
        return operations.pin(checkpoint, target, remove=command == "unpin", take_over=True)
    if command == "compact":
        return operations.compact(pipeline(), take_over=True)
    return operations.collect_garbage(checkpoint, take_over=True)


def _expected(process: Process, error: BaseException) -> bool:
    if isinstance(error, Killed):
        return process.dead
    if isinstance(error, Fenced | Refused | UnknownCheckpoint):
        return True
    hurt = isinstance(error, StorageError) or (type(error) is PersistentError and "neither accepted" in str(error))
    return process.hurt and hurt


def _row(drawn: random.Random, number: int) -> dict[str, Any]:
    """About in the order of time; some too late, some dead."""
    time_ms = max(0, 3 * number + drawn.choice((0, 0, 1, 4, -3, -15)))
    n = -1 if drawn.random() < 0.05 else drawn.randrange(100)
    return {"id": number, "ts": -7 if drawn.random() < 0.05 else time_ms, "page": drawn.choice(_PAGES), "n": n}


def simulated(seed: int) -> Story:
    """What a seed comes to."""
    shared = Path("/dev/shm")
    with small(seed) as clock, tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        return Simulation(seed, Path(folder), clock).run()


def prove(seconds_max: float | None, seed: int = 0, scale: float = 1.0) -> Result:
    """So many seeds, from ``seed`` times as many on, then the mutants; each for a share of the time at most."""
    began = time.monotonic()
    seeds_end = None if seconds_max is None else began + 0.6 * seconds_max
    end = None if seconds_max is None else began + 0.95 * seconds_max
    wanted = max(1, round(SEEDS * scale))
    failures, done, commits, happened = [], 0, 0, set()
    for number in range(seed * SEEDS, seed * SEEDS + wanted):
        story = simulated(number)
        done, commits, happened = done + 1, commits + story.commits, happened | story.happened
        if story.faults:
            failures.append(story.told())
        if seeds_end is not None and time.monotonic() > seeds_end:
            break
    found = hunted(_MUTANT_SEEDS, end) if scale >= 1 else {}
    failures += [f"mutant not found in {_MUTANT_SEEDS} seeds: {name}" for name, seen in found.items() if seen is None]
    mutants = (sum(seen is not None for seen in found.values()), len(found)) if found else None
    note = f"{commits:,} commits checked" + ("" if done == wanted else f"; stopped after {done} of {wanted} seeds")
    if found and len(found) < len(MUTANTS):
        note += f"; {len(MUTANTS) - len(found)} mutants not tried to the end: out of time"
    return Result("simulation", done, tuple(failures), mutants, time.monotonic() - began, note)


def seeds_for(mutant: str, seeds: int) -> list[int]:
    """So many first seeds whose job has what the mutant needs."""
    needs = NEEDS.get(mutant, lambda emission, quiet: True)
    fitting = (seed for seed in count() if needs(emission_of(seed), quiet_after(seed) is not None))
    return list(islice(fitting, seeds))


def hunted(seeds: int, end: float | None = None) -> dict[str, int | None]:
    """The first seed that finds each mutant of the production code; None where none of so many does. At ``end`` (of the
    monotonic clock) it stops, and leaves out those not tried with all seeds."""
    found: dict[str, int | None] = {}
    for name in MUTANTS:
        with mutated(name):
            for seed in seeds_for(name, seeds):
                if simulated(seed).faults:
                    found[name] = seed
                    break
                if end is not None and time.monotonic() > end:
                    return found
            else:
                found[name] = None
    return found


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 if a law does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.simulation")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=100)
    options = parser.parse_args(arguments)
    logging.getLogger("persistent").setLevel(logging.CRITICAL)
    if options.seed is not None:
        story = simulated(options.seed)
        print(story.told(100_000))
        return bool(story.faults)
    result = prove(None, scale=options.seeds / SEEDS)
    print("\n\n".join(result.failures[:5]))
    print(f"{result.cases} seeds, {len(result.failures)} failures, {result.seconds:.1f} s; {result.note}")
    return bool(result.failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
