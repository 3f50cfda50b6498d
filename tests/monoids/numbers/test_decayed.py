"""Decayed, against decimals of fifty digits."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Decayed, Group, encoding
from monoids.column import take

CONTEXT = Context(prec=50)
LOAD = Decayed("1 min")


def oracle(times: Any, values: Any, half_life_ms: int) -> tuple[Decimal, Decimal]:
    """The sum at the newest time, and that of the magnitudes."""
    newest = max(times)
    weights = [
        CONTEXT.power(2, CONTEXT.divide(Decimal(int(time) - int(newest)), Decimal(half_life_ms))) for time in times
    ]
    terms = [CONTEXT.multiply(Decimal(float(value)), weight) for value, weight in zip(values, weights)]
    return sum(terms, Decimal(0)), sum(map(abs, terms), Decimal(0))


@pytest.mark.parametrize("half_life", [1, 7, 60_000, 10**12])
def test_sums_are_within_their_bound(half_life: int) -> None:
    """n * 2**-50, in any order, by every path: the bound is documented."""
    random = np.random.default_rng(half_life % 97)
    monoid = Decayed(half_life)
    for rows in (1, 2, 50):
        times = random.integers(0, 40 * half_life, rows) + 1_700_000_000_000
        values = random.standard_normal(rows) * 10.0 ** random.integers(-3, 3, rows)
        expected, size = oracle(times, values, half_life)
        columns = monoid.lift_rows({"timestamp": times, "value": values}, rows)
        by_cell = monoid.reduce_cells(columns, np.full(rows, 1), np.array([0, rows]), np.array([1]))
        reduced = [monoid.reduce_sorted(columns, np.array([0])), by_cell]
        elements = [monoid.lift(pair) for pair in zip(times.tolist(), values.tolist())]
        results = [monoid.unpack(way)[0] for way in reduced if way is not None]
        results += [monoid.fold(elements), monoid.fold(elements[::-1])]
        assert len(results) == 4
        for newest, value in results:
            assert newest == max(times)
            assert abs(Decimal(value) - expected) <= rows * Decimal(2) ** -50 * size


def test_half_a_life_is_a_half_to_the_bit() -> None:
    """Whole half-lives lose nothing, and a thousand of them do not underflow to a wrong sum."""
    for lives in (0, 1, 2, 60, 1000):
        assert LOAD.present_at(LOAD.lift((5, 3.0)), 5 + 60_000 * lives) == 3.0 * 0.5**lives
    assert LOAD.present_at(LOAD.lift((5, 3.0)), 2**61) == 0.0
    assert LOAD.combine(LOAD.lift((0, 1.0)), LOAD.lift((2**61, 1.0))) == (2**61, 1.0)


def test_scalar_and_columns_have_the_same_weights() -> None:
    """Of two inputs there is one order, so one sum to the bit."""
    random = np.random.default_rng(4)
    rows = 40_000
    times, values = random.integers(0, 10**7, rows), random.standard_normal(rows)
    columns = LOAD.lift_rows((times, values), rows)
    reduced = LOAD.unpack(LOAD.reduce_sorted(columns, np.arange(0, rows, 2)))
    elements = LOAD.unpack(columns)
    assert reduced == [LOAD.combine(*elements[at : at + 2]) for at in range(0, rows, 2)]


def test_inputs_without_time_or_value_are_none() -> None:
    """And leave no trace, not even their time."""
    for nothing in (None, (None, 1.0), (5, None), {"timestamp": None, "value": None}):
        assert LOAD.lift(nothing) == LOAD.identity
    assert LOAD.present(LOAD.identity) == LOAD.present_at(LOAD.identity, 9) == 0.0
    columns = LOAD.lift_rows((pa.array([7, None, 9]), pa.array([1.0, 2.0, None])), 3)
    assert LOAD.unpack(columns) == [(7, 1.0), LOAD.identity, LOAD.identity]
    assert LOAD.unpack(LOAD.reduce_sorted(columns, np.array([0, 1]))) == [(7, 1.0), LOAD.identity]
    stored = LOAD.to_arrow(columns)
    assert stored[0].to_pylist() == [7, None, None]
    assert LOAD.unpack(LOAD.from_arrow(stored)) == LOAD.unpack(columns)
    assert LOAD.unpack(take(LOAD.lift_rows((np.arange(3), 2), 3), np.array([2]))) == [(2, 2.0)]


def test_not_finite() -> None:
    """An infinity does not decay to NaN, whatever its age."""
    old = LOAD.lift((0, math.inf))
    new = LOAD.lift((2**61, 1.0))
    assert LOAD.combine(old, new) == (2**61, math.inf)
    columns = LOAD.reduce_sorted(LOAD.pack([old, new, old, LOAD.lift((0, -math.inf))]), np.array([0, 2]))
    assert columns[1].tolist() == pytest.approx([math.inf, math.nan], nan_ok=True)
    assert math.isnan(LOAD.present(LOAD.combine(LOAD.lift((0, math.nan)), new)))


def test_earlier_times_are_refused() -> None:
    """What the sum was before its newest input is not in the element."""
    with pytest.raises(ValueError, match="the newest input is at 5 ms"):
        LOAD.present_at(LOAD.lift((5, 1.0)), 4)


@pytest.mark.parametrize(
    ("written", "ms"),
    [(250, 250), (timedelta(minutes=2), 120_000), ("1 h", 3_600_000), ("90s", 90_000), ("2 days", 172_800_000)]
    + [("1 week", 604_800_000), ("5 ms", 5), ("3 min", 180_000)],
)
def test_half_lives(written: Any, ms: int) -> None:
    """All ways to write one are one, in the fingerprint too."""
    assert Decayed(written).parameters() == {"half_life_ms": ms} and repr(Decayed(written)) == f"Decayed({ms})"
    assert Decayed(written).fingerprint() == Decayed(ms).fingerprint() != Decayed(ms + 1).fingerprint()


@pytest.mark.parametrize(
    "wrong", [0, -1, 2**53, "1 hour", "1 mins", "h", "0 h", timedelta(microseconds=1), 1.5, True, None]
)
def test_other_half_lives_are_refused(wrong: Any) -> None:
    """Early, with what to write."""
    with pytest.raises((TypeError, ValueError), match=r"Decayed\(.*\): (write|a half-life)"):
        Decayed(wrong)


def test_what_is_refused() -> None:
    """Times that are none, and bytes of other monoids."""
    assert not isinstance(LOAD, Group)
    for give in (lambda: LOAD.lift((2**62, 1.0)), lambda: LOAD.lift_rows((np.array([-(2**62)]), 1.0), 1)):
        with pytest.raises(ValueError, match="milliseconds since the Unix epoch"):
            give()
    with pytest.raises(TypeError, match="takes integers"):
        LOAD.lift((1.5, 1.0))
    for element in (1, (1, 2), (None, 1.0), (2**62, 1.0), (1, 2.0, 3)):
        with pytest.raises(ValueError, match="encoded element"):
            LOAD.decode(encoding.encode(element))
    assert LOAD.decode(LOAD.encode(LOAD.identity)) == LOAD.identity


def test_foreign_columns_are_refused() -> None:
    """Of a time out of range what has passed would wrap, and a sum without inputs is none."""
    for time, value, fault in [
        (2**63 - 1, 1.0, "out of range"),
        (-(2**63), 1.0, "out of range"),
        (2**62, 1.0, "out of range"),
        (None, 1.0, "without inputs"),
        (None, math.nan, "without inputs"),
    ]:
        with pytest.raises(ValueError, match=fault):
            LOAD.from_arrow([pa.array([0, time], pa.int64()), pa.array([1.0, value])])
    pairs = [(None, 0.0), (2**62 - 1, 2.5), (-(2**62) + 1, math.inf)]
    assert LOAD.unpack(LOAD.from_arrow(LOAD.to_arrow(LOAD.pack(pairs)))) == pairs
    for element in [(0, -0.0), (None, -0.0), (None, 1.0), (0, 1)]:
        with pytest.raises(ValueError, match="encoded element"):
            LOAD.decode(encoding.encode(element))


def test_there_is_one_zero() -> None:
    """Equal elements, equal bytes."""
    (element,) = LOAD.unpack(LOAD.lift_columns(pa.array([{"timestamp": 5, "value": -0.0}])))
    assert LOAD.encode(element) == LOAD.encode(LOAD.lift((5, -0.0))) == LOAD.encode((5, 0.0))


def test_times_are_whole() -> None:
    """Half a millisecond is a fault in the caller, and said to be."""
    assert LOAD.present_at((0, 1.0), np.int64(0)) == 1.0  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"whole milliseconds: write an int, not 12\.5"):
        LOAD.present_at((0, 1.0), 12.5)  # type: ignore[arg-type]
