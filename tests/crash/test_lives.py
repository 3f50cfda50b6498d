"""A job whose keys expire, killed at any storage operation, and resumed, equals the run that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash.sweep import Deaths, anywhere, sleep_everywhere, survives, survives_if_every_step_folds
from tests.crash.worlds import CrashJob, Lives, LivesBeside, World

ROWS: tuple[Any, ...] = (
    {"ts": 3, "page": "a", "n": 1},
    {"ts": 4, "page": "b", "n": 2},
    {"ts": 11, "page": "a", "n": 3},  # makes a life longer
    {"ts": 15, "page": "b", "n": 5},  # begins another one
    {"ts": 33, "page": "c", "n": 4},
    {"ts": 35, "page": "c", "n": 4},
    {"ts": 25, "page": "b", "n": 7},  # late: its life would have ended
    {"ts": 36, "page": "b", "n": 1},
    {"ts": 60, "page": "a", "n": 6},
    {"ts": 62, "page": "a", "n": -1},  # dead
)
JOB = CrashJob("lives", Lives, ROWS, 2)
BESIDE = CrashJob("lives-beside", LivesBeside, ROWS, 2)


@anywhere
def test_a_run_killed_anywhere_equals_the_run_that_was_not(deaths: Deaths, folder: Path) -> None:
    """A key that is taken back twice, or never, is a wrong number."""
    survives(JOB, folder, deaths)


@anywhere
def test_so_it_is_if_every_step_folds(deaths: Deaths, folder: Path) -> None:
    """A fold that drops lives is not committed, and so nor are they dropped, before the step that takes them back."""
    survives_if_every_step_folds(JOB, folder, deaths)


@anywhere
def test_so_it_is_beside_other_states(deaths: Deaths, folder: Path) -> None:
    """The results of all states are one checkpoint, and each sink is told by its own."""
    survives(BESIDE, folder, deaths)


@pytest.mark.check
def test_a_driver_that_sleeps_anywhere_does_no_harm(folder: Path) -> None:
    sleep_everywhere(JOB, folder)


def test_the_job_holds_what_a_crash_could_lose(folder: Path) -> None:
    """A sweep over a run in which no key expires, comes back or is late would prove little."""
    world = World(JOB, folder)
    report = world.run()
    found = sorted((row["revision"], row["page"], row["retracted"], row["visits"]) for row in world.published())
    gone = [(page, visits) for _, page, retracted, visits in found if retracted]
    assert sorted(gone) == [("a", 1), ("a", 2), ("b", 1), ("b", 1), ("b", 1), ("c", 2)]
    assert (report.late, report.dead, report.expired) == (1, 1, 5)
    world.close()


def test_so_does_the_job_with_other_states(folder: Path) -> None:
    """Its keys expire in two states, and what one of them refuses another takes."""
    world = World(BESIDE, folder)
    report = world.run()
    assert (report.late, report.dead) == (0, 1)
    assert report.late_windows["LivesBeside/lives"] == {None: 1} and "LivesBeside/kept" not in report.late_windows
    assert report.expired_in["LivesBeside/lives"] == 5 and report.expired_in["LivesBeside/kept"] > 0
    world.close()
