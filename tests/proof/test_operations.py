"""The machine of operations can fail, and does not."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.proof.emission import Emission
from tests.proof.operations import MUTANTS, failure_of, is_found, story
from tests.proof.operations_machine import Machine
from tests.proof.operations_model import Model, Plan, Shown, Snapshot

CASES = 4


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("persistent")
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)


def test_a_slice_of_the_machines_holds_every_law() -> None:
    """Two operations that are right alone may lose or double something together."""
    Machine.happened.clear()
    assert failure_of("slice", CASES) is None
    assert sum(Machine.happened.values()) > 4 * CASES, "too little happened to prove anything"


def test_what_is_right_is_not_found_wrong() -> None:
    """A story that fails by itself would find every mutant."""
    story()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_defect_is_found(name: str) -> None:
    """A model that agrees with broken code agrees with any."""
    assert is_found(name)


def test_the_model_counts_as_one_counts_by_hand() -> None:
    """A model that is wrong as the code is wrong would agree with it."""
    lists = {
        "p": [
            {"id": number, "ts": ts, "page": "a", "n": n}
            for number, (ts, n) in enumerate([(3, 1), (14, 2), (-1, 3), (16, -1), (2, 5), (27, 4)])
        ]
    }
    empty = Snapshot.empty(Emission((10, 10, 0)), 0, ["p"])
    plan = empty.plan(lists, 4, False)
    assert plan == Plan({"p": 4}, 0, False)
    first, shown = empty.after(plan, lists)
    assert first.state() == {("a", 0): (1, 1), ("a", 10): (1, 2)}
    assert (first.watermark, first.closed, shown) == (14, 0, Shown(dead=Counter([2, 3])))
    second, shown = first.after(Plan({"p": 6}, 14, False), lists)
    assert shown == Shown(Counter([("a", 0, 1, 1)]), Counter([4]))
    assert second.state() == {("a", 10): (1, 2), ("a", 20): (1, 4)}
    assert second.state(15) == {("a", 10): (1, 2)} and second.state(25) == {}
    assert (
        second.knows(15) and second.knows(10) and not second.knows(0) and not second.knows(16) and not second.knows(30)
    )


def test_the_model_keeps_what_is_pinned_and_knows_the_way_it_came() -> None:
    """Retention, pins and branches are what the ids that are kept follow from."""
    model, empty = Model(last=2), Snapshot.empty(Emission((10, 10, 0)), 0, ["p"])
    model.begun(0, empty)
    for id in (1, 2):
        model.checkpoint(id, empty, Shown(dead=Counter([id])))
    assert model.kept() == [1, 2]
    model.pins = {1}
    model.checkpoint(3, empty, Shown())
    model.checkpoint(4, empty, Shown())
    assert (model.kept(), model.oldest) == ([1, 3, 4], 3)
    model.rollback(5, 3, empty, take_back=True)
    assert model.line() == [1, 3, 5] and model.is_taken_back(4) and not model.is_taken_back(3)
    model.rollback(6, 1, empty, take_back=True)
    model.settle()
    assert sorted(model.shown) == [1]
