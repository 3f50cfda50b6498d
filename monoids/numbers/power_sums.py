"""Power sums are the count of inputs and the exact sums of products of their variables.

    element == (count, sum of each product ..., counts of non-finite inputs ...)

They are integers, so sums are exact in any order and can be subtracted: a Group. Rounding happens once, in the result,
so nothing cancels, whatever the inputs have in common. A product of d floats is in units of 2**(-1074 * d). As
columns, inputs stay floats until they are first summed; the sums are tables of digits.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from monoids.column import Column, Columns, Ragged, is_constant, repeat
from monoids.fixed import ONE, add_int64, sum_int64
from monoids.groupby.cells import cell_ranks
from monoids.monoid import Group, check_schema
from monoids.numbers.digits import (
    DIGITS_SCHEMA,
    Addend,
    DigitLimits,
    decode_integers,
    encode_integers,
    ints_of_table,
    no_digits,
    sum_segments,
    sum_sorted,
    table_from_arrow,
    table_of_ints,
    table_to_arrow,
)
from monoids.numbers.exact import (
    UNIT,
    Magnitudes,
    counts_not_finite,
    finite_rows,
    magnitudes,
    multiply,
    scaled,
    shifted,
)
from monoids.numbers.integers import int64
from monoids.numbers.limbs import Vectors
from monoids.scalars import is_missing
from monoids.values import INT64_MAX, INT64_MIN, ValueType

Powers = tuple[int, ...]
"""The count, the sum of each product, and the counts of NaN, infinity and minus infinity.

