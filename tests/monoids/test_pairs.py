"""Pairs as inputs: the one way to give two columns to a monoid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids.pairs import holds_columns, pair, pair_columns

NAMES = ("a", "b")


def lists(parts: tuple[Any, Any]) -> tuple[list[Any], list[Any]]:
    first, second = (part if isinstance(part, list) else pa.array(part).to_pylist() for part in parts)
    return first, second


def test_one_pair() -> None:
    """As people write them, and as engines give them."""
    for given in ((1, "x"), [1, "x"], {"b": "x", "a": 1}, (np.int64(1), pa.scalar("x"))):
        assert pair(given, NAMES) == (1, "x")
    assert pair(None, NAMES) == (None, None)
    with pytest.raises(ValueError, match="fields a and b, not a, c"):
        pair({"a": 1, "c": 2}, NAMES)
    with pytest.raises(ValueError, match="not a, b, c"):
        pair({"a": 1, "b": 2, "c": 2}, NAMES)


def test_columns_of_pairs() -> None:
    """Nulls of the struct are nulls of both; slices stay slices."""
    struct = pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "z"}])
    expected = ([1, None, None], ["x", None, "z"])
    assert lists(pair_columns(struct, NAMES)) == expected
    assert lists(pair_columns(pa.concat_arrays([struct, struct]).slice(3), NAMES)) == expected
    assert lists(pair_columns(pa.chunked_array([struct.slice(0, 1), struct.slice(1)]), NAMES)) == expected
    swapped = pa.StructArray.from_arrays(struct.flatten()[::-1], ["b", "a"], mask=pa.array([False, True, False]))
    assert lists(pair_columns(swapped, NAMES)) == expected
    rows = [{"a": 1, "b": "x"}, None, (None, "z")]
    assert pair_columns(rows, NAMES) == expected == pair_columns(np.array(rows, object), NAMES)
    assert lists(pair_columns(pa.array([[1, 2], None]), NAMES)) == ([1, None], [2, None])
    assert lists(pair_columns(pa.nulls(2), NAMES)) == ([None, None], [None, None])


def test_columns_side_by_side() -> None:
    """Each by itself a column or a value for every row."""
    column = pa.array([1, None])
    for given in ((column, 7), {"a": column, "b": 7}):
        assert holds_columns(given)
        first, second = pair_columns(given, NAMES, 2)
        assert first is column and second.tolist() == [7, 7] and second.strides == (0,)
    assert lists(pair_columns((column, "x"), NAMES, 2)) == ([1, None], ["x", "x"])
    assert lists(pair_columns((column, None), NAMES, 2)) == ([1, None], [None, None])
    assert lists(pair_columns((1, "x"), NAMES, 2)) == ([1, 1], ["x", "x"])
    assert lists(pair_columns(None, NAMES, 1)) == ([None], [None])
    assert not holds_columns((1, 2)) and not holds_columns(column) and not holds_columns("ab")


def test_what_is_refused() -> None:
    """A wrong length would shift every row after it."""
    with pytest.raises(ValueError, match="field 'b' was given a column of 1 values for 2 rows"):
        pair_columns((pa.array([1, 2]), pa.array([1])), NAMES, 2)
    with pytest.raises(ValueError, match="a column of 1 pairs for 2 rows"):
        pair_columns(pa.array([{"a": 1, "b": 2}]), NAMES, 2)
    with pytest.raises(ValueError, match=r"fields a and b, not a$"):
        pair_columns(pa.array([{"a": 1}]), NAMES)
    for wrong in (pa.array([1]), np.zeros((1, 2)), np.zeros(1)):
        with pytest.raises(TypeError, match="a struct array with these fields"):
            pair_columns(wrong, NAMES)
    for wrong in ("ab", 3, (1, 2, 3)):
        with pytest.raises(TypeError, match=r"a pair is a tuple \(a, b\)"):
            pair(wrong, NAMES)
