"""A correction, killed at any storage operation, and asked for again, is applied once: to the state, and to what is
published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from monoids import Count, Sum, record
from persistent import NonWindowState
from tests.crash.sweep import Deaths, anywhere
from tests.crash.test_late import ROWS
from tests.crash.worlds import Corrected, CrashJob, InTurn, LivesBeside, Outcome, Visits, World, check_invariants
from tests.faults import Killed, Operations


class Changing(Visits):
    """Totals, published as they change."""

    def persistent_state(self) -> Any:
        return NonWindowState(record(visits=Count(), total=Sum()), emit="change", changes="retract")


JOBS = (
    CrashJob("closed windows", Corrected, ROWS[:8], 2, end_of_input=False),
    CrashJob("several sinks", Changing, ROWS[:8], 2, end_of_input=False, several=True),
    CrashJob("several states", LivesBeside, ROWS[:8], 2, end_of_input=False),
)
ADD = ({"ts": 41, "page": "a", "n": 100}, {"ts": 26, "page": "b", "n": 7})
REMOVE = (ROWS[2],)


def correct(world: World, operations: Operations | None = None) -> None:
    pipeline = world.pipeline(operations)
    pipeline.correct(name="ticket", add=list(ADD), remove=list(REMOVE), engine=InTurn(1))


def corrected(job: CrashJob, folder: Path) -> tuple[Outcome, list[tuple[str, str, str]]]:
    """The world after a correction in peace, and the operations that it took."""
    world, operations = World(job, folder), Operations()
    world.run()
    before = world.outcome()
    correct(world, operations)
    check_invariants(world)
    outcome = world.outcome()
    assert outcome != before and outcome.ledger == before.ledger and len(outcome.published) > len(before.published)
    world.close()
    return outcome, operations.log


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
@pytest.mark.parametrize("runs_first", [False, True], ids=["asked again", "after a run"])
@anywhere
def test_a_correction_killed_anywhere_is_applied_once(
    job: CrashJob, deaths: Deaths, folder: Path, runs_first: bool
) -> None:
    """Between the fence and the commit it has not happened, and behind it somebody must publish what it owes."""
    expected, operations = corrected(job, folder)
    for death in deaths(operations):
        world = World(job, folder)
        world.run()
        with pytest.raises(Killed):
            correct(world, Operations(death.at, death.how))
        if runs_first:
            assert world.run().steps == 0, death
        correct(world)
        correct(world)
        assert world.outcome() == expected, death
        check_invariants(world)
        assert world.run().steps == 0 and world.outcome() == expected, death
        world.close()


def test_a_driver_that_sleeps_in_its_step_commits_nothing_after_a_correction(folder: Path) -> None:
    """Its plan is of the state before, in which the correction is missing."""
    from persistent.errors import Fenced

    job = JOBS[0]
    world, done = World(job, folder), False

    def before(verb: str, name: str) -> None:
        nonlocal done
        if not done and verb == "put_if_absent" and name.startswith("m/") and not name.endswith("0000.json"):
            newest = world.entries()[-1].manifest
            if newest.base:
                done = True
                pipeline = world.pipeline()
                pipeline.correct(name="ticket", add=list(ADD), engine=InTurn(1), take_over=True)

    with pytest.raises(Fenced):
        world.run(before=before)
    assert done
    world.run()
    check_invariants(world)
    assert world.entries()[-1].manifest.corrections.keys() == {"ticket"}
    world.close()
