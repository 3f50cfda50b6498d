"""Whether neighbours are of one key is what Python says of their values, whatever is compared to find out."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids.groupby import grouping
from monoids.groupby.grouping import same_as_next
from monoids.hashing import key_column
from tests.few import examples

ALIKE = ["", "\0", "a", "a\0", "a\0\0", "é", "12345678", "12345678\0", "12345678a", "1234567\0", "x" * 16, "x" * 15]
LISTS = st.one_of(
    st.lists(st.sampled_from(ALIKE)),
    st.lists(st.sampled_from(["key-0001", "key-0002"])),
    st.lists(st.sampled_from([*ALIKE, "x" * 17, "x" * 16 + "y", None])),
    st.lists(st.sampled_from([text.encode() for text in ALIKE])),
    st.lists(st.sampled_from([None, -1, 0, 2**63 - 1])),
    st.lists(st.sampled_from([0.0, -0.0, math.nan, None])),
)


def same(a: Any, b: Any) -> bool:
    return a == b or (a != a and b != b)


@settings(deadline=None, max_examples=examples(400))
@given(LISTS, st.data(), st.sampled_from([2, 3, 1 << 15]), st.integers(0, 3))
def test_neighbours_are_compared_as_python_does(values: list[Any], data: st.DataObject, chunk: int, skip: int) -> None:
    """Texts that differ in their length or their last byte only are two keys; also in a slice, in any order."""
    column = key_column(pa.array(values, from_pandas=False))[skip:]
    values = values[skip:]
    order = data.draw(st.permutations(range(len(values))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "CHUNK_ROWS", chunk)
        found = same_as_next([column, column], np.array(order, np.int64))
    assert found.tolist() == [same(values[a], values[b]) for a, b in pairwise(order)]
