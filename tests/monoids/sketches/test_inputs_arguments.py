"""Arguments of sketches are exact, and refused with what to write."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from monoids.sketches.inputs import fraction, integer


def test_numbers_are_what_was_written() -> None:
    """Lost: 0.1 as the float next to it, in a fingerprint."""
    assert fraction("S", "a", "0.1", "0", "1") == fraction("S", "a", Decimal("0.10"), "0", "1") == Fraction(1, 10)
    assert fraction("S", "a", "1", "0", "1", ends=True) == 1
    assert integer("S", "n", 5, 5, 5) == 5


@pytest.mark.parametrize("value", [0.1, None, 1, True])
def test_other_types_are_refused(value: Any) -> None:
    """Lost: what to write."""
    with pytest.raises(TypeError, match=r"S\(a=.*\): write a='0.01', a decimal fraction as text"):
        fraction("S", "a", value, "0", "1")


@pytest.mark.parametrize("value", ["0", "1", "-1", "inf", "nan", "snan", "", "one", "1e-999999999", "1e999999999"])
def test_what_is_out_of_range_is_refused(value: str) -> None:
    """Lost: sketches of no size, or of an infinite one."""
    with pytest.raises(ValueError, match=r"S\(a=.*: write a='0.01'"):
        fraction("S", "a", value, "0", "1")


def test_integers() -> None:
    """Lost: True as a width of 1."""
    for value in (True, 5.0, "5", None):
        with pytest.raises(TypeError, match="write an integer, n=10"):
            integer("S", "n", value, 1, 10)
    for value in (0, 11):
        with pytest.raises(ValueError, match="write an integer from 1 to 10"):
            integer("S", "n", value, 1, 10)
