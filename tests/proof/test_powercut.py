"""A slice of the section "disk": a run that dies anywhere, by kill or loss of power, is as if it had not."""

from __future__ import annotations

import pytest

from tests.few import one_in
from tests.proof.powercut import swept
from tests.proof.powercut_mutants import MUTANTS, Mutant, failure_of
from tests.proof.worlds import EMITTING, FILES, LONG, OPEN, TOTALS, VISITS, DiskJob


@pytest.mark.crash
@pytest.mark.parametrize(
    ("job", "cases"),
    one_in(2, [(VISITS, 40), (TOTALS, 25), (FILES, 10), (OPEN, 15), (LONG, 10), *((job, 8) for job in EMITTING)]),
    ids=repr,
)
def test_nothing_is_lost_or_doubled(job: DiskJob, cases: int) -> None:
    """The promise, on the weakest disk that POSIX allows."""
    sweep = swept(job, 0, cases)
    assert sweep.failures == [] and sweep.cases >= cases


@pytest.mark.crash
def test_equal_seeds_give_equal_cases() -> None:
    """A failure that cannot be had again cannot be mended."""
    stories = []
    for seed in (3, 3, 4):
        sweep = swept(VISITS, seed, 8)
        stories.append((sweep.cases, sweep.drawn.random()))
    assert stories[0] == stories[1] != stories[2]


@pytest.mark.crash
@pytest.mark.parametrize("mutant", one_in(5, MUTANTS), ids=lambda mutant: mutant.name)
def test_a_storage_that_is_not_safe_is_found(mutant: Mutant) -> None:
    """If what makes a storage safe could be left out unseen, the sweep would be blind."""
    assert failure_of(mutant)
