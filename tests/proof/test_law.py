"""Readers of each kind hold the view of a state, whatever happens to the job.

Without these, a change of how results are published could lose or repeat rows in histories that nobody wrote down.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.proof import law
from tests.proof.law_readers import Reader
from tests.proof.law_views import CAP, Folding, View
from tests.proof.law_world import EVENTS, case


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("persistent")
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize("seed", range(3))
def test_readers_hold_the_view(seed: int) -> None:
    world, error = case(seed)
    assert error is None, "\n".join(world.story)


@pytest.mark.parametrize("event", EVENTS)
def test_readers_hold_the_view_after_each_event(event: str) -> None:
    happened: Counter[str] = Counter()
    for seed in range(100, 110):
        world, error = case(seed, (event,), 2)
        assert error is None, "\n".join(world.story)
        happened += world.happened
    assert sum(happened.values()) > 0, happened


@pytest.mark.parametrize("defect", law.DEFECTS)
def test_a_planted_defect_is_found(defect: str) -> None:
    """Without it, readers that look at nothing would pass."""
    assert law.finds(defect)


def test_a_known_difference_is_one_at_its_places_alone() -> None:
    """A line of the table that excused more would hide faults."""
    emission = Folding((10, 10, 0), 15, "accumulate", names=("visits", "total", "top"))
    view = View(((("a", 0), 1, 3), (("b", 10), 2, 13)), closed=20, final=20)

    class Sink(Reader):
        def batches(self, emission: Folding) -> list[law.Rows]:
            return [[("a", 0, 1, 1, 1), ("b", 10, 9, 9, 9)]]

    reader = Sink(None)
    for name, places in (("never had", {("b", 10)}), ("unheard of", {("b", 10)}), ("restart", {("a", 0)})):
        reader.may_differ(name, places)
        with pytest.raises(
            law.Broken, match=r"replace windows close .*: \+1 of \('b', 10\) \(9, 9, 9\), -1 of \('b', 10\)"
        ):
            reader.check(emission, view)
    reader.may_differ("restart", {("b", 10)})
    assert set(reader.check(emission, view)) == {"restart"}


def test_rows_whose_fold_raises_are_not_in_the_view() -> None:
    emission = Folding((10, 10, 0), names=("visits", "total", "top"), folds="raising")
    counted: Any = ((("a", 0), CAP, 3), (("a", 0), 1, 4), (("b", 0), CAP, 5))
    view = View(counted, closed=10, final=10)
    assert view.rows(emission) == {("b", 0): (1, CAP, CAP)}


@pytest.mark.spark
def test_readers_hold_the_view_on_spark(spark: Any) -> None:
    from persistent.engines.spark import Spark

    world, error = case(0, moves=1, engine=Spark(spark))
    assert error is None, "\n".join(world.story)
