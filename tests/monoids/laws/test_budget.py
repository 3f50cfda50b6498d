"""A slow monoid is tried for some seconds and within some memory, and is told on what."""

from __future__ import annotations

import time
import warnings
from typing import Any

import pytest
from hypothesis import strategies as st

from monoids import Monoid
from monoids.laws import LawsWarning, LawViolation, Trial, assert_monoid_laws, law_named
from monoids.laws.budget import BYTES, BudgetSpent, TrialBudget, _waiting
from tests.monoids.laws.newcomers import INTS, Slow, written


def worked() -> float:
    """Seconds, but for those that other processes took."""
    return time.perf_counter() - _waiting()


@pytest.mark.check
def test_a_slow_monoid_is_tried_for_five_seconds_and_told_on_what() -> None:
    """Lost: an end; and, once there is one, the word that not all was tried."""
    began = worked()
    with pytest.warns(
        LawsWarning, match=r"laws were tested on all 200 examples; on fewer, for lack of time .*examples="
    ):
        assert_monoid_laws(Slow(), st.integers(0, 9))
    assert worked() - began < 7
    wrong = Slow()
    wrong.wrong = True
    with pytest.raises(LawViolation):
        assert_monoid_laws(wrong, st.integers(0, 9))


@pytest.mark.parametrize("name", ["lift", "present", "fold", "encode"])
def test_whatever_is_slow_is_tried_for_five_seconds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost: an end. With a ``lift`` of 50 ms, the laws took two minutes instead of 5 s."""
    waited = [0.0]

    def slow(self: Any, *given: Any) -> Any:
        waited[0] += 0.05
        return getattr(Monoid, name)(self, *given)

    clock = time.perf_counter
    monkeypatch.setattr("monoids.laws.budget.time.perf_counter", lambda: clock() + waited[0])
    body = {"identity": 0, "combine": lambda self, a, b: a + b, name: slow}
    with pytest.warns(LawsWarning, match="for lack of time"):
        assert_monoid_laws(type("Slow", (Monoid,), body)(), INTS)
    assert waited[0] < 7


@pytest.mark.check
def test_examples_that_are_asked_for_are_never_cut() -> None:
    """Lost: what the caller asked for."""
    trial = Trial(Slow(), st.integers(0, 9), examples=20)
    associativity = law_named("associativity")
    began = time.perf_counter()
    trial.check(associativity)
    assert trial.tried == {"no mutation": 20, "associativity": 20}
    assert time.perf_counter() - began > 20 * 4 * 0.02


def test_memory_is_looked_at_between_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost: the machine, to a sum that grows without end."""
    held = iter([0, BYTES, BYTES + 1])
    monkeypatch.setattr("monoids.laws.budget._memory", lambda: next(held))
    monkeypatch.setattr("monoids.laws.budget._CHECK_S", 0)
    budget = TrialBudget(limited=True)
    with pytest.raises(BudgetSpent, match="500 MB"), budget.law():
        budget.check()
        budget.check()


@pytest.mark.check
def test_a_language_that_grows_with_each_word_is_bounded() -> None:
    """Lost: the machine: a lawful sum of 160 sets of three words holds 3**160."""
    languages = written(lambda a, b: frozenset(x + y for x in a for y in b), frozenset([""]))
    began = worked()
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert_monoid_laws(languages, st.frozensets(st.text("ab", min_size=1, max_size=9), min_size=2, max_size=3))
    assert worked() - began < 7
