"""Laws as tests of pytest: by decorator, by class, and as items of a package."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st

from monoids import Count, Max, Sum
from monoids.laws import LawViolation, MonoidLaws, exact, laws_of, monoid_laws
from tests.monoids.laws.defects import SMALL, CommutingList, Integers, Sampled


@monoid_laws((Sum(), st.integers(-9, 9)), (Max(str), None), Count(), examples=10)
def test_decorated(check: Callable[[], None]) -> None:
    """The decorator on a real test."""
    check()


def test_decorator_makes_an_item_for_each_monoid_and_law() -> None:
    """A report of one item for all laws hides which hold."""

    @monoid_laws((CommutingList(), SMALL), Sum(), examples=30)
    def decorated(check: Callable[[], None]) -> None:
        check()

    (mark,) = decorated.pytestmark  # type: ignore[attr-defined]
    name, parameters = mark.args
    assert name == "check"
    ids = [parameter.id for parameter in parameters]
    assert ids == [f"{monoid!r}-{law.name}" for monoid in (CommutingList(), Sum()) for law in laws_of(monoid)]
    failed = []
    for parameter in parameters:
        try:
            parameter.values[0]()
        except LawViolation as violation:
            failed.append(violation.law)
    assert failed == ["commutativity"]


def test_decorator_refuses_what_is_no_monoid() -> None:
    """A decorator without monoids would collect nothing, and pass."""
    with pytest.raises(TypeError, match="takes monoids, or pairs"):
        monoid_laws()
    with pytest.raises(TypeError, match="takes a monoid first"):
        monoid_laws(Sum)  # type: ignore[arg-type]


class TestIntegers(MonoidLaws):
    monoid = Integers()
    inputs = SMALL
    examples = 20
    equality = exact


class CommutingListLaws(MonoidLaws):
    monoid = CommutingList()
    inputs = SMALL
    examples = 20
    expected_failures = {"commutativity": "a list keeps its order"}


def test_class_has_a_test_for_each_law() -> None:
    """A law without a test of its own cannot be expected to fail."""
    tests = {name for name in vars(TestIntegers) if name.startswith("test_")}
    assert tests == {f"test_{law.name.replace(' ', '_')}" for law in laws_of(Integers())}
    assert "combine(identity, a) == a" in str(TestIntegers.test_left_identity.__doc__)  # type: ignore[attr-defined]


def test_expected_failure_that_holds_is_a_failure() -> None:
    """An excuse that is no longer needed hides the next defect."""

    class Mended(MonoidLaws):
        monoid = Sampled()
        inputs = SMALL
        examples = 20
        expected_failures = {"associativity": "once it was wrong"}

    with pytest.raises(pytest.fail.Exception, match="'associativity' holds, but is expected to fail"):
        Mended().test_associativity()  # type: ignore[attr-defined]
    with pytest.raises(pytest.xfail.Exception, match="keeps its order: CommutingList"):
        CommutingListLaws().test_commutativity()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("commutative", "the laws are: no mutation, totality"), ("inverse", "does not apply to Sampled")],
)
def test_expected_failure_of_no_law_is_refused(name: str, hint: str) -> None:
    """A typing error would leave a law unexcused, or an excuse unused."""
    with pytest.raises(TypeError, match=hint):
        type("Wrong", (MonoidLaws,), {"monoid": Sampled(), "inputs": SMALL, "expected_failures": {name: "because"}})


def test_class_without_monoid_is_for_others() -> None:
    """Options common to many tests are written once."""

    class Common(MonoidLaws):
        examples = 7

    class Own(Common):
        monoid = Count()

    assert not [name for name in vars(Common) if name.startswith("test_")]
    Own().test_fold()  # type: ignore[attr-defined]
