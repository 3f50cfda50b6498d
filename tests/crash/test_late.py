"""A job that corrects what it has published, killed at any storage operation, and resumed, equals the run that was not:
each row is taken back once, under the revision of the checkpoint that does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash.sweep import Deaths, anywhere, sleep_everywhere, survives
from tests.crash.worlds import Corrected, CrashJob, World

ROWS: tuple[Any, ...] = (
    {"ts": 3, "page": "a", "n": 1},
    {"ts": 14, "page": "b", "n": 2},
    {"ts": 25, "page": "a", "n": 3},
    {"ts": 26, "page": "a", "n": 3},
    {"ts": 4, "page": "a", "n": 5},  # corrects a window that has closed
    {"ts": 13, "page": "a", "n": 5},  # counts in one that closes in this step
    {"ts": 15, "page": "a", "n": 4},  # corrects that one
    {"ts": 42, "page": "b", "n": 7},
    {"ts": 5, "page": "a", "n": 6},  # late: its window is final
    {"ts": 33, "page": "a", "n": -1},  # dead
)
JOB = CrashJob("late", Corrected, ROWS, 2)


@anywhere
def test_a_run_killed_anywhere_equals_the_run_that_was_not(deaths: Deaths, folder: Path) -> None:
    """A correction that is published twice, or not at all, leaves a reader with two rows or with the old one."""
    survives(JOB, folder, deaths)


@pytest.mark.check
def test_a_driver_that_sleeps_anywhere_does_no_harm(folder: Path) -> None:
    sleep_everywhere(JOB, folder)


def test_the_job_holds_what_a_crash_could_lose(folder: Path) -> None:
    """A sweep over a run in which nothing is corrected would prove little."""
    world = World(JOB, folder)
    report = world.run()
    rows = [(row["page"], row["window_start"][20:23], row["total"], row["retracted"]) for row in world.published()]
    assert sorted(rows) == [
        ("a", "000", 1, False),
        ("a", "000", 1, True),
        ("a", "000", 6, False),
        ("a", "010", 5, False),
        ("a", "010", 5, True),
        ("a", "010", 9, False),
        ("a", "020", 6, False),
        ("b", "010", 2, False),
        ("b", "040", 7, False),
    ]
    assert (report.corrected, report.late, report.dead) == (2, 1, 1)
    assert "2 results of closed windows corrected by late records" in str(report)
    world.close()
