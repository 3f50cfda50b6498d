"""A slice of the section "options": another value of an option does what its class says."""

from __future__ import annotations

import pytest

from persistent.driver.changes import OPTIONS
from tests.proof import options
from tests.proof.options_changes import CHANGES, NOT_RUN
from tests.proof.options_job import ROWS, START_MS, inputs

SAMPLE = ("Pipeline.max_future", "FileSource.path", "MemorySource.timestamp", "FileSink.url")


def test_every_option_is_tried() -> None:
    """An option in the table that nobody runs would be a promise."""
    table = {f"{option.of}.{option.name}" for option in OPTIONS}
    tried = {change.option for change in CHANGES}
    assert table == tried | NOT_RUN.keys() and not tried & NOT_RUN.keys()


@pytest.mark.crash
@pytest.mark.parametrize("option", SAMPLE)
def test_an_option_that_changes_does_what_its_class_says(option: str) -> None:
    """A value that counts from another step on than it should changes results without a word."""
    changes = [change for change in CHANGES if change.option == option][:1]
    with inputs() as folder:
        done = options.tried(folder, 0, 1, 1, changes=changes)
    assert [line for one in done for line in one.failures] == [] and sum(one.cases for one in done) >= 2


@pytest.mark.crash
@pytest.mark.parametrize("mutant", list(options.MUTANTS)[1:3])
def test_a_rule_taken_out_is_found(mutant: str) -> None:
    """A section that passes without the rule would prove nothing."""
    assert options.finds(mutant)


def test_the_values_that_count_from_a_plan_on_come_to_other_results() -> None:
    """Were they equal, no case could tell one value from the other."""
    for change in (change for change in CHANGES if change.twin):
        first, second = map(options.given, change.settings())
        with_one, with_other = (
            options.options_twin.expected(ROWS, START_MS, value, 0, value) for value in (first, second)
        )
        assert with_one != with_other, change
