"""Sums of decimals, against decimal.Decimal."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Group, Sum, encoding

MONEY = Sum(pa.decimal128(20, 2))
WHOLE = Sum(pa.decimal128(38, 0))
MOST = 10**38 - 1
CONTEXT = Context(prec=60)


def total(values: Any) -> Decimal:
    result = Decimal(0)
    for value in values:
        result = CONTEXT.add(result, value)
    return result


def test_totals_are_exact() -> None:
    """Money: 0.1 + 0.2 is 0.3, in the last of 38 places."""
    random = np.random.default_rng(1)
    for _ in range(100):
        units = [
            int(unit) << int(shift)
            for unit, shift in zip(random.integers(-(2**53), 2**53, 30), random.integers(0, 10, 30))
        ]
        values = [Decimal(unit).scaleb(-2) for unit in units]
        starts = np.unique([0, *random.integers(0, 30, 3)])
        columns = MONEY.reduce_sorted(MONEY.lift_columns(pa.array(values, pa.decimal128(20, 2))), starts)
        expected = [total(values[start:stop]) for start, stop in zip(starts, [*starts[1:], 30])]
        assert MONEY.present_columns(columns).to_pylist() == expected
        assert [MONEY.present(element) for element in MONEY.unpack(columns)] == expected
        cells = random.integers(0, 3, 30)
        held = np.unique(cells)
        by_cell = MONEY.reduce_cells(MONEY.lift_columns(values), cells, np.bincount(cells, minlength=4), held)
        assert by_cell is not None
        grouped = [[value for value, cell in zip(values, cells) if cell == at] for at in held]
        assert MONEY.present_columns(by_cell).to_pylist() == [total(group) for group in grouped]


def test_present_does_not_follow_the_context_of_the_caller() -> None:
    """Python's default context rounds to 28 digits."""
    assert WHOLE.present(MOST) == Decimal("9" * 38)
    assert Sum(pa.decimal128(38, 38)).present(MOST) == Decimal("0." + "9" * 38)
    assert WHOLE.lift(Decimal(MOST)) == MOST


@pytest.mark.parametrize("units", [[MOST, 1], [-MOST, -1], [MOST] * 9, [-MOST] * 5, [10**37] * 10, [MOST] * 7])
def test_total_of_more_than_38_digits_raises_only_when_it_is_presented(units: list[int]) -> None:
    """Arrow would keep it, and Decimal would round it; and one key would stop the fold of all."""
    found = WHOLE.reduce_sorted(WHOLE.pack(units), np.array([0]))
    assert WHOLE.unpack(found) == [WHOLE.fold(units)] == [sum(units)]
    for present in (lambda: WHOLE.present(sum(units)), lambda: WHOLE.present_columns(found)):
        with pytest.raises(OverflowError, match=rf"the total {sum(units)} has more than 38 digits"):
            present()
    (array,) = WHOLE.to_arrow(found)
    array.validate(full=True)
    assert array.type == pa.decimal256(76, 0) and WHOLE.unpack(WHOLE.from_arrow([array])) == [sum(units)]
    back = WHOLE.reduce_sorted(WHOLE.pack([sum(units), *(-unit for unit in units[1:])]), np.array([0]))
    assert WHOLE.unpack(back) == units[:1] and WHOLE.to_arrow(back)[0].type == WHOLE.output_type


def test_totals_that_just_fit() -> None:
    """And those that overflow on their way."""
    for units in ([MOST, -1, 1], [MOST, MOST, -MOST], [-MOST, -MOST, -MOST, MOST, MOST], [10**37] * 9):
        assert WHOLE.unpack(WHOLE.reduce_sorted(WHOLE.pack(units), np.array([0]))) == [sum(units)]


