"""The section "reads": every read of a source fails, once, twice and for ever; is short, slow, or of other bytes.

Every request of a job over good files and a bad one, in every format, on a local disk and on a store. The run comes to
the result of a calm one, or it stops with an error that says what to do, and then a calm run comes to it. Nothing is a
dead letter that is not one in a calm run. Other bytes are tried where the format has a checksum (gzip, Parquet); the
fingerprint of a file may have been taken of them: then every later run stops as well.

    python -m tests.proof --only reads [--seed s] [--scale x]
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from persistent.errors import CorruptCheckpoint, EngineError, PersistentError, SourceError, StorageError
from tests.proof.inputs import DATA, ERRORS, EVER, Fault, Inputs, on_disk, served
from tests.proof.inputs_job import FORMATS, Job, Outcome, sample, small_edges
from tests.proof.reads_mutants import MUTANTS, mutated
from tests.proof.result import Result, in_turn

_FAILURES_MAX = 20
GROUNDS = ("store", "disk")
PLAN = tuple((ground, ending) for ground in GROUNDS for ending in FORMATS)


@contextmanager
def world(ground: str, files: Mapping[str, bytes], **options: object) -> Iterator[tuple[Inputs, str]]:
    """The files on that ground, and where they are."""
    shared_memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared_memory if shared_memory.is_dir() else None) as folder, small_edges():
        if ground == "disk":
            yield on_disk(folder, files, **options), f"{folder}/in"
        else:
            inputs = Inputs({}, **options)  # type: ignore[arg-type]
            for path, data in files.items():
                inputs.put(path, data)
            yield inputs, "store://in"


@dataclass
class Cases:
    """The cases of one format on one ground, counted."""

    ground: str
    ending: str
    seed: object = 0
    until: float = float("inf")
    cases: int = 0
    wanted: int = 0
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.drawn = random.Random(f"reads {self.ground} {self.ending} {self.seed}")

    def run(self, share: float = 1.0, *, pairs: bool = False) -> Cases:
        """All single faults, or that share of them, drawn; with ``pairs`` as many pairs of them."""
        stories = [(fault,) for fault in self.faults()]
        if pairs:
            stories = [tuple(self.drawn.choice(stories)[0] for _ in range(2)) for _ in stories]  # type: ignore[misc]
        self.wanted = max(1, round(len(stories) * share))
        for story in self.drawn.sample(stories, self.wanted):
            if len(self.failures) >= _FAILURES_MAX or time.monotonic() > self.until:
                break
            self.case(story)
        return self

    def faults(self) -> Iterator[Fault]:
        """Every fault at every request of a calm run."""
        for at, (verb, _) in enumerate(self.calm[1]):
            yield from (Fault(kind, at, times) for kind in ERRORS for times in (1, 2))
            yield from (Fault(kind, at, EVER, verb) for kind in ERRORS)
            yield Fault("slow", at)
            if verb in DATA:
                yield from (Fault("short", at, times, verb) for times in (1, 2, EVER))
                if FORMATS[self.ending] != "lines":
                    yield Fault("wrong", at)

    @cached_property
    def calm(self) -> tuple[Outcome, list[tuple[str, str]]]:
        """What a run comes to that nothing befalls, and its requests."""
        with world(self.ground, sample(self.ending)) as (inputs, root), served(inputs) as clock:
            job = Job(inputs, root, clock)
            job.run()
            return job.outcome(), inputs.verbs

    def case(self, faults: tuple[Fault, ...]) -> None:
        """One run with these faults, and a calm one after it."""
        self.cases += 1
        try:
            with world(self.ground, sample(self.ending)) as (inputs, root), served(inputs) as clock:
                inputs.faults = faults
                self.judge(Job(inputs, root, clock), inputs, faults)
        except Exception as error:
            story = " and ".join(map(str, faults))
            where = f"{self.ground}, {self.ending}, seed {self.seed}"
            self.failures.append(f"{where}: {story}: {type(error).__name__}: {error}"[:600])

    def judge(self, job: Job, inputs: Inputs, faults: tuple[Fault, ...]) -> None:
        expected = self.calm[0]
        is_wrong = any(fault.kind == "wrong" for fault in faults)
        # That there is no such folder is an answer, once it is given twice: new files come with a later listing.
        is_answer = any(fault.kind == "not there" for fault in faults)
        try:
            job.run()
            found = job.outcome()
            assert found == expected or is_answer, f"came to {found}, not {expected}"
        except (CorruptCheckpoint, EngineError):
            raise
        except PersistentError as error:
            assert isinstance(error, StorageError | SourceError), f"{type(error).__name__} of a store"
            assert "://" in str(error) or "/in" in str(error), f"no place in {error}"
        inputs.faults = ()
        try:
            job.run()
        except (SourceError, StorageError):
            if not is_wrong:
                raise
            return
        found = job.outcome()
        assert found == expected, f"came to {found} at last, not {expected}"


def finds(mutant: str, until: float = float("inf")) -> bool | None:
    """Whether some case fails on the code with this defect; None if the time is over before one does."""
    patch, ending, kind = MUTANTS[mutant]
    cases = Cases("store", ending, mutant, until)
    faults = [fault for fault in cases.faults() if fault.kind == kind]
    with mutated(patch):
        for fault in faults:
            if cases.failures or time.monotonic() > until:
                break
            cases.case((fault,))
    return bool(cases.failures) or (None if time.monotonic() > until else False)


def prove(seconds_max: float | None = None, seed: int = 0, scale: float = 1.0) -> Result:
    """Every fault at every read; with a seed other than 0, pairs. Then the mutants."""
    began = time.monotonic()
    until = began + (seconds_max or float("inf"))
    done = []
    parts: list[tuple[str, str] | None] = [*PLAN, None]
    found: list[bool | None] = []
    for part, part_until in in_turn(parts, [*([1.0] * len(PLAN)), 1.5], until):
        if part is None:
            found = [finds(name, until=part_until) for name in MUTANTS]
        else:
            done.append(Cases(*part, seed, part_until).run(scale, pairs=seed != 0))
    failures = tuple(line for cases in done for line in cases.failures)
    tried, wanted = sum(cases.cases for cases in done), sum(cases.wanted for cases in done)
    judged = [one for one in found if one is not None]
    note = "" if tried == wanted else f"stopped, {wanted:,} were planned"
    if len(judged) < len(MUTANTS):
        note += f"; {len(MUTANTS) - len(judged)} mutants not tried to the end: out of time"
    return Result("reads", tried, failures, (sum(judged), len(judged)), time.monotonic() - began, note)
