"""Sets of integers as ranges: what the laws do not reach."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids import Ranges, encoding
from monoids.column import Ragged

LEAST, MOST = -(2**63), 2**63 - 1
NUMBERS = st.integers(0, 30) | st.sampled_from([LEAST, LEAST + 1, -1, MOST - 1, MOST])


def ranges_of(numbers: set[int]) -> tuple[tuple[int, int], ...]:
    """The definition: neighbours share a range, as they have the same distance to their rank."""
    ranked = groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0])
    runs = [[number for _, number in run] for _, run in ranked]
    return tuple((run[0], run[-1]) for run in runs)


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(NUMBERS, max_size=8)), min_size=1))
def test_columns_hold_what_a_plain_set_holds(rows: list[tuple[int, list[int]]]) -> None:
    """A number too many is a message that never counts, one too few a message that counts twice."""
    monoid = Ranges()
    rows.sort(key=lambda row: row[0])
    groups = [[numbers for at, numbers in rows if at == group] for group in sorted({at for at, _ in rows})]
    expected = [ranges_of(set().union(*group)) for group in groups]
    columns = monoid.pack([ranges_of(set(numbers)) for _, numbers in rows])
    starts = np.cumsum([0, *map(len, groups)])[:-1]
    assert monoid.unpack(monoid.reduce_sorted(columns, starts)) == expected
    cells = np.repeat(np.arange(len(groups)), list(map(len, groups))) * 2
    counts = np.bincount(cells)
    reduced = monoid.reduce_cells(columns, cells, counts, np.flatnonzero(counts))
    assert reduced is not None and monoid.unpack(reduced) == expected
    assert [monoid.fold([monoid.lift(number) for numbers in group for number in numbers]) for group in groups] == (
        expected
    )


@given(st.sets(NUMBERS), NUMBERS)
def test_contains_is_membership(numbers: set[int], number: int) -> None:
    """The bounds of a range are both in it."""
    monoid = Ranges()
    assert monoid.contains(ranges_of(numbers), number) == (number in numbers)


def test_a_range_inside_another_does_not_end_it() -> None:
    """(0, 9) then (1, 2) reaches 9, and so joins (10, 11): the last number of the neighbour is not enough."""
    monoid = Ranges()
    columns = monoid.pack([((0, 9),), ((1, 2),), ((10, 11), (20, 20)), ((5, 5),)])
    assert monoid.unpack(monoid.reduce_sorted(columns, np.array([0, 3]))) == [((0, 11), (20, 20)), ((5, 5),)]
    assert monoid.combine(((0, 9),), ((1, 2), (10, 11))) == ((0, 11),)


def test_the_ends_of_64_bits_do_not_wrap() -> None:
    """The number after the last one would be the first one, and join them."""
    monoid = Ranges()
    columns = monoid.lift_columns(pa.array([MOST, LEAST, MOST - 1, None]))
    expected = ((LEAST, LEAST), (MOST - 1, MOST))
    assert monoid.unpack(monoid.reduce_sorted(columns, np.array([0]))) == [expected]
    assert monoid.unpack(monoid.from_arrow(monoid.to_arrow(monoid.pack([expected])))) == [expected]
    assert monoid.decode(monoid.encode(expected)) == expected


@pytest.mark.parametrize(
    "element",
    [
        3,
        [(1, 2)],
        ((1, 2), 3),
        ((2, 1),),
        ((3, 4), (1, 1)),
        ((1, 2), (3, 4)),
        ((1.0, 2.0),),
        ((1, 2, 3),),
        ((0, 2**63),),
    ],
)
def test_bytes_of_something_else_are_no_ranges(element: Any) -> None:
    """Ranges that touch, overlap or descend would make equal sets unequal."""
    with pytest.raises(ValueError, match=r"Ranges\(\): the (ranges of the )?encoded element"):
        Ranges().decode(encoding.encode(element))


@pytest.mark.parametrize("ranges", [((2, 1),), ((3, 4), (1, 1)), ((1, 2), (3, 4)), ((1, 5), (2, 9))])
def test_stored_ranges_are_checked(ranges: tuple[tuple[int, int], ...]) -> None:
    """Membership is found by bisection: ranges out of order would lose numbers without a word."""
    monoid = Ranges()
    firsts, lasts = np.array(ranges).T
    stored = monoid.to_arrow((Ragged.of(np.array([len(ranges)]), (firsts, lasts)),))
    with pytest.raises(ValueError, match=r"before it begins|not ascending"):
        monoid.from_arrow(stored)
    apart = monoid.to_arrow((Ragged.of(np.ones(len(ranges), np.int64), (firsts, lasts)),))
    if all(first <= last for first, last in ranges):
        assert monoid.unpack(monoid.from_arrow(apart)) == [(bounds,) for bounds in ranges]


def test_nulls_in_a_column_of_ranges_are_refused() -> None:
    """A null read as 0 would be a message nobody has seen."""
    monoid = Ranges()
    nullable = pa.list_(pa.struct([("first", pa.int64()), ("last", pa.int64())]))
    for rows in ([[None]], [[{"first": None, "last": 1}]], [None]):
        offsets = pa.array([0, len(rows[0] or ())], pa.int32())
        entries = pa.array(rows, nullable).values
        stored = pa.ListArray.from_arrays(offsets, entries, type=nullable, mask=pa.array([rows[0] is None]))
        with pytest.raises(ValueError, match=r"is null"):
            monoid.from_arrow([pa.Array.from_buffers(monoid.output_type, 1, stored.buffers()[:2], children=[entries])])


def test_only_integers_are_taken() -> None:
    """A float would lose the numbers beside it."""
    monoid = Ranges()
    with pytest.raises(TypeError, match=r"Ranges\(\) takes integers"):
        monoid.lift(1.5)
    with pytest.raises(OverflowError):
        monoid.lift(2**63)
    assert monoid.lift(None) == () and monoid.present(monoid.lift(3)) == [{"first": 3, "last": 3}]


def test_a_million_numbers_with_few_gaps_are_few_ranges() -> None:
    """Its size is that of the gaps."""
    monoid = Ranges()
    numbers = np.random.default_rng(3).permutation(1_000_000)
    columns = monoid.lift_columns(numbers[numbers % 250_000 != 0])
    (table,) = monoid.reduce_sorted(columns, np.array([0]))
    assert monoid.unpack((table,)) == [tuple((n * 250_000 + 1, n * 250_000 + 249_999) for n in range(4))]
