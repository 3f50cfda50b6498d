"""A job whose late records join published sessions, killed at any storage operation, and resumed, equals the run that
was not: what is taken back is taken back once, with the borders that it had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash.sweep import Deaths, anywhere, sleep_everywhere, survives, survives_if_every_step_folds
from tests.crash.worlds import CrashJob, Joining, World

ROWS: tuple[Any, ...] = (
    {"ts": 3, "page": "a", "n": 1},
    {"ts": 22, "page": "a", "n": 2},
    {"ts": 5, "page": "b", "n": 3},
    {"ts": 33, "page": "c", "n": 1},
    {"ts": 34, "page": "c", "n": 1},
    {"ts": 14, "page": "a", "n": 4},  # goes on with what begins at 22
    {"ts": 12, "page": "a", "n": 5},  # joins that with what began at 3
    {"ts": 36, "page": "c", "n": 1},
    {"ts": 30, "page": "a", "n": 6},  # opens it again
    {"ts": 41, "page": "c", "n": 2},
    {"ts": 7, "page": "b", "n": 7},  # late: its session is final
    {"ts": 62, "page": "b", "n": -1},  # dead
)
JOB = CrashJob("joining", Joining, ROWS, 2)


@anywhere
def test_a_run_killed_anywhere_equals_the_run_that_was_not(deaths: Deaths, folder: Path) -> None:
    """A session that is taken back twice, or not at all, leaves a reader with too few or with one too many."""
    survives(JOB, folder, deaths)


@pytest.mark.check
@anywhere
def test_so_it_is_if_every_step_folds(deaths: Deaths, folder: Path) -> None:
    """What a fold leaves out, no step takes back."""
    survives_if_every_step_folds(JOB, folder, deaths)


@pytest.mark.check
def test_a_driver_that_sleeps_anywhere_does_no_harm(folder: Path) -> None:
    sleep_everywhere(JOB, folder)


def test_the_job_holds_what_a_crash_could_lose(folder: Path) -> None:
    """A sweep over a run in which nothing is joined or opened would prove little."""
    world = World(JOB, folder)
    report = world.run()
    found = [
        (row["window_start"][20:23], row["window_end"][20:23], row["total"], row["retracted"])
        for row in world.published()
        if row["page"] == "a"
    ]
    assert sorted(found) == [
        ("003", "013", 1, False),
        ("003", "013", 1, True),
        ("003", "032", 12, False),
        ("003", "032", 12, True),
        ("003", "040", 18, False),
        ("014", "032", 6, False),
        ("014", "032", 6, True),
    ]
    assert (report.corrected, report.late, report.dead) == (3, 1, 1)
    world.close()
