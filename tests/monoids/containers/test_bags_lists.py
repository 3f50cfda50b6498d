"""A list keeps its values in the order in which they came."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids import ListConcat, encoding
from monoids.column import concat, take
from monoids.groupby.cells import group_codes


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.text(max_size=3)), min_size=1))
def test_grouping_keeps_the_order_of_arrival(rows: list[tuple[int, str | None]]) -> None:
    """A sort that is not stable would shuffle the values of a group."""
    monoid = ListConcat(str)
    lifted = monoid.lift_columns(pa.array([value for _, value in rows], pa.string()))
    order, starts = group_codes(np.array([group for group, _ in rows]), np.zeros(len(rows), np.int64))
    shown = monoid.present_columns(monoid.reduce_sorted(take(lifted, order), starts))
    groups = sorted({group for group, _ in rows})
    assert shown.to_pylist() == [[v for at, v in rows if at == group and v is not None] for group in groups]
    assert shown.type == pa.list_(pa.string())


def test_rows_that_were_taken_out_of_order_are_concatenated_in_theirs() -> None:
    """Lengths alone are added only where the values follow one another."""
    monoid = ListConcat(int)
    columns = monoid.pack([(1, 2), (), (3,), (4, 5, 6)])
    taken = take(concat([columns, columns]), np.array([3, 0, 7, 1, 2]))
    assert monoid.unpack(monoid.reduce_sorted(taken, np.array([0, 2, 4]))) == [(4, 5, 6, 1, 2), (4, 5, 6), (3,)]


def test_it_does_not_commute_and_says_so() -> None:
    """A state that folds its panes in another order than the messages' refuses it by this trait."""
    monoid = ListConcat(int)
    a, b = monoid.lift(1), monoid.lift(2)
    assert monoid.combine(a, b) == (1, 2) == monoid.fold([a, b]) != monoid.combine(b, a)
    assert not monoid.commutative and not monoid.idempotent and monoid.exact


@pytest.mark.parametrize("value", [[1], ("a",), (None,), (True,), 1])
def test_bytes_of_something_else_are_no_list(value: object) -> None:
    """They would be presented as integers."""
    with pytest.raises(ValueError, match=r"ListConcat\(int\): the encoded element"):
        ListConcat(int).decode(encoding.encode(value))


def test_a_null_inside_a_stored_list_is_refused() -> None:
    """It would be read as some value."""
    stored = ListConcat(int).schema.field(0).type
    with pytest.raises(ValueError, match=r"ListConcat\(int\): a value is null"):
        ListConcat(int).from_arrow([pa.ListArray.from_arrays([0, 2], pa.array([1, None]), type=stored)])
    with pytest.raises(ValueError, match="an element is null"):
        ListConcat(int).from_arrow([pa.array([[1], None], stored)])


def test_what_is_lifted_is_of_the_type() -> None:
    """The error says how to ask for the other type."""
    with pytest.raises(TypeError, match=r"ListConcat\(int\) takes integers, not 'a' \(str\): write ListConcat\(str\)"):
        ListConcat(int).lift("a")
    assert str(ListConcat(float).present(ListConcat(float).lift(-0.0))) == "[0.0]"
