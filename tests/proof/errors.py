"""The section "errors": every error at every operation of a run, once and for ever.

Of the operating system under a local storage, of a storage as its caller sees it, and of the requests to S3. The run
goes on, or ends with an error that says what to do; either way the oracle has agreed with every commit, and a calm run
afterwards comes to the twin's result. A seed other than 0 draws two faults for each case.

    python -m tests.proof --only errors [--seed s] [--scale x]
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from persistent.errors import CorruptCheckpoint, EngineError, Fenced, PersistentError, StorageError
from persistent.storage import Put, Storage
from tests.proof.bucket import Bucket, BucketProcess, refused
from tests.proof.disk import SimulatedDisk
from tests.proof.oracle import Acknowledged, Oracle
from tests.proof.result import Result, in_turn
from tests.proof.worlds import FILES, TOTALS, VISITS, DiskJob, Process, drawn_names

_FAILURES_MAX = 20
_EVER = 1 << 30

_ALL = frozenset({"open", "open-folder", "write", "fsync", "link", "unlink", "mkdir", "read", "list", "stat"})
SYSTEM = {
    "EIO": (errno.EIO, _ALL),
    "ENOSPC": (errno.ENOSPC, frozenset({"open", "write", "link", "mkdir", "fsync"})),
    "EMFILE": (errno.EMFILE, frozenset({"open", "open-folder", "read", "list"})),
    "EACCES": (errno.EACCES, _ALL),
    "ETIMEDOUT": (errno.ETIMEDOUT, _ALL),
}
"""Errors of the operating system, and the calls that may raise them."""

VERBS = ("put_if_absent", "write", "read", "list", "rename", "delete")
STORE = ("refused", "lost answer", "no answer", "after a successor")
"""What a storage may do: refuse; do it and fail; (a put) say that it does not know; or do it, and answer when another
driver has come to its end."""

REQUESTS: dict[str, tuple[Callable[[], OSError], bool]] = {
    "409": (lambda: refused(409, "ConditionalRequestConflict"), False),
    "412, done before": (lambda: FileExistsError(errno.EEXIST, "412 PreconditionFailed"), True),
    "503": (lambda: refused(503, "SlowDown"), False),
    "500": (lambda: refused(500, "InternalError"), False),
    "500, done": (lambda: refused(500, "InternalError"), True),
    "403": (lambda: refused(403, "AccessDenied", errno.EACCES), False),
    "timeout": (lambda: TimeoutError(errno.ETIMEDOUT, "no answer in time"), False),
    "timeout, done": (lambda: TimeoutError(errno.ETIMEDOUT, "no answer in time"), True),
}
"""Answers to a request, and whether it was done all the same."""


@dataclass(frozen=True)
class Fault:
    """``kind`` at operation ``at``; ``times``: at so many operations from there on."""

    kind: str
    at: int
    times: int = 1

    def __str__(self) -> str:
        return f"{self.kind} at operation {self.at}{', and for ever' if self.times == _EVER else ''}"


@dataclass
class Counted:
    """The operations of a process, counted; says which fault befalls which."""

    faults: tuple[Fault, ...]
    count: int = 0
    verbs: list[str] = field(default_factory=list)

    def next(self, verb: str) -> Fault | None:
        number, self.count = self.count, self.count + 1
        self.verbs.append(verb)
        return next((one for one in self.faults if one.at <= number < one.at + one.times), None)


# -- the three grounds ---------------------------------------------------------------------------------------------


class System:
    """Faults of the operating system, on a simulated disk."""

    name = "system"
    kinds = tuple(SYSTEM)
    disk = SimulatedDisk

    def __repr__(self) -> str:
        return self.name

    def process(self, job: DiskJob, oracle: Oracle, disk: Any, counted: Counted) -> Process:
        def before(verb: str, path: str, data: bytes) -> None:
            fault = counted.next(verb)
            if fault is not None and self.befalls(fault.kind, verb):
                raise OSError(SYSTEM[fault.kind][0], os.strerror(SYSTEM[fault.kind][0]), path)

        return Process(job, oracle, disk, before=before)

    def calm(self, job: DiskJob, oracle: Oracle, disk: Any) -> Process:
        return Process(job, oracle, disk)

    def recover(self, job: DiskJob, oracle: Oracle, disk: Any, acknowledged: Acknowledged) -> None:
        """A calm run over what is left must come to the twin's result."""
        oracle.at_start(disk, acknowledged)
        process = self.calm(job, oracle, disk)
        process.acknowledged, process.alone = acknowledged, False
        report = process.run()
        oracle.at_edge(disk, ended=True)
        if report is not None and report.steps:
            oracle.clean(disk)

    def befalls(self, kind: str, verb: str) -> bool:
        return verb in SYSTEM[kind][1]


class Store(System):
    """Faults of a storage, as its caller meets them."""

    name = "store"
    kinds = STORE

    def process(self, job: DiskJob, oracle: Oracle, disk: Any, counted: Counted) -> Process:
        process = Process(job, oracle, disk)
        process.changed = lambda storage: FailingStorage(storage, counted, partial(successor, self, process))
        return process

    def befalls(self, kind: str, verb: str) -> bool:
        return verb == "put_if_absent" or kind not in ("no answer", "after a successor")


