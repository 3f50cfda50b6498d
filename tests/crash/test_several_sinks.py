"""Two sources and three sinks: a run killed at any storage operation, and resumed, equals the run that was not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.sweep import Deaths, anywhere, calm, sleep_everywhere, survives, sweep
from tests.crash.worlds import ROWS, CrashJob, Visits

SEVERAL = CrashJob("several", Visits, ROWS, 2, several=True)
FILES = CrashJob("several-files", Visits, ROWS, 2, several=True, files=2)
JOBS = (SEVERAL, FILES)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
@anywhere
def test_a_run_killed_anywhere_equals_the_run_that_was_not(job: CrashJob, deaths: Deaths, folder: Path) -> None:
    """At some moment one sink has its rows and another has not, or one source is read and another is not."""
    survives(job, folder, deaths)


@pytest.mark.check
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_recovery_killed_anywhere_comes_to_the_same(job: CrashJob, folder: Path) -> None:
    """Who takes over has the same to do for each of them, and may die between any two."""
    assert sweep(job, folder) >= 350


@pytest.mark.check
def test_a_driver_that_sleeps_anywhere_does_no_harm(folder: Path) -> None:
    """Its successor has published to some sinks what it publishes to others when it wakes up."""
    sleep_everywhere(SEVERAL, folder)


def test_the_job_holds_what_a_crash_could_lose(folder: Path) -> None:
    """A sweep over a run in which each source gave nothing, or a sink got nothing, would prove little."""
    for job in JOBS:
        outcome = calm(job, folder).outcome
        assert outcome.late and outcome.dead and len(outcome.ledger) == 2
        assert all(account.processed for account in outcome.ledger.values())
        kinds = [sum(text in row for row in outcome.published) for text in ("('sink', 2)", "('sink', 'ledger')")]
        assert kinds[0] == kinds[1] == len(outcome.published) // 3 > 3
