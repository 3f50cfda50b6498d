"""What a user sees of ``assert_monoid_laws``: violations that explain themselves, and refusals that help."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from monoids import Group, Max, Monoid, Sum
from monoids.laws import LAWS, Trial, assert_monoid_laws, exact, law_named, statistical, within
from monoids.laws.examples import ElementTerm
from tests.monoids.laws.defects import FINITE, SMALL, CommutingList, Floats, HashOrdered, Midpoint
from tests.monoids.laws.violations import violation


def test_violation_shows_law_sides_and_smallest_counterexample() -> None:
    """A violation without the example has to be debugged twice."""
    found = violation(CommutingList(), SMALL)
    assert str(found) == (
        "CommutingList() breaks 'commutativity': combine(a, b) == combine(b, a)\n"
        "  a = lift(0)\n"
        "  b = lift(1)\n"
        "  combine(a, b): (0, 1)\n"
        "  combine(b, a): (1, 0)\n"
        "  if the order matters, remove commutative = True"
    )
    assert found.law == "commutativity"
    assert found.bindings == {"a": ElementTerm(((0, False),)), "b": ElementTerm(((1, False),))}


def test_violation_is_the_same_every_time() -> None:
    """A law that fails at random is a flaky test of a user."""
    assert str(violation(HashOrdered(), SMALL, examples=30)) == str(violation(HashOrdered(), SMALL, examples=30))


def test_violation_is_the_same_under_a_profile_of_continuous_integration() -> None:
    """Hypothesis prints blobs where it finds such a server; a reader cannot replay one of our own search."""
    profile = settings.get_current_profile_name()
    settings.register_profile("continuous integration", print_blob=True)
    settings.load_profile("continuous integration")
    try:
        found = violation(CommutingList(), SMALL)
    finally:
        settings.load_profile(profile)
    assert not getattr(found, "__notes__", [])


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ((Sum, SMALL), "takes a monoid first, such as Sum()"),
        ((Sum(), [1, 2]), "strategy"),
        ((SMALL, Sum()), "takes a monoid first"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, hint: str) -> None:
    """Arguments swapped would otherwise fail deep inside Hypothesis."""
    with pytest.raises(TypeError, match=hint.replace("(", r"\(").replace(")", r"\)")):
        assert_monoid_laws(*arguments)


@pytest.mark.parametrize("examples", [0, True, 1.5])
def test_wrong_number_of_examples_is_refused(examples: Any) -> None:
    """No example would be no test."""
    with pytest.raises(TypeError, match="examples= is a number"):
        assert_monoid_laws(Sum(), SMALL, examples=examples)


def test_wrong_equality_is_refused() -> None:
    """It would be called, and fail, in the first law."""
    with pytest.raises(TypeError, match="equality= is exact, within"):
        assert_monoid_laws(Sum(), SMALL, equality=0.1)  # type: ignore[arg-type]


def test_monoid_without_identity_is_refused() -> None:
    """The first law would fail with an AttributeError of ours."""

    class Headless(Monoid[int]):
        def combine(self, a: int, b: int) -> int:
            return a + b

    with pytest.raises(TypeError, match="Headless has no identity"):
        assert_monoid_laws(Headless(), SMALL)


def test_inputs_of_another_monoid_are_refused() -> None:
    """It is the test that is wrong, so no law is said to be broken."""
    with pytest.raises(TypeError, match=r"Sum\(\): lift takes none of the drawn inputs, such as .*Give inputs="):
        assert_monoid_laws(Sum(), st.text(min_size=1))
    found = violation(Sum(), st.text(min_size=1) | SMALL)
    assert "raises TypeError: Sum() takes integers, not " in str(found)


def test_inputs_may_be_left_out() -> None:
    """The shortest test is the one that is written."""
    assert_monoid_laws(Max(str), examples=10)

    class Widest(Monoid[Any]):
        identity = 0

        def lift(self, value: str) -> int:
            return len(value)

        def combine(self, a: int, b: int) -> int:
            return max(a, b)

    assert_monoid_laws(Widest(), examples=10)


def test_equality_is_an_argument() -> None:
    """A monoid that rounds is judged by its bound, or not at all."""
    assert_monoid_laws(Floats(), FINITE, examples=50)
    violation(Floats(), FINITE, equality=exact)
    assert violation(Midpoint(), FINITE, equality=within(64)).law == "associativity"
    assert_monoid_laws(Midpoint(), FINITE, equality=lambda left, right, scale: True, examples=50)


def test_examples_are_as_many_as_asked_for() -> None:
    """5,000 examples that were 50 would be a false assurance."""
    lifted: list[int] = []

    class Counting(Monoid[int]):
        identity = 0

        def lift(self, value: int) -> int:
            lifted.append(value)
            return value

        def combine(self, a: int, b: int) -> int:
            return a + b

    trial = Trial(Counting(), st.integers(), examples=500)
    trial.check(law_named("pure lift"))
    assert len(trial._sample.drawn) == 500
    drawn = {x for example, _ in trial._sample.drawn for x in example["xs"].xs}
    assert drawn <= set(lifted)


def test_group_without_inverse_is_refused() -> None:
    """Its laws would say NotImplementedError."""

    class Half(Group[int]):
        identity = 0

        def combine(self, a: int, b: int) -> int:
            return a + b

    with pytest.raises(TypeError, match="does not define inverse"):
        assert_monoid_laws(Half(), SMALL)


def test_laws_are_tried_in_the_order_of_the_catalogue() -> None:
    """The first law named is the one to mend first."""

    class Wrong(Monoid[int]):
        identity = 5
        commutative = True

        def combine(self, a: int, b: int) -> int:
            return 5 if a == b == 5 else a - b

    trial = Trial(Wrong(), SMALL)
    broken = [law.name for law in LAWS if law in trial.laws and trial.violation(law)]
    assert violation(Wrong(), SMALL).law == broken[0] == "left identity"


def test_what_is_not_defined_is_no_fault_of_another_law() -> None:
    """Whoever reads 'no mutation' looks for a mutation."""

    class Small(Monoid[int]):
        identity = -300

        def combine(self, a: int, b: int) -> int:
            if max(a, b) > 250:
                raise KeyError(max(a, b))
            return max(a, b)

    trial = Trial(Small(), SMALL)
    assert [law.name for law in trial.laws if trial.violation(law)] == ["totality"]
    assert "raises KeyError: " in str(violation(Small(), SMALL))


class Boom(Monoid[int]):
    identity = 0

    def combine(self, a: int, b: int) -> int:
        raise KeyError("boom")


class Unprintable(Boom):
    def __repr__(self) -> str:
        raise KeyError("boom")


@pytest.mark.parametrize(
    ("monoid", "told"),
    [(Boom(), r"Boom: combine\(identity, identity\) raises KeyError"), (Unprintable(), "its repr raises KeyError")],
)
def test_monoid_that_raises_at_once_is_refused_by_name(monoid: Monoid[Any], told: str) -> None:
    """A bare KeyError names neither the monoid nor the remedy."""
    with pytest.raises(TypeError, match=told):
        assert_monoid_laws(monoid, SMALL)


@pytest.mark.parametrize(
    ("equality", "told"),
    [
        (within, r"not the class within: write within\("),
        (statistical, "not the class statistical"),
        (lambda left, right: True, "a function of left, right, scale"),
        (lambda left, right, scale: 1 / 0, "cannot be compared .*ZeroDivisionError"),
    ],
)
def test_equality_at_fault_is_told(equality: Any, told: str) -> None:
    """It is no law that such an equality breaks."""
    with pytest.raises(TypeError, match=told):
        assert_monoid_laws(Sum(), SMALL, equality=equality)


@pytest.mark.parametrize(
    ("inputs", "told"),
    [(st.none(), "draws only None"), (st.nothing(), "no inputs can be drawn from nothing")],
)
def test_inputs_that_try_nothing_are_refused(inputs: Any, told: str) -> None:
    """No law would have been tried on anything but the identity."""
    with pytest.raises(TypeError, match=told):
        assert_monoid_laws(Sum(), inputs)
