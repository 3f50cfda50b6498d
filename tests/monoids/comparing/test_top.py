"""TopK and BottomK: against sorting all values, in groups and in runs."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import BottomK, TopK, encoding
from monoids.column import concat, take
from monoids.comparing.top import first_entries


def _reduced(monoid: Any, columns: Any, cells: Any) -> list[Any]:
    """The elements of the cells that have rows: both ways of reducing."""
    held = np.unique(cells)
    order = np.argsort(cells, kind="stable")
    starts = np.searchsorted(cells[order], held)
    by_cells = monoid.reduce_cells(columns, cells, np.bincount(cells), held)
    by_segments = monoid.reduce_sorted(take(columns, order), starts)
    assert monoid.unpack(by_cells) == monoid.unpack(by_segments)
    return monoid.unpack(by_cells)


@pytest.mark.parametrize("k", [1, 3, 50])
@pytest.mark.parametrize("monoid", [TopK, BottomK])
def test_the_first_of_all_values_sorted(monoid: Any, k: int) -> None:
    """A value that comes three times takes three places."""
    draw = np.random.default_rng(k)
    values, cells = draw.integers(-20, 20, 3000), draw.integers(0, 90, 3000)
    top = monoid(k)
    found = _reduced(top, top.lift_columns(values), cells)
    expected = [tuple(sorted(values[cells == cell].tolist(), reverse=monoid is TopK)[:k]) for cell in np.unique(cells)]
    assert found == expected
    assert top.fold([top.lift(value) for value in values[cells == 0].tolist()]) == expected[0]


@pytest.mark.parametrize(("monoid", "largest"), [(TopK(4, str, by=float), True), (BottomK(4, str, by=float), False)])
def test_the_values_with_the_best_by(monoid: Any, largest: bool) -> None:
    """Ties of ``by`` at the cut are decided by the values, not by what came first."""
    draw = np.random.default_rng(11)
    by = draw.integers(0, 4, 2000) / 2
    names = [f"/page/{number}" for number in draw.integers(0, 300, 2000).tolist()]
    cells = draw.integers(0, 60, 2000)
    found = _reduced(monoid, monoid.lift_rows((by, pa.array(names)), 2000), cells)
    expected = [
        tuple(sorted(((by[row], names[row]) for row in np.flatnonzero(cells == cell)), reverse=largest)[:4])
        for cell in np.unique(cells)
    ]
    assert found == expected


def test_a_sum_in_any_pieces_is_the_sum_at_once() -> None:
    """What a checkpoint cut off must not be missed by the next one."""
    source = random.Random(2)
    values = [source.randrange(9) for _ in range(400)]
    for monoid in (TopK(7), BottomK(7)):
        parts = [values[at : at + 13] for at in range(0, 400, 13)]
        columns = concat([monoid.reduce_sorted(monoid.lift_columns(part), np.array([0])) for part in parts])
        expected = tuple(sorted(values, reverse=repr(monoid) == "TopK(7)")[:7])
        assert monoid.unpack(monoid.reduce_sorted(columns, np.array([0]))) == [expected]


def test_what_is_cut_off_takes_no_memory() -> None:
    """A state of ten values a key must not keep the million that it has seen."""
    monoid = TopK(10)
    (table,) = monoid.reduce_sorted(monoid.lift_columns(np.arange(100_000)), np.array([0, 50_000]))
    assert len(table.columns[0]) == 20 and table.columns[0].base is None


def test_nulls_nan_and_zeros() -> None:
    """NaN is above all numbers, None is nothing."""
    values = [None, math.nan, 1.0, -0.0, math.inf, None]
    top, bottom = TopK(2, float), BottomK(2, float)
    for monoid, expected in ((top, "[nan, inf]"), (bottom, "[0.0, 1.0]")):
        columns = monoid.lift_columns(pa.array(values))
        reduced = monoid.reduce_sorted(columns, np.array([0]))
        assert str(monoid.present_columns(reduced).to_pylist()[0]) == expected
        assert str(monoid.present(monoid.fold([monoid.lift(value) for value in values]))) == expected
        assert math.copysign(1, monoid.unpack(monoid.lift_columns([-0.0]))[0][0]) == 1
    pairs = TopK(2, str, by=float)
    given = [None, (None, "a"), (1.0, None), (math.nan, "b")]
    assert pairs.present_columns(pairs.lift_columns(given)).to_pylist()[:3] == [[], [], []]
    assert [len(pairs.lift(pair)) for pair in given] == [0, 0, 0, 1]


def test_presented_lists() -> None:
    """With ``by=`` both are shown; a lone surrogate stops no run."""
    pages = TopK(2, str, by=float)
    columns = pages.pack([((1.5, "\ud800"), (0.5, "/a")), ()])
    shown = [[{"by": 1.5, "value": "\\ud800"}, {"by": 0.5, "value": "/a"}], []]
    assert pages.present_columns(columns).to_pylist() == shown
    assert pages.present_columns(columns).type == pages.output_type
    assert pages.present(((1.5, "\ud800"),)) == [{"by": 1.5, "value": "\ud800"}]
    decimals = BottomK(2, pa.decimal128(9, 2))
    assert decimals.present_columns(decimals.pack([(Decimal("1.50"),)])).to_pylist() == [[Decimal("1.50")]]
    assert decimals.present(()) == []


@pytest.mark.parametrize("k", [0, -1, True, 2.0, "3", None, str])
def test_a_number_that_keeps_nothing_is_refused(k: Any) -> None:
    """Early."""
    with pytest.raises(TypeError, match="1 or more"):
        TopK(k)


@pytest.mark.parametrize(
    ("give", "match"),
    [
        (lambda: TopK(2, complex), "write one of"),
        (lambda: TopK(2, str, by=(int, str)), r"write one type, such as by=float"),
        (lambda: TopK(2).lift("x"), r"TopK\(2\) takes integers, not 'x'.*: write TopK\(2, str\)"),
        (lambda: BottomK(2, str, by=int).lift((1.5, "x")), "by=int"),
        (lambda: BottomK(2, str, by=int).lift("x"), "a pair is a tuple"),
        (lambda: TopK(2, str).lift_columns(pa.array([1])), "takes strings"),
    ],
)
def test_what_is_of_another_type_is_refused(give: Any, match: str) -> None:
    """With what to write."""
    with pytest.raises(TypeError, match=match):
        give()


def test_elements_of_another_hand_are_refused() -> None:
    """An unsorted list would be cut in the wrong place."""
    top, pages = TopK(2), TopK(2, str, by=int)
    for element in ([3], (1, 2), (3, 2, 1), ("x",), (None,), (True,), 3):
        with pytest.raises(ValueError, match="encoded element"):
            top.decode(encoding.encode(element))
    stored = top.schema.field(0).type
    for rows, fault in (([[1, 2]], "not sorted"), ([[3, 2, 1]], "more than 2"), ([None], "null")):
        with pytest.raises(ValueError, match=rf"TopK\(2\): .*{fault}"):
            top.from_arrow([pa.array(rows, stored)])
    with pytest.raises(ValueError, match=r"TopK\(2\): an entry is null"):
        top.from_arrow([pa.ListArray.from_arrays([0, 1], pa.array([None], pa.int64()), type=stored)])
    with pytest.raises(ValueError, match=r"TopK\(2\) is stored as columns of"):
        top.from_arrow([pa.array([[2, 1]])])
    type = pages.schema.field(0).type
    for rows in ([[(1, b"a"), (1, b"b")]], [[(1, b"a"), (2, b"b")]]):
        with pytest.raises(ValueError, match="not sorted"):
            pages.from_arrow([pa.array(rows, type)])
    good = pages.from_arrow([pa.array([[(2, b"a"), (1, b"b")], [(9, b"")]], type)])
    assert pages.unpack(good) == [((2, "a"), (1, "b")), ((9, ""),)]
    assert top.unpack(top.from_arrow([pa.array([[2, 2], [5]], stored)])) == [(2, 2), (5,)]


def test_each_is_written_and_told_apart_as_it_was_made() -> None:
    """State of one must not be read as state of the other."""
    made = ["TopK(3)", "TopK(4)", "BottomK(3)", "TopK(3, str)", "TopK(3, str, by=float)", "TopK(3, by=float)"]
    names = {"TopK": TopK, "BottomK": BottomK}
    monoids = [eval(text, names) for text in made]
    assert list(map(repr, monoids)) == made
    assert len({str(monoid.fingerprint()) for monoid in monoids}) == len(made)


def test_empty_columns() -> None:
    """A step without records reduces nothing."""
    none = np.zeros(0, np.int64)
    for monoid in (TopK(2), BottomK(2, str, by=str)):
        columns = monoid.lift_columns([])
        assert monoid.unpack(monoid.reduce_sorted(columns, none)) == []
        assert monoid.unpack(monoid.reduce_cells(columns, none, none, none)) == []
        assert monoid.unpack(monoid.from_arrow(monoid.to_arrow(columns))) == []
        empty = monoid.pack([(), ()])
        assert monoid.unpack(monoid.reduce_sorted(empty, np.array([0]))) == [()]
    assert first_entries(none, (none,), 0, 3, False).tolist() == []
