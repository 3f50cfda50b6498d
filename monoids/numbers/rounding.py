"""A float is an integer of 53 bits times a power of two. Columns of these multiply and add without loss.

    value == sign * magnitude * 2**-1074        magnitude == sum(limbs[i] * 2**(32 * i)) * 2**exponent

Sums of products are taken in digits: see digits.py. Converting back rounds once, to the nearest float, ties to even.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monoids.column import Column, Ragged

MASK = 0xFFFFFFFF


@dataclass(frozen=True)
class Magnitudes:
    """``sum(limbs[i] * 2**(32 * i)) * 2**exponents``. Limbs are uint64 below 2**32 and have ``bits`` bits together."""

    limbs: Sequence[Column]
    exponents: Column
    bits: int


def magnitudes(values: Column) -> Magnitudes:
    """The magnitudes of finite floats, in units of 2**-1074."""
    patterns = values.view(np.int64)
    exponents = (patterns >> 52) & 0x7FF
    mantissas = patterns & ((1 << 52) - 1)
    mantissas += (exponents > 0).astype(np.int64) << 52
    exponents -= exponents > 0
    if not mantissas.all():
        # Zeros may have any exponent, so they take one that occurs.
        exponents[mantissas == 0] = exponents.max()
    unsigned = mantissas.view(np.uint64)
    low, high = unsigned & np.uint64(MASK), unsigned >> np.uint64(32)
    return Magnitudes([low, high], exponents, 53) if low.any() else Magnitudes([high], exponents + 32, 21)


def multiply(a: Magnitudes, b: Magnitudes) -> Magnitudes:
    """The products, exactly."""
    bits = a.bits + b.bits
    total: list[Any] = [None] * (len(a.limbs) + len(b.limbs))
    mask, shift = np.uint64(MASK), np.uint64(32)
    for offset, limb in enumerate(b.limbs):
        carry: Any = None
        for place, factor in enumerate(a.limbs, offset):
            product = factor * limb
            if total[place] is not None:
                product += total[place]
            if carry is not None:
                product += carry
            total[place] = product & mask
            carry = product >> shift
        total[offset + len(a.limbs)] = carry
    return Magnitudes(total[: -(-bits // 32)], a.exponents + b.exponents, bits)


def shifted(numbers: Magnitudes, first_slot: int, negative: Column | None) -> tuple[Column, list[Column]]:
    """Slots and pieces of an addend; the lane begins at ``first_slot``. ``negative``: -1 where negative, otherwise
    0."""
    offsets = (numbers.exponents & 31).view(np.uint64)
    slots = (numbers.exponents >> 5) + first_slot
    back, mask = np.uint64(32) - offsets, np.uint64(MASK)
    pieces: list[Column] = []
    above: Any = None
    for limb in numbers.limbs:
        piece = (limb << offsets) & mask
        pieces.append(piece if above is None else piece | above)
        above = limb >> back
    pieces.append(above)
    signed = [piece.view(np.int64) for piece in pieces]
    return slots, signed if negative is None else [(piece ^ negative) - negative for piece in signed]


def nearest_floats(table: Ragged, unit: int) -> Column:
    """The nearest float to each integer of a one-lane table times ``2**unit``, infinite beyond the largest.

    ``unit`` is at least -1074, so an integer of at most 53 bits is exact and no subnormal is rounded twice.
    """
    (top, second, third, fourth), slots, rest = _leading(table)
    negative = -(top < 0).astype(np.int64)
    # Anything below four digits only decides ties, and borrows one if it is negative.
    rest = (rest ^ negative) - negative
    carry = -(rest < 0).astype(np.int64)
    words = []
    for digit in (fourth, third, second):
        carry += (digit ^ negative) - negative
        words.append(carry & MASK)
        carry >>= 32
    carry += (top ^ negative) - negative
    high = ((carry << 32) | words[2]).view(np.uint64)
    low = ((words[1] << 32) | words[0]).view(np.uint64)
    floats = _rounded(high, low, rest != 0, 32 * slots + (unit - 96))
    return np.where(negative < 0, -floats, floats)


def _leading(table: Ragged) -> tuple[list[Column], Column, Column]:
    """The four leading digits of each row, the slot of the first, and the sign of the remaining digits."""
    slots, digits = table.flat()
    lengths = np.asarray(table.lengths)
    last = np.cumsum(lengths) - 1
    digits_of = np.zeros((5, len(lengths)), np.int64)
    first_slots = np.zeros(len(lengths), np.int64)
    for back in range(5):
        rows = np.flatnonzero(lengths > back)
        at = last[rows] - back
        if not back:
            first_slots[rows] = slots[at]
        behind = np.minimum(first_slots[rows] - slots[at], 4)
        fresh = digits_of[behind, rows] == 0
        digits_of[behind[fresh], rows[fresh]] = digits[at[fresh]]
    return list(digits_of[:4]), first_slots, digits_of[4]


def _rounded(high: Column, low: Column, more: Column, units: Column) -> Column:
    """The nearest float to ``(high * 2**64 + low) * 2**units``, ties to even. ``more``: the value is slightly above."""
    shifts = np.zeros(len(high), np.uint64)
    normal = high.copy()
    for bits in (32, 16, 8, 4, 2, 1):
        small = normal < np.uint64(1 << (64 - bits))
        normal[small] <<= np.uint64(bits)
        shifts[small] += np.uint64(bits)
    normal |= (low >> np.uint64(1)) >> (np.uint64(63) - shifts)
    more = more | ((low << shifts) != 0)
    kept, cut = normal >> np.uint64(11), normal & np.uint64(0x7FF)
    half = np.uint64(0x400)
    kept += (cut > half) | ((cut == half) & (more | (kept & np.uint64(1) == 1)))
    with np.errstate(over="ignore"):
        return np.asarray(np.ldexp(kept.astype(np.float64), units + 75 - shifts.astype(np.int64)))


# One number at a time.


def ratio(numerator: int, denominator: int, unit: int) -> float:
    """The float nearest to ``numerator / denominator * 2**unit``, infinite beyond the largest."""
    if unit > 0:
        numerator <<= unit
    else:
        denominator <<= -unit
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if (numerator > 0) == (denominator > 0) else -math.inf


def root(numerator: int, denominator: int, unit: int) -> float:
    """The float nearest to ``sqrt(numerator / denominator) * 2**unit``; NaN for a negative quotient."""
    if denominator < 0:
        numerator, denominator = -numerator, -denominator
    if numerator < 0:
        return math.nan
    places = max(0, 128 + denominator.bit_length() - numerator.bit_length()) // 2
    quotient, rest = divmod(numerator << (2 * places), denominator)
    whole = math.isqrt(quotient)
    # One more bit for the remainder: the quotient is so long that the remainder decides only ties.
    return ratio(2 * whole + (rest > 0 or whole * whole < quotient), 1, unit - places - 1)


def signed_root(number: int, square: int) -> float:
    """The float nearest to ``number / sqrt(square)``, NaN if ``square`` is negative."""
    size = root(number**2, square, 0)
    return -size if number < 0 else size
