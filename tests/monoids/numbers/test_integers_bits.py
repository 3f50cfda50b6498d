"""Bitwise monoids, against Python's operators."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import BitAnd, BitOr, BitXor, Group, encoding
from monoids.column import repeat

BITS: list[tuple[Any, Any]] = [(BitAnd(), operator.and_), (BitOr(), operator.or_), (BitXor(), operator.xor)]


@pytest.mark.parametrize(("monoid", "operation"), BITS)
def test_bits_are_those_of_python(monoid: Any, operation: Any) -> None:
    """Of all 64, and by both paths."""
    random = np.random.default_rng(1)
    values = random.integers(-(2**63), 2**63 - 1, 60, endpoint=True)
    values[:5] = [-(2**63), 2**63 - 1, -1, 0, 1]
    columns = monoid.lift_columns(values)
    starts = np.array([0, 7, 8, 30])
    expected = [reduce(operation, part.tolist()) for part in np.split(values, starts[1:])]
    assert monoid.unpack(monoid.reduce_sorted(columns, starts)) == expected
    cells = random.integers(0, 4, 60)
    held = np.unique(cells)
    by_cell = monoid.reduce_cells(columns, cells, np.bincount(cells, minlength=6), held)
    assert monoid.unpack(by_cell) == [reduce(operation, values[cells == cell].tolist()) for cell in held]


@pytest.mark.parametrize(("monoid", "operation"), BITS)
@pytest.mark.parametrize("value", [-(2**63), -1, 5])
def test_a_value_for_every_row(monoid: Any, operation: Any, value: int) -> None:
    """Constants have a way of their own: xor of an even number of equal ones is 0."""
    rows = repeat(monoid.pack([value]), 5)
    expected = [reduce(operation, [value] * size) for size in (1, 4)]
    assert monoid.unpack(monoid.reduce_sorted(rows, np.array([0, 1]))) == expected


@pytest.mark.parametrize(("monoid", "operation"), BITS)
def test_inputs(monoid: Any, operation: Any) -> None:
    """Null is no contribution; a float has no bits of its own."""
    assert monoid.lift(None) == monoid.identity == operation(monoid.identity, monoid.identity)
    assert monoid.unpack(monoid.lift_columns(pa.array([None, 6, True * 1]))) == [monoid.identity, 6, 1]
    with pytest.raises(TypeError, match="takes integers"):
        monoid.lift(float("nan"))
    with pytest.raises(TypeError, match="takes integers"):
        monoid.lift_columns(np.array([1.0]))
    with pytest.raises(OverflowError):
        monoid.lift(2**63)
    with pytest.raises(OverflowError):
        monoid.lift_columns(np.array([2**63], np.uint64))
    with pytest.raises(ValueError, match="encoded element"):
        monoid.decode(encoding.encode("1"))


def test_only_xor_is_taken_back() -> None:
    """What or and and have swallowed is gone."""
    assert [isinstance(monoid, Group) for monoid, _ in BITS] == [False, False, True]
    assert len({str(monoid.fingerprint()) for monoid, _ in BITS}) == 3
