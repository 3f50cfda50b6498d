"""A task changed before anything was committed: whoever dies or sleeps on the way, the result is that of one task."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from monoids import Count, Sum, record
from persistent import Fenced, FingerprintChanged, WindowState, tumbling
from persistent.checkpoint import running
from persistent.checkpoint.log import Log
from persistent.storage.process import Process
from persistent.verify import verify
from tests.crash.pauses import Once
from tests.crash.sweep import Calm, Death, calm, check_same, deaths, die
from tests.crash.worlds import ROWS, CrashJob, Visits, World, check_invariants
from tests.faults import DEATHS, Operations


class Mistaken(Visits):
    """The task as it was: another monoid, another window, another key, under the same name."""

    name = "Visits"
    key = "n"

    def persistent_state(self) -> WindowState:
        return WindowState(record(visits=Count(), total=Sum(float)), tumbling(20))


JOB = CrashJob("changed", Visits, ROWS, 4, files=3)
BEFORE = replace(JOB, name="mistaken", task=Mistaken)


@pytest.fixture(autouse=True)
def _nobody_knows_who_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """All drivers are of one process here; as in life, none can tell whether another lives."""
    monkeypatch.setattr(running, "this_process", lambda: Process("elsewhere", 1))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Calm, Calm]:
    """The runs of the task as it is and as it was that nothing happened to."""
    return calm(JOB, tmp_path_factory.mktemp("is")), calm(BEFORE, tmp_path_factory.mktemp("was"))


def as_it_is(world: World) -> World:
    """The same place, seen by the changed pipeline."""
    other = replace(world, job=JOB)
    other.checkpoint, other.sink = world.checkpoint, world.sink
    return other


def test_whenever_the_first_run_died_the_changed_task_goes_on_as_from_nothing(
    reference: tuple[Calm, Calm], folder: Path
) -> None:
    """Killed anywhere before the first commit, and again in the run that adopts: nothing of the mistaken task shows."""
    after, before = reference
    drawn, adopted, refused = random.Random("adoption"), 0, 0
    for death in list(deaths(before.operations))[::2]:
        world = World(BEFORE, folder)
        die(world, death)
        newest = Log(world.checkpoint).newest() if world.checkpoint.list("m") else None
        if newest is not None and newest.manifest.base > 0:
            with pytest.raises(FingerprintChanged, match="key: n -> page; total: Sum"):
                as_it_is(world).run()
            refused += 1
            break
        world = as_it_is(world)
        die(world, Death(drawn.randrange(40), drawn.choice(DEATHS)))
        world.run()
        check_same(world, after.outcome, death)
        world.close()
        adopted += newest is not None
    assert adopted >= 10 and refused == 1


def begun(folder: Path, before: Calm) -> World:
    """A world in which the mistaken task has put its first plan, and died over it."""
    world = World(BEFORE, folder)
    at = next(
        at for at, (verb, _, name) in enumerate(before.operations) if verb == "write" and name.startswith("d/Vis")
    )
    assert die(world, Death(at, "after"))
    assert world.checkpoint.list("p") == [f"{0:020d}.json"]
    return world


def test_a_run_killed_anywhere_while_it_adopts_is_resumed(reference: tuple[Calm, Calm], folder: Path) -> None:
    """Between the fence and the manifest above it the checkpoint is still that of the task as it was."""
    after, before = reference
    operations = Operations()
    world = as_it_is(begun(folder, before))
    report = world.run(operations)
    check_same(world, after.outcome, "adopted")
    assert not verify(world.checkpoint).findings
    assert [
        note for note in report.notes if "the task has changed, key: n -> page; total: Sum(float) -> Sum(int)" in note
    ]
    commits = [
        at for at, (_, _, name) in enumerate(operations.log) if name.startswith("m/") and name.endswith("4.json")
    ]
    for death in list(deaths(operations.log[: commits[0] + 1]))[::2]:
        world = as_it_is(begun(folder, before))
        die(world, death)
        world.run()
        check_same(world, after.outcome, death)
        world.close()


def test_the_plan_of_the_task_as_it_was_is_never_run(reference: tuple[Calm, Calm], folder: Path) -> None:
    """It is left as it is, and the first step is one that was planned anew."""
    world = as_it_is(begun(folder, reference[1]))
    planned: list[str] = []
    world.run(before=lambda verb, name: planned.append(name) if name.startswith("p/") and verb != "delete" else None)
    put = [name for name in planned if name.startswith(f"p/{0:020d}")]
    assert f"p/{0:020d}-1.json" in put
    assert "the task" not in " ".join(world.run().notes)


@pytest.mark.parametrize("who", ["as it was", "as it is"])
def test_a_driver_that_wakes_after_the_other_took_over_is_fenced(
    who: str, reference: tuple[Calm, Calm], folder: Path
) -> None:
    """Two windows of one editor, two tasks: whichever sleeps, at whatever operation, one of them makes all of the
    result."""
    after, before = reference
    seen: set[str] = set()
    for at in range(who == "as it is", 50, 2):
        world = begun(folder, before)
        sleeper, other = (world, as_it_is(world)) if who == "as it was" else (as_it_is(world), world)
        expected = (
            {id(sleeper): before, id(other): after} if who == "as it was" else {id(sleeper): after, id(other): before}
        )
        answers: list[str] = []
        pause, count = None, iter(range(1 << 30))
        pause = Once(lambda verb, name: next(count) == at, lambda: answers.append(_answer(other)))  # noqa: B023
        slept = _answer(sleeper, before=pause)
        if not pause.happened:
            break
        seen.update((slept, *answers))
        winner = other if answers == ["done"] else sleeper
        assert (slept == "done") is (winner is sleeper), (at, slept, answers)
        assert winner.outcome() == expected[id(winner)].outcome, (at, slept, answers)
        check_invariants(winner)
        world.close()
    assert seen == {"done", "fenced", "refused"}


def _answer(world: World, **options: Any) -> str:
    try:
        world.run(**options)
    except Fenced:
        return "fenced"
    except FingerprintChanged:
        return "refused"
    return "done"


def test_a_task_is_not_adopted_while_a_driver_of_the_one_before_runs(
    reference: tuple[Calm, Calm], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistyped file must not end a run that is hours into its first step; once that has ended it may."""
    monkeypatch.undo()
    world = begun(folder, reference[1])
    assert world.checkpoint.list("r"), "the mark of a process that lives: this one"
    manifests = world.checkpoint.list("m")
    with pytest.raises(FingerprintChanged, match=r"key: n -> page.* while a driver of the old task runs: process"):
        as_it_is(world).run()
    assert world.checkpoint.list("m") == manifests
    for name in world.checkpoint.list("r"):
        world.checkpoint.delete(f"r/{name}")
    as_it_is(world).run()
    check_same(as_it_is(world), reference[0].outcome, "the driver has ended")
