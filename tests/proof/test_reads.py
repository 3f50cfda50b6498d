"""A slice of the section "reads": a read that fails costs nothing, or stops the run."""

from __future__ import annotations

import pytest

from tests.few import one_in
from tests.proof import moves
from tests.proof.reads import PLAN, Cases, finds
from tests.proof.reads_mutants import MUTANTS


@pytest.mark.crash
@pytest.mark.parametrize(("ground", "ending"), one_in(2, PLAN))
def test_a_read_that_fails_anywhere_changes_no_result(ground: str, ending: str) -> None:
    """A fault of a store that is taken for one of a file loses its records without a word."""
    cases = Cases(ground, ending).run(0.006)
    assert cases.failures == [] and cases.cases >= 3


@pytest.mark.crash
@pytest.mark.parametrize("mutant", list(MUTANTS)[:1])
def test_a_rule_of_reading_taken_out_is_found(mutant: str) -> None:
    """A section that passes without the rule would prove nothing."""
    assert finds(mutant)


@pytest.mark.crash
@pytest.mark.parametrize(("ground", "ending"), [("store", "parquet"), ("disk", "jsonl.gz")])
def test_a_file_that_moves_is_counted_or_told_of(ground: str, ending: str) -> None:
    """A file that is replaced or deleted while a job reads must not be counted half in silence."""
    cases = moves.Cases(ground, ending).run(0.015)
    assert cases.failures == [] and cases.cases >= 4
