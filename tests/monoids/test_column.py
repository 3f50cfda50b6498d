"""Columns of every kind are taken, joined and repeated as the lists that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids.column import ArrowColumn, Ragged, concat, is_constant, object_column, repeat, take

TABLES = st.lists(st.lists(st.integers(0, 99), max_size=4), max_size=6)


def ragged(rows: Sequence[Sequence[int]]) -> Ragged:
    lengths = np.array([len(row) for row in rows], np.int64)
    entries = np.array([x for row in rows for x in row], np.int64)
    return Ragged.of(lengths, (entries, ArrowColumn(pa.array([str(x) for x in entries.tolist()], pa.string()))))


def texts(rows: Sequence[Sequence[int]]) -> ArrowColumn:
    return ArrowColumn(pa.array([str(row) for row in rows], pa.string()))


def numbers(rows: Sequence[Sequence[int]]) -> Any:
    return np.array([hash(tuple(row)) for row in rows], np.int64)


def listed(column: Any) -> list[Any]:
    """The rows of a column, read one by one."""
    if isinstance(column, Ragged):
        number, text = column.flat()
        assert [str(x) for x in number.tolist()] == text.array.to_pylist()
        ends = np.cumsum(column.lengths).tolist()
        return [number[i:j].tolist() for i, j in zip([0, *ends[:-1]], ends)]
    return column.array.to_pylist() if isinstance(column, ArrowColumn) else column.tolist()


KINDS: list[Callable[[Any], Any]] = [ragged, texts, numbers]


@pytest.mark.parametrize("kind", KINDS)
@given(TABLES, st.data())
def test_columns_are_taken_sliced_and_joined_like_lists(kind: Any, rows: list[list[int]], data: st.DataObject) -> None:
    """A row that lands in another place belongs to another key from then on."""
    column = kind(rows)
    plain = listed(column)
    at = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8)) if rows else []
    (taken,) = take((column,), np.array(at, np.int64))
    assert listed(taken) == [plain[i] for i in at]
    begin, end = sorted(data.draw(st.tuples(st.integers(0, len(rows)), st.integers(0, len(rows)))))
    sliced = column[begin:end]
    assert listed(sliced) == plain[begin:end]
    (joined,) = concat([(taken,), (sliced,), (column[:0],), (column,)])
    assert listed(joined) == [plain[i] for i in at] + plain[begin:end] + plain
    assert len(joined) == len(at) + end - begin + len(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_repeated(kind: Any) -> None:
    """One value given for every row of a batch must reach all of them."""
    (column,) = repeat((kind([[1, 2], [3]])[1:],), 3)
    assert listed(column) == listed(kind([[3]] * 3))
    (again,) = take((column,), np.array([0, 2]))
    assert listed(again) == listed(kind([[3]] * 2))
    (joined,) = concat([(column,), (kind([[4, 5]]),)])
    assert listed(joined) == listed(kind([[3], [3], [3], [4, 5]]))


def test_constants_stay_constant_only_at_one_value() -> None:
    """A constant that is written out costs memory; two constants taken for one lose a value."""
    seven = np.broadcast_to(np.int64(7), 3)
    eight = np.broadcast_to(np.int64(8), 2)
    (same,) = concat([(seven,), (seven,)])
    (mixed,) = concat([(seven,), (eight,)])
    assert is_constant(same) and same.tolist() == [7] * 6
    assert not is_constant(mixed) and mixed.tolist() == [7, 7, 7, 8, 8]
    assert is_constant(take((seven,), np.array([1]))[0])
    assert is_constant(seven[1:]) and not is_constant(seven[:0])
    assert not is_constant(ragged([[1]])) and not is_constant(texts([[1]]))


@given(TABLES, st.integers(0, 3))
def test_head_keeps_the_first_entries(rows: list[list[int]], most: int) -> None:
    """The k smallest of a sketch are the first k of its sorted table."""
    assert listed(ragged(rows).head(most)) == [row[:most] for row in rows]
    assert ragged(rows).head(most).entries == sum(min(len(row), most) for row in rows)


@given(TABLES)
def test_spread_gives_each_entry_the_value_of_its_row(rows: list[list[int]]) -> None:
    """An entry spread to another row would be summed into another key."""
    values = np.arange(len(rows)) * 10
    assert ragged(rows).spread(values).tolist() == [number * 10 for number, row in enumerate(rows) for _ in row]


def test_slices_of_single_entries() -> None:
    """A part of a lifted column must have the entries of its own rows, and no others."""
    table = Ragged.singles((np.array([5, 6, 7, 8]),))
    assert [table[rows].flat()[0].tolist() for rows in (slice(0, 2), slice(1, 3), slice(3, 4))] == [[5, 6], [6, 7], [8]]


def test_single_entries_are_rows() -> None:
    """What a lift of a million values returns must be read without copying it."""
    column = np.array([5, 6, 7])
    table = Ragged.singles((column,))
    assert table.flat()[0] is column
    assert table.spread(column) is column
    assert take((table,), np.array([2, 0]))[0].flat()[0].tolist() == [7, 5]
    assert repeat((table[:1],), 2)[0].spread(np.array([1, 2])).tolist() == [1, 2]


def test_entries_left_out_are_not_carried_along() -> None:
    """A slice joined with others must not pin the whole column that it was cut from."""
    table = ragged([[1, 2, 3], [4], [5, 6]])
    (joined,) = concat([(table[1:2],), (table[1:2],)])
    assert len(joined.columns[0]) == 2 and listed(joined) == [[4], [4]]
    assert joined.nbytes < table.nbytes


def test_objects_are_not_unpacked() -> None:
    """NumPy makes a matrix of lists of one length."""
    column = object_column([[1, 2], [3, 4]])
    assert column.shape == (2,) and column.tolist() == [[1, 2], [3, 4]]
