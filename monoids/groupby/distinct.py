"""Distinct keys are numbered in the order (hash, key), through a lookup table where they are dense or few.

distinct[number of row i] == key of row i
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.groupby.cells import CHUNK_ROWS, Integers
from monoids.groupby.grouping import hash_order, take_keys
from monoids.text import Words

_DENSE_ROWS_FACTOR = 4
_DENSE_RANGE_MIN = 1 << 16
_FEW_ROWS = 1 << 16
_SAMPLE_ROWS = 1 << 15
_FEW_IN_SAMPLE = 1 << 13
_COMBINED_MAX = 1 << 62


@dataclass(frozen=True)
class KeyNumbers:
    """The number of each row's key, through a table: ``table[codes[row] - low]``."""

    table: Integers
    codes: Any
    low: int = 0

    def of(self, rows: slice) -> Integers:
        """The numbers of some rows: int64."""
        codes = self.codes[rows]
        numbers: Integers = np.take(self.table, codes - self.low if self.low else codes, mode="clip")
        return numbers

    def all(self) -> Integers:
        """The numbers of all rows."""
        numbers = np.empty(len(self.codes), np.int64)
        for start in range(0, len(numbers), CHUNK_ROWS):
            numbers[start : start + CHUNK_ROWS] = self.of(slice(start, start + CHUNK_ROWS))
        return numbers


def is_dense(keys: Sequence[pa.Array]) -> bool:
    """Whether the keys are one integer column whose range is not much larger than its number of rows."""
    return dense_range(keys) is not None


def dense_range(keys: Sequence[pa.Array]) -> tuple[int, int] | None:
    """The smallest and the largest key of a dense column; None if it is not dense."""
    if len(keys) != 1 or not pa.types.is_int64(keys[0].type) or keys[0].null_count or not len(keys[0]):
        return None
    values = keys[0].to_numpy()
    size_max = max(_DENSE_RANGE_MIN, _DENSE_ROWS_FACTOR * len(values))
    for sample in (values[:_SAMPLE_ROWS], values):
        low, high = int(sample.min()), int(sample.max())
        if high - low >= size_max:
            return None
    return low, high


def has_few_keys(keys: Sequence[pa.Array], rows: int) -> bool:
    """Whether a table of the distinct keys is likely to stay in the cache, judged by the first rows."""
    if not keys or rows <= _FEW_ROWS:
        return True
    combined = 1
    for column in keys:
        combined *= len(column[:_SAMPLE_ROWS].unique())
    return combined <= _FEW_IN_SAMPLE


def number_distinct(
    keys: Sequence[pa.Array], rows: int, dense: tuple[int, int] | None
) -> tuple[tuple[pa.Array, ...], Words, KeyNumbers]:
    """The distinct keys in the order (hash, key), their hashes, and the number of each row's key. ``dense``: the
    ``dense_range`` of the keys.

    >>> distinct, hashes, numbers = number_distinct([pa.array(["b", "a", "b"])], 3, None)
    >>> distinct[0].take(pa.array(numbers.all())).to_pylist()
    ['b', 'a', 'b']
    """
    if dense is not None:
        return _dense(keys[0], *dense)
    if not keys:
        hashes, order = hash_order((), min(rows, 1))
        return (), hashes, KeyNumbers(order, np.broadcast_to(np.int64(0), rows))
    if len(keys) == 1:
        values, codes = _dictionary(keys[0])
        distinct: tuple[pa.Array, ...] = (values,)
    else:
        distinct, codes = _distinct_tuples(keys)
    hashes, order = hash_order(distinct, len(distinct[0]))
    table = np.empty(len(order), np.int64)
    table[order] = np.arange(len(order))
    return take_keys(distinct, order), hashes, KeyNumbers(table, codes)


def _dense(keys: pa.Array, low: int, high: int) -> tuple[tuple[pa.Array, ...], Words, KeyNumbers]:
    values = keys.to_numpy()
    present = np.zeros(high - low + 1, np.bool_)
    for start in range(0, len(values), CHUNK_ROWS):
        present[values[start : start + CHUNK_ROWS] - low] = True
    places = np.flatnonzero(present)
    hashes, order = hash_order((pa.array(places + low),), len(places))
    places = places[order]
    table = np.empty(len(present), np.int64)
    table[places] = np.arange(len(places))
    return (pa.array(places + low),), hashes, KeyNumbers(table, values, low)


def _dictionary(column: pa.Array) -> tuple[pa.Array, Any]:
    """The distinct values in order of appearance, and the number of each row's value."""
    if pa.types.is_floating(column.type):
        bits, codes = _dictionary(column.view(pa.int64()))
        return bits.view(pa.float64()), codes
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.dictionary, np.asarray(encoded.indices)


def _distinct_tuples(keys: Sequence[pa.Array]) -> tuple[tuple[pa.Array, ...], Any]:
    parts = [_dictionary(column) for column in keys]
    combined = parts[0][1].astype(np.int64)
    size = len(parts[0][0])
    for values, codes in parts[1:]:
        if size * len(values) >= _COMBINED_MAX:
            distinct, combined = _dictionary(pa.array(combined))
            size = len(distinct)
        size *= max(len(values), 1)
        combined = combined * len(values) + codes
    distinct, numbers = _dictionary(pa.array(combined))
    rows = np.empty(len(distinct), np.int64)
    rows[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
    return tuple(values.take(pa.array(codes[rows])) for values, codes in parts), numbers
