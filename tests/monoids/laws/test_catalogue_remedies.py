"""The monoids that people write first: the lawful pass with no more ado, of the others the right law is named."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
from hypothesis import strategies as st

from monoids import Monoid
from monoids.laws import LawViolation, Trial, assert_monoid_laws
from tests.few import one_in
from tests.monoids.laws.newcomers import COMMUTES, EXAMPLES, INTS, add, counters, written


def after(f: tuple[int, int], g: tuple[int, int]) -> tuple[int, int]:
    return (g[0] * f[0], g[0] * f[1] + g[1])


def product(a: Any, b: Any) -> Any:
    return tuple(tuple(sum(a[i][k] * b[k][j] for k in range(2)) for j in range(2)) for i in range(2))


def larger(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else max(a, b)


def hull(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else (min(a[0], b[0]), max(a[1], b[1]))


def pairs(a: Any, b: Any) -> Any:
    return (a[0] + b[0], a[1] + b[1])


SPANS = st.tuples(INTS, INTS).map(lambda ends: (min(ends), max(ends)))
SQUARES = st.tuples(st.tuples(INTS, INTS), st.tuples(INTS, INTS))

LAWFUL: dict[str, tuple[Monoid[Any], Any]] = {
    "integer addition": (written(add, 0, commutative=True), INTS),
    "integer addition that lifts None": (written(add, 0, lambda x: x or 0), st.none() | INTS),
    "product": (written(lambda a, b: a * b, 1), INTS),
    "max or None": (written(larger, None, **COMMUTES), st.none() | INTS),
    "max from minus infinity": (written(max, -math.inf), INTS),
    "text": (written(add, ""), st.text()),
    "counters": (written(counters, {}, commutative=True), st.dictionaries(st.text(max_size=3), INTS)),
    "counters by number": (written(counters, {}), st.dictionaries(INTS, INTS)),
    "dict merge": (written(lambda a, b: {**a, **b}, {}), st.dictionaries(st.text(max_size=3), INTS)),
    "frozenset union": (written(lambda a, b: a | b, frozenset(), **COMMUTES), st.frozensets(INTS)),
    "affine maps": (written(after, (1, 0)), st.tuples(INTS, INTS)),
    "matrices": (written(product, ((1, 0), (0, 1))), SQUARES),
    "min and max": (
        written(lambda a, b: (min(a[0], b[0]), max(a[1], b[1])), (math.inf, -math.inf), lambda x: (x, x)),
        INTS,
    ),
    "mean": (written(pairs, (0, 0), lambda x: (1, x), lambda e: e[1] / e[0] if e[0] else None), st.integers(-99, 99)),
    "list": (written(add, [], lambda x: [x]), INTS),
    "float sum that says so": (written(add, 0.0, exact=False), st.floats()),
    "sum modulo seven": (written(lambda a, b: (a + b) % 7, 0, lambda x: x % 7), INTS),
    "gcd": (written(math.gcd, 0, abs, **COMMUTES), INTS),
    "hulls of intervals": (written(hull, None, **COMMUTES), SPANS),
    "meets of intervals": (
        written(lambda a, b: (max(a[0], b[0]), min(a[1], b[1])), (-math.inf, math.inf), **COMMUTES),
        SPANS,
    ),
    "the three largest": (written(lambda a, b: tuple(sorted(a + b)[-3:]), (), lambda x: (x,)), INTS),
}


def extended(a: list[Any], b: list[Any]) -> list[Any]:
    a.extend(b)
    return a


def updated(a: Any, b: Any) -> Any:
    a.update(b)
    return a


UNLAWFUL: dict[str, tuple[Monoid[Any], Any, str, str]] = {
    "list that is extended": (written(extended, [], lambda x: [x]), INTS, "no mutation", "must return a new element"),
    "lists that are extended": (written(extended, []), st.lists(INTS), "no mutation", "before: [[], [0], []]"),
    "dict that is updated": (written(updated, {}), st.dictionaries(st.text(), INTS), "no mutation", "new element"),
    "set that is updated": (written(updated, set(), lambda x: {x}), INTS, "no mutation", "new element"),
    "mean of means": (written(lambda a, b: (a + b) / 2, 0.0), st.floats(-9, 9), "left identity", "must be neutral"),
    "mean of nothing": (
        written(pairs, (0, 0), lambda x: (1, x), lambda e: e[1] / e[0]),
        INTS,
        "totality",
        "ZeroDivisionError",
    ),
    "float sum": (written(add, 0.0), st.floats(-1e6, 1e6), "associativity", "declare exact = False"),
    "subtraction": (written(lambda a, b: a - b, 0), INTS, "left identity", "combine(identity, a): -1"),
    "max from zero": (written(max, 0), INTS, "left identity", "a = lift(-1)"),
    "max of NaN": (written(max, -math.inf), st.floats(), "left identity", "allow_nan=False"),
    "sum modulo seven of any integer": (
        written(lambda a, b: (a + b) % 7, 0),
        INTS,
        "left identity",
        "let lift convert",
    ),
    "capped sum": (
        written(lambda a, b: max(-5, min(5, a + b)), 0, lambda x: max(-5, min(5, x))),
        INTS,
        "associativity",
        "brackets",
    ),
    "first that commutes": (
        written(lambda a, b: b if a is None else a, None, commutative=True),
        INTS,
        "commutativity",
        "",
    ),
    "sum that is idempotent": (written(add, 0, idempotent=True), INTS, "idempotence", "remove idempotent"),
}


@pytest.mark.parametrize("name", one_in(2, LAWFUL))
def test_lawful_ones_pass(name: str) -> None:
    """Lost: whoever writes the first monoid is told that it breaks totality for a None that was never drawn."""
    monoid, inputs = LAWFUL[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_monoid_laws(monoid, inputs, examples=EXAMPLES)


@pytest.mark.parametrize("name", one_in(3, UNLAWFUL))
def test_of_unlawful_ones_the_law_is_named_with_what_to_do(name: str) -> None:
    """Lost: the right law, at once, and a sentence that helps."""
    monoid, inputs, law, told = UNLAWFUL[name]
    with pytest.raises(LawViolation) as caught:
        assert_monoid_laws(monoid, inputs)
    assert caught.value.law == law
    assert told in str(caught.value)
    assert len(str(caught.value)) < 1_000


PRICES = [1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 1e6, 1e3, 1e300, -1e3]
"""Literals that Hypothesis draws, as it finds them in a module of tests: NaN is then drawn once."""


def test_the_call_that_raises_is_named() -> None:
    """Lost: which of the four methods raised, and on what."""

    class Mean(Monoid[Any]):
        identity = (0, 0)

        def combine(self, a: Any, b: Any) -> Any:
            return pairs(a, b)

        def lift(self, value: int) -> Any:
            return (1, value)

        def present(self, element: Any) -> float:
            return float(element[1] / element[0])

    with pytest.raises(LawViolation, match=r"in present\(\(0, 0\)\), test_catalogue_remedies.py line \d+"):
        assert_monoid_laws(Mean(), INTS)


class Appending(Monoid[list[int]]):
    """Doubles what it holds when it meets itself: 2,000 rows of one value would be 2**2000."""

    identity: list[int] = []

    def lift(self, value: int) -> list[int]:
        return [value]

    def combine(self, a: list[int], b: list[int]) -> list[int]:
        return extended(a, b)


def test_no_other_law_is_tried_on_what_changes_its_operands() -> None:
    """Lost: the machine: identity = [] grew by gigabytes, and another law was named after 50 s."""
    for examples in (None, EXAMPLES):
        trial = Trial(Appending(), INTS, examples=examples)
        assert [law.name for law in trial.laws if trial.violation(law)] == ["no mutation"]
        assert trial.laws[0].name == "no mutation"
        assert all("fix 'no mutation' first" in trial.untried(law) for law in trial.laws[1:])
    assert Appending.identity == []
