"""Unions and intersections of sets: what the laws do not reach."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids import Count, ListConcat, SetIntersection, SetUnion, encoding


def test_set_union_presents_a_sorted_list_of_its_type() -> None:
    """An order of hashing would differ between processes."""
    monoid = SetUnion(int)
    columns = monoid.lift_columns(pa.array([30, None, 4, 30, 200]))
    reduced = monoid.reduce_sorted(columns, np.array([0, 1, 2]))
    assert monoid.unpack(reduced) == [frozenset({30}), frozenset(), frozenset({4, 30, 200})]
    shown = monoid.present_columns(reduced)
    assert shown.to_pylist() == [[30], [], [4, 30, 200]]
    assert shown.type == pa.list_(pa.int64())
    assert monoid.lift(True) == frozenset({1}) and [type(value) for value in monoid.lift(np.int8(1))] == [int]
    with pytest.raises(TypeError, match=r"SetUnion\(int\) takes integers, not 'a' \(str\): write SetUnion\(str\)"):
        monoid.lift("a")


@pytest.mark.parametrize("monoid", [SetUnion(int), SetIntersection(int)], ids=repr)
@pytest.mark.parametrize("value", [3, (1,), frozenset({"a"}), frozenset({True}), frozenset({2**70}), frozenset({None})])
def test_bytes_of_something_else_are_no_set(monoid: Any, value: Any) -> None:
    """A set of another type would be counted as if it were of this one."""
    with pytest.raises(ValueError, match="encoded element"):
        monoid.decode(encoding.encode(value))


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.frozensets(st.integers(0, 5))), min_size=1))
def test_an_intersection_is_what_python_says_it_is(rows: list[tuple[int, frozenset[int] | None]]) -> None:
    """The columns count how many sets hold a value; a set counted twice, or a null counted, would rule values out."""
    monoid = SetIntersection(int)
    rows.sort(key=lambda row: row[0])
    groups = [[values for at, values in rows if at == group] for group in sorted({at for at, _ in rows})]
    lists = pa.array([None if values is None else [*values, *values, None] for _, values in rows], pa.list_(pa.int64()))
    starts = np.cumsum([0, *map(len, groups)])[:-1]
    held = [[values for values in group if values is not None] for group in groups]
    expected = [sorted(frozenset.intersection(*sets)) if sets else None for sets in held]
    columns = monoid.lift_rows(lists, len(rows))
    assert monoid.present_columns(monoid.reduce_sorted(columns, starts)).to_pylist() == expected
    cells = np.repeat(np.arange(len(groups)), list(map(len, groups))) * 2
    counts = np.bincount(cells)
    reduced = monoid.reduce_cells(columns, cells, counts, np.flatnonzero(counts))
    assert reduced is not None and monoid.present_columns(reduced).to_pylist() == expected


def test_an_intersection_of_scattered_keys_is_sorted_rather_than_addressed() -> None:
    """The way for keys too far apart for a cell each must agree with the other one."""
    monoid = SetIntersection(int)
    common, rows = [-(2**63), 0, 2**63 - 1], 300
    lists = pa.array([[*common, row, row << 40] for row in range(1, rows + 1)])
    starts = np.arange(0, rows, 3)
    reduced = monoid.reduce_sorted(monoid.lift_columns(lists), starts)
    assert monoid.unpack(reduced) == [frozenset(common)] * len(starts)


def test_nothing_in_common_is_not_everything() -> None:
    """An empty set stays empty; without inputs nothing is ruled out, and None says so."""
    monoid = SetIntersection(str)
    empty = monoid.combine(monoid.lift(["a"]), monoid.lift({"b"}))
    assert (monoid.present(empty), monoid.present(monoid.identity)) == ([], None)
    assert monoid.combine(empty, monoid.identity) == monoid.combine(empty, monoid.lift(["a"])) == frozenset()
    assert [monoid.decode(monoid.encode(element)) for element in (empty, None)] == [empty, None]
    (stored,) = monoid.to_arrow(monoid.pack([empty, None]))
    assert stored.to_pylist() == [[], None]
    assert monoid.unpack(monoid.from_arrow([stored[1:]])) == [None]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1, 2], None, [2, 3]], pa.large_list(pa.int32())),
        pa.array([[1, 2], None, [2, 3]], pa.list_(pa.int64(), 2)),
        pa.array([[1, 2], None, [2, 3]], pa.list_view(pa.int64())),
        pa.chunked_array([pa.array([[1, 2], None]), pa.array([[2, 3]])]),
        pa.array([[9], [1, 2], None, [2, 3]])[1:],
        np.array([{1, 2}, None, [2, 3]], object),
    ],
    ids=lambda column: str(getattr(column, "type", "objects")),
)
def test_every_column_of_lists_is_lifted(column: Any) -> None:
    """Arrow has five ways to write a list."""
    monoid = SetIntersection(int)
    assert monoid.unpack(monoid.lift_rows(column, 3)) == [frozenset({1, 2}), None, frozenset({2, 3})]


@pytest.mark.parametrize("value", ["ab", 1, {"a": 1}, b"ab"])
def test_an_intersection_takes_whole_sets(value: Any) -> None:
    """A string would be taken for the set of its letters."""
    with pytest.raises(TypeError, match=r"SetIntersection\(str\) takes sets of values, not"):
        SetIntersection(str).lift(value)
    with pytest.raises(TypeError, match="takes columns of lists, not "):
        SetIntersection(str).lift_columns(pa.array([value]))


def test_one_nan_and_one_zero() -> None:
    """Values that a reader cannot tell apart would rule each other out."""
    monoid = SetIntersection(float)
    common = monoid.combine(monoid.lift([math.nan, -0.0]), monoid.lift([-math.nan, 0.0, 1.0]))
    assert str(monoid.present(common)) == "[0.0, nan]"


def test_sets_and_lists_need_a_type() -> None:
    """Values of several types have no common order."""
    for monoid in (SetUnion, SetIntersection, ListConcat):
        with pytest.raises(TypeError, match=r"write one of .*bool"):
            monoid(list)
    with pytest.raises(ValueError, match="not of type"):
        SetUnion(int).decode(Count().encode(3))
