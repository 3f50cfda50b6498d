"""An entry of a table of counts is a sum in int64, and names the table where it overflows."""

from __future__ import annotations

import numpy as np
import pytest

from monoids import Bag
from monoids.numbers.integers import EntrySum
from monoids.values import INT64_MAX, INT64_MIN

ENTRIES = EntrySum(Bag(int))


def test_a_count_beyond_64_bits_is_told_of_its_table() -> None:
    """A count that wraps is a wrong count; one that names nobody is looked for in every table."""
    assert ENTRIES.combine(INT64_MAX - 1, 1) == INT64_MAX and ENTRIES.combine(INT64_MIN + 1, -1) == INT64_MIN
    assert ENTRIES.inverse(5) == -5
    for wrong in (lambda: ENTRIES.combine(INT64_MAX, 1), lambda: ENTRIES.combine(INT64_MIN, -1)):
        with pytest.raises(OverflowError, match=r"Bag\(int\): a count is outside 64-bit integers"):
            wrong()
    with pytest.raises(OverflowError, match="Bag"):
        ENTRIES.inverse(INT64_MIN)


def test_columns_overflow_in_the_same_words() -> None:
    """Two rows of one entry come to what one after the other comes to."""
    starts = np.array([0, 2])
    (sums,) = ENTRIES.reduce_sorted((np.array([1, 2, INT64_MAX]),), starts)
    assert sums.tolist() == [3, INT64_MAX]
    with pytest.raises(OverflowError, match="Bag"):
        ENTRIES.reduce_sorted((np.array([INT64_MAX, 1, 5]),), starts)
