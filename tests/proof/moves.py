"""The section "moves": a file is created, deleted, or replaced by one of equal or another size, before any request.

The run ends or stops; then it is run again, and what ``SourceChanged`` says is done: the file gets a new name. At the
end every record of the other files is counted once; of the file that moved the records from the first on up to some
place, once, with a dead letter if that is not its end; and of what came in its place all, once.

    python -m tests.proof --only moves [--seed s] [--scale x]
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from functools import cached_property
from unittest import mock

from persistent import FileSource
from persistent.connect.files.listing import Files
from persistent.errors import CorruptCheckpoint, EngineError, PersistentError, SourceChanged
from tests.proof.inputs import Inputs, Move, served
from tests.proof.inputs_job import FORMATS, Job, encoded, sample
from tests.proof.reads import GROUNDS, world
from tests.proof.result import Result, in_turn

_FAILURES_MAX = 20
_OLD = range(22, 35)
_KINDS = {"deleted": range(0), "replaced": range(62, 75), "grown": range(62, 82), "created": range(62, 75)}
"""What becomes of a file, and the new records."""

PLAN = tuple((ground, ending) for ground in GROUNDS for ending in FORMATS)
MUTANTS = {
    "a file that is gone blocks the plan that holds it": (FileSource, "without_lost", lambda *_: None),
    "what another hint says is not looked at": (Files, "each", lambda self, call, items: []),
}


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

    @cached_property
    def requests(self) -> int:
        with world(self.ground, sample(self.ending)) as (inputs, root), served(inputs) as clock:
            Job(inputs, root, clock).run()
            return inputs.count

    def run(self, share: float = 1.0) -> Cases:
        """Every move before every request, or that share of them, drawn."""
        stories = [(kind, at) for kind in _KINDS for at in range(self.requests + 1)]
        self.wanted = max(1, round(len(stories) * share))
        for kind, at in random.Random(f"moves {self.ground} {self.ending} {self.seed}").sample(stories, self.wanted):
            if len(self.failures) >= _FAILURES_MAX or time.monotonic() > self.until:
                break
            self.case(kind, at)
        return self

    def case(self, kind: str, at: int) -> None:
        self.cases += 1
        try:
            with world(self.ground, sample(self.ending)) as (inputs, root), served(inputs) as clock:
                inputs.moves = {at: self.move(kind)}
                self.judge(Job(inputs, root, clock), inputs, kind, at)
        except Exception as error:
            where = f"{self.ground}, {self.ending}, seed {self.seed}"
            self.failures.append(f"{where}: {kind} before request {at}: {type(error).__name__}: {error}"[:600])

    def move(self, kind: str) -> Move:
        path = f"in/{'d' if kind == 'created' else 'b'}.{self.ending}"
        if kind == "deleted":
            return lambda inputs: inputs.delete(path)
        return lambda inputs: inputs.put(path, encoded(self.ending, _KINDS[kind], "y"))

    def judge(self, job: Job, inputs: Inputs, kind: str, at: int) -> None:
        for _ in range(4):
            try:
                job.run()
            except (CorruptCheckpoint, EngineError):
                raise
            except SourceChanged:
                data = inputs.files.get(f"in/b.{self.ending}")
                if data is not None:
                    inputs.put(f"in/z.{self.ending}", data)
                    inputs.delete(f"in/b.{self.ending}")
            except PersistentError:
                continue
        try:
            job.run()
        except PersistentError as error:
            raise AssertionError(f"stuck: {error}") from error
        if inputs.count <= at:
            return
        found = job.outcome()
        counted = {number for number in found.counted if number in _OLD}
        assert set(found.counted.values()) == {1}, f"counted more than once: {found.counted}"
        assert counted == set(range(22, 22 + len(counted))), f"holes in {sorted(counted)}"
        assert {number for number in found.counted if 62 <= number < 100} == set(_KINDS[kind]), (
            "what came is not counted"
        )
        assert set(range(22)) | {35, 36, 37} <= set(found.counted), "another file is not counted"
        is_told = any("gone before it was read" in reason for _, _, reason in found.dead)
        assert is_told or len(counted) in (0, len(_OLD)), f"lost without a word: {sorted(counted)}"


def finds(mutant: str, until: float = float("inf")) -> bool | None:
    """Whether some case fails on the code with this defect; None if the time is over before one does."""
    where, what, instead = MUTANTS[mutant]
    cases = Cases("store", "jsonl", 0, until)
    assert cases.requests
    with mock.patch.object(where, what, instead):
        cases.run()
    return bool(cases.failures) or (None if time.monotonic() > until else False)


def prove(seconds_max: float | None = None, seed: int = 0, scale: float = 1.0) -> Result:
    """Every move before every request, then the mutants."""
    began = time.monotonic()
    done: list[Cases] = []
    found: list[bool | None] = []
    for part, until in in_turn([*PLAN, None], [1.0] * (len(PLAN) + 1), began + (seconds_max or float("inf"))):
        if part is None:
            found = [finds(name, until) for name in MUTANTS]
        else:
            done.append(Cases(*part, seed, until).run(scale))
    failures = tuple(line for cases in done for line in cases.failures)
    tried, wanted = sum(cases.cases for cases in done), sum(cases.wanted for cases in done)
    judged = [one for one in found if one is not None]
    note = "" if tried == wanted else f"stopped, {wanted:,} were planned"
    if len(judged) < len(MUTANTS):
        note += f"; {len(MUTANTS) - len(judged)} mutants not tried to the end: out of time"
    return Result("moves", tried, failures, (sum(judged), len(judged)), time.monotonic() - began, note)
