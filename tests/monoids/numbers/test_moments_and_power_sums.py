"""Moments, against fractions: exact sums, rounded once."""

from __future__ import annotations

import math
import statistics
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Group, Moments, encoding
from monoids.column import concat, take

MOMENTS = Moments()
NONE = dict.fromkeys(("mean", "variance", "stddev", "skewness", "kurtosis"))
CONTEXT = Context(prec=80)


def root(value: Fraction) -> float:
    return float(CONTEXT.sqrt(CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator))))


def oracle(values: list[float]) -> dict[str, Any]:
    """By the definition, in fractions."""
    numbers = [Fraction(value) for value in values]
    mean = sum(numbers) / len(numbers)
    second, third, fourth = (sum((x - mean) ** power for x in numbers) / len(numbers) for power in (2, 3, 4))
    shape = (math.copysign(root(third**2 / second**3), third), float(fourth / second**2)) if second else (None, None)
    fields = (float(mean), float(second), root(second), *shape)
    return {"count": len(values), **dict(zip(NONE, fields))}


def folded(values: Any, *starts: int) -> list[dict[str, Any]]:
    columns = MOMENTS.reduce_sorted(MOMENTS.lift_columns(values), np.array(starts or (0,)))
    shown: list[dict[str, Any]] = MOMENTS.present_columns(columns).to_pylist()
    assert repr(shown) == repr([MOMENTS.present(element) for element in MOMENTS.unpack(columns)])
    return shown


@pytest.mark.parametrize("offset", [0.0, 1e9, -1e15, 1e-200])
@pytest.mark.parametrize("scale", [1.0, 1e-7, 1e150])
def test_nothing_cancels(offset: float, scale: float) -> None:
    """Sums of squares in floats would leave no digit of the variance, the running mean a few."""
    random = np.random.default_rng(1)
    for rows in (1, 2, 9, 40):
        values = offset + random.standard_normal(rows) * scale
        if scale < 1e100:
            assert folded(values) == [oracle(values.tolist())]
        elements = [MOMENTS.lift(value) for value in values.tolist()]
        assert MOMENTS.pack([MOMENTS.fold(elements)])[1].entries <= 400
        columns = MOMENTS.reduce_sorted(MOMENTS.lift_columns(values), np.array([0]))
        assert MOMENTS.unpack(columns) == [MOMENTS.fold(elements)]


def test_agrees_with_the_standard_library() -> None:
    """The other implementation that is exact."""
    values = (1e9 + np.random.default_rng(2).random(500)).tolist()
    (shown,) = folded(values)
    assert shown["variance"] == statistics.pvariance(values)
    assert shown["stddev"] == pytest.approx(statistics.pstdev(values), rel=1e-15)
    assert shown["mean"] == statistics.mean(values)


def test_order_does_not_matter() -> None:
    """Bytes of the state, not only what is presented."""
    random = np.random.default_rng(3)
    values = random.standard_normal(5000) * 10.0 ** random.integers(-30, 30, 5000)
    cells = random.integers(0, 7, 5000)
    counts = np.bincount(cells)
    order = np.argsort(cells, kind="stable")
    columns = MOMENTS.lift_columns(values)
    ways = [
        MOMENTS.reduce_sorted(take(columns, order), np.cumsum(counts) - counts),
        MOMENTS.reduce_cells(columns, cells, counts, np.arange(7)),
    ]
    shuffled = take(take(columns, order), slice(None, None, -1))
    ways.append(take(MOMENTS.reduce_sorted(shuffled, 5000 - np.cumsum(counts)[::-1]), np.arange(7)[::-1]))
    stored = []
    for way in ways:
        assert way is not None
        stored.append([array.to_pylist() for array in MOMENTS.to_arrow(way)])
    assert stored[0] == stored[1] == stored[2]


def test_few_inputs() -> None:
    """Of none there is no mean; of one there is no spread, and no shape."""
    assert folded(pa.array([None, None], pa.float64())) == [{"count": 0, **NONE}]
    assert MOMENTS.present(MOMENTS.identity) == {"count": 0, **NONE}
    alike = {"mean": 0.1, "variance": 0.0, "stddev": 0.0, "skewness": None, "kurtosis": None}
    assert folded(pa.array([0.1, None, 0.1, 0.1])) == [{"count": 3, **alike}]
    assert folded([2, True]) == [{**oracle([2, 1])}]


def test_not_finite() -> None:
    """A NaN is seen in every field, an infinity in the mean."""
    for values, mean in [([1.0, math.nan], math.nan), ([math.inf, 1.0], math.inf), ([math.inf, -math.inf], math.nan)]:
        (shown,) = folded(values)
        assert shown["count"] == 2 and shown["mean"] == pytest.approx(mean, nan_ok=True)
        assert all(math.isnan(shown[field]) for field in ("variance", "stddev", "skewness", "kurtosis"))
        assert MOMENTS.unpack(MOMENTS.lift_columns(values)) == [MOMENTS.lift(value) for value in values]
    shape = folded([1e300, -1e300, 3e300])[0]
    assert shape["variance"] == math.inf and math.isfinite(shape["stddev"]) and math.isfinite(shape["kurtosis"])


