"""What is drawn reaches the odd, the long, and what others than the author have made."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from monoids import Monoid
from monoids.laws import LawsWarning, LawViolation, Trial, assert_monoid_laws, law_named
from monoids.laws.examples import inputs_in
from tests.monoids.laws import defects
from tests.monoids.laws.defects import FINITE, SMALL, Integers
from tests.monoids.laws.newcomers import COMMUTES, EXAMPLES, INTS, Slow, add, counters, ends, written
from tests.monoids.laws.violations import violation


@dataclass(frozen=True)
class Total:
    """How many, and how much."""

    n: int = 0
    sum: int = 0


VECTORS = st.lists(st.integers(-100, 100), min_size=3, max_size=3).map(lambda row: np.array(row, np.int64))


def test_what_is_odd_is_tried_however_rarely_it_is_drawn() -> None:
    """Lost: NaN, in modules that hold other floats: it was one of 900 inputs, and in none of the elements."""
    with pytest.raises(LawViolation, match="nan"):
        assert_monoid_laws(written(lambda a, b: a if a > b else b, -math.inf, **COMMUTES), st.floats())
    rarely = st.integers(0, 400).map(lambda x: math.nan if x == 0 else float(x))
    drawn = [example for example, _ in Trial(Slow(), rarely)._sample.drawn]
    held = [x for example in drawn for x in example["xs"].xs]
    odd = {repr(x) for x in held if x != x} | {
        repr(min(x for x in held if x == x)),
        repr(max(x for x in held if x == x)),
    }
    for name in ("a", "b", "c", "elements"):
        assert odd <= {repr(x) for example in drawn for x in inputs_in(example[name])}, name


def most_common(size: int) -> Callable[[Any, Any], Any]:
    """Counts of the most frequent only: what was cut off is missing when it comes again."""
    return lambda a, b: dict(sorted(counters(a, b).items(), key=lambda each: (-each[1], each[0]))[:size])


CUT_OFF: dict[str, tuple[Monoid[Any], Any]] = {
    **{str(size): (written(most_common(size), {}, lambda x: {x: 1}), st.integers(0, 1000)) for size in (9, 20)},
    "ends": (written(lambda a, b: ends(a + b), (), lambda x: (x,)), st.integers(1, 5)),
    "clamp": (written(lambda a, b: max(-150, min(150, a + b)), 0), st.integers(-10, 10)),
}


@pytest.mark.parametrize("name", CUT_OFF)
def test_what_is_cut_off_beyond_a_dozen_values_is_seen(name: str) -> None:
    """Lost: the most frequent of the common sketches, which held on elements of eight values."""
    monoid, inputs = CUT_OFF[name]
    assert Trial(monoid, inputs, examples=EXAMPLES)._seen(law_named("any tree"))


def test_no_clock_cuts_off_the_examples_of_many_inputs() -> None:
    """Lost on a busy machine: they came last, after all that the time allowed."""
    sample = Trial(*CUT_OFF["20"], examples=EXAMPLES)._sample
    first = sample.plan(law_named("any tree"))[:10]
    assert [len(example["elements"]) > 50 for example, _ in first].count(True) == len(sample._wide) == 3


@pytest.mark.parametrize(
    ("monoid", "inputs"),
    [
        (written(add, np.zeros(3, np.int64)), VECTORS),
        (written(lambda a, b: Total(a.n + b.n, a.sum + b.sum), Total(), lambda x: Total(1, x)), INTS),
        (
            written(lambda a, b: b if a is None else a, None, lambda x: Total(1, x) if x else None),
            st.just(0) | st.just(5),
        ),
    ],
    ids=["arrays", "dataclasses", "dataclasses or None"],
)
def test_elements_of_other_classes_are_tried_too(monoid: Monoid[Any], inputs: Any) -> None:
    """Lost: the laws of sums for elements that have no encoding; and the word that they cannot be stored so."""
    with pytest.warns(LawsWarning, match=r"not of storing: .* no canonical encoding.* serializer ="):
        assert_monoid_laws(monoid, inputs, examples=EXAMPLES)


def test_all_rows_are_tried_alone_or_together() -> None:
    """Trying ten examples at a time must not lose any."""
    seen: set[int] = set()

    class Watching(Integers):
        def pack(self, elements: Any) -> Any:
            seen.update(elements)
            return super().pack(elements)

    trial = Trial(Watching(), st.integers(-(2**40), 2**40), examples=200)
    trial.check(law_named("columnar reduce"))
    elements = {sum(x for x, _ in one.steps) for example, _ in trial._sample.drawn for one in example["elements"]}
    assert elements <= seen
    seen.clear()
    trial.check(law_named("columnar reduce of lifted"))
    assert {x for example, _ in trial._sample.drawn for x in example["column"].xs} <= seen


def test_reached_elements_are_closed_under_combine_and_inverse() -> None:
    """Elements that are only lifted never show the defects of those that a state holds."""
    trial = Trial(Integers(), SMALL, examples=100)
    steps = [example[name].steps for example, _ in trial._sample.drawn for name in "pqr"]
    assert {len(each) for each in steps} == {0, 1, 2, 3}
    assert {back for each in steps for _, back in each} == {False, True}
    assert {len(example[name].steps) for example, _ in trial._sample.drawn for name in "abc"} == {0, 1, 2, 3}


def test_identity_is_among_the_elements() -> None:
    """A present that divides by the count fails in the first empty window."""
    found = violation(defects.Average(), FINITE)
    assert "elements = [identity]\n  raises ZeroDivisionError" in str(found)
