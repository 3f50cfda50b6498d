"""A slice of the section "log": whatever ends a writer, what it was told is there."""

from __future__ import annotations

import pytest

from tests.few import one_in
from tests.proof.log import Sweep
from tests.proof.log_mutants import MUTANTS, LogMutant, failure_of


@pytest.mark.crash
def test_what_was_acknowledged_is_there() -> None:
    """The promise of a log, on the weakest disk that POSIX allows."""
    sweep = Sweep(0, 300).run()
    assert sweep.failures == [] and sweep.cases >= 300


@pytest.mark.crash
def test_equal_seeds_give_equal_stories() -> None:
    """A failure that cannot be had again cannot be mended."""
    drawn = []
    for seed in (3, 3, 4):
        sweep = Sweep(seed, 30).run()
        drawn.append((sweep.cases, sweep.drawn.random()))
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.crash
@pytest.mark.parametrize("mutant", one_in(4, MUTANTS), ids=lambda mutant: mutant.name)
def test_a_log_that_is_not_safe_is_found(mutant: LogMutant) -> None:
    """If what makes a log safe could be left out unseen, the sweep would be blind."""
    assert failure_of(mutant)
