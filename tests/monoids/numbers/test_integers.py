"""Monoids of 64-bit integers: what each of them refuses to be read from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monoids import BitXor, Count, CountIf, Mean, Product, Sum, encoding
from monoids.monoid import Monoid
from monoids.numbers.integers import IntegerMonoid, decoded_as, int64

WHOLE: list[Any] = [Sum(), Count(), CountIf(), Product(), BitXor()]


class Largest(IntegerMonoid):
    """What a user of ``IntegerMonoid`` writes."""

    identity = -(2**63)
    name = "Largest"

    def combine(self, a: int, b: int) -> int:
        return max(a, b)


@pytest.mark.parametrize("monoid", WHOLE)
@pytest.mark.parametrize("other", [1.0, True, None, "1", (1,), 10**38, -(10**38)])
def test_bytes_of_other_elements_are_refused(monoid: Monoid[Any], other: Any) -> None:
    """A float read as a count would poison a state; an integer that no inputs have would fail only when stored."""
    with pytest.raises(ValueError, match="the encoded element"):
        monoid.decode(encoding.encode(other))
    assert monoid.decode(encoding.encode(-(2**63))) == -(2**63)


@pytest.mark.parametrize("other", [1, (1, 2), (1.0, 2.0), (1, 2.0, 3), [1, 2.0]])
def test_bytes_of_other_elements_than_means_and_floats_are_refused(other: Any) -> None:
    """The same, for a pair and a float."""
    for monoid in (Mean(), Sum(float)):
        with pytest.raises(ValueError, match="the encoded element"):
            monoid.decode(encoding.encode(other))
    assert Mean().decode(encoding.encode((1, 2.0))) == (1, 2.0)


def test_columns_of_a_monoid_of_ones_own() -> None:
    """Only combine is left to write: null is the identity, whatever it is."""
    monoid = Largest()
    columns = monoid.lift_columns([3, None, 7])
    assert columns[0].tolist() == [3, -(2**63), 7]
    assert monoid.unpack(monoid.reduce_sorted(columns, np.array([0, 1]))) == [3, 7]


def test_int64() -> None:
    """The bounds are in, and what to do instead is in the message."""
    assert [int64(Sum(), edge) for edge in (-(2**63), 2**63 - 1)] == [-(2**63), 2**63 - 1]
    with pytest.raises(OverflowError, match=r"Sum\(\): a total is outside 64-bit integers; use Sum\(int, unbounded"):
        int64(Sum(), 2**63)
    assert decoded_as(Sum(), encoding.encode("a"), str) == "a"
