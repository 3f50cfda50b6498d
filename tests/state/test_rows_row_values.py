"""Rows keep their keys and times, whatever their values are replaced by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids import Monoid, Sum
from monoids.containers.intervals import Sessions
from monoids.groupby.summing import GroupSums, group_by
from persistent.state.rows import (
    NUMBERS,
    OPEN_PANE,
    concat_rows,
    counted,
    fold,
    hashes_of,
    in_panes,
    marked,
    marking,
    numbered,
    over,
    same_rows,
    with_values,
)

KEYS = st.sampled_from("abcdef")
PARTS = st.lists(st.lists(st.tuples(KEYS, st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=6), min_size=1)


class Joined(Monoid[str]):
    """Digits, one after the other."""

    identity = ""

    def lift(self, value: int) -> str:
        return str(value)

    def combine(self, a: str, b: str) -> str:
        return a + b


def part_of(monoid: Monoid[Any], rows: list[tuple[str, int, int]]) -> GroupSums:
    keys, panes, values = zip(*rows)
    inner = [(10 * pane, value) if isinstance(monoid, Sessions) else value for pane, value in zip(panes, values)]
    return group_by(monoid, [pa.array(keys)], np.array(panes), monoid.pack([*map(monoid.lift, inner)]), 1)


def content(monoid: Monoid[Any], rows: GroupSums) -> dict[tuple[str, int], Any]:
    return dict(zip(zip(rows.keys[0].to_pylist(), rows.panes.tolist()), monoid.unpack(rows.columns)))


@pytest.mark.parametrize("kept", [Sum(), Sessions(5, Sum())])
@given(PARTS, PARTS)
def test_marks_tell_what_is_of_the_delta_and_leave_the_sums_as_they_are(kept: Any, before: Any, delta: Any) -> None:
    """A row without a mark would not be published, and one with too many would be published again in vain."""
    parts = [[part_of(kept, rows) for rows in some] for some in (before, delta)]
    rows = fold(marking(kept), [*marked(kept, parts[0], 0), *marked(kept, parts[1], 1)], 1)
    plain = fold(kept, [*parts[0], *parts[1]], 1)
    fresh = content(kept, fold(kept, parts[1], 1))
    found = content(marking(kept), rows)
    if isinstance(kept, Sessions):
        sums = {place: tuple((*times, value) for *times, (value, _) in element) for place, element in found.items()}
        changed = {place for place, element in found.items() if any(mark for *_, (_, mark) in element)}
    else:
        sums = {place: value for place, (value, _) in found.items()}
        changed = {place for place, (_, mark) in found.items() if mark}
    assert sums == content(kept, plain) and changed == fresh.keys()


@given(PARTS)
def test_numbers_are_in_the_order_in_which_values_are_summed_up(given_parts: Any) -> None:
    """Of a monoid that does not commute, the first value would be another one."""
    kept = Joined()
    parts = [part_of(kept, rows) for rows in given_parts]
    values, of_numbers = numbered(kept, parts)
    expected = in_panes(kept, fold(kept, parts, 1), np.full(len(fold(kept, parts, 1)), OPEN_PANE))
    folded = fold(over(kept, NUMBERS), of_numbers, 1)
    sets = in_panes(NUMBERS, folded, np.full(len(folded), OPEN_PANE))
    elements = kept.unpack(values)
    for place, numbers in content(NUMBERS, sets).items():
        assert kept.fold([elements[number] for number in sorted(numbers)]) == content(kept, expected)[place]


@given(PARTS, PARTS)
def test_the_rows_that_two_have_in_common(first: Any, second: Any) -> None:
    one, other = (fold(Sum(), [part_of(Sum(), rows) for rows in some], 1) for some in (first, second))
    here, there = same_rows(one, other, 1)
    places = [list(content(Sum(), rows)) for rows in (one, other)]
    assert [places[0][row] for row in here] == [places[1][row] for row in there]
    assert {places[0][row] for row in here} == {*places[0]} & {*places[1]}


@given(PARTS)
def test_parts_one_after_the_other(given_parts: Any) -> None:
    parts = [part_of(Sum(), rows) for rows in given_parts]
    rows = concat_rows(parts)
    assert rows.panes.tolist() == [pane for part in parts for pane in part.panes.tolist()]
    assert hashes_of(parts).tolist() == sorted({*rows.hashes.tolist()})
    assert [part.columns[0].tolist() for part in counted(Sum(), parts)] == [[1] * len(part) for part in parts]
    assert with_values(Sum(), rows, (rows.panes,)).columns[0] is rows.panes
    assert not len(hashes_of([]))
