"""A job whose late records go to a sink of their own, killed at any storage operation, and resumed, equals the run that
was not: each late record is there once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.crash.sweep import Deaths, anywhere, sleep_everywhere, survives
from tests.crash.worlds import ROWS, Beside, CrashJob, Visits, World

JOBS = tuple(CrashJob(f"late-{kind}", Visits, ROWS, 2, late_sink=kind) for kind in ("folder", "ledger"))
BESIDE = CrashJob("late-beside", Beside, ROWS, 2, late_sink="folder")
"""Nothing is late: what the windows refuse counts in the totals, and is partly late."""


@pytest.mark.parametrize("job", (*JOBS, BESIDE), ids=lambda job: job.name)
@anywhere
def test_a_run_killed_anywhere_equals_the_run_that_was_not(job: CrashJob, deaths: Deaths, folder: Path) -> None:
    """At some moment the windows are published and the late records are not, or the reverse."""
    survives(job, folder, deaths)


@pytest.mark.check
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_driver_that_sleeps_anywhere_does_no_harm(job: CrashJob, folder: Path) -> None:
    sleep_everywhere(job, folder)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_the_job_holds_what_a_crash_could_lose(job: CrashJob, folder: Path) -> None:
    """A sweep over a run in which nothing is late would prove little."""
    world = World(job, folder)
    world.run()
    assert [json.loads(row["value"])["n"] for row in world.late_rows()] == [5, 9]
    assert len(world.published()) > 4
    world.close()


def test_what_only_one_state_refuses_is_there_too(folder: Path) -> None:
    """Beside totals, which take every record, a sink of late records would be refused, or stay empty."""
    world = World(BESIDE, folder)
    report = world.run()
    found = [(json.loads(row["value"])["n"], row["reason"]) for row in world.late_rows()]
    assert found == [(5, "partly-late in short"), (9, "partly-late in short")]
    assert report.late == 0
    world.close()
