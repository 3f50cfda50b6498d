"""Distinct keys are numbered, each once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids.encoding import encode
from monoids.groupby.summing import dense_range, is_dense, number_distinct
from monoids.hashing import hash_keys, key_column

KEY_LISTS = st.one_of(
    st.lists(st.integers(-3, 3)),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)),
    st.lists(st.none() | st.text(max_size=3)),
    st.lists(st.none() | st.booleans()),
    st.lists(st.floats(width=64)),
    st.lists(st.binary(max_size=2)),
)


@settings(deadline=None)
@given(KEY_LISTS, st.booleans())
def test_distinct_keys_are_numbered_in_the_order_of_their_hashes(values: list[Any], twice: bool) -> None:
    """Each key has one number, and the number leads back to the key: else its updates go to another's state."""
    column = key_column(pa.array(values, from_pandas=False))
    keys = [column, column] if twice else [column]
    distinct, hashes, table = number_distinct(keys, len(column), dense_range(keys))
    numbers = table.all()
    assert hashes.tolist() == sorted(hashes.tolist())
    assert hashes.tolist() == hash_keys(distinct, len(distinct[0])).tolist()
    for given_column, own in zip(keys, distinct):
        taken = own.take(pa.array(numbers))
        assert [encode(value) for value in taken.to_pylist()] == [encode(value) for value in given_column.to_pylist()]
    places = [tuple(encode(column.to_pylist()[row]) for column in distinct) for row in range(len(distinct[0]))]
    assert len(set(places)) == len(places), "a key stands twice"


def test_without_keys_all_rows_are_one() -> None:
    """One state for the whole task."""
    distinct, hashes, numbers = number_distinct([], 3, None)
    assert distinct == () and len(hashes) == 1 and numbers.all().tolist() == [0, 0, 0]
    assert len(number_distinct([], 0, None)[1]) == 0


def test_dense_is_only_what_is() -> None:
    """Cells addressed by a key out of their range would take all memory, or another's cell."""
    assert is_dense([pa.array([5, 6, 70])])
    assert not is_dense([pa.array([5, None])])
    assert not is_dense([pa.array([0, 1 << 40])])
    assert not is_dense([pa.array(["a"])])
    assert not is_dense([pa.array([-(2**63), 2**63 - 1])])
    assert not is_dense([pa.array([1]), pa.array([1])])
