"""A run killed at any storage operation, and resumed, equals the run that was not."""

from __future__ import annotations

from pathlib import Path

import pytest

from persistent import StorageError
from tests.crash.sweep import Death, calm, check_same, die, sweep
from tests.crash.worlds import JOBS, CrashJob, Visits, World
from tests.faults import Operations

CASES = {
    "visits": 285,
    "peaks": 230,
    "totals": 185,
    "open": 300,
    "files": 290,
    "parquet": 230,
    "disk": 230,
    "seam": 200,
    "states": 300,
    "copies": 430,
}
"""At least so many cases for each job."""


def by_name(name: str) -> CrashJob:
    return next(job for job in JOBS if job.name == name)


@pytest.mark.parametrize(
    "job", [pytest.param(job, marks=[pytest.mark.check] * bool(job.history), id=job.name) for job in JOBS]
)
def test_a_run_killed_anywhere_equals_the_run_that_was_not(job: CrashJob, folder: Path) -> None:
    """I7, the promise itself: without it a crash at some moment loses or doubles a message, a window or a late row."""
    assert sweep(job, folder) >= CASES[job.name]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_the_jobs_hold_what_a_crash_could_lose(job: CrashJob, folder: Path) -> None:
    """A sweep over a run without late rows, dead letters or several steps would prove little."""
    reference = calm(job, folder)
    assert reference.outcome.published or not job.end_of_input
    assert reference.outcome.state or job.end_of_input
    if job.task is Visits:
        assert reference.outcome.late and len(reference.outcome.dead) == (3 if job.dedupe else 2)
    if job.history:
        found = [(one.read, one.late, one.dead, one.duplicate) for one in reference.outcome.ledger.values()]
        assert found == [(6, 1, 1, 1), (7, 0, 1, 2)]
    if job.dedupe is not None:
        (account,) = reference.outcome.ledger.values()
        assert (account.late, account.dead, account.duplicate) == (2, 3, 4)
    manifests = [name for verb, _, name in reference.operations if verb == "put_if_absent" and name.startswith("m/")]
    assert len(manifests) >= 5, "manifest 0, a fence, and at least three steps"


def test_the_sweeps_are_at_least_two_thousand_cases() -> None:
    """A job made smaller, or an operation no longer counted, would silently thin out the sweep above."""
    assert sum(CASES.values()) >= 2_000


@pytest.mark.parametrize("how", ["full-once", "full"])
def test_a_full_disk_stops_a_step_and_a_rerun_resumes(how: str, folder: Path) -> None:
    """A disk that fills up must not cost the last checkpoint, nor leave what no rerun sweeps away."""
    job = by_name("files")
    reference = calm(job, folder)
    for at, (verb, _, _) in enumerate(reference.operations):
        if verb not in ("put_if_absent", "write", "rename"):
            continue
        world = World(job, folder)
        with pytest.raises(StorageError, match="No space left"):
            world.run(Operations(at, how))
        world.run()
        check_same(world, reference.outcome, (how, at))
        world.close()


def test_a_run_killed_in_every_recovery_comes_to_its_end(folder: Path) -> None:
    """A job whose machine fails every few operations must still move: each attempt keeps what the one before
    committed."""
    job = by_name("visits")
    reference = calm(job, folder)
    for length in (44, 51):
        world = World(job, folder)
        attempts = 0
        while die(world, Death(length, "half")):
            attempts += 1
            assert attempts < 100, f"killed {attempts} times after {length} operations without coming to an end"
        check_same(world, reference.outcome, length)
        world.close()
