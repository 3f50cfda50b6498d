"""The simulation can fail, and a seed is a run."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.proof import simulation
from tests.proof.simulation import COMMANDS, simulated
from tests.proof.simulation_mutants import MUTANTS, mutated
from tests.proof.simulation_twin import Snapshot, Step

SEEDS = 12
QUICK = (
    "a fence does not raise the epoch",
    "outputs are published under the id of who publishes",
    "a step does not publish",
    "only what the newest manifest names is live",
    "a fold does not replace its inputs",
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("persistent")
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)


def test_some_seeds_hold_every_law() -> None:
    """I7: a schedule of drivers, deaths and commands that loses or doubles something."""
    stories = [simulated(seed) for seed in range(SEEDS)]
    assert [story.told() for story in stories if story.faults] == []
    assert sum(story.commits for story in stories) > 8 * SEEDS
    happened = frozenset().union(*(story.happened for story in stories))
    assert {"Killed", "Fenced", "StorageError", "driver"} <= happened, "too calm to prove anything"
    assert happened & set(COMMANDS), "no command came to its end"


def test_a_seed_is_a_run() -> None:
    """A failure that cannot be seen again cannot be mended."""
    for seed in (3, 8):
        first, again = simulated(seed), simulated(seed)
        assert first.schedule == again.schedule and len(first.schedule) > 50
    assert simulated(3).schedule != simulated(4).schedule
    assert "--seed 3" in simulated(3).told()


@pytest.mark.parametrize("name", QUICK)
def test_a_rule_taken_out_of_the_code_is_missed(name: str) -> None:
    """An oracle that finds nothing wrong with broken code finds nothing wrong with any."""
    assert name in MUTANTS
    with mutated(name):
        assert any(simulated(seed).faults for seed in range(20))


def test_the_twin_counts_as_one_counts_by_hand() -> None:
    """A twin that is wrong as the code is wrong would agree with it."""
    rows = [{"id": number, "ts": ts, "page": "a", "n": n} for number, (ts, n) in enumerate([(3, 1), (14, 2), (-1, 3)])]
    first = Snapshot().after(Step(rows, 0, False, None), (10, 10), 0)
    assert first.sums == {("a", 0): (1, 1, 1), ("a", 10): (1, 2, 2)}
    assert (first.read, first.dead, first.watermark, first.outputs) == (3, (2,), 14, ())
    late = [{"id": 3, "ts": 9, "page": "a", "n": 1}, {"id": 4, "ts": 15, "page": "a", "n": -5}]
    second = first.after(Step(late, 14, False, None), (10, 10), 0)
    assert second.outputs == (("a", 0, 1, 1, 1),)
    assert second.sums == {("a", 10): (1, 2, 2)}
    assert (second.late, second.dead, second.late_count, second.dead_count) == ((3,), (4,), 1, 2)
    sliding = first.after(Step(late[:1], 14, False, None), (10, 4), 0)
    assert sliding.late == (3,) and sliding.late_count == 0


def test_what_is_made_small_is_there() -> None:
    """A constant renamed in the code would leave folds, sweeps and adaptive steps out of every run."""
    with simulation.small(0):
        pass
