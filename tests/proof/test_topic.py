"""A slice of the section "topic": nothing is lost without a word, and nothing comes twice."""

from __future__ import annotations

import pytest

from tests.few import one_in
from tests.proof.topic import Sweep
from tests.proof.topic_mutants import MUTANTS, TopicMutant, failure_of


@pytest.mark.crash
def test_nothing_is_lost_without_a_word_and_nothing_comes_twice() -> None:
    """The promise of a topic, on a network that does anything, while both sides die."""
    sweep = Sweep(0, 60).run()
    assert sweep.failures == [] and sweep.cases == 60 and sweep.messages > 1_000 and sweep.lost > 100


@pytest.mark.crash
def test_equal_seeds_give_equal_stories() -> None:
    """A failure that cannot be had again cannot be mended."""
    told = [(sweep.messages, sweep.lost) for sweep in (Sweep(seed, 10).run() for seed in (3, 3, 4))]
    assert told[0] == told[1] != told[2]


@pytest.mark.crash
@pytest.mark.parametrize("mutant", one_in(4, MUTANTS), ids=lambda mutant: mutant.name)
def test_a_topic_that_is_not_whole_is_found(mutant: TopicMutant) -> None:
    """If what keeps a topic whole could be left out unseen, the sweep would be blind."""
    assert failure_of(mutant)
