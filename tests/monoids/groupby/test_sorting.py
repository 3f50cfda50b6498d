"""A stable sort by counting is NumPy's stable sort, of any type, number of rows and number of bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids.groupby import sorting
from monoids.groupby.sorting import stable_order
from tests.few import examples

TYPES = (np.int32, np.uint32, np.int64, np.uint64)


def check(numbers: Any, bits: int) -> None:
    order, ordered = stable_order(numbers, bits)
    expected = np.argsort(numbers, kind="stable")
    assert np.array_equal(order, expected)
    assert np.array_equal(ordered, numbers[expected]) and ordered.dtype == numbers.dtype


@settings(deadline=None, max_examples=examples(300))
@given(st.data(), st.sampled_from(TYPES), st.integers(1, 62), st.integers(0, 10), st.sampled_from([2, 8, 1 << 13]))
def test_any_numbers(data: st.DataObject, type_: Any, bits: int, few_rows: int, piece_rows: int) -> None:
    """Rows that change places answer "first" with another; a lost or doubled one is counted wrongly."""
    bits = min(bits, np.iinfo(type_).bits - (np.iinfo(type_).kind == "i"))
    numbers = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=60))
    repeated = data.draw(st.lists(st.sampled_from(numbers or [0]), max_size=60))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "_FEW_ROWS", few_rows)
        patch.setattr(sorting, "_PIECE_ROWS", piece_rows)
        check(np.array(numbers + repeated, type_), bits)


@pytest.mark.parametrize("bits", [1, 12, 13, 16, 17, 26, 33, 42, 62])
@pytest.mark.parametrize("rows", [1_025, 70_000])
def test_many_numbers(rows: int, bits: int) -> None:
    """Pieces, digits and their borders as they are in use."""
    numbers = np.random.default_rng(bits).integers(0, 2**bits, rows, np.uint64)
    check(numbers, bits)
    check(numbers | np.uint64(2**bits - 1 >> 1), bits)
    check(numbers % np.uint64(3), bits)
