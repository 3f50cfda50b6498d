"""A slow monoid is tried for some seconds and within some memory, and is told on what."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from hypothesis import strategies as st

from monoids import Monoid, Sum
from monoids.laws import LawNotTried, LawsWarning, LawViolation, Trial, assert_monoid_laws, law_named
from monoids.laws.budget import BYTES, BudgetSpent, TrialBudget, _waiting
from tests.monoids.laws.newcomers import INTS, Slow, written


def worked() -> float:
    """Seconds, but for those that other processes took."""
    return time.perf_counter() - _waiting()


@pytest.mark.check
def test_a_slow_monoid_is_tried_for_five_seconds_and_told_on_what() -> None:
    """Lost: an end; and, once there is one, the word that not all was tried."""
    began, right = worked(), Slow()
    right.seconds = 0.004
    with pytest.warns(
        LawsWarning, match=r"laws were tested on all 200 examples; on fewer, for lack of time .*examples="
    ):
        assert_monoid_laws(right, st.integers(0, 9))
    assert worked() - began < 90
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
    assert waited[0] < 200


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds by which the clock is ahead."""
    waited, clock = [0.0], time.perf_counter
    monkeypatch.setattr("monoids.laws.budget.time.perf_counter", lambda: clock() + waited[0])
    return waited


def test_examples_that_took_long_to_draw_are_counted_as_drawn(waited: list[float]) -> None:
    """Lost: the truth. A monoid that does not commute held "on 200 examples", of which 24 were drawn."""

    def slow(number: int) -> int:
        waited[0] += 0.02
        return number

    trial = Trial(Sum(), INTS.map(slow))
    assert trial.violation(law_named("commutativity")) is None
    drawn = len(trial._sample.drawn)
    assert 20 <= drawn < 200 and trial.tried == {"commutativity": drawn, "no mutation": drawn}
    with pytest.warns(LawsWarning, match=f"on fewer, for lack of time .*'commutativity' {drawn}"):
        trial.warn(law_named("commutativity"))


def test_the_first_draw_may_take_any_time(waited: list[float]) -> None:
    """Lost: most examples of a first run: Hypothesis makes its tables of text then, for seconds."""

    def first(number: int) -> int:
        waited[0] = 30.0
        return number

    trial = Trial(Sum(), st.integers(0, 9).map(first))
    assert trial.violation(law_named("commutativity")) is None
    assert trial.tried["commutativity"] == 200


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
    with pytest.raises(LawNotTried, match=r"fewer than 10, for lack of memory"):
        assert_monoid_laws(languages, st.frozensets(st.text("ab", min_size=1, max_size=9), min_size=2, max_size=3))
    assert worked() - began < 90


class _Later(Monoid[int]):
    """The later of two: it declares falsely that it commutes, and takes a second for each call."""

    identity = 0
    commutative = True
    waited = 0.0

    def combine(self, a: int, b: int) -> int:
        _Later.waited += 1
        return b or a


def test_ten_examples_of_each_law_are_tried_whatever_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """It printed "42 of 42 laws hold" with 0 examples for a monoid that does not commute."""
    clock = time.perf_counter
    monkeypatch.setattr("monoids.laws.budget.time.perf_counter", lambda: clock() + _Later.waited)
    trial = Trial(_Later(), INTS)
    assert [law.name for law in trial.laws if trial.violation(law)] == ["commutativity"]
    assert all(trial.tried[law.name] >= 10 for law in trial.laws if law.name != "commutativity")


def test_a_law_without_ten_examples_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not tried does not hold; a test can allow it by name."""
    held = itertools.count(0, BYTES + 1)
    monkeypatch.setattr("monoids.laws.budget._memory", lambda: next(held))
    monkeypatch.setattr("monoids.laws.budget._CHECK_S", -1)
    trial = Trial(Sum(), INTS)
    law = law_named("associativity")
    assert trial.violation(law) is None
    assert trial.untried(law).startswith("'associativity' was tested on 0 examples, fewer than 10, for lack of memory")
    with pytest.raises(LawNotTried, match=r"allow it by name, untried=\['associativity'\]"):
        trial.check(law)
    trial.require_tried(law, ["associativity"])