An input of several variables counts as NaN if any of them is not finite."""

Degrees = tuple[int, ...]
"""The degree of a product in each variable."""

_COUNT_SLOTS = 3
_COUNT_LIMIT = 1 << 24
_FEW_ROWS = 64
_BLOCK_ROWS = 1 << 11


def without_common_zeros(sums: Sequence[int], degrees: Sequence[int]) -> tuple[list[int], int]:
    """The sums in the largest unit in which all inputs can be integers, and its binary exponent."""
    zeros = [((total & -total).bit_length() - 1) // degree for total, degree in zip(sums, degrees) if total]
    spare = min(zeros, default=0)
    return [total >> (spare * degree) for total, degree in zip(sums, degrees)], spare + UNIT


def _bounds(degrees: Sequence[Degrees]) -> tuple[int, ...]:
    """The first slot of the lane of each sum and of each count, and the end. There may be 2**63 inputs."""
    widths = [-(-(2098 * sum(degree) + 65) // 32) for degree in degrees] + [_COUNT_SLOTS] * 3
    return tuple(sum(widths[:lane]) for lane in range(len(widths) + 1))


class PowerSums(Group[Powers]):
    """Subclass and define ``degrees``, the degree of each product in each variable, and ``present``.

    An input that lacks a variable contributes nothing. A non-finite input is counted but not added to the sums.
    """

    commutative = True
    schema = pa.schema([pa.field("count", pa.int64(), nullable=False), *DIGITS_SCHEMA])
    degrees: ClassVar[tuple[Degrees, ...]]

    def __init__(self) -> None:
        self._bounds = _bounds(self.degrees)
        self._nothing = (0,) * len(self.degrees)
        self._limits = DigitLimits(repr(self), self._bounds)

    def variables(self, value: Any) -> Sequence[Any]:
        """The variables of one input that is not None."""
        return (value,)

    def variable_columns(self, values: Any) -> Sequence[Any]:
        """The variables of a column of inputs."""
        return (values,)

    @property
    def type(self) -> ValueType:
        """The type of one variable."""
        return ValueType(repr(self), "float", pa.float64(), frozenset({"float"}))

    def lift(self, value: Any) -> Powers:
        variables = (None,) if is_missing(value) else self.variables(value)
        if any(variable is None for variable in variables):
            return self.identity
        numbers = [self.type.accept(variable) for variable in variables]
        mark = numbers[0] if len(numbers) == 1 else sum(0 * number for number in numbers)
        if not math.isfinite(mark):
            return (1, *self._nothing, int(mark != mark), int(mark == math.inf), int(mark == -math.inf))
        units = [scaled(number) for number in numbers]
        return (1, *(math.prod(map(pow, units, degree)) for degree in self.degrees), 0, 0, 0)

    @property
    def identity(self) -> Powers:
        return (0, *self._nothing, 0, 0, 0)

    def __repr__(self) -> str:
        return f"{self.name}()"

    def combine(self, a: Powers, b: Powers) -> Powers:
        """OverflowError for a count outside int64, and for sums that this many inputs cannot have."""
        return self.fold((a, b))

    def fold(self, elements: Sequence[Powers]) -> Powers:
        """The sum. OverflowError as in ``combine``; intermediate sums may exceed the limits."""
        count, *sums = map(sum, zip(self.identity, *elements))
        self._limits.check(sums)
        return (int64(self, count), *sums)

    def inverse(self, a: Powers) -> Powers:
        """OverflowError for a count of -2**63, whose negative int64 cannot hold."""
        return (int64(self, -a[0]), *(-x for x in a[1:]))

    def encode(self, element: Powers) -> bytes:
        return encode_integers(element)

    def decode(self, data: bytes) -> Powers:
        element = tuple(decode_integers(self, data, (-_COUNT_SLOTS, *self._bounds)))
        if not INT64_MIN <= element[0] <= INT64_MAX:
            raise ValueError(f"{self!r}: the encoded element has a count outside 64-bit integers")
        return element

    # Columns: the counts, the sums as tables of digits, and the inputs that are not yet in them.

    def lift_columns(self, values: Any) -> Columns:
        return self._lifted(self.variable_columns(values))

    def pack(self, elements: Sequence[Powers]) -> Columns:
        counts = np.array([count for count, *_ in elements], np.int64)
        return self._summed(counts, table_of_ints([sums for _, *sums in elements], self._bounds[:-1]))

    def unpack(self, columns: Columns) -> list[Powers]:
        counts, table = self._tables(columns)
        return [(count, *sums) for count, sums in zip(counts.tolist(), ints_of_table(table, self._bounds[:-1]))]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        counts, table, *variables = columns
        if len(starts) == len(counts):
            return columns
        sums = sum_sorted(_not_summed(variables), table, starts, self._explode, self._limits)
        return self._summed(sum_int64(self, counts, starts), sums)

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        numbers, table, *variables = columns
        totals = add_int64(numbers, cells, counts, held)
        segments = cell_ranks(cells, len(counts), held)
        sums = sum_segments(_not_summed(variables), table, segments, len(held), self._explode, self._limits)
        return None if totals is None or sums is None else self._summed(totals, sums)

    def present_columns(self, columns: Columns) -> pa.Array:
        """By ``nearest`` in blocks. Rows that it is not sure of, and short columns, are presented one by one."""
        counts, table = self._tables(columns)
        if len(counts) < _FEW_ROWS:
            return super().present_columns(columns)
        blocks = (slice(begin, begin + _BLOCK_ROWS) for begin in range(0, len(counts), _BLOCK_ROWS))
        return pa.concat_arrays([self._present_block(counts[rows], table[rows]) for rows in blocks])

    def nearest(self, counts: Column, vectors: Vectors) -> tuple[pa.Array, Column]:
        """The results for rows with ``counts`` above 0, and the rows for which they are certainly correct."""
        raise NotImplementedError(f"{type(self).__name__} does not define nearest(self, counts, vectors)")

    def _present_block(self, counts: Column, table: Ragged) -> pa.Array:
        vectors = Vectors.of(table, self._bounds, [sum(degree) for degree in self.degrees])
        with np.errstate(all="ignore"):
            presented, sure = self.nearest(counts.astype(np.float64), vectors)
        sure = sure & vectors.fits & (counts > 0) & (counts < _COUNT_LIMIT)
        if sure.all():
            return presented
        others = np.flatnonzero(~sure)
        exact = super().present_columns(self._summed(counts[others], table[others]))
        rows = np.arange(len(counts))
        rows[others] = len(counts) + np.arange(len(others))
        return pa.concat_arrays([presented, exact]).take(pa.array(rows))

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        counts, table = self._tables(columns)
        return [pa.array(counts), *table_to_arrow(table)]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        return self._summed(arrays[0].to_numpy(), table_from_arrow(arrays[1:], self._limits))

    def _lifted(self, variables: Sequence[Any]) -> Columns:
        columns = [self.type.column(values) for values in variables]
        if not any(column.null_count for column in columns):
            rows = len(columns[0])
            return (repeat(ONE, rows)[0], no_digits(rows), *(column.to_numpy() for column in columns))
        valid = np.logical_and.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in columns])
        floats = (np.where(valid, column.fill_null(0.0).to_numpy(), 0.0) for column in columns)
        return (valid.astype(np.int64), no_digits(len(valid)), *floats)

    def _explode(self, *variables: Column) -> list[Addend]:
        marks = variables[0]
        if len(variables) > 1:
            with np.errstate(invalid="ignore"):
                marks = np.add.reduce([variable * 0 for variable in variables])
        rows = finite_rows(marks)
        kept = [variable if rows is None else variable[rows] for variable in variables]
        powers = _Powers(kept)
        addends = [
            Addend(rows, *shifted(powers[degree], first_slot, powers.negative(degree)))
            for degree, first_slot in zip(self.degrees, self._bounds)
        ]
        return [*addends, *counts_not_finite(marks, self._bounds[len(self.degrees) :])]

    def _summed(self, counts: Column, table: Ragged) -> Columns:
        """Columns whose sums are all in the tables."""
        return (counts, table, *repeat((_ZERO,), len(counts)) * len(self.degrees[0]))

    def _tables(self, columns: Columns) -> tuple[Column, Ragged]:
        """The counts, and all rows as tables."""
        counts, table, *variables = columns
        left = _not_summed(variables)
        return counts, sum_sorted(left, table, np.arange(len(counts)), self._explode) if left else table


class _Powers:
    """The magnitudes of products of some columns of floats, each computed once, and their signs."""

    def __init__(self, columns: Sequence[Column]) -> None:
        count = len(columns)
        self._signs = [column.view(np.int64) >> 63 for column in columns]
        self._ones = [tuple(int(place == variable) for place in range(count)) for variable in range(count)]
        self._products = {degree: magnitudes(column) for degree, column in zip(self._ones, columns)}

    def __getitem__(self, degree: Degrees) -> Magnitudes:
        if degree not in self._products:
            unit = next(unit for unit in self._ones if all(map(operator.ge, degree, unit)))
            rest = tuple(map(operator.sub, degree, unit))
            self._products[degree] = multiply(self[rest], self._products[unit])
        return self._products[degree]

    def negative(self, degree: Degrees) -> Column | None:
        """-1 where the product is negative, otherwise 0; None if no product is negative."""
        odd = [sign for sign, power in zip(self._signs, degree) if power % 2]
        return functools.reduce(operator.xor, odd) if odd else None


def _not_summed(variables: Sequence[Column]) -> Sequence[Column]:
    """The inputs that are not yet in the tables; none if all are known to be 0."""
    return () if all(is_constant(column) and column[0] == 0 for column in variables) else variables


_ZERO = np.zeros(1)
