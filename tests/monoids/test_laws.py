"""Every public monoid obeys the laws, and the laws find what they are for."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

import monoids
from monoids import Count, Group, Max, Mean, Min, Monoid, SetUnion, Sum, laws, mapping, record
from monoids.laws import LAWS, LawViolation, assert_monoid_laws
from monoids.monoid import Columns

INTEGERS = st.none() | st.integers(-(10**6), 10**6) | st.booleans()
FLOATS = st.none() | st.floats()
TEXTS = st.none() | st.text(max_size=4)
KEYS = st.text(max_size=3) | st.integers(0, 3) | st.booleans() | st.floats()
NESTED = record(c=Max(str), d=mapping(Count()))

# The strategy draws inputs of lift. A public monoid that is missing here fails test_every_public_monoid_is_tested.
CASES: list[tuple[str, Monoid[Any], st.SearchStrategy[Any]]] = [
    ("Sum", Sum(), INTEGERS),
    ("Sum", Sum(float), FLOATS),
    ("Count", Count(), FLOATS | st.text(max_size=2)),
    ("Min", Min(), INTEGERS),
    ("Min", Min(float), FLOATS),
    ("Min", Min(bytes), st.none() | st.binary(max_size=3)),
    ("Min", Min(date), st.none() | st.dates()),
    ("Max", Max(float), FLOATS),
    ("Max", Max(bool), st.none() | st.booleans()),
    ("Max", Max(str), TEXTS | st.sampled_from(["\ud800", "\uffff", "\U0001f600"])),
    ("Max", Max(datetime), st.none() | st.datetimes() | st.datetimes(timezones=st.just(UTC))),
    ("Max", Max(pa.decimal128(20, 3)), st.none() | st.decimals(-(10**6), 10**6, places=3)),
    ("Mean", Mean(), FLOATS),
    ("SetUnion", SetUnion(int), st.none() | st.integers(0, 20)),
    ("SetUnion", SetUnion(float), FLOATS),
    ("SetUnion", SetUnion(str), TEXTS),
    ("mapping", mapping(Sum()), st.none() | st.dictionaries(KEYS, INTEGERS, max_size=3)),
    ("mapping", mapping(Sum(float)), st.none() | st.dictionaries(KEYS, FLOATS, max_size=3)),
    ("mapping", mapping(SetUnion(str)), st.dictionaries(st.tuples(KEYS, st.none()), TEXTS, max_size=2)),
    ("record", record(a=Count(), b=Sum()), st.none() | st.fixed_dictionaries({}, optional={"a": TEXTS, "b": INTEGERS})),
    (
        "record",
        record(a=Mean(), b=NESTED, e=SetUnion(int), f=Min(float)),
        st.fixed_dictionaries(
            {"f": FLOATS},
            optional={
                "a": FLOATS,
                "b": st.none()
                | st.fixed_dictionaries({}, optional={"c": TEXTS, "d": st.dictionaries(KEYS, INTEGERS, max_size=2)}),
                "e": st.none() | st.integers(0, 9),
            },
        ),
    ),
]


@pytest.mark.parametrize(("monoid", "inputs"), [case[1:] for case in CASES], ids=lambda value: repr(value)[:60])
def test_public_monoids_are_lawful(monoid: Monoid[Any], inputs: st.SearchStrategy[Any]) -> None:
    """Without the laws no recovery, compaction, window or rescaling gives the right sum."""
    assert_monoid_laws(monoid, inputs, examples=40)


def test_every_public_monoid_is_tested() -> None:
    """A monoid added without its laws would be believed lawful."""
    assert {name for name, _, _ in CASES} == set(monoids.__all__) - {"Monoid", "Group"}


def test_catalogue_names_every_law_once() -> None:
    """A law left out of the catalogue is never tried."""
    functions = [law.function for law in LAWS]
    returning_sides = [f for f in vars(laws).values() if getattr(f, "__annotations__", {}).get("return") == "Sides"]
    assert set(functions) == set(returning_sides)
    assert len({law.name for law in LAWS}) == len(LAWS) == len(set(functions))
    assert all(law.formula.count(" == ") == 1 for law in LAWS)


# Planted defects, each with its honest twin.


class RunningMean(Group[tuple[int, float]]):
    """Defect: (count, mean) loses its sum where the count comes back to zero."""

    identity = (0, 0.0)
    commutative = True
    exact = False

    def lift(self, value: float) -> tuple[int, float]:
        return (1, value)

    def combine(self, a: tuple[int, float], b: tuple[int, float]) -> tuple[int, float]:
        count = a[0] + b[0]
        return (count, (a[0] * a[1] + b[0] * b[1]) / count) if count else self.identity

    def inverse(self, a: tuple[int, float]) -> tuple[int, float]:
        return (-a[0], a[1])


class CountAndSum(RunningMean):
    def combine(self, a: tuple[int, float], b: tuple[int, float]) -> tuple[int, float]:
        return (a[0] + b[0], a[1] + b[1])

    def inverse(self, a: tuple[int, float]) -> tuple[int, float]:
        return (-a[0], 0.0 - a[1])


class MaxFromZero(Monoid[int]):
    identity = 0
    commutative = idempotent = True

    def combine(self, a: int, b: int) -> int:
        return max(a, b)


class Updating(Monoid[dict[str, int]]):
    identity: dict[str, int] = {}

    def combine(self, a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
        a.update(b)
        return a


class Merging(Updating):
    def combine(self, a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
        return {**a, **b}


class ExactFloats(Monoid[float]):
    identity = 0.0
    commutative = True

    def combine(self, a: float, b: float) -> float:
        return a + b


class RoundedFloats(ExactFloats):
    exact = False


class Listing(Monoid[list[int]]):
    identity: list[int] = []
    commutative = True

    def lift(self, value: int) -> list[int]:
        return [value]

    def combine(self, a: list[int], b: list[int]) -> list[int]:
        return a + b


class OrderedListing(Listing):
    commutative = False


class NullsAreOne(type(Count())):  # type: ignore[misc]
    """Defect: the columnar lift counts nulls."""

    def lift_columns(self, values: Any) -> Columns:
        return (np.ones(len(values), np.int64),)


class Truncating(Monoid[frozenset[int]]):
    """Defect: the serializer keeps eight bits."""

    identity: frozenset[int] = frozenset()
    commutative = idempotent = True

    def lift(self, value: int) -> frozenset[int]:
        return frozenset({value})

    def combine(self, a: frozenset[int], b: frozenset[int]) -> frozenset[int]:
        return a | b

    def encode(self, element: frozenset[int]) -> bytes:
        return bytes(sorted(value & 255 for value in element))

    def decode(self, data: bytes) -> frozenset[int]:
        return frozenset(data)


class HashOrdered(Truncating):
    """Defect: the bytes follow the order of insertion into a hash table."""

    def encode(self, element: frozenset[int]) -> bytes:
        return ",".join(map(str, element)).encode()

    def decode(self, data: bytes) -> frozenset[int]:
        return frozenset(int(text) for text in data.decode().split(",") if text)


class Sorted(HashOrdered):
    def encode(self, element: frozenset[int]) -> bytes:
        return ",".join(map(str, sorted(element))).encode()


class WrongInverse(Group[int]):
    identity = 0
    commutative = True

    def combine(self, a: int, b: int) -> int:
        return a + b

    def inverse(self, a: int) -> int:
        return a


class RightInverse(WrongInverse):
    def inverse(self, a: int) -> int:
        return -a


class Midpoint(Monoid[float]):
    """Defect: the mean of means."""

    identity = None
    commutative = idempotent = True

    def combine(self, a: Any, b: Any) -> Any:
        return (a + b) / 2 if a is not None and b is not None else b if a is None else a


class ForgetfulCells(type(Sum())):  # type: ignore[misc]
    """Defect: the cells without sorting keep the last row only."""

    def reduce_cells(self, columns: Columns, cells: Any, counts: Any, held: Any) -> Columns:
        totals = np.zeros(len(counts), np.int64)
        totals[cells] = columns[0]
        return (totals[held],)


class EagerFold(type(Sum())):  # type: ignore[misc]
    """Defect: the columnar reduce forgets the last row."""

    def reduce_sorted(self, columns: Columns, starts: Any) -> Columns:
        return (np.add.reduceat(np.append(columns[0][:-1], 0), starts),)


FINITE = st.floats(-1e6, 1e6)
SMALL = st.integers(-300, 300)
COUNTS = st.dictionaries(st.text(max_size=1), st.integers(0, 3), max_size=2)
DEFECTS = [
    (RunningMean(), FINITE, "reached associativity", CountAndSum()),
    (MaxFromZero(), SMALL, "left identity", Max()),
    (Updating(), COUNTS, "no mutation", Merging()),
    (ExactFloats(), FINITE.map(lambda x: x + 0.0), "associativity", RoundedFloats()),
    (Listing(), SMALL, "commutativity", OrderedListing()),
    (NullsAreOne(), st.none() | SMALL, "columnar lift", Count()),
    (Truncating(), SMALL, "serializer round trip", Sorted()),
    (HashOrdered(), SMALL, "canonical bytes", Sorted()),
    (WrongInverse(), SMALL, "inverse", RightInverse()),
    (Midpoint(), FINITE.map(lambda x: x + 0.0), "associativity", Max(float)),
    (EagerFold(), SMALL, "columnar reduce", Sum()),
    (ForgetfulCells(), SMALL, "columnar reduce by cells", Sum(float)),
]


@pytest.mark.parametrize(("monoid", "inputs", "law", "twin"), DEFECTS, ids=[repr(case[0]) for case in DEFECTS])
def test_planted_defects_are_found_by_the_law_they_break(
    monoid: Monoid[Any], inputs: st.SearchStrategy[Any], law: str, twin: Monoid[Any]
) -> None:
    """Laws that pass a defect are decoration; laws that fail its honest twin are noise."""
    with pytest.raises(LawViolation) as caught:
        assert_monoid_laws(monoid, inputs, examples=200)
    assert caught.value.law == law
    assert_monoid_laws(twin, inputs, examples=40)


def test_violation_shows_law_sides_and_smallest_counterexample() -> None:
    """A violation without the example has to be debugged twice."""
    with pytest.raises(LawViolation) as caught:
        assert_monoid_laws(Listing(), SMALL)
    message = str(caught.value)
    assert "Listing() breaks 'commutativity': combine(a, b) == combine(b, a)" in message
    assert "a = lift(0)\n  b = lift(1)" in message
    assert "combine(a, b): [0, 1]\n  combine(b, a): [1, 0]" in message
    assert caught.value.bindings.keys() == {"a", "b"}


def test_violation_is_the_same_every_time() -> None:
    """A law that fails at random is a flaky test of a user."""

    def message() -> str:
        with pytest.raises(LawViolation) as caught:
            assert_monoid_laws(HashOrdered(), SMALL, examples=30)
        return str(caught.value)

    assert message() == message()


def test_exception_of_the_monoid_is_a_violation_from_it() -> None:
    """The user's own traceback is what says where it failed."""

    class Fragile(Monoid[int]):
        identity = 0

        def combine(self, a: int, b: int) -> int:
            raise ZeroDivisionError("by me")

    with pytest.raises(LawViolation, match="raises ZeroDivisionError: by me") as caught:
        assert_monoid_laws(Fragile(), SMALL)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_monoid_without_determinism_is_a_violation() -> None:
    """Hypothesis would raise a group of exceptions about itself."""

    class Moody(Monoid[int]):
        identity = 0
        calls = 0

        def combine(self, a: int, b: int) -> int:
            Moody.calls += 1
            return a + b + (Moody.calls % 97 == 0)

    with pytest.raises(LawViolation):
        assert_monoid_laws(Moody(), SMALL, examples=50)


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
    with pytest.raises(TypeError, match="examples= is a number"):
        assert_monoid_laws(Sum(), SMALL, examples=0)
