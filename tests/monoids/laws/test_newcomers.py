"""The monoids that people write first: the lawful pass with no more ado, of the others the right law is named."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from monoids import Group, Monoid
from monoids.laws import LawsWarning, LawViolation, MonoidLaws, Trial, assert_monoid_laws, law_named, monoid_laws
from monoids.laws.budget import BYTES, Budget, Spent, _waiting
from monoids.laws.drawing import inputs_in

INTS = st.integers()
EXAMPLES = 12


@dataclass(frozen=True)
class Total:
    """How many, and how much."""

    n: int = 0
    sum: int = 0


def written(
    combine: Callable[[Any, Any], Any],
    identity: Any,
    lift: Callable[[Any], Any] | None = None,
    present: Callable[[Any], Any] | None = None,
    **traits: Any,
) -> Monoid[Any]:
    """A monoid as a beginner writes it: a class with these in its body."""
    body: dict[str, Any] = {"identity": identity, "combine": lambda self, a, b: combine(a, b), **traits}
    if lift is not None:
        body["lift"] = lambda self, x: lift(x)
    if present is not None:
        body["present"] = lambda self, element: present(element)
    made: Monoid[Any] = type("Mine", (Monoid,), body)()
    return made


def add(a: Any, b: Any) -> Any:
    return a + b


def counters(a: dict[Any, int], b: dict[Any, int]) -> dict[Any, int]:
    return {key: a.get(key, 0) + b.get(key, 0) for key in {**a, **b}}


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
VECTORS = st.lists(st.integers(-100, 100), min_size=3, max_size=3).map(lambda row: np.array(row, np.int64))
COMMUTES = {"commutative": True, "idempotent": True}

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


def worked() -> float:
    """Seconds, but for those that other processes took."""
    return time.perf_counter() - _waiting()


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
    "mean of means": (written(lambda a, b: (a + b) / 2, 0.0), st.floats(-9, 9), "left identity", "must be nothing"),
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
    "sum modulo seven of any integer": (written(lambda a, b: (a + b) % 7, 0), INTS, "left identity", "let lift make"),
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
    "sum that is idempotent": (written(add, 0, idempotent=True), INTS, "idempotence", "leave out idempotent"),
}


@pytest.mark.parametrize("name", LAWFUL)
def test_lawful_ones_pass(name: str) -> None:
    """Lost: whoever writes the first monoid is told that it breaks totality for a None that was never drawn."""
    monoid, inputs = LAWFUL[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_monoid_laws(monoid, inputs, examples=EXAMPLES)


@pytest.mark.parametrize("name", UNLAWFUL)
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


def ends(a: Any) -> Any:
    return a if len(a) <= 30 else a[:15] + a[-14:]


CUT_OFF: dict[str, tuple[Monoid[Any], Any]] = {
    **{str(size): (written(most_common(size), {}, lambda x: {x: 1}), st.integers(0, 1000)) for size in (9, 20)},
    "ends": (written(lambda a, b: ends(a + b), (), lambda x: (x,)), st.integers(1, 5)),
    "clamp": (written(lambda a, b: max(-150, min(150, a + b)), 0), st.integers(-10, 10)),
}


@pytest.mark.parametrize("name", CUT_OFF)
def test_what_is_cut_off_beyond_a_dozen_values_is_seen(name: str) -> None:
    """Lost: the most frequent of the common sketches, which held on elements of eight values."""
    monoid, inputs = CUT_OFF[name]
    assert Trial(monoid, inputs)._seen(law_named("any tree"))


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
    with pytest.warns(LawsWarning, match=r"not those of storing: .* no canonical encoding.* serializer ="):
        assert_monoid_laws(monoid, inputs, examples=EXAMPLES)


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

    with pytest.raises(LawViolation, match=r"in present\(\(0, 0\)\), test_newcomers.py line \d+"):
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
        assert all("mend 'no mutation' first" in trial.untried(law) for law in trial.laws[1:])
    assert Appending.identity == []


def test_tests_of_laws_that_are_not_tried_are_skipped() -> None:
    """Lost: forty failures for one fault, or forty laws that pass without having been tried."""

    class TestAppending(MonoidLaws):
        monoid = Appending()
        inputs = INTS
        examples = 10

    @monoid_laws((Appending(), INTS), examples=10)
    def test_lawful(check: Callable[[], None]) -> None:
        check()

    checks = {mark.id.partition("-")[2]: mark.values[0] for mark in test_lawful.pytestmark[0].args[1]}  # type: ignore[attr-defined]
    for associativity in (TestAppending().test_associativity, checks["associativity"]):  # type: ignore[attr-defined]
        with pytest.raises(pytest.skip.Exception, match="mend 'no mutation' first"):
            associativity()
    for mutation in (TestAppending().test_no_mutation, checks["no mutation"]):  # type: ignore[attr-defined]
        with pytest.raises(LawViolation):
            mutation()


class Slow(Group[int]):
    """Takes its time."""

    identity = 0
    commutative = True
    wrong = False

    def combine(self, a: int, b: int) -> int:
        time.sleep(0.02)
        return a + b + (self.wrong and a > 1)

    def inverse(self, a: int) -> int:
        return -a


def test_a_slow_monoid_is_tried_for_five_seconds_and_told_on_what() -> None:
    """Lost: an end; and, once there is one, the word that not all was tried."""
    began = worked()
    with pytest.warns(
        LawsWarning, match=r"laws were tried on all 200 examples; on fewer, for want of time .*examples="
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
    with pytest.warns(LawsWarning, match="for want of time"):
        assert_monoid_laws(type("Slow", (Monoid,), body)(), INTS)
    assert waited[0] < 7


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
    monkeypatch.setattr("monoids.laws.budget._LOOK_S", 0)
    budget = Budget(limited=True)
    with pytest.raises(Spent, match="500 MB"), budget.law():
        budget.look()
        budget.look()


def test_a_language_that_grows_with_each_word_is_bounded() -> None:
    """Lost: the machine: a lawful sum of 160 sets of three words holds 3**160."""
    languages = written(lambda a, b: frozenset(x + y for x in a for y in b), frozenset([""]))
    began = worked()
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert_monoid_laws(languages, st.frozensets(st.text("ab", min_size=1, max_size=9), min_size=2, max_size=3))
    assert worked() - began < 7
