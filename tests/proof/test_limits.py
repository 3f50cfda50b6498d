"""A slice of the section "limits": values at the limits of their types, and folds that raise, lose no other key."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.proof.limits import APART, AT_LIMITS, MUTANTS, catalogue, expected, is_found, stories, told

QUICK = ("a fold out of range raises, and stops compaction", "what is left unfolded is dropped")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("persistent")
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)


def test_values_at_their_limits_come_to_what_they_should() -> None:
    """A total that leaves its range on its way, or for good, in windows and without."""
    tried = list(stories(0, 1, AT_LIMITS[:4]))
    assert [line for line in map(told, tried) if line] == []
    assert APART in {value for story in tried for value in expected(story).values() if isinstance(value, str)}


def test_a_sample_of_the_catalogue_holds() -> None:
    """No monoid may lose rows when it is folded early, killed and taken up again."""
    tried = list(stories(1, 1, catalogue()[::6]))[::16]
    assert [line for line in map(told, tried) if line] == []


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_defect_is_found(name: str) -> None:
    """A section that finds nothing wrong with a raising fold proves nothing."""
    assert name in MUTANTS and is_found(name)