def test_inputs() -> None:
    """What would be rounded is refused, not rounded."""
    assert isinstance(MONEY, Group) and MONEY.lift(None) == 0 and MONEY.lift(3) == 300
    column = pa.array([Decimal("1.5"), None, Decimal("-2.25")])
    assert MONEY.present_columns(MONEY.lift_columns(column)).to_pylist() == [
        Decimal("1.5"),
        Decimal(0),
        Decimal("-2.25"),
    ]
    assert MONEY.unpack(MONEY.lift_columns(column.slice(2))) == [-225]
    assert MONEY.unpack(MONEY.from_arrow([pa.array([Decimal(1), Decimal(2)], MONEY.output_type).slice(1)])) == [200]
    assert MONEY.unpack(MONEY.lift_columns(pa.array([1, 2]))) == [100, 200]
    assert Sum(pa.decimal128(38, 30)).unpack(Sum(pa.decimal128(38, 30)).lift_columns(pa.array([1]))) == [10**30]
    for wrong in (Decimal("1.005"), Decimal("NaN"), Decimal("Infinity"), 10**19):
        with pytest.raises(ValueError, match="cannot hold"):
            MONEY.lift(wrong)
    with pytest.raises(ValueError, match="cannot hold"):
        MONEY.lift_columns(pa.array([10**18]))
    for fault in (1.5, "1", True):
        with pytest.raises(TypeError, match="takes decimals"):
            MONEY.lift(fault)


def test_types() -> None:
    """Scale is part of what state is."""
    assert repr(MONEY) == "Sum(pa.decimal128(20, 2))" and MONEY.output_type == pa.decimal128(38, 2)
    assert MONEY.fingerprint() != Sum(pa.decimal128(20, 3)).fingerprint()
    with pytest.raises(TypeError, match=r"write Sum\(pa.decimal128\(38, 2\)\)"):
        Sum(pa.decimal256(60, 2))
    with pytest.raises(ValueError, match="more than 76 digits"):
        WHOLE.decode(encoding.encode(10**76))


def test_no_rows_and_constants() -> None:
    """A step without records, and one value for every row."""
    columns = MONEY.lift_columns(pa.array([], pa.decimal128(20, 2)))
    assert MONEY.unpack(MONEY.from_arrow(MONEY.to_arrow(columns))) == MONEY.unpack(MONEY.pack([])) == []
    constant = MONEY.lift_rows(Decimal("0.10"), 1000)
    assert MONEY.present_columns(MONEY.reduce_sorted(constant, np.array([0]))).to_pylist() == [Decimal(100)]


@pytest.mark.parametrize("total", [-(2**127), -(10**38), 10**38, 2**127 - 1])
def test_total_at_the_edge_of_128_bits_is_kept_both_ways(total: int) -> None:
    """The smallest number of a word is negative also without its sign."""
    units = [total // 2, total - total // 2]
    columns = WHOLE.pack(units)
    by_cell = WHOLE.reduce_cells(columns, np.array([0, 0]), np.array([2]), np.array([0]))
    assert by_cell is not None and WHOLE.combine(*units) == WHOLE.fold(units) == total
    for found in (by_cell, WHOLE.reduce_sorted(columns, np.array([0]))):
        assert WHOLE.unpack(found) == [total] == WHOLE.unpack(WHOLE.from_arrow(WHOLE.to_arrow(found)))
        with pytest.raises(OverflowError, match="more than 38 digits"):
            WHOLE.present_columns(found)


def test_totals_that_fit_may_be_beyond_on_their_way() -> None:
    """Whether a step fails must not depend on the half that ran it."""
    units = [MOST, MOST, -MOST]
    assert WHOLE.fold(units) == MOST
    assert WHOLE.unpack(WHOLE.reduce_sorted(WHOLE.pack(units), np.array([0]))) == [MOST]


def test_stored_values_of_more_than_38_digits_are_refused() -> None:
    """Arrow holds them, ``decode`` refuses them."""
    for unit in (10**38, -(10**38), -(2**127)):
        words = pa.py_buffer(unit.to_bytes(16, "little", signed=True))
        with pytest.raises(ValueError, match="a stored element has more than 38 digits"):
            WHOLE.from_arrow([pa.Array.from_buffers(WHOLE.output_type, 1, [None, words])])
    assert WHOLE.unpack(WHOLE.from_arrow(WHOLE.to_arrow(WHOLE.pack([MOST, -MOST])))) == [MOST, -MOST]
