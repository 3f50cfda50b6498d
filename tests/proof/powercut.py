"""The section "disk": a driver dies at every operation of a simulated disk, by kill or by loss of power, and again
while it recovers.

A calm run keeps a copy of the disk before each of its operations; each case goes on from such a copy, so only the
recovery is run. Most recoveries are stopped after one or two steps, where the disk must already be what the twin says.

    python -m tests.proof --only disk [--seed s] [--scale x]
"""

from __future__ import annotations

import errno
import gc
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Protocol

from persistent.errors import Fenced, PersistentError
from tests.proof.disk import Before, SimulatedDisk, append
from tests.proof.oracle import Acknowledged
from tests.proof.result import Result, in_turn
from tests.proof.worlds import JOBS, DiskJob, Moment, Process, drawn_names

CASES = 50_000
_SURVIVORS_MAX = 16
_FAILURES_MAX = 20
_STEPS = (1, 1, 1, 1, 1, 2, 2, None)
"""After how many steps a recovery is stopped (None: at its end); drawn."""


class Mutant(Protocol):
    """A defect to plant in a driver."""

    def plant(self, process: Process) -> None: ...


@dataclass(frozen=True)
class Crash:
    """What a crash leaves, and how it came to that."""

    story: str
    disk: SimulatedDisk
    acknowledged: Acknowledged


