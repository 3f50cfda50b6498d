"""The arguments of a sketch are exact numbers: integers, or decimal fractions as text."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

_DECIMALS_MAX = 30


def fraction(owner: str, name: str, value: Any, low: str, high: str, *, ends: bool = False) -> Fraction:
    """An argument between ``low`` and ``high``, exclusive unless ``ends``.

    TypeError for a float, which is not exactly the number as written; ValueError outside the range.

    >>> fraction("CountMin", "error", "0.001", "0", "1")
    Fraction(1, 1000)
    """
    remedy = f"write {name}='0.01', a decimal fraction as text"
    if not isinstance(value, (str, Decimal)):
        raise TypeError(f"{owner}({name}={value!r}): {remedy}")
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise ValueError(f"{owner}({name}={value!r}) is not a number: {remedy}") from None
    if not number.is_finite() or not _is_between(number, Decimal(low), Decimal(high), ends):
        raise ValueError(f"{owner}({name}={value!r}) is not between {low} and {high}: {remedy}")
    if number.as_tuple().exponent < -_DECIMALS_MAX:  # type: ignore[operator]
        raise ValueError(f"{owner}({name}={value!r}) has more than {_DECIMALS_MAX} decimals: {remedy}")
    return Fraction(number)


def _is_between(number: Decimal, low: Decimal, high: Decimal, ends: bool) -> bool:
    return low <= number <= high if ends else low < number < high


def integer(owner: str, name: str, value: Any, low: int, high: int) -> int:
    """An argument from ``low`` to ``high``, inclusive. TypeError for anything but an int, ValueError outside."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{owner}({name}={value!r}): write an integer, {name}={max(low, min(high, 1000))}")
    if not low <= value <= high:
        raise ValueError(f"{owner}({name}={value!r}): write an integer from {low} to {high}")
    return value
