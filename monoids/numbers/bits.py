"""Bitwise monoids: And, Or and Xor of 64-bit integers, in two's complement.

BitAnd  identity -1 (all bits set)   idempotent
BitOr   identity 0                   idempotent
BitXor  identity 0                   a Group: every element is its own inverse
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from monoids.column import Column, Columns, is_constant
from monoids.monoid import Group
from monoids.numbers.integers import IntegerMonoid


class Bits(IntegerMonoid):
    """A bitwise operation on int64; never overflows."""

    _kernel: ClassVar[np.ufunc]

    def combine(self, a: int, b: int) -> int:
        return int(self._kernel(a, b))

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        return columns if len(starts) == len(columns[0]) else (self._kernel.reduceat(columns[0], starts),)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        totals = np.full(len(counts), self.identity, np.int64)
        self._kernel.at(totals, cells, columns[0])
        return (totals[held],)


class BitAnd(Bits):
    """The bits set in all non-None integers; without input -1, which has all bits set.

    Inputs are 64-bit integers and bools: OverflowError beyond, TypeError for a float (even NaN).

    >>> flags = BitAnd()
    >>> flags.combine(flags.lift(0b110), flags.lift(0b011)), flags.lift(None)
    (2, -1)
    """

    identity = -1
    idempotent = True
    name = "BitAnd"
    _kernel = np.bitwise_and


class BitOr(Bits):
    """The bits set in any of the non-None integers; 0 without input.

    Inputs are 64-bit integers and bools: OverflowError beyond, TypeError for a float (even NaN).

    >>> flags = BitOr()
    >>> flags.combine(flags.lift(0b100), flags.lift(0b001))
    5
    """

    identity = 0
    idempotent = True
    name = "BitOr"
    _kernel = np.bitwise_or


class BitXor(Bits, Group[int]):
    """The bits set in an odd number of the non-None integers; 0 without input. A Group, so checksums can be subtracted.

    Inputs are 64-bit integers and bools: OverflowError beyond, TypeError for a float (even NaN).

    >>> parity = BitXor()
    >>> total = parity.combine(parity.lift(0b110), parity.lift(0b011))
    >>> total, parity.combine(total, parity.inverse(0b011))
    (5, 6)
    """

    identity = 0
    name = "BitXor"
    _kernel = np.bitwise_xor

    def inverse(self, a: int) -> int:
        return a

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        values = columns[0]
        if is_constant(values):
            return ((np.diff(starts, append=len(values)) & 1) * values[0],)
        return super().reduce_sorted(columns, starts)
