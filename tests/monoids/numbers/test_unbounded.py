"""Sum(int, unbounded=True), against Python's integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Group, Sum, encoding
from monoids.column import is_constant
from monoids.numbers.digits import DIGITS_TYPE
from monoids.numbers.unbounded import UnboundedSum

TOTAL = Sum(int, unbounded=True)
LOW, HIGH = -(2**63), 2**63 - 1


def test_totals_are_those_of_python() -> None:
    """Within 64 bits, beyond, and back."""
    random = np.random.default_rng(1)
    pool = [LOW, HIGH, 2**63, LOW - 1, 1, -1, 0, 10**40, -(10**40), 2**64, -(2**64), 2**95 - 2**65]
    for _ in range(200):
        values = [pool[at] for at in random.integers(0, len(pool), int(random.integers(1, 20)))]
        starts = np.unique([0, *random.integers(0, len(values), 2)])
        columns = TOTAL.reduce_sorted(TOTAL.pack(values), starts)
        stops = [*starts[1:].tolist(), len(values)]
        expected = [sum(values[start:stop]) for start, stop in zip(starts.tolist(), stops)]
        assert TOTAL.unpack(columns) == expected
        stored = [[array.to_pylist() for array in TOTAL.to_arrow(way)] for way in (columns, TOTAL.pack(expected))]
        assert stored[0] == stored[1]
        assert TOTAL.present_columns(columns).to_pylist() == [str(total) for total in expected]


def test_int64_columns_overflow_into_digits() -> None:
    """The point of it: the same column is a total that Sum() cannot present."""
    column = pa.array([HIGH] * 5 + [7, None])
    columns = TOTAL.reduce_sorted(TOTAL.lift_columns(column), np.array([0, 5]))
    assert TOTAL.unpack(columns) == [5 * HIGH, 7]
    assert columns[0].tolist() == [0, 7] and columns[1].lengths.tolist() == [3, 0]
    with pytest.raises(OverflowError, match="unbounded=True"):
        Sum().present_columns(Sum().reduce_sorted(Sum().lift_columns(column), np.array([0, 5])))


def test_small_integers_have_no_digits() -> None:
    """A million counters are eight bytes each, and as fast as Sum()."""
    columns = TOTAL.lift_columns(np.arange(1000))
    reduced = TOTAL.reduce_sorted(columns, np.array([0, 10]))
    assert reduced[0].tolist() == [45, 499455] and is_constant(reduced[1].lengths)
    cells = np.arange(1000) % 3
    by_cell = TOTAL.reduce_cells(columns, cells, np.bincount(cells), np.arange(3))
    assert by_cell is not None and by_cell[0].tolist() == [sum(range(at, 1000, 3)) for at in range(3)]
    large = TOTAL.reduce_cells(TOTAL.pack([HIGH, HIGH, 1]), np.array([1, 1, 0]), np.array([1, 2]), np.arange(2))
    assert large is not None and TOTAL.unpack(large) == [1, 2 * HIGH]


def test_inputs() -> None:
    """A float is a fault upstream; a large integer is not."""
    assert isinstance(TOTAL, Group) and TOTAL.lift(None) == 0
    assert TOTAL.unpack(TOTAL.lift_columns([2**70, None, True])) == [2**70, 0, 1]
    assert TOTAL.unpack(TOTAL.lift_columns(np.array([2**70, 1], object))) == [2**70, 1]
    assert type(TOTAL.lift(np.int8(3))) is int and type(TOTAL.lift(True)) is int
    for wrong in (1.0, "1"):
        with pytest.raises(TypeError, match="takes integers"):
            TOTAL.lift(wrong)
        with pytest.raises(TypeError, match="takes integers"):
            TOTAL.lift_columns(pa.array([wrong]))


def test_arguments() -> None:
    """Refused at once, with what to write."""
    assert repr(TOTAL) == "Sum(int, unbounded=True)" and isinstance(TOTAL, UnboundedSum)
    assert isinstance(Sum(unbounded=True), UnboundedSum)
    assert TOTAL.fingerprint() != Sum().fingerprint()
    bad: list[tuple[Any, Any]] = [(float, True), (int, 1), (int, "yes")]
    for type_, unbounded in bad:
        with pytest.raises(TypeError, match=r"write Sum\(int, unbounded=True\)"):
            Sum(type_, unbounded=unbounded)


def test_foreign_bytes_are_refused() -> None:
    """Also those that are a number in another form: they would break equality of bytes."""
    with pytest.raises(ValueError, match="not of type int"):
        TOTAL.decode(encoding.encode(1.0))
    lists = DIGITS_TYPE
    for small, slots, digits in [
        (0, [0], [5]),
        (3, [2], [5]),
        (0, [2, 1], [5, 5]),
        (0, [-1], [5]),
        (0, [1, 2], [-(2**31), 0]),
        (0, [4096], [1]),
        (0, [4095], [2**30]),
    ]:
        with pytest.raises(ValueError, match="stored"):
            TOTAL.from_arrow([pa.array([small]), pa.array([slots], lists), pa.array([digits], lists)])
    assert TOTAL.unpack(TOTAL.from_arrow([pa.array([0]), pa.array([[2]], lists), pa.array([[5]], lists)])) == [
        5 * 2**64
    ]
    with pytest.raises(ValueError, match="columns differ in length"):
        TOTAL.from_arrow([pa.array([0, 0]), pa.array([[2]], lists), pa.array([[5]], lists)])
    with pytest.raises(ValueError, match=r"is null"):
        TOTAL.from_arrow([pa.array([0]), pa.array([None], lists), pa.array([None], lists)])
    with pytest.raises(ValueError, match=r"the encoded element: .* more than 131070 bits"):
        TOTAL.decode(encoding.encode(2**131070))


def test_integers_have_a_size() -> None:
    """A stored row of 12 bytes must not take 64 MB, nor a presented one half a minute; all ways agree where it ends."""
    most = 2**131070 - 1
    assert TOTAL.decode(TOTAL.encode(-most)) == -most
    columns = TOTAL.pack([most, -most])
    assert TOTAL.unpack(TOTAL.from_arrow(TOTAL.to_arrow(columns))) == [most, -most]
    assert len(TOTAL.present_columns(columns)[0].as_py()) == 39457
    beyond: list[Any] = [
        lambda: TOTAL.combine(most, 1),
        lambda: TOTAL.fold([-most, -1]),
        lambda: TOTAL.reduce_sorted(TOTAL.pack([most, 1]), np.array([0])),
        lambda: TOTAL.reduce_cells(TOTAL.pack([-most, -1]), np.array([0, 0]), np.array([2]), np.array([0])),
    ]
    for way in beyond:
        with pytest.raises(OverflowError, match=r"Sum\(int, unbounded=True\): a total has more than 131070 bits"):
            way()
    largest = 2**131006 - 1
    assert TOTAL.lift(largest) == largest and TOTAL.fold([largest * 2**63, -largest]) == largest * (2**63 - 1)
    for lift in (TOTAL.lift, lambda value: TOTAL.lift_columns([1, value])):
        with pytest.raises(OverflowError, match="takes integers of 131006 bits, not one of 131007"):
            lift(-largest - 1)
    assert TOTAL.fold([most, 1, -1]) == most
    assert TOTAL.unpack(TOTAL.reduce_sorted(TOTAL.pack([most, 1, -1]), np.array([0]))) == [most]


def test_unsigned_columns_are_integers_too() -> None:
    """What the scalar takes, a column must."""
    numbers = [2**63, None, 2**64 - 1, 2**63 - 1, 0]
    column = pa.array(numbers, pa.uint64())
    expected = [number or 0 for number in numbers]
    for values in (
        column,
        pa.chunked_array([column[:2], column[2:]]),
        column.dictionary_encode(),
        np.array(expected, np.uint64),
        np.array(expected, ">u8"),
        np.ma.masked_array(np.array(expected, np.uint64), [0, 1, 0, 0, 0]),
    ):
        columns = TOTAL.lift_columns(values)
        assert TOTAL.unpack(columns) == expected
        stored = [[array.to_pylist() for array in TOTAL.to_arrow(way)] for way in (columns, TOTAL.pack(expected))]
        assert stored[0] == stored[1]
    assert [TOTAL.lift(np.uint64(number)) for number in expected] == expected
    assert TOTAL.unpack(TOTAL.lift_columns(np.array([3, 4], np.uint64))) == [3, 4]
    assert TOTAL.unpack(TOTAL.lift_columns(np.array([], np.uint64))) == []
