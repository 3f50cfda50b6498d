"""Sessions of timestamped inputs are those of a plain computation, in whatever grouping they are added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids import Count, First, Last, ListConcat, Mean, SetUnion, Sum, encoding
from monoids.column import concat, take
from monoids.containers.intervals import Sessions

GAP = 4
INPUTS = st.lists(st.tuples(st.integers(-5, 40), st.integers(-9, 9)), max_size=12)


def plain(inputs: Sequence[tuple[int, int]], gap: int = GAP) -> tuple[tuple[int, int, int], ...]:
    """First time, last time and sum of each session."""
    found: list[list[int]] = []
    for time, value in sorted(inputs):
        if found and time - found[-1][1] < gap:
            found[-1][1], found[-1][2] = time, found[-1][2] + value
        else:
            found.append([time, time, value])
    return tuple((start, last, total) for start, last, total in found)


@given(st.lists(INPUTS, min_size=1, max_size=4))
def test_every_grouping_gives_the_plain_sessions(groups: list[list[tuple[int, int]]]) -> None:
    """One by one, group by group, and as columns: a lost fragment is a session cut in two."""
    monoid = Sessions(GAP, Sum())
    inputs = [one for group in groups for one in group]
    lifted = [monoid.lift(one) for one in inputs]
    assert monoid.fold(lifted) == plain(inputs)
    parts = [monoid.fold([monoid.lift(one) for one in group]) for group in groups]
    total: Any = monoid.identity
    for part in parts:
        total = monoid.combine(total, part)
    assert total == plain(inputs)
    columns = monoid.pack([*parts, *parts[:1]])
    sums = monoid.unpack(monoid.reduce_sorted(columns, np.array([0, len(parts)])))
    assert sums == [plain(inputs), plain(groups[0])]


@given(INPUTS, INPUTS)
def test_columns_in_any_order_and_with_gaps_between_them(one: list[Any], other: list[Any]) -> None:
    """Rows that were gathered lie apart: their entries are not side by side."""
    monoid = Sessions(GAP, Sum())
    elements = [monoid.fold([monoid.lift(pair) for pair in some]) for some in (one, other)]
    columns = take(concat([monoid.pack(elements), monoid.pack(elements[::-1])]), np.array([2, 0, 1, 3]))
    assert monoid.unpack(monoid.reduce_sorted(columns, np.array([0, 1]))) == [
        elements[1],
        monoid.fold([elements[0], elements[1], elements[0]]),
    ]
    assert monoid.unpack(monoid.from_arrow(monoid.to_arrow(columns))) == [elements[n] for n in (1, 0, 1, 0)]


def test_a_long_session_covers_what_begins_and_ends_within_it() -> None:
    """The end so far counts, not that of the fragment before."""
    monoid = Sessions(4, Count())
    long, short, next_ = ((0, 20, 5),), ((3, 3, 1), (9, 9, 1)), ((23, 23, 1),)
    assert monoid.fold([long, short, next_]) == ((0, 23, 8),)
    reduced = monoid.reduce_sorted(monoid.pack([long, short, next_, short]), np.array([0, 3]))
    assert monoid.unpack(reduced) == [((0, 23, 8),), short]


def test_the_gap_itself_divides() -> None:
    monoid = Sessions(4, Sum())
    assert monoid.fold([monoid.lift((0, 1)), monoid.lift((4, 1))]) == ((0, 0, 1), (4, 4, 1))
    assert monoid.fold([monoid.lift((0, 1)), monoid.lift((3, 1))]) == ((0, 3, 2),)


def test_inputs_without_a_time_contribute_nothing_and_a_value_of_none_makes_a_session() -> None:
    monoid = Sessions(4, Sum())
    assert monoid.lift(None) == monoid.lift((None, 3)) == ()
    assert monoid.lift({"timestamp": 7, "value": None}) == ((7, 7, 0),)
    assert monoid.present(monoid.lift((7, 2))) == [{"start": 7, "last": 7, "value": 2}]
    for time in (2**62 + 1, -(2**62)):
        with pytest.raises(OverflowError, match="beyond"):
            monoid.lift((time, 1))
    ends = monoid.fold([monoid.lift((2**62, 1)), monoid.lift((1 - 2**62, 1))])
    assert len(ends) == 2 and monoid.unpack(monoid.from_arrow(monoid.to_arrow(monoid.pack([ends])))) == [ends]


def test_it_has_the_traits_of_its_inner_monoid_and_refuses_one_that_does_not_commute() -> None:
    assert Sessions(1, SetUnion(int)).idempotent and not Sessions(1, Sum()).idempotent
    assert not Sessions(1, Mean()).exact and Sessions(1, Sum()).exact and Sessions(1, Last(int)).commutative
    assert Sessions(1, Sum(pa.decimal128(20, 3))).widens and not Sessions(1, SetUnion(int)).widens
    with pytest.raises(
        TypeError, match=r"ListConcat\(int\) is not declared commutative.* First, Last, MinBy and MaxBy"
    ):
        Sessions(1, ListConcat(int))
    for gap in (0, -1, 1.5, True, 2**62):
        with pytest.raises(ValueError, match="positive integer"):
            Sessions(gap, First(int))  # type: ignore[arg-type]
    assert Sessions(1, Sum()).fingerprint() != Sessions(2, Sum()).fingerprint()


@pytest.mark.parametrize(
    "element",
    [((4, 3, 0),), ((0, 0, 0), (3, 3, 0)), ((9, 9, 0), (0, 0, 0)), ((0, 2**62 + 1, 0),), ((-(2**62), 0, 0),)],
)
def test_what_no_sum_has_is_not_read(element: Any) -> None:
    """Out of order, too near, or beyond 62 bits: a later fold would take it for something else."""
    monoid = Sessions(4, Sum())
    with pytest.raises(ValueError, match="not in order, or not apart"):
        monoid.decode(monoid.encode(element))
    with pytest.raises(ValueError, match="not in order, or not apart"):
        monoid.from_arrow(monoid.to_arrow(monoid.pack([element])))


def test_other_bytes_and_nulls_are_not_read() -> None:
    monoid = Sessions(4, Sum())
    for element in (((0, 0),), ((0, True, b""),), (1,)):
        with pytest.raises(ValueError, match="not of sessions"):
            monoid.decode(encoding.encode(element))
    (array,) = monoid.to_arrow(monoid.pack([((0, 0, 1),)]))
    nulled = pa.ListArray.from_arrays(array.offsets, pa.nulls(1, array.type.value_type), type=array.type)
    with pytest.raises(ValueError, match="a session is null"):
        monoid.from_arrow([nulled])
