"""Covariance and Correlation, against fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Correlation, Covariance, Group, Moments, record
from monoids.column import concat

TOGETHER, RELATED = Covariance(), Correlation()


def oracle(xs: list[float], ys: list[float]) -> Fraction:
    numbers = [(Fraction(x), Fraction(y)) for x, y in zip(xs, ys)]
    x_mean, y_mean = (sum(column) / Fraction(len(numbers)) for column in zip(*numbers))
    return sum(((x - x_mean) * (y - y_mean) for x, y in numbers), Fraction(0)) / len(numbers)


def shown(monoid: Any, values: Any, rows: int) -> Any:
    columns = monoid.reduce_sorted(monoid.lift_rows(values, rows), np.array([0]))
    (only,) = monoid.present_columns(columns).to_pylist()
    folded = monoid.present(monoid.unpack(columns)[0])
    assert only == folded or (math.isnan(only) and math.isnan(folded))
    return only


@pytest.mark.parametrize("offset", [0.0, 1e9, -1e14])
def test_they_are_rounded_once(offset: float) -> None:
    """However large the means are beside what varies."""
    random = np.random.default_rng(1)
    xs = offset + random.standard_normal(60)
    ys = 3 * xs + random.standard_normal(60)
    x, y = xs.tolist(), ys.tolist()
    assert shown(TOGETHER, (xs, ys), 60) == float(oracle(x, y))
    squared = oracle(x, y) ** 2 / (oracle(x, x) * oracle(y, y))
    assert shown(RELATED, (xs, ys), 60) == pytest.approx(math.sqrt(squared), rel=1e-15)
    assert (
        shown(TOGETHER, (xs, xs), 60) == Moments().present(Moments().fold([Moments().lift(v) for v in x]))["variance"]
    )


def test_correlation_has_its_sign_and_its_bounds() -> None:
    """Rounding must not make it 1.0000000000000002."""
    xs = np.random.default_rng(2).random(100)
    for factor, expected in ((1.0, 1.0), (2.0, 1.0), (-0.5, -1.0)):
        assert shown(RELATED, (xs, xs * factor), 100) == expected
    assert shown(RELATED, {"x": np.array([1.0, 2.0, 3.0]), "y": 7}, 3) is None
    assert shown(RELATED, (np.array([1e200, 2e200, 4e200]), np.array([1e-200, 3e-200, 2e-200])), 3) == pytest.approx(
        0.32732683535398854
    )


def test_all_ways_to_give_pairs_are_one() -> None:
    """A pair as a tuple, a mapping, a struct, a list; columns by name or by place."""
    pairs = [(1.0, 10.0), None, (2.0, None), (None, 3.0), (4.0, 50.0)]
    x, y = (pa.array([pair and pair[at] for pair in pairs]) for at in (0, 1))
    named = [pair and {"x": pair[0], "y": pair[1]} for pair in pairs]
    expected = [TOGETHER.lift(pair) for pair in pairs]
    assert expected[1:4] == [TOGETHER.identity] * 3
    for way in (
        pa.array(named),
        pa.chunked_array([pa.array(named[:2]), pa.array(named[2:])]),
        (x, y),
        {"y": y, "x": x},
    ):
        assert TOGETHER.unpack(TOGETHER.lift_rows(way, 5)) == expected
    for rows in (pairs, named, np.array([*named, None], object)[:5]):
        assert TOGETHER.unpack(TOGETHER.lift_columns(rows)) == expected
    assert TOGETHER.unpack(TOGETHER.lift_rows((1, 10), 2)) == [TOGETHER.lift((1, 10))] * 2
    assert TOGETHER.unpack(TOGETHER.lift_rows((x, 2), 5))[4] == TOGETHER.lift((4, 2))
    monoid = record(c=TOGETHER)
    assert monoid.unpack(monoid.lift_rows({"c": {"x": x, "y": y}}, 5)) == [(element,) for element in expected]


def test_not_finite() -> None:
    """One bad reading is seen, and can be taken back."""
    for bad in (math.nan, math.inf, -math.inf):
        values = (np.array([1.0, 2.0, bad]), np.array([1.0, 5.0, 2.0]))
        for monoid in (TOGETHER, RELATED):
            assert math.isnan(shown(monoid, values, 3))
            element = monoid.fold([monoid.lift(pair) for pair in zip(*values)])
            assert monoid.unpack(monoid.reduce_sorted(monoid.lift_rows(values, 3), np.array([0]))) == [element]
            fixed = monoid.combine(element, monoid.inverse(monoid.lift((bad, 2.0))))
            assert fixed == monoid.fold([monoid.lift((1.0, 1.0)), monoid.lift((2.0, 5.0))])


def test_of_few() -> None:
    """Of none nothing is known; one pair does not vary."""
    for monoid in (TOGETHER, RELATED):
        assert isinstance(monoid, Group) and monoid.present(monoid.identity) is None
    assert TOGETHER.present(TOGETHER.lift((3, 4))) == 0.0 and RELATED.present(RELATED.lift((3, 4))) is None


def test_what_is_no_pair_is_refused() -> None:
    """Early, with what to write."""
    for wrong in (1.0, "ab", (1, 2, 3)):
        with pytest.raises(TypeError, match=r"a pair is a tuple \(x, y\) or a mapping of x and y"):
            TOGETHER.lift(wrong)
    with pytest.raises(TypeError, match=r"Covariance\(\) takes numbers"):
        TOGETHER.lift((1, "2"))
    with pytest.raises(ValueError, match="x and y"):
        TOGETHER.lift({"x": 1, "z": 2})
    with pytest.raises(TypeError, match="struct array"):
        TOGETHER.lift_columns(pa.array([1.0]))


def test_many_keys_are_presented_as_one_by_one() -> None:
    """Columns compute in floats, and must know where these do not suffice."""
    random = np.random.default_rng(4)
    spread = random.standard_normal(2000)
    whole = random.integers(0, 3, 2000).astype(float)
    starts = np.unique([0, *np.cumsum(random.integers(1, 9, 400))])
    starts = starts[starts < 2000]
    pairs = [
        (spread, spread * 3),
        (1e9 + spread, random.standard_normal(2000)),
        (whole, -whole),
        (whole, spread),
        (2.0**53 + 2 * whole, whole),
        (spread * 1e200, spread * 1e-200),
        (spread * 1e-160, whole * 1e-160),
        (np.where(whole > 1, math.nan, whole), spread),
    ]
    for given in pairs:
        for monoid in (TOGETHER, RELATED):
            columns = monoid.reduce_sorted(monoid.lift_rows(given, 2000), starts)
            back = monoid.pack([monoid.identity, *map(monoid.inverse, monoid.unpack(columns)[:30])])
            columns = concat([columns, back])
            expected = [monoid.present(element) for element in monoid.unpack(columns)]
            assert repr(monoid.present_columns(columns).to_pylist()) == repr(expected)
