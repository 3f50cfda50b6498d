"""A total outside int64 is held, stored in a wider column, and raises only when it is presented."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from monoids import Count, CountIf, Group, Max, Sum
from monoids.arrays import WIDE_INTEGER
from monoids.column import Columns, repeat, take
from tests.monoids.numbers.test_sums import HIGH, LOW, starts


@pytest.mark.parametrize(
    "columns",
    [
        (np.array([HIGH, 1]),),
        (np.array([LOW, -1]),),
        (np.array([2**62, 2**62, 0]),),
        (np.array([HIGH] * 9),),
        repeat((np.array([2**62]),), 2),
        repeat((np.array([LOW]),), 2),
    ],
)
def test_total_outside_int64_raises_only_when_it_is_presented(columns: Columns) -> None:
    """One key that leaves 64 bits, perhaps to come back, would stop the fold of all others."""
    found = Sum().reduce_sorted(columns, starts(0))
    expected = sum(columns[0].tolist())
    assert Sum().unpack(found) == [expected] == [Sum().fold(columns[0].tolist())]
    for present in (lambda: Sum().present_columns(found), lambda: Sum().present(expected)):
        with pytest.raises(OverflowError, match=rf"Sum\(\): the total {expected} is outside 64-bit integers"):
            present()
    back = Sum().combine_columns(found, Sum().pack([LOW])) if expected > 0 else found
    back = Sum().combine_columns(back, Sum().pack([HIGH])) if expected < 0 else back
    assert Sum().unpack(back) == [expected + (LOW if expected > 0 else HIGH)]


def test_a_wide_total_is_stored_in_a_wider_column_and_any_other_as_ever() -> None:
    """Runs of before must be read, and those of now written byte for byte, wherever they fit."""
    wide = Sum().reduce_sorted(Sum().pack([HIGH, HIGH, LOW, LOW, 5]), starts(0, 2, 4))
    stored = Sum().to_arrow(wide)
    assert stored[0].type == WIDE_INTEGER and Sum().unpack(Sum().from_arrow(stored)) == [2 * HIGH, 2 * LOW, 5]
    stored[0].validate(full=True)
    back = Sum().combine_columns(wide, Sum().pack([LOW, HIGH, 0]))
    for fits in (take(wide, slice(2, 3)), Sum().combine_columns(back, Sum().pack([0, 1, 0]))):
        (array,) = Sum().to_arrow(fits)
        assert array.type == pa.int64() and Sum().unpack(fits) == array.to_pylist()
    assert Sum().from_arrow([pa.array([1, 2]).cast(WIDE_INTEGER)])[0].dtype == np.int64
    with pytest.raises(ValueError, match="these columns belong to another monoid"):
        Max().from_arrow(stored)


def test_the_smallest_integer_has_an_inverse() -> None:
    """-(-2**63) would wrap to itself."""
    assert isinstance(Sum(), Group)
    assert Sum().inverse(HIGH) == -HIGH and Sum().inverse(LOW) == 2**63


def test_totals_that_fit_may_be_outside_on_their_way() -> None:
    """Whether a step fails must not depend on the half that ran it."""
    values = [2**62, 2**62, LOW]
    for monoid in (Sum(), Count(), CountIf()):
        assert monoid.fold(values) == 0
        assert monoid.unpack(monoid.reduce_sorted(monoid.pack(values), starts(0))) == [0]
        assert monoid.fold([]) == 0
