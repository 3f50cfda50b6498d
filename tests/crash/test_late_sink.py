"""A job whose late records go to a sink of their own, killed at any storage operation, and resumed, equals the run that
was not: each late record is there once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.crash.sweep import Deaths, anywhere, calm, sleep_everywhere, survive
from tests.crash.worlds import ROWS, CrashJob, Visits, World

JOBS = tuple(CrashJob(f"late-{kind}", Visits, ROWS, 2, late_sink=kind) for kind in ("folder", "ledger"))


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
@anywhere
def test_a_run_killed_anywhere_equals_the_run_that_was_not(job: CrashJob, deaths: Deaths, folder: Path) -> None:
    """At some moment the windows are published and the late records are not, or the reverse."""
    reference = calm(job, folder)
    for death in deaths(reference.operations):
        survive(job, folder, reference.outcome, death)


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