def test_group() -> None:
    """A retraction leaves what would be there without: the running mean does not."""
    assert isinstance(MOMENTS, Group)
    one, two, nan = map(MOMENTS.lift, (1e9, 0.1, math.nan))
    everything = MOMENTS.fold([one, two, nan])
    assert MOMENTS.fold([everything, MOMENTS.inverse(nan), MOMENTS.inverse(one)]) == two
    taken = MOMENTS.present(MOMENTS.fold([MOMENTS.lift(1), MOMENTS.lift(2), MOMENTS.inverse(MOMENTS.lift(5))]))
    assert (taken["count"], taken["mean"], taken["variance"]) == (1, -2.0, -24.0) and math.isnan(taken["stddev"])
    back = MOMENTS.present(MOMENTS.inverse(MOMENTS.fold([one, two, two])))
    assert back == {**oracle([1e9, 0.1, 0.1]), "count": -3}


def test_foreign_bytes_are_refused() -> None:
    """Also counts and sums too large to be any."""
    data = MOMENTS.encode(MOMENTS.lift(0.1))
    assert MOMENTS.decode(data) == MOMENTS.lift(0.1)
    integers = list(encoding.decode(data))
    for place, part in [(0, (2**64 - 1, 0)), (1, (1, 5000)), (1, (2, 1)), (5, (1, 95))]:
        with pytest.raises(ValueError, match="encoded element"):
            MOMENTS.decode(encoding.encode((*integers[:place], part, *integers[place + 1 :])))
    with pytest.raises(ValueError, match="encoded element"):
        MOMENTS.decode(encoding.encode(tuple(integers[1:])))


def test_counts_and_sums_beyond_their_bounds_raise_both_ways() -> None:
    """A sum that spilled into the next would be a wrong moment, without a word."""
    one = MOMENTS.lift(3.0)
    for _ in range(62):
        one = MOMENTS.combine(one, one)
    for add in (
        lambda: MOMENTS.combine(one, one),
        lambda: MOMENTS.reduce_sorted(MOMENTS.pack([one, one]), np.array([0])),
    ):
        with pytest.raises(
            OverflowError, match=r"Moments\(\): a total is outside .*; the number of inputs cannot be this large"
        ):
            add()
    assert MOMENTS.fold([one, one, MOMENTS.inverse(one)]) == one
    gap = MOMENTS.combine(MOMENTS.lift(1.7e308), MOMENTS.inverse(MOMENTS.lift(1.0)))
    with pytest.raises(OverflowError, match=r"Moments\(\): a total has more than \d+ bits"):
        for _ in range(200):
            gap = MOMENTS.combine(gap, gap)
    assert MOMENTS.unpack(MOMENTS.pack([gap])) == [gap] == [MOMENTS.decode(MOMENTS.encode(gap))]
    with pytest.raises(OverflowError, match=r"Moments\(\): a total has more than \d+ bits"):
        MOMENTS.reduce_sorted(MOMENTS.pack([gap] * 4), np.array([0]))


def test_stored_columns_are_what_decode_reads() -> None:
    """One of the two that is laxer lets in what the other then fails on."""
    least = (-(2**63), *MOMENTS.identity[1:])
    columns = MOMENTS.from_arrow(MOMENTS.to_arrow(MOMENTS.pack([least])))
    assert MOMENTS.decode(MOMENTS.encode(MOMENTS.unpack(columns)[0])) == least
    with pytest.raises(OverflowError):
        MOMENTS.inverse(least)
    stored = MOMENTS.to_arrow(MOMENTS.pack([MOMENTS.identity] * 2))
    with pytest.raises(ValueError, match="columns differ in length"):
        MOMENTS.from_arrow([stored[0][:1], *stored[1:]])


def kinds(random: np.random.Generator) -> list[Any]:
    """Columns of all sorts, of 2000 rows."""
    rows = 2000
    spread = random.standard_normal(rows)
    special = random.choice([math.nan, math.inf, -math.inf, 1.0, 0.1], rows, p=[0.02, 0.01, 0.01, 0.5, 0.46])
    return [
        spread,
        1e9 + spread,
        np.round(spread * 1000, 2),
        random.integers(0, 4, rows) / 2.0 ** random.integers(0, 60, rows),
        2.0**53 + 2 * random.integers(0, 8, rows),
        spread * 10.0 ** random.integers(-30, 30, rows),
        spread * 10.0 ** random.integers(-300, 300, rows),
        spread * 1e-160,
        spread * 5e-320,
        spread * 1e300,
        special,
    ]


def test_many_keys_are_presented_as_one_by_one() -> None:
    """Columns compute in floats, and must know where these do not suffice."""
    random = np.random.default_rng(12)
    for values in kinds(random):
        starts = np.unique([0, *np.cumsum(random.integers(1, 12, 400))])
        columns = MOMENTS.reduce_sorted(MOMENTS.lift_columns(values), starts[starts < len(values)])
        back = MOMENTS.pack([MOMENTS.identity, *map(MOMENTS.inverse, MOMENTS.unpack(columns)[:30])])
        columns = concat([columns, back])
        shown = MOMENTS.present_columns(columns)
        assert shown.type == MOMENTS.output_type
        assert repr(shown.to_pylist()) == repr([MOMENTS.present(element) for element in MOMENTS.unpack(columns)])


def test_hardly_a_key_is_presented_alone() -> None:
    """Each costs a hundred times what one of a column does."""
    alone = []

    class Watched(Moments):
        def present(self, element: Any) -> dict[str, Any]:
            alone.append(element)
            return super().present(element)

    values = np.random.default_rng(13).standard_normal(20_000)
    columns = Watched().reduce_sorted(Watched().lift_columns(values), np.arange(0, 20_000, 20))
    assert len(Watched().present_columns(columns)) == 1000 and len(alone) < 10
