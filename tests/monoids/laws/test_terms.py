"""A counterexample is shrunk to the smallest term that still breaks the law."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from monoids.laws import LawViolation, Trial, law_named
from monoids.laws.examples import smaller, value_of
from tests.monoids.laws import columnar_defects
from tests.monoids.laws.defects import Adding, Integers
from tests.monoids.laws.violations import violation


def values(trial: Trial, found: LawViolation) -> dict[str, Any]:
    return {name: value_of(trial.monoid, reached) for name, reached in found.bindings.items()}


@pytest.mark.check
def test_rare_violation_is_shrunk_too() -> None:
    """What is seen once in 200 examples is the hardest to read."""

    class Rare(Adding):
        def combine(self, a: int, b: int) -> int:
            return a + b + (a % 19 == 13 and b % 23 == 7)

        def inverse(self, a: int) -> int:
            return -a

    # Which examples are drawn depends on the modules that are loaded: of so many, one in a million runs finds none.
    trial = Trial(Rare(), st.integers(0, 10**5), examples=6_000)
    found = trial.violation(law_named("commutativity"))
    assert found is not None
    law = law_named("commutativity").function
    for name, reached in found.bindings.items():
        for less in smaller(reached):
            left, right = law(trial.monoid, **{**values(trial, found), name: value_of(trial.monoid, less)})
            assert left == right, f"{found}\nis broken by {name} = {less!r} too"


def test_violation_among_many_is_shrunk_to_one() -> None:
    """Rows are tried many at a time; a counterexample of a hundred rows would be none to read."""

    class Odd(Integers):
        def reduce_sorted(self, columns: Any, starts: Any) -> Any:
            totals = super().reduce_sorted(columns, starts)
            return (totals[0] + 1,) if 4711 in columns[0] else totals

    found = Trial(Odd(), st.integers(0, 10_000) | st.just(4711), examples=100).violation(law_named("columnar reduce"))
    assert found is not None
    assert str(found).splitlines()[1:3] == ["  elements = [lift(4711)]", "  cuts = []"]


def test_thousands_of_rows_are_shrunk_to_few_kinds() -> None:
    """A counterexample of two thousand rows is not read."""
    found = violation(columnar_defects.TruncatingCount(), st.integers(0, 1))
    assert found.law == "columnar reduce"
    assert str(found).splitlines()[1:3] == ["  elements = [lift(1)] * 128", "  cuts = range(0, 0, 700)"]