class S3(System):
    """Faults of requests to S3."""

    name = "s3"
    kinds = (*REQUESTS, "after a successor")
    disk = Bucket  # type: ignore[assignment]

    def process(self, job: DiskJob, oracle: Oracle, disk: Any, counted: Counted) -> Process:
        process = BucketProcess(job, oracle, disk)

        def around(verb: str, key: str, request: Callable[[], Any]) -> Any:
            fault = counted.next(verb)
            if fault is None or not self.befalls(fault.kind, verb):
                return request()
            if fault.kind == "after a successor":
                answer = request()
                successor(self, process)
                return answer
            error, is_done = REQUESTS[fault.kind]
            if is_done:
                request()
            raise error()

        process.around = around
        return process

    def calm(self, job: DiskJob, oracle: Oracle, disk: Any) -> Process:
        return BucketProcess(job, oracle, disk)

    def befalls(self, kind: str, verb: str) -> bool:
        return verb == "create" or kind not in ("412, done before", "after a successor")


class FailingStorage:
    """``inner``, with the faults of a store."""

    def __init__(self, inner: Storage, counted: Counted, succeed: Callable[[], None]) -> None:
        self._inner = inner
        self._counted = counted
        self._succeed = succeed

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return partial(self._call, name, found) if name in VERBS else found

    def _call(self, verb: str, call: Callable[..., Any], name: str, *arguments: Any) -> Any:
        fault = self._counted.next(verb)
        if fault is None:
            return call(name, *arguments)
        is_put = verb == "put_if_absent"
        if fault.kind == "no answer" and is_put:
            return Put.UNKNOWN
        if fault.kind == "after a successor" and is_put:
            answer = call(name, *arguments)
            self._succeed()
            return answer
        if fault.kind == "lost answer":
            call(name, *arguments)
            if is_put:
                return Put.UNKNOWN
        elif fault.kind != "refused":
            return call(name, *arguments)
        raise StorageError(f"cannot {verb} {name}: {fault}. Run again.")


def successor(ground: System, process: Process) -> None:
    """Another driver takes over and comes to its end, if none has done so before."""
    if process.alone:
        process.alone = False
        other = ground.calm(process.job, process.oracle, process.disk)
        other.acknowledged, other.alone = process.acknowledged, False
        other.run()
        process.acknowledged = other.acknowledged


GROUNDS = (System(), Store(), S3())


# -- the cases -----------------------------------------------------------------------------------------------------


@dataclass
class Cases:
    """The cases of one job on one ground, counted."""

    ground: System
    job: DiskJob
    seed: object = 0
    until: float = float("inf")
    cases: int = 0
    wanted: int = 0
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.oracle = self.job.oracle()
        self.drawn = random.Random(f"{self.ground.name} {self.job.name} {self.seed}")

    def run(self, share: float = 1.0, *, pairs: bool = False) -> Cases:
        """All single faults, or that share of them, drawn; with ``pairs`` as many pairs of them."""
        counted = Counted(())
        self.ground.process(self.job, self.oracle, self.ground.disk(), counted).run()
        stories = [(fault,) for fault in self.faults(counted.verbs)]
        if pairs:
            single = [fault for (fault,) in stories if fault.times == 1]
            stories = [tuple(self.drawn.sample(single, 2)) for _ in stories]
        self.wanted = max(1, round(len(stories) * share))
        for story in self.drawn.sample(stories, self.wanted):
            if len(self.failures) >= _FAILURES_MAX or time.monotonic() > self.until:
                break
            self.case(story)
        return self

    def faults(self, verbs: Sequence[str]) -> Iterator[Fault]:
        for kind in self.ground.kinds:
            for at, verb in enumerate(verbs):
                if self.ground.befalls(kind, verb):
                    yield Fault(kind, at)
                    if kind != "after a successor":
                        yield Fault(kind, at, _EVER)

    def case(self, faults: tuple[Fault, ...]) -> None:
        """One run with these faults, and a calm one after it."""
        self.cases += 1
        disk = self.ground.disk()
        process = self.ground.process(self.job, self.oracle, disk, Counted(faults))
        story = " and ".join(map(str, faults))
        try:
            try:
                process.run()
                self.oracle.at_edge(disk, ended=True)
            except (CorruptCheckpoint, EngineError):
                raise
            except Fenced:
                assert not process.alone, "fenced, and nobody else was there"
            except PersistentError:
                pass
            self.ground.recover(self.job, self.oracle, disk, process.acknowledged)
        except Exception as error:
            where = f"{self.ground.name}, {self.job.name}, seed {self.seed}"
            self.failures.append(f"{where}: {story}: {type(error).__name__}: {error}"[:600])


PLAN = ((GROUNDS[0], VISITS), (GROUNDS[0], FILES), (GROUNDS[1], VISITS), (GROUNDS[1], TOTALS), (GROUNDS[2], VISITS))
"""Which jobs meet which faults."""
_WEIGHTS = (3.0, 6.0, 1.0, 1.0, 3.0)
"""About how long each takes."""


def prove(seconds_max: float | None = None, seed: int = 0, scale: float = 1.0) -> Result:
    """Every error at every operation; with a seed other than 0, pairs."""
    began = time.monotonic()
    until = began + (seconds_max or float("inf"))
    done = []
    for (ground, job), job_until in in_turn(PLAN, _WEIGHTS, until):
        with drawn_names((ground.name, job.name, seed)):
            done.append(Cases(ground, job, seed, job_until).run(scale, pairs=seed != 0))
    failures = tuple(line for cases in done for line in cases.failures)
    note = ", ".join(f"{cases.ground.name} {cases.cases:,} of {cases.wanted:,}" for cases in done)
    return Result("errors", sum(cases.cases for cases in done), failures, None, time.monotonic() - began, note)
