"""ExactSum, against math.fsum and fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import ExactSum, encoding
from monoids.column import concat, take
from monoids.numbers.digits import DIGITS_TYPE

TINY = 5e-324
EDGES = [1.0, -1.0, 2.0**-53, 2.0**53, -(2.0**53), 1e308, -1e308, TINY, -TINY, 0.0, 2.0**-1022, 2.0**-105]
EXACT = ExactSum()


def nearest(values: Any) -> float:
    """The true sum, rounded once."""
    total = sum(map(Fraction, values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def drawn(random: np.random.Generator, kind: int) -> Any:
    rows = int(random.integers(1, 50))
    match kind:
        case 0:
            return random.standard_normal(rows) * 10.0 ** random.integers(-300, 300, rows)
        case 1:
            return random.standard_normal(rows) * random.choice([1.0, 1e16, 1e-16], rows)
        case _:
            return random.choice(EDGES, rows)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_sums_are_rounded_once(kind: int) -> None:
    """In any order, and by either path: this is what the name promises."""
    random = np.random.default_rng(kind)
    for _ in range(100):
        values = drawn(random, kind)
        starts = np.unique([0, *random.integers(0, len(values), 3)])
        parts = np.split(values, starts[1:])
        expected = [nearest(part.tolist()) for part in parts]
        sums = EXACT.reduce_sorted(EXACT.lift_columns(values), starts)
        folds = [EXACT.fold([EXACT.lift(value) for value in part.tolist()]) for part in parts]
        assert EXACT.present_columns(sums).to_pylist() == expected
        assert [EXACT.present(fold) for fold in folds] == expected
        assert EXACT.unpack(sums) == folds
        stored = [EXACT.to_arrow(columns) for columns in (sums, EXACT.pack(folds))]
        assert [array.to_pylist() for array in stored[0]] == [array.to_pylist() for array in stored[1]]


def test_agrees_with_fsum() -> None:
    """The other implementation that people trust."""
    values = np.random.default_rng(3).standard_normal(20_000) * 10.0 ** np.random.default_rng(4).integers(-9, 9, 20_000)
    sums = EXACT.reduce_sorted(EXACT.lift_columns(values), np.array([0]))
    assert EXACT.present_columns(sums).to_pylist() == [math.fsum(values)]


def test_cells_are_the_segments_without_sorting() -> None:
    """Two ways to one state: the bytes must agree."""
    random = np.random.default_rng(5)
    values = random.standard_normal(1000) * 10.0 ** random.integers(-20, 20, 1000)
    values[::97] = math.nan
    cells = random.integers(0, 9, 1000)
    cells[cells == 4] = 5
    counts = np.bincount(cells, minlength=12)
    held = np.flatnonzero(counts)
    order = np.argsort(cells, kind="stable")
    columns = EXACT.lift_columns(values)
    direct = EXACT.reduce_cells(columns, cells, counts, held)
    assert direct is not None
    by_sort = EXACT.reduce_sorted(take(columns, order), np.searchsorted(cells[order], held))
    assert EXACT.unpack(direct) == EXACT.unpack(by_sort)
    wide = random.standard_normal(200_000) * 10.0 ** random.integers(-300, 300, 200_000)
    singles = np.arange(200_000)
    assert EXACT.reduce_cells(EXACT.lift_columns(wide), singles, np.ones(200_000, np.int64), singles) is None


def test_ties_go_to_even_and_are_seen_from_afar() -> None:
    """The digit that decides a tie may be two thousand bits below."""
    ties = [([2.0**53, 1.0], 2.0**53), ([2.0**53, 1.0, TINY], 2.0**53 + 2), ([2.0**53, 1.0, -TINY], 2.0**53)]
    ties += [
        ([2.0**53 + 2, 1.0], 2.0**53 + 4),
        ([2.0**53 + 2, 1.0, -TINY], 2.0**53 + 2),
        ([-(2.0**53), -1.0, -TINY], -(2.0**53) - 2),
    ]
    for values, expected in ties:
        sums = EXACT.reduce_sorted(EXACT.lift_columns(values), np.array([0]))
        assert EXACT.present_columns(sums).to_pylist() == [expected], values
        assert EXACT.present(EXACT.fold([EXACT.lift(value) for value in values])) == expected


def test_sum_beyond_the_floats_comes_back() -> None:
    """An overflow on the way is none at the end."""
    values = [1.7e308] * 4 + [-1.7e308] * 3
    columns = EXACT.lift_columns(values)
    assert EXACT.present_columns(EXACT.reduce_sorted(columns, np.array([0]))).to_pylist() == [1.7e308]
    assert EXACT.present_columns(EXACT.reduce_sorted(columns, np.array([0, 4]))).to_pylist() == [math.inf, -math.inf]


def test_infinities_and_nan_are_counted() -> None:
    """Whatever the order, and once all are taken back the sum is finite again."""
    up, down, nan, one = map(EXACT.lift, (math.inf, -math.inf, math.nan, 1.0))
    assert EXACT.present(EXACT.combine(up, one)) == math.inf
    assert math.isnan(EXACT.present(EXACT.combine(EXACT.combine(up, one), down)))
    assert math.isnan(EXACT.present(EXACT.combine(nan, one)))
    everything = EXACT.fold([up, nan, one, down])
    back = EXACT.fold([everything, *map(EXACT.inverse, (nan, up, down))])
    assert (
        back == one and EXACT.present(EXACT.inverse(up)) == -math.inf and EXACT.present(EXACT.inverse(down)) == math.inf
    )
    assert EXACT.unpack(EXACT.lift_columns([math.inf, -math.inf, math.nan, 1.0])) == [up, down, nan, one]
    rows = [up, down, nan, one, everything, EXACT.inverse(up), EXACT.inverse(down), EXACT.identity]
    shown = EXACT.present_columns(EXACT.pack(rows)).to_pylist()
    assert shown == pytest.approx([EXACT.present(row) for row in rows], nan_ok=True, abs=0)


def test_null_contributes_nothing_and_there_is_one_zero() -> None:
    """-0.0 would be told from 0.0 by its bytes."""
    assert EXACT.lift(None) == EXACT.lift(-0.0) == EXACT.identity
    columns = EXACT.lift_columns(pa.array([None, -0.0, 2.0, None, -2.0]))
    shown = EXACT.present_columns(EXACT.reduce_sorted(columns, np.array([0, 2]))).to_pylist()
    assert shown == [0.0, 0.0] and [math.copysign(1, zero) for zero in shown] == [1.0, 1.0]
    assert EXACT.to_arrow(EXACT.pack([EXACT.identity]))[0].to_pylist() == [[]]
    with pytest.raises(TypeError, match="takes numbers"):
        EXACT.lift("1")


def test_sums_stay_small() -> None:
    """A state of a million keys must not be two thousand bits a key."""
    prices = EXACT.lift_columns(np.round(np.random.default_rng(1).random(10_000) * 1000, 2))
    table = EXACT.reduce_sorted(prices, np.arange(0, 10_000, 100))[1]
    assert table.entries <= 4 * 100
    both = concat([EXACT.reduce_sorted(prices, np.array([0])), EXACT.pack([EXACT.identity])])
    assert both[0].strides == (0,)
    constant = EXACT.lift_rows(np.broadcast_to(0.1, 10), 10)
    assert EXACT.present_columns(EXACT.reduce_sorted(constant, np.array([0, 9]))).to_pylist() == [
        nearest([0.1] * 9),
        0.1,
    ]


def test_foreign_bytes_are_refused() -> None:
    """A wrong element is worse than none."""
    element = EXACT.lift(0.75)
    data = EXACT.encode(element)
    assert EXACT.decode(data) == element
    for parts in [(3, 1072), ((6, 1071), (0, 0), (0, 0), (0, 0)), ((1, 9999), (0, 0), (0, 0), (0, 0)), ((0, 1),) * 4]:
        with pytest.raises(ValueError, match="encoded element"):
            EXACT.decode(encoding.encode(parts))
    tables: list[tuple[list[Any], list[Any]]] = [
        ([3, 2], [1, 1]),
        ([2, 99], [1, 1]),
        ([2], [1, 1]),
        ([2, 3], [0, 1]),
        ([2, None], [1, 1]),
        ([69], [2**30]),
        ([72], [-(2**30)]),
    ]
    for slots, digits in tables:
        with pytest.raises(ValueError, match=r"ExactSum\(\): a (stored table of digits|total has more than)"):
            EXACT.from_arrow([pa.array([slots], DIGITS_TYPE), pa.array([digits], DIGITS_TYPE)])
    with pytest.raises(ValueError, match=r"is null in the column"):
        EXACT.from_arrow([pa.array([[2], None], DIGITS_TYPE), pa.array([[2], None], DIGITS_TYPE)])
    with pytest.raises(ValueError, match="columns differ in length"):
        EXACT.from_arrow([pa.array([[2], []], DIGITS_TYPE), pa.array([[2]], DIGITS_TYPE)])


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_that_no_inputs_have_raise_and_spill_nowhere(sign: int) -> None:
    """The digits beyond a lane would be those of the next, and infinity become NaN."""
    largest = EXACT.lift(sign * 1.7e308)
    while True:
        try:
            doubled = EXACT.combine(largest, largest)
        except OverflowError as error:
            assert "ExactSum(): a total has more than 2238 bits" in str(error)
            break
        largest = doubled
    assert EXACT.present(largest) == sign * math.inf and EXACT.decode(EXACT.encode(largest)) == largest
    columns = EXACT.pack([largest] * 8)
    assert EXACT.unpack(columns) == [largest] * 8
    cells, counts = np.zeros(8, np.int64), np.array([8])
    for add in (
        lambda: EXACT.fold([largest] * 8),
        lambda: EXACT.reduce_sorted(columns, np.array([0])),
        lambda: EXACT.reduce_sorted(columns, np.array([0, 1, 4])),
        lambda: EXACT.reduce_cells(columns, cells, counts, np.array([0])),
    ):
        with pytest.raises(OverflowError, match=r"ExactSum\(\): a total has more than 2238 bits"):
            add()
    assert EXACT.fold([largest, largest, EXACT.inverse(largest)]) == largest
    back = EXACT.reduce_sorted(EXACT.pack([largest, largest, EXACT.inverse(largest)]), np.array([0]))
    assert EXACT.unpack(back) == [largest]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sum_is_the_same_both_ways(sign: int) -> None:
    """An element that one half makes and the other refuses could be stored, and not read."""
    limit = 2**2238
    for total, fits in ((limit - 1, True), (limit, False), (limit - 2**40, True), (limit + 2**2200, False)):
        halves = [(sign * (total // 2), 0, 0, 0), (sign * (total - total // 2), 0, 0, 0)]
        columns = EXACT.pack(halves)
        if fits:
            assert EXACT.unpack(EXACT.reduce_sorted(columns, np.array([0]))) == [EXACT.combine(*halves)]
            stored = EXACT.to_arrow(EXACT.pack([EXACT.combine(*halves)]))
            assert EXACT.unpack(EXACT.from_arrow(stored)) == [EXACT.combine(*halves)]
            continue
        with pytest.raises(OverflowError):
            EXACT.combine(*halves)
        with pytest.raises(OverflowError):
            EXACT.reduce_sorted(columns, np.array([0]))
