"""A window is the fold of its panes, in their order, however it is put together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Bag, Max, Monoid, SetUnion, Sum, record
from monoids.groupby import sliding
from monoids.groupby.sliding import PaneSums, slide, sum_windows
from tests.few import examples


class Listed(Monoid[tuple[int, ...]]):
    """Concatenation: panes in another order are another element."""

    identity = ()

    def combine(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        return a + b

    def lift(self, value: Any) -> tuple[int, ...]:
        return (value,)


MONOIDS: tuple[Monoid[Any], ...] = (Listed(), Max(), Max(str), Sum(), SetUnion(int), record(top=Max(), total=Sum()))
CELLS = st.sets(st.tuples(st.integers(3, 6), st.integers(-4, 14)), max_size=40)


def lifted(monoid: Monoid[Any], number: int) -> Any:
    if monoid.name == "record":
        return monoid.lift({"top": number, "total": number})
    return monoid.lift(str(number) if monoid.parameters().get("type") == "string" else number)


def listed(monoid: Monoid[Any], pieces: Any) -> list[tuple[int, int, Any]]:
    """All pieces, in the order (key, window)."""
    found = [
        (key, window, monoid.encode(element))
        for keys, windows, columns in pieces
        for key, window, element in zip(keys.tolist(), windows.tolist(), monoid.unpack(columns), strict=True)
    ]
    for keys, windows, _ in pieces:
        places = list(zip(keys.tolist(), windows.tolist()))
        assert places == sorted(places)
    return sorted(found)


@settings(deadline=None, max_examples=examples(400))
@given(
    st.sampled_from(MONOIDS),
    CELLS,
    st.integers(1, 12),
    st.integers(-14, 8),
    st.integers(-1, 20),
    st.fixed_dictionaries(
        {
            "_BLOCK_CELLS": st.sampled_from([1, 40, 1 << 17]),
            "_COPIES_MAX": st.sampled_from([1, 9, 1 << 20]),
            "_COPY_COST": st.sampled_from([0, 3, 1_000]),
            "_KEY_CELLS_MAX": st.sampled_from([5, 1 << 20]),
        }
    ),
)
def test_every_window_is_the_fold_of_its_panes(
    monoid: Monoid[Any], cells: set[tuple[int, int]], width: int, first: int, more: int, limits: dict[str, int]
) -> None:
    """By doubling and directly, whole and in pieces; windows without a pane of the key do not appear."""
    rows = sorted(cells)
    elements = [lifted(monoid, number) for number in range(len(rows))]
    last = first + more
    expected = []
    for key in sorted({key for key, _ in rows}):
        for window in range(first, last + 1):
            part = [e for e, (other, pane) in zip(elements, rows) if other == key and window <= pane < window + width]
            if part:
                expected.append((key, window, monoid.encode(monoid.fold(part))))
    keys, panes = (np.array([row[i] for row in rows], np.int64) for i in range(2))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(sliding, name, value)
        pieces = list(slide(monoid, PaneSums(keys, panes, monoid.pack(elements)), width, first, last))
    assert listed(monoid, pieces) == expected


@settings(deadline=None, max_examples=examples(200))
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5), st.integers(0, 6)), max_size=20),
    st.sampled_from([1, 7, 1 << 20]),
)
def test_windows_of_any_shape_are_summed_anew(rows: list[tuple[int, int, int]], copies_max: int) -> None:
    """Where windows do not start with every pane, rows say which they are in."""
    rows = sorted(rows, key=lambda row: row[0])
    monoid = Listed()
    expected: dict[tuple[int, int], tuple[int, ...]] = {}
    for number, (key, low, times) in enumerate(rows):
        for window in range(low, low + times):
            expected[key, window] = (*expected.get((key, window), ()), number)
    columns = [np.array([row[i] for row in rows], np.int64) for i in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sliding, "_COPIES_MAX", copies_max)
        pieces = list(sum_windows(monoid, *columns, monoid.pack([(number,) for number in range(len(rows))])))
    assert listed(monoid, pieces) == [(*place, monoid.encode(element)) for place, element in sorted(expected.items())]
    for keys, windows, _ in pieces:
        assert len(keys) <= copies_max or len(set(zip(keys.tolist(), windows.tolist()))) == 1 or copies_max > 1


def test_part_of_a_window_may_leave_64_bits() -> None:
    """-1 + max + 1 + -1 fits, max + 1 does not: what is summed in which order must not decide."""
    values = [-1, 2**63 - 1, 1, -1]
    keys, panes = np.zeros(4, np.int64), np.arange(4)
    ((_, windows, columns),) = slide(Sum(), PaneSums(keys, panes, Sum().pack(values)), 4, 0, 0)
    assert windows.tolist() == [0] and columns[0].tolist() == [2**63 - 2]
    ((_, _, columns),) = slide(Sum(), PaneSums(keys, panes, Sum().pack([1, 2**63 - 1, 1, -1])), 3, 0, 0)
    assert Sum().unpack(columns) == [2**63 + 1]


def test_part_of_a_window_may_raise() -> None:
    """The same, of counts in a sketch, which raise: a window that fits is summed directly, from the left."""
    bag = Bag(str)
    values = [{"a": count} for count in (-1, 2**63 - 1, 1, -1)]
    keys, panes = np.zeros(4, np.int64), np.arange(4)
    ((_, _, columns),) = slide(bag, PaneSums(keys, panes, bag.pack(values)), 4, 0, 0)
    assert bag.unpack(columns) == [{"a": 2**63 - 2}]
    with pytest.raises(OverflowError, match="a count is outside 64-bit integers"):
        list(slide(bag, PaneSums(keys, panes, bag.pack([*values[1:], {"a": 1}])), 2, 0, 0))


def test_a_long_history_of_one_key_is_closed_in_bounded_pieces() -> None:
    """A day of windows that start each second: 86,400 of one key, of as many panes each."""
    panes = np.arange(0, 3_000_000, 1_000)
    rows = PaneSums(np.zeros(len(panes), np.int64), panes, Max().pack(panes.tolist()))
    pieces = list(slide(Max(), rows, 86_400, 0, 2_999_999))
    windows = np.concatenate([piece[1] for piece in pieces])
    largest = np.concatenate([piece[2][0] for piece in pieces])
    assert max(len(piece[1]) for piece in pieces) <= 1 << 20
    assert np.array_equal(windows, np.arange(2_999_001))
    assert np.array_equal(largest, np.minimum((windows + 86_399) // 1_000 * 1_000, 2_999_000))
