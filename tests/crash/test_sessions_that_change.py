"""A job that publishes sessions as they change, or early, killed at any storage operation, and resumed, equals the run
that was not."""

from __future__ import annotations

from pathlib import Path

import pytest

from persistent.checkpoint import compaction
from tests.crash.sweep import Deaths, anywhere, calm, sleep_everywhere, survive
from tests.crash.test_sessions_with_lateness import ROWS
from tests.crash.worlds import CrashJob, Growing, GrowingEarly, World

HELD_BACK = (
    *({"ts": ts, "page": page, "n": ts} for ts, page in ((3, "a"), (11, "a"), (19, "a"), (20, "b"), (25, "a"))),
    {"ts": 26, "page": "c", "n": 26},
    {"ts": 33, "page": "a", "n": 33},  # the clock has passed 25
    {"ts": 28, "page": "b", "n": 28},
    *({"ts": ts, "page": page, "n": ts} for ts, page in ((31, "c"), (34, "c"), (39, "c"), (42, "a"))),
    {"ts": 7, "page": "b", "n": 7},  # late; and what the clock has closed is published
    {"ts": 43, "page": "b", "n": -1},  # dead
    {"ts": 35, "page": "a", "n": 35},  # changes a closed one
    {"ts": 43, "page": "b", "n": 43},
)
CHANGES, EARLY = CrashJob("growing", Growing, ROWS, 2), CrashJob("early sessions", GrowingEarly, HELD_BACK, 2)
JOBS = pytest.mark.parametrize("job", [CHANGES, EARLY], ids=("change", "early"))


@anywhere
@JOBS
def test_a_run_killed_anywhere_equals_the_run_that_was_not(job: CrashJob, deaths: Deaths, folder: Path) -> None:
    """A session that is taken back twice, or not at all, leaves a reader with too few or with one too many."""
    reference = calm(job, folder)
    for death in deaths(reference.operations):
        survive(job, folder, reference.outcome, death)


@pytest.mark.check
@anywhere
@JOBS
def test_so_it_is_if_every_step_folds(
    job: CrashJob, deaths: Deaths, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is published is told from what is not by the runs that hold it."""
    expected = calm(job, folder).outcome
    monkeypatch.setattr(compaction, "FAN_IN", 2)
    reference = calm(job, folder)
    assert reference.outcome.published == expected.published
    for death in deaths(reference.operations):
        survive(job, folder, reference.outcome, death)


@pytest.mark.check
@JOBS
def test_a_driver_that_sleeps_anywhere_does_no_harm(job: CrashJob, folder: Path) -> None:
    sleep_everywhere(job, folder)


@pytest.mark.parametrize(
    ("job", "page", "told"),
    [
        (CHANGES, "a", "003-013 022-032 022-032x 014-032 003-013x 014-032x 003-032 003-032x 003-040"),
        (EARLY, "a", "003-040 003-040x 003-040 042-052"),
        (EARLY, "c", "026-036 026-036x 026-040"),
    ],
)
def test_the_job_holds_what_a_crash_could_lose(job: CrashJob, page: str, told: str, folder: Path) -> None:
    """A sweep over a run in which nothing grows, is joined or is held back would prove little."""
    world = World(job, folder)
    report = world.run()
    found = [
        f"{row['window_start'][20:23]}-{row['window_end'][20:23]}{'x' if row['retracted'] else ''}"
        for row in sorted(world.published(), key=lambda row: (row["revision"], not row["retracted"]))
        if row["page"] == page
    ]
    assert sorted(found) == sorted(told.split())
    assert (report.late, report.dead) == (1, 1)
    world.close()
