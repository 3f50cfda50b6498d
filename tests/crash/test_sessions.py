"""A job of sessions, killed at any storage operation, and resumed, equals the run that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash.sweep import Deaths, anywhere, sleep_everywhere, survives, survives_if_every_step_folds
from tests.crash.worlds import CrashJob, Sessions, World

ROWS: tuple[Any, ...] = (
    {"ts": 3, "page": "a", "n": 1},
    {"ts": 4, "page": "b", "n": 2},
    {"ts": 11, "page": "a", "n": 3},  # makes a session longer
    {"ts": 15, "page": "b", "n": 5},  # begins another one
    {"ts": 33, "page": "a", "n": 4},
    {"ts": 35, "page": "c", "n": 4},
    {"ts": 25, "page": "b", "n": 7},  # late: its session may be published
    {"ts": 41, "page": "a", "n": 6},  # on the other side of a cut
    {"ts": 60, "page": "b", "n": 1},
    {"ts": 62, "page": "b", "n": -1},  # dead
)
JOB = CrashJob("sessions", Sessions, ROWS, 2)


@anywhere
def test_a_run_killed_anywhere_equals_the_run_that_was_not(deaths: Deaths, folder: Path) -> None:
    """A session that is published twice, or in two parts, is a wrong number."""
    survives(JOB, folder, deaths)


@anywhere
def test_so_it_is_if_every_step_folds(deaths: Deaths, folder: Path) -> None:
    """A fold that drops sessions is not committed, and so nor are they dropped, before the step that reads them."""
    survives_if_every_step_folds(JOB, folder, deaths)


@pytest.mark.check
def test_a_driver_that_sleeps_anywhere_does_no_harm(folder: Path) -> None:
    sleep_everywhere(JOB, folder)


def test_the_job_holds_what_a_crash_could_lose(folder: Path) -> None:
    """A sweep over a run in which no session grows, ends at a cut or is late would prove little."""
    world = World(JOB, folder)
    report = world.run()
    found = sorted((row["page"], row["window_start"][20:23], row["window_end"][20:23]) for row in world.published())
    assert found == [
        ("a", "003", "021"),
        ("a", "033", "040"),
        ("a", "041", "051"),
        ("b", "004", "014"),
        ("b", "015", "025"),
        ("b", "060", "070"),
        ("c", "035", "040"),
    ]
    assert (report.late, report.dead) == (1, 1)
    world.close()
