"""The exact sum of floats: the same to the bit in any order, and rounded once, when it is presented.

    present(element) == the float nearest to the true sum of the inputs

A float is an integer in units of 2**-1074, and so is the sum; NaN and infinities are counted separately. Integers can
be subtracted, so this is a Group. As columns, inputs stay floats until they are first summed; the sums are tables of
digits, see digits.py.

A float is also an integer of 53 bits times a power of two. Columns of these multiply and add without loss.

    value == sign * magnitude * 2**-1074        magnitude == sum(limbs[i] * 2**(32 * i)) * 2**exponent

Sums of products are taken in digits. Converting back rounds once, to the nearest float, ties to even.

Source: the accumulator of U. Kulisch, Computer Arithmetic and Validity (2013), stored sparsely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.column import Column, Columns, Ragged, is_constant, repeat
from monoids.groupby.cells import cell_ranks
from monoids.monoid import Group, check_schema
from monoids.numbers.digits import (
    DIGITS_SCHEMA,
    Addend,
    DigitLimits,
    decode_integers,
    encode_integers,
    ints_of_table,
    lane,
    no_digits,
    signs,
    sum_segments,
    sum_sorted,
    table_from_arrow,
    table_of_ints,
    table_to_arrow,
)
from monoids.scalars import is_missing
from monoids.values import ValueType

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


ExactSums = tuple[int, int, int, int]
"""The sum of the finite inputs in units of 2**-1074, and the counts of NaN, infinity and minus infinity."""

UNIT = -1074
LANES = (0, 70, 73, 76)
SLOTS = 79
"""The sum of up to 2**63 floats has at most 2,161 bits, so 68 digits."""


class ExactSum(Group[ExactSums]):
    """The sum of floats, the same to the bit in any order: correctly rounded like ``math.fsum``; 0.0 without input.

    Inputs are numbers; an integer or Decimal is first rounded to a float. None contributes nothing; -0.0 is 0.0. With a
    NaN, or infinities of both signs, the sum is NaN; with infinities of one sign it is that infinity. Because these are
    counted, ``inverse`` subtracts them too, and ``present(inverse(a)) == -present(a)``. A sum beyond the floats is
    presented as infinite, and is finite again once enough is subtracted. The error is half a unit in the last place of
    the presented sum, ties to even. An element takes about 8 bytes for each 32 bits between its highest and lowest bit.

    >>> total = ExactSum()
    >>> total.present(total.fold([total.lift(x) for x in (1e100, 1.0, -1e100, 2**-60)]))
    1.0
    """

    identity = (0, 0, 0, 0)
    commutative = True
    name = "ExactSum"
    schema = DIGITS_SCHEMA
    output_type = pa.float64()

    def combine(self, a: ExactSums, b: ExactSums) -> ExactSums:
        """OverflowError for a sum that 2**63 inputs cannot have, such as an element combined with itself many times."""
        return self.fold((a, b))

    def fold(self, elements: Sequence[ExactSums]) -> ExactSums:
        """The sum. OverflowError as in ``combine``; intermediate sums may exceed the limit."""
        total, nans, above, below = (sum(parts) for parts in zip(self.identity, *elements))
        _LIMITS.check((total, nans, above, below))
        return (total, nans, above, below)

    def inverse(self, a: ExactSums) -> ExactSums:
        return (-a[0], -a[1], -a[2], -a[3])

    def lift(self, value: Any) -> ExactSums:
        if is_missing(value):
            return self.identity
        number = _FLOAT.accept(value)
        if math.isfinite(number):
            return (scaled(number), 0, 0, 0)
        return (0, int(number != number), int(number == math.inf), int(number == -math.inf))

    def present(self, element: ExactSums) -> float:
        total, nans, above, below = element
        if nans or above or below:
            return not_finite(nans, above, below)
        return nearest(total)

    def encode(self, element: ExactSums) -> bytes:
        """The binary zeros at the end of the sum are counted, not written."""
        return encode_integers(element)

    def decode(self, data: bytes) -> ExactSums:
        total, nans, above, below = decode_integers(self, data, _LIMITS.bounds)
        return (total, nans, above, below)

    # Columns: floats that are not yet summed, and tables of digits.

    def lift_columns(self, values: Any) -> Columns:
        column = _FLOAT.column(values)
        floats = (column.fill_null(0.0) if column.null_count else column).to_numpy()
        return (floats, no_digits(len(floats)))

    def pack(self, elements: Sequence[ExactSums]) -> Columns:
        return _summed(table_of_ints(elements, LANES))

    def unpack(self, columns: Columns) -> list[ExactSums]:
        return [(row[0], row[1], row[2], row[3]) for row in ints_of_table(_table(columns), LANES)]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        floats, table = columns
        if len(starts) == len(floats):
            return columns
        return _summed(sum_sorted(heads(floats), table, starts, _explode, _LIMITS))

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        floats, table = columns
        segments = cell_ranks(cells, len(counts), held)
        sums = sum_segments(heads(floats), table, segments, len(held), _explode, _LIMITS)
        return None if sums is None else _summed(sums)

    def present_columns(self, columns: Columns) -> pa.Array:
        table = _table(columns)
        floats = nearest_floats(lane(table, LANES[0], LANES[1]), UNIT) + 0.0
        nans, above, below = (signs(lane(table, low, high)) for low, high in zip(LANES[1:], (*LANES[2:], SLOTS)))
        return pa.array(with_not_finite(floats, nans, above, below))

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        return table_to_arrow(_table(columns))

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        return _summed(table_from_arrow(arrays, _LIMITS))


def scaled(number: float) -> int:
    """A finite float in units of 2**-1074."""
    numerator, denominator = number.as_integer_ratio()
    return numerator << (-UNIT + 1 - denominator.bit_length())


def nearest(total: int) -> float:
    """The float nearest to an integer in units of 2**-1074, infinite beyond the largest."""
    try:
        return total / (1 << -UNIT)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def not_finite(nans: int, above: int, below: int) -> float:
    """A sum with these counts of NaN, infinity and minus infinity, at least one of which is not 0.

    An infinity subtracted before it was added counts as one of the other sign.
    """
    up, down = above > 0 or below < 0, above < 0 or below > 0
    if nans or (up and down):
        return math.nan
    return math.inf if up else -math.inf


def with_not_finite(floats: Column, nans: Column, above: Column, below: Column) -> Column:
    """The floats, replaced by ``not_finite`` where a count is not 0. Only the signs of the counts matter."""
    up, down = (above > 0) | (below < 0), (above < 0) | (below > 0)
    floats = np.where(up, math.inf, np.where(down, -math.inf, floats))
    return np.where((nans != 0) | (up & down), math.nan, floats)


def finite_rows(values: Column) -> Column | None:
    """The rows of finite floats; None if all are finite."""
    kept = np.isfinite(values)
    return None if kept.all() else np.flatnonzero(kept)


def counts_not_finite(values: Column, first_slots: Sequence[int]) -> list[Addend]:
    """A one for each NaN, infinity and minus infinity, in the lanes that begin at these slots."""
    if np.isfinite(values).all():
        return []
    kinds = (np.isnan(values), values == math.inf, values == -math.inf)
    occurrences = [(np.flatnonzero(kind), slot) for kind, slot in zip(kinds, first_slots)]
    return [Addend(rows, np.full(len(rows), slot), [np.ones(len(rows), np.int64)]) for rows, slot in occurrences]


def heads(floats: Column) -> tuple[Column, ...]:
    """The floats that are not yet in the tables; none if all are known to be zero."""
    return () if is_constant(floats) and floats[0] == 0 else (floats,)


def _explode(values: Column) -> list[Addend]:
    rows = finite_rows(values)
    floats = values if rows is None else values[rows]
    slots, pieces = shifted(magnitudes(floats), 0, floats.view(np.int64) >> 63)
    return [Addend(rows, slots, pieces), *counts_not_finite(values, LANES[1:])]


def _summed(table: Ragged) -> Columns:
    """Columns whose sums are all in the table."""
    return (repeat((_ZERO,), len(table))[0], table)


def _table(columns: Columns) -> Ragged:
    """All rows as tables."""
    floats, table = columns
    return sum_sorted(heads(floats), table, np.arange(len(floats)), _explode) if heads(floats) else table


_ZERO = np.zeros(1)
_LIMITS = DigitLimits("ExactSum()", (*LANES, SLOTS))
_FLOAT = ValueType("ExactSum()", "float", pa.float64(), frozenset({"float"}))
