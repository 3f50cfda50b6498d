"""A sweep kills a run at every storage operation, or puts it to sleep there while another driver takes over:
the world must look as if nothing had happened."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from persistent import Fenced, RunReport
from persistent.checkpoint import compaction
from tests.crash.pauses import Once
from tests.crash.worlds import LONG, CrashJob, Outcome, World, check_invariants
from tests.faults import DEATHS, Killed, Operations
from tests.few import share

_CHANGES = ("put_if_absent", "write", "rename", "delete")
_TORN = ("put_if_absent", "write", "rename")
_SLEEPS_MAX = 90
_FEW, _SHARE = 30, 4
"""One in so many deaths is tried by ``make check``, and all by ``make check CASES=all``."""


@dataclass(frozen=True)
class Death:
    """At which operation a process dies, and how."""

    at: int
    how: str


@dataclass(frozen=True)
class Calm:
    """A run that nothing happened to: what it did, and the operations it took."""

    outcome: Outcome
    operations: list[tuple[str, str, str]]


def calm(job: CrashJob, folder: Path) -> Calm:
    """The run that all others must equal."""
    world, operations = World(job, folder), Operations()
    world.run(operations)
    check_invariants(world)
    assert not world.leftovers()
    outcome = world.outcome()
    world.close()
    return Calm(outcome, operations.log)


def deaths(operations: list[tuple[str, str, str]]) -> Iterator[Death]:
    """Before and after every operation, and in the middle of those that can be torn. After an operation that changes
    nothing is before the next."""
    for at, (verb, _, _) in enumerate(operations):
        for how in DEATHS:
            if how == "before" or (how == "after" and verb in _CHANGES) or (how == "half" and verb in _TORN):
                yield Death(at, how)


def few_deaths(operations: list[tuple[str, str, str]]) -> list[Death]:
    """The last of each kind: the same operation on the same sort of file, in the same way."""
    kinds = {}
    for death in deaths(operations):
        verb, _, name = operations[death.at]
        kinds[verb, name.partition("/")[0], death.how] = death
    return sorted(kinds.values(), key=lambda death: death.at)


def shared_deaths(operations: list[tuple[str, str, str]]) -> list[Death]:
    """Those of all deaths that are this run's share: of a few, all."""
    found = list(deaths(operations))
    return share(_SHARE, found) if len(found) > _FEW else found


Deaths = Callable[[list[tuple[str, str, str]]], Iterable[Death]]

anywhere = pytest.mark.parametrize(
    "deaths", [few_deaths, pytest.param(shared_deaths, marks=pytest.mark.check)], ids=["few", "share"]
)
"""A test that kills somebody wherever it can: once at each kind of operation in ``make test``, else at every one of the
run's share."""


def die(world: World, death: Death) -> bool:
    """Run until that death; False if the run ended before it."""
    try:
        world.run(Operations(death.at, death.how))
    except Killed:
        return True
    return False


def survive(job: CrashJob, folder: Path, expected: Outcome, *killings: Death) -> int:
    """Die so, once or again in each recovery, then run in peace: nothing lost, doubled or left over. The number of
    operations that the last run took."""
    world = World(job, folder)
    for death in killings:
        die(world, death)
        if world.checkpoint.list("m"):
            check_invariants(world)
    operations = Operations()
    world.run(operations)
    check_same(world, expected, killings)
    world.close()
    return operations.count


def survives(job: CrashJob, folder: Path, deaths: Deaths) -> Calm:
    """Die each of these deaths, in a world of its own, and run on in peace. Returns the run that all must equal."""
    reference = calm(job, folder)
    for death in deaths(reference.operations):
        survive(job, folder, reference.outcome, death)
    return reference


def survives_if_every_step_folds(job: CrashJob, folder: Path, deaths: Deaths) -> None:
    """The same with a fold in every step, which changes nothing that is published."""
    published = calm(job, folder).outcome.published
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "FAN_IN", 2)
        assert survives(job, folder, deaths).outcome.published == published


def check_same(world: World, expected: Outcome, story: object) -> None:
    """The world is as expected, and clean; nor does one more run change it."""
    assert world.outcome() == expected, story
    check_invariants(world)
    assert world.leftovers() == [], story
    shown = world.sink.list("")
    assert world.run().steps == 0, f"{story}: there was something left to do"
    assert world.sink.list("") == shown, f"{story}: running again published something"


def sweep(job: CrashJob, folder: Path, reference: Calm | None = None, *, whole: bool = False) -> int:
    """Die at every operation, then once more, in a story of its own, at a drawn operation of the recovery; the number
    of cases, of which this run tries its share. ``whole``: all. ``make proof`` dies at more, and more often."""
    reference = reference or calm(job, folder)
    cases, drawn = list(deaths(reference.operations)), random.Random(job.name)
    for death in cases if whole else shared_deaths(reference.operations):
        recovery = survive(job, folder, reference.outcome, death)
        survive(job, folder, reference.outcome, death, Death(drawn.randrange(recovery), drawn.choice(DEATHS)))
    return 2 * len(cases)


def sleep_everywhere(job: CrashJob, folder: Path, reference: Calm | None = None, *, whole: bool = False) -> None:
    """One driver stops before an operation, another does all there is to do, the first goes on: for each of the first
    operations, or this run's share of them. ``whole``: for all."""
    reference = reference or calm(job, folder)
    cases = list(enumerate(reference.operations[:_SLEEPS_MAX]))
    for at, operation in cases if whole else share(_SHARE, cases):
        world = World(job, folder)
        story = f"asleep before operation {at}, {operation}"
        sleeper, other = _overtaken(world, at)
        assert other is not None, story
        # Only one of them may say that it did the last step.
        assert sleeper is None or sleeper.steps == 0 or other.steps == 0, story
        assert world.outcome() == reference.outcome, story
        check_invariants(world)
        assert world.run().steps == 0, story
        world.close()


def overtaken_in_the_last_commit(folder: Path, reference: Calm | None = None) -> None:
    """A driver that sees only the first rows sleeps before its last manifest is put, until that id is long deleted."""
    expected = (reference or calm(LONG, folder)).outcome
    world = World(LONG, folder)
    begun = replace(LONG, rows=LONG.rows[:3], end_of_input=False)
    sleeper = replace(world, job=begun)
    sleeper.checkpoint, sleeper.sink = world.checkpoint, world.sink
    last = f"m/{4:020d}.json"
    pause = Once(lambda verb, name: verb == "put_if_absent" and name == last, world.run)
    with pytest.raises(Fenced):
        sleeper.run(before=pause)
    assert pause.happened
    assert world.outcome() == expected
    world.close()


def _overtaken(world: World, at: int) -> tuple[RunReport | None, RunReport | None]:
    """What the sleeper says (None: Fenced), and what the other driver says (None: it never ran)."""
    count, others = iter(range(1 << 30)), []
    pause = Once(lambda verb, name: next(count) == at, lambda: others.append(world.run()))
    try:
        report = world.run(before=pause)
    except Fenced:
        report = None
    return report, others[0] if others else None