@dataclass
class Sweep:
    """The cases of one job, counted. ``process`` makes its drivers; a mutant's are defective."""

    job: DiskJob
    seed: object = 0
    cases_max: int = 1_000
    until: float = float("inf")
    failures_max: int = _FAILURES_MAX
    mutant: Mutant | None = None
    cases: int = 0
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.oracle = self.job.oracle()
        self.drawn = random.Random(f"{self.job.name} {self.seed}")

    @property
    def is_over(self) -> bool:
        return self.cases >= self.cases_max or len(self.failures) >= self.failures_max or time.monotonic() > self.until

    def run(self) -> Sweep:
        """Failing syncs, overtaken drivers, and every first crash, each followed by second and third ones: up to
        ``cases_max`` cases."""
        moments = self.calm()
        self.sync_failures(sum(moment.verb == "fsync" for moment in moments))
        self.overtakings(len(moments))
        self.unsynced_names(moments, self.cases_max // 8)
        self.crash_everywhere(moments)
        return self

    def calm(self) -> list[Moment]:
        """The run that nothing happens to, moment by moment."""
        calm = self.process(SimulatedDisk())
        calm.before = calm.record
        return calm.moments if self.holds("calm", calm) else []

    def crash_everywhere(self, moments: Sequence[Moment]) -> None:
        firsts = [crash for moment in moments for crash in self.crashes(moment, _SURVIVORS_MAX)]
        self.drawn.shuffle(firsts)
        for number, first in enumerate(firsts):
            left = self.cases_max - self.cases
            self.recover(first, again=max(left // (len(firsts) - number) - 1, 0))

    def process(self, disk: SimulatedDisk, acknowledged: Acknowledged = (), before: Before | None = None) -> Process:
        process = Process(self.job, self.oracle, disk, acknowledged, before)
        if self.mutant is not None:
            self.mutant.plant(process)
        return process

    # -- crashes ---------------------------------------------------------------------------------------------------

    def crashes(self, moment: Moment, at_most: int) -> Iterator[Crash]:
        """What a death just before an operation, or within it, may leave. A death after it is one before the next."""
        where = f"{moment.verb} {moment.path}"
        yield Crash(f"killed before {where}", moment.disk.copy(), moment.acknowledged)
        if moment.verb == "write":
            half = torn(moment)
            yield Crash(f"killed within {where}", half, moment.acknowledged)
        for number, disk in enumerate(moment.disk.survivors(self.drawn, at_most)):
            yield Crash(f"power lost before {where} ({number})", disk, moment.acknowledged)

    def crash(self, moment: Moment) -> Crash:
        """One of them, drawn."""
        how = self.drawn.random()
        where = f"{moment.verb} {moment.path}"
        if how < 0.2:
            return Crash(f"killed before {where}", moment.disk.copy(), moment.acknowledged)
        if how < 0.3 and moment.verb == "write":
            return Crash(f"killed within {where}", torn(moment), moment.acknowledged)
        disk = next(moment.disk.survivors(self.drawn, 1))
        return Crash(f"power lost before {where}", disk, moment.acknowledged)

    def unsynced_names(self, moments: Sequence[Moment], at_most: int) -> None:
        """Killed between a name and its sync; the next driver sees the name and acts on it; then the power is lost."""
        after = [moment for before, moment in pairwise(moments) if before.verb == "link"]
        stop = self.cases + at_most
        for moment in self.drawn.sample(after, len(after)):
            recovery = self.process(moment.disk.copy(), moment.acknowledged)
            recovery.before = recovery.record
            story = f"killed before {moment.verb} {moment.path}"
            if self.cases >= stop or self.is_over or not self.holds(story, recovery, steps_max=1):
                return
            for second in recovery.moments[:_SURVIVORS_MAX]:
                for disk in second.disk.survivors(self.drawn, 2):
                    then = f"{story}; power lost before {second.verb} {second.path}"
                    self.recover(Crash(then, disk, second.acknowledged))

    def recover(self, crash: Crash, *, again: int = 0) -> None:
        """Go on after a crash; then crash ``again`` times in that recovery, each in a story of its own, and a third
        time in some of those."""
        if self.is_over:
            return
        recovery = self.process(crash.disk, crash.acknowledged)
        recovery.before = recovery.record if again else None
        if not self.holds(crash.story, recovery, steps_max=self.drawn.choice(_STEPS)):
            return
        for _ in range(again if recovery.moments else 0):
            second = self.crash(self.drawn.choice(recovery.moments))
            thrice = self.drawn.random() < 0.1
            self.recover(Crash(f"{crash.story}; {second.story}", second.disk, second.acknowledged), again=int(thrice))

    def holds(self, story: str, process: Process, *, steps_max: int | None = None) -> bool:
        """Run it; whether the oracle agrees."""
        self.cases += 1
        try:
            self.oracle.at_start(process.disk, process.acknowledged)
            report = process.run(steps_max=steps_max)
            self.oracle.at_edge(process.disk, ended=report is not None)
            if report is not None and report.steps:
                self.oracle.clean(process.disk)
                if self.drawn.random() < 0.1:
                    self.rerun(process)
        except Exception as error:
            self.failed(story, error)
            return False
        return True

    def rerun(self, process: Process) -> None:
        """The public reading of the state is that of the twin, and one more run has nothing to do."""
        last = list(self.oracle.steps.values())[-1]
        later = self.process(process.disk, process.acknowledged)
        rows = later.pipeline().state().to_pylist()
        found, emission = sorted((self.job.emission.row(row) for row in rows), key=repr), self.job.emission
        shown = emission.shown(last.state, last.step[1], last.watermark)
        wanted = sorted(((*place, *value) for place, value in shown.items()), key=repr)
        assert found == wanted, f"state() is {found}, not {wanted}"
        report = later.run()
        assert report is not None and report.steps == 0, "there was something left to do"

    def failed(self, story: str, error: BaseException) -> None:
        self.failures.append(f"{self.job.name}, seed {self.seed}: {story}: {type(error).__name__}: {error}"[:600])

    # -- syncs that fail, drivers that are overtaken ---------------------------------------------------------------

    def sync_failures(self, count: int) -> None:
        """Each sync of the calm run fails once: the run says so, and what it leaves is recovered from."""
        for at in _some(range(count), self.cases_max // 8, self.drawn):
            process = self.process(SimulatedDisk())
            process.before = FailingSync(at)
            try:
                process.run()
            except PersistentError:
                pass
            except Exception as error:
                self.failed(f"sync {at} failed", error)
                continue
            story = f"sync {at} failed, then"
            self.recover(Crash(f"{story} run again", process.disk.copy(), process.acknowledged))
            for disk in process.disk.survivors(self.drawn, 3):
                self.recover(Crash(f"{story} power lost", disk, process.acknowledged))

    def overtakings(self, count: int) -> None:
        """Before an operation of one driver another runs to its end; the first goes on and changes nothing."""
        for at in _some(range(count), self.cases_max // 24, self.drawn):
            if self.is_over:
                return
            self.cases += 1
            process = self.process(SimulatedDisk())
            process.alone = False
            process.before = Overtaken(at, process, partial(self.process, process.disk))
            story = f"overtaken at operation {at}"
            try:
                process.run()
            except Fenced:
                pass
            except Exception as error:
                self.failed(story, error)
                continue
            self.recover(Crash(story, process.disk.copy(), process.acknowledged))
            for disk in process.disk.survivors(self.drawn, 2):
                self.recover(Crash(f"{story}, power lost", disk, process.acknowledged))


class FailingSync:
    """A ``before``: the sync of this number fails, once."""

    def __init__(self, at: int) -> None:
        self._left = at

    def __call__(self, verb: str, path: str, data: bytes) -> None:
        if verb == "fsync":
            self._left -= 1
            if self._left == -1:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)


class Overtaken:
    """A ``before``: at the change of this number another driver runs to its end."""

    def __init__(self, at: int, process: Process, another: partial[Process]) -> None:
        self._at = at
        self._process = process
        self._another = another

    def __call__(self, verb: str, path: str, data: bytes) -> None:
        process = self._process
        known = len(process.moments)
        process.record(verb, path, data)
        if len(process.moments) > known and known == self._at:
            other = self._another(process.acknowledged)
            other.run()
            process.acknowledged = other.acknowledged


def torn(moment: Moment) -> SimulatedDisk:
    """The disk after half of a write."""
    disk = moment.disk.copy()
    number = disk.inode(moment.path)
    disk.inodes[number] = append(disk.inodes[number], moment.data[: len(moment.data) // 2])
    return disk


def _some(numbers: Sequence[int], at_most: int, drawn: random.Random) -> list[int]:
    """All of them, or so many, drawn."""
    return list(numbers) if len(numbers) <= at_most else sorted(drawn.sample(numbers, at_most))


def prove(seconds_max: float | None = None, seed: int = 0, scale: float = 1.0) -> Result:
    """50,000 cases at scale 1, and every mutant."""
    from tests.proof.powercut_mutants import MUTANTS, is_found

    began = time.monotonic()
    # The mutants come last, and each has a sweep of its own.
    until = began + 0.75 * (seconds_max or float("inf"))
    cases, failures = 0, []
    planned = 0
    for job, job_until in in_turn(JOBS, [job.share for job in JOBS], until):
        wanted = round(CASES * scale * job.share)
        planned += wanted
        sweep = swept(job, seed, wanted, job_until)
        cases += sweep.cases
        failures += sweep.failures
    found: dict[str, bool] = {}
    for mutant in MUTANTS:
        if seconds_max is None or time.monotonic() < began + seconds_max:
            found[mutant.name] = is_found(mutant, seed)
    failures += [f"mutant not found: {name}" for name, is_seen in found.items() if not is_seen]
    note = "" if cases >= planned or failures else f"stopped by time, {planned:,} were planned"
    left = len(MUTANTS) - len(found)
    note += f"; {left} mutants not tried: out of time" if left else ""
    return Result("disk", cases, tuple(failures), (sum(found.values()), len(found)), time.monotonic() - began, note)


def swept(job: DiskJob, seed: object, cases_max: int, until: float = float("inf")) -> Sweep:
    """A sweep, done. The garbage collector rests: copies of disks are many, and none is in a circle."""
    gc.collect()
    gc.freeze()
    with drawn_names((job.name, seed)):
        sweep = Sweep(job, seed, cases_max, until).run()
    gc.unfreeze()
    return sweep
