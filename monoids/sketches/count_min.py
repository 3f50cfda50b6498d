"""CountMin counts how often each value occurs, in a table of ``depth`` rows of ``width`` cells.

    lift(value)[r * width + h_r(value)] == 1 for each row r     the other cells are 0
    combine(a, b)[cell] == a[cell] + b[cell]                    a Group: linear in its inputs
    estimate(e, value) == the least of the value's ``depth`` cells

If no weight is negative and N is their sum:

    true <= estimate                                            always
    estimate <= true + e / width * N                            with probability 1 - exp(-depth) or more, for each value

The conservative update, which raises only the least of a value's cells, is not used: its counts depend on the order.

Source: Cormode, Muthukrishnan: An improved data stream summary: the Count-Min sketch and its applications, 2005.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.arrays import python_list
from monoids.column import Column, Columns, Ragged
from monoids.groupby.cells import Integers, segment_starts
from monoids.hashing import hash_key, hash_keys, key_column
from monoids.monoid import Group, is_column
from monoids.numbers.integers import EntrySum, decoded_as
from monoids.ordered import IntegerKeys, Ordered
from monoids.pairs import Names, pair, pair_columns
from monoids.scalars import is_missing, scalar
from monoids.sketches import datasketches
from monoids.sketches.datasketches import murmur3, murmur3_bytes, murmur3_words
from monoids.sketches.inputs import fraction, integer
from monoids.table import Table
from monoids.text import Words
from monoids.values import ALL_KINDS, INT64_MAX, INT64_MIN, ValueType, value_type

Cells = dict[int, int]
"""An element: cell number to count, without zero counts."""

_NAMES: Names = ("value", "weight")
_E = Decimal("2.718281828459045235360287471352662497757")
_EXACT = Context(prec=60, rounding=ROUND_CEILING)
_CHUNK_ROWS = 1 << 14


class CountMin(Table[Cells], Group[Cells]):
    """Counts of values of one type, too high by at most ``error`` of the total, with probability ``confidence``.

    An input is a value, or a pair (value, weight) or {"value": v, "weight": w} with an integer weight; None, or a pair
    with None in it, contributes nothing. Give ``error`` and ``confidence`` as text, or the ``width`` and ``depth`` that
    follow from them. -0.0 is 0.0, all NaN are one value. A count outside int64 raises OverflowError. Presented is N,
    the sum of all weights. Memory: at most ``width * depth`` cells of 12 bytes, and at most ``depth`` cells for each
    value.

    Integers, strings and bytes have the same cells as in Apache DataSketches; ``to_datasketches`` and
    ``from_datasketches`` write and read its bytes.

    >>> words = CountMin(str, error="0.01", confidence="0.95")
    >>> total = words.combine(words.lift("a"), words.lift(("b", 5)))
    >>> words.estimate(total, "b"), words.present(total)
    (5, 6)
    >>> words
    CountMin(str, width=272, depth=3)
    """

    name = "CountMin"
    output_type = pa.int64()

    def __init__(
        self,
        type: Any = int,
        *,
        error: Any = None,
        confidence: Any = None,
        width: int | None = None,
        depth: int | None = None,
        seed: int = 9001,
    ) -> None:
        self.type = value_type("CountMin", type, ALL_KINDS, default="")
        if pa.types.is_decimal256(self.type.arrow):
            raise TypeError(f"{self.type.title}: a sketch takes decimals of at most 38 digits: write pa.decimal128")
        self.width, self.depth = _size(error, confidence, width, depth)
        self.seed = integer("CountMin", "seed", seed, 0, 2**64 - 1)
        self.values = Ordered(self.type)
        self.weights = ValueType("a weight of CountMin", "int", pa.int64(), frozenset({"int"}))
        self.row_seeds = tuple(datasketches.row_seeds(self.seed, self.depth))
        self._counts = EntrySum(self)
        super().__init__(IntegerKeys(np.dtype(np.uint32)), self._counts)

    @property
    def identity(self) -> Cells:
        return {}

    def parameters(self) -> dict[str, Any]:
        return {"type": str(self.type.arrow), "width": self.width, "depth": self.depth, "seed": self.seed}

    def __repr__(self) -> str:
        seed = "" if self.seed == 9001 else f", seed={self.seed}"
        return f"{self.type.title[:-1]}, width={self.width}, depth={self.depth}{seed})"

    def combine(self, a: Cells, b: Cells) -> Cells:
        """OverflowError if a count is outside int64."""
        total = dict(a)
        for cell, count in b.items():
            total[cell] = self._counts.combine(total.get(cell, 0), count)
        return {cell: count for cell, count in total.items() if count}

    def inverse(self, a: Cells) -> Cells:
        return {cell: self._counts.inverse(count) for cell, count in a.items()}

    def lift(self, value: Any) -> Cells:
        value, weight = _parts(value)
        if is_missing(value) or is_missing(weight):
            return {}
        weight = self.weights.accept(weight)
        return dict.fromkeys(self.cells(value), weight) if weight else {}

    def present(self, element: Cells) -> int:
        """N, the sum of the weights."""
        return self._counts.combine(0, sum(count for cell, count in element.items() if cell < self.width))

    def estimate(self, element: Cells, value: Any) -> int:
        """How often ``value`` occurs, or more, if no value's weights sum to less than 0.

        TypeError for a value of another type.
        """
        return 0 if value is None else min(element.get(cell, 0) for cell in self.cells(value))

    def bounds(self, element: Cells, value: Any) -> tuple[int, int]:
        """Bounds of the true count: below the first with probability ``exp(-depth)`` at most, never above the second.

        They hold if no value's weights sum to less than 0. ValueError if a cell is negative, which proves that some
        value's weights do; where positive weights in the same cells hide it, it goes undetected.
        """
        if min(element.values(), default=0) < 0:
            raise ValueError(
                f"{self!r}: the weights of some value sum to less than 0, so there are no bounds and no estimate:"
                " put subtracted values into a sketch of their own"
            )
        estimate = self.estimate(element, value)
        error = _EXACT.divide(_EXACT.multiply(_E, self.present(element)), self.width).to_integral_value(ROUND_CEILING)
        return max(estimate - int(error), 0), estimate

    def cells(self, value: Any) -> list[int]:
        """The cells of a value, one in each row."""
        data = self._item(self.type.accept(value))
        hashes = (murmur3(data, seed)[0] for seed in self.row_seeds)
        return [row * self.width + hash % self.width for row, hash in enumerate(hashes)]

    def _item(self, value: Any) -> bytes:
        match value:
            case bool():
                return hash_key(value).to_bytes(8, "little")
            case int():
                return value.to_bytes(8, "little", signed=True)
            case str():
                return value.encode("utf-8", "surrogatepass")
            case bytes():
                return value
        return hash_key(value).to_bytes(8, "little")

    def encode(self, element: Cells) -> bytes:
        return encoding.encode((self.width, self.depth, self.seed, element))

    def decode(self, data: bytes) -> Cells:
        """ValueError for a sketch of another size or seed, and for bytes that are not a sketch."""
        *shape, element = decoded_as(self, data, tuple) or (None,)
        if len(shape) != 3 or not all(part.__class__ is int for part in shape) or element.__class__ is not dict:
            raise ValueError(f"{self!r}: the encoded element is not a Count-Min sketch")
        if shape != [self.width, self.depth, self.seed]:
            written = "width={}, depth={}, seed={}".format(*shape)
            raise ValueError(
                f"{self!r} cannot read a sketch of {written}, whose cells differ: read it with CountMin({written}),"
                " and create all combined sketches the same way"
            )
        sums = [0] * self.depth
        for cell, count in element.items():
            if cell.__class__ is not int or count.__class__ is not int or not 0 <= cell < self.width * self.depth:
                raise ValueError(f"{self!r}: {cell!r:.60} is not one of its {self.width * self.depth} cells")
            if not count or not INT64_MIN <= count <= INT64_MAX:
                raise ValueError(f"{self!r}: a count of {count} in cell {cell}")
            sums[cell // self.width] += count
        if len(set(sums)) != 1:
            raise ValueError(f"{self!r}: the rows of the encoded element have different sums: {sums[:4]}")
        return dict(element)

    def to_datasketches(self, element: Cells) -> bytes:
        """Bytes for ``datasketches.count_min_sketch.deserialize``. OverflowError for counts beyond 2**53.

        The total weight, from which DataSketches computes its bounds, is written as the absolute value of N.
        DataSketches itself adds absolute weights, so with negative weights its own total is larger.
        """
        return datasketches.write(self, element)

    def from_datasketches(self, data: bytes) -> Cells:
        """The element in the bytes of ``datasketches.count_min_sketch.serialize``.

        ValueError for bytes that are not a sketch, are truncated, or belong to a sketch of another width, depth or
        seed, and for weights that are not integers.
        """
        return datasketches.read(self, data)

    # Columns.

    def entries(self, element: Cells) -> tuple[list[int], list[int]]:
        return list(element), list(element.values())

    def of_entries(self, keys: Sequence[int], inner: Sequence[int]) -> Cells:
        return dict(zip(keys, inner))

    def lift_columns(self, values: Any) -> Columns:
        return self._lift(*_columns(values))

    def lift_rows(self, values: Any, length: int) -> Columns:
        """As in any monoid; or a mapping or tuple of value and weight, each a column or one value for every row."""
        if isinstance(values, pa.Scalar):
            plain = scalar(values)
            values = tuple(plain) if isinstance(plain, list) else plain
        if isinstance(values, (Mapping, tuple)):
            return self._lift(*pair_columns(values, _NAMES, length))
        return super().lift_rows(values, length)

    def _lift(self, values: Any, weights: Any) -> Columns:
        column, valid = self.values.store(values)
        if weights is None:
            return (self.lift_stored(column, valid),)
        weight_column = self.weights.column(weights)
        counts = (weight_column.fill_null(0) if weight_column.null_count else weight_column).to_numpy()
        counted = counts != 0
        return (self.lift_stored(column, counted if valid is None else valid & counted, counts),)

    def lift_stored(self, column: Any, valid: Column | None, weights: Column | None = None) -> Ragged:
        """The elements of stored values where ``valid``; without weights, the weight is 1."""
        rows = len(column)
        lengths: Column = np.broadcast_to(np.int64(self.depth), rows)
        ones = np.broadcast_to(np.int64(1), rows * self.depth)
        return Ragged(
            np.arange(rows) * self.depth,
            lengths if valid is None else np.where(valid, lengths, 0),
            (self.cell_columns(column).reshape(-1), ones if weights is None else np.repeat(weights, self.depth)),
        )

    def cell_columns(self, column: Any) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """The cells of each value of a stored column: one row per value, with ``depth`` cells."""
        rows = len(column)
        cells = np.empty((rows, self.depth), np.uint32)
        seeds = np.array(self.row_seeds, np.uint64)[:, None]
        first = np.arange(self.depth, dtype=np.uint64)[:, None] * np.uint64(self.width)
        for start in range(0, rows, _CHUNK_ROWS):
            chunk = slice(start, start + _CHUNK_ROWS)
            hashes = self._hashes(column[chunk], seeds)
            buckets = hashes - hashes // np.uint64(self.width) * np.uint64(self.width)
            cells[chunk] = (buckets + first).T
        return cells

    def _hashes(self, column: Any, seeds: Words) -> Words:
        match self.type.kind:
            case "int":
                return murmur3_words(column.view(np.uint64), seeds)
            case "str" | "bytes":
                return murmur3_bytes(column.array, seeds)
        keys = key_column(self.values.to_arrow(column))
        return murmur3_words(hash_keys((keys,), len(keys)), seeds)

    def estimate_columns(self, table: Ragged, rows: Integers, column: Any) -> Integers:
        """The estimate of each value of a stored column in row ``rows[i]`` of a table of elements."""
        keys, counts = table.flat()
        size = self.width * self.depth
        cells = table.spread(np.arange(len(table))) * size + keys
        wanted = rows[:, None] * size + self.cell_columns(column)
        places = np.minimum(np.searchsorted(cells, wanted), max(len(cells) - 1, 0))
        if not len(cells):
            return np.zeros(len(rows), np.int64)
        estimates: Integers = np.where(cells[places] == wanted, counts[places], 0).min(axis=1)
        return estimates

    def present_columns(self, columns: Columns) -> pa.Array:
        (table,) = columns
        keys, counts = table.flat()
        inside = np.flatnonzero(keys < self.width)
        rows, totals = table.spread(np.arange(len(table)))[inside], np.zeros(len(table), np.int64)
        if len(inside):
            starts = segment_starts(rows[1:] != rows[:-1])
            totals[rows[starts]] = self._counts.reduce_sorted((counts[inside],), starts)[0]
        return pa.array(totals)

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """ValueError if a cell or a count is invalid, or the rows of a sketch have different sums."""
        (table,) = super().from_arrow(arrays)
        keys, counts = table.flat()
        if not len(keys):
            return (table,)
        if int(keys.max()) >= self.width * self.depth or not counts.all():
            raise ValueError(f"{self!r}: an entry is outside its {self.width * self.depth} cells, or counts 0")
        rows = table.spread(np.arange(len(table))) * self.depth + keys // np.uint32(self.width)
        starts = segment_starts(rows[1:] != rows[:-1])
        sums = np.zeros((len(table), self.depth), np.int64)
        sums.reshape(-1)[rows[starts]] = np.add.reduceat(counts, starts)
        if (sums != sums[:, :1]).any():
            raise ValueError(f"{self!r}: the rows of a sketch have different sums")
        return (table,)


def _size(error: Any, confidence: Any, width: Any, depth: Any) -> tuple[int, int]:
    """Width and depth, given or derived. A sketch has fewer than 2**30 cells, as in DataSketches."""
    if (width is not None and error is not None) or (depth is not None and confidence is not None):
        raise TypeError("CountMin: width= follows from error= and depth= from confidence=: write one of each pair")
    if width is None:
        error_fraction = fraction("CountMin", "error", "0.001" if error is None else error, "0", "0.91")
        quotient = _EXACT.divide(_EXACT.multiply(_E, error_fraction.denominator), error_fraction.numerator)
        width = int(quotient.to_integral_value(ROUND_CEILING))
    if depth is None:
        sure = fraction("CountMin", "confidence", "0.99" if confidence is None else confidence, "0", "1")
        missed = 1 - sure
        logarithm = _EXACT.ln(_EXACT.divide(Decimal(missed.denominator), missed.numerator))
        depth = int(logarithm.to_integral_value(ROUND_CEILING))
    integer("CountMin", "width", width, 3, 2**30 - 1)
    integer("CountMin", "depth", depth, 1, 255)
    if width * depth >= 2**30:
        raise ValueError(f"CountMin: {width} * {depth} cells are 2**30 or more: write a larger error=")
    return width, depth


def _parts(value: Any) -> tuple[Any, Any]:
    """The value and the weight of one input."""
    return pair(value, _NAMES) if isinstance(value, (tuple, list, Mapping)) else (value, 1)


def _columns(values: Any) -> tuple[Any, Any]:
    """The values and the weights of a column of inputs; None for weights that are all 1."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "O":
        values = values.tolist()
    elif isinstance(values, (pa.Array, pa.ChunkedArray)) and pa.types.is_list(values.type):
        values = python_list(values)
    if isinstance(values, list):
        if not any(isinstance(value, (tuple, list, Mapping)) for value in values):
            return values, None
        parts = [_parts(value) for value in values]
        return [value for value, _ in parts], [weight for _, weight in parts]
    if is_column(values) and not isinstance(values, np.ndarray) and pa.types.is_struct(values.type):
        return pair_columns(values, _NAMES)
    return values, None
