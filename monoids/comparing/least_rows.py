"""The least row of each segment, or cell: the number of the row that sorts first.

    least row of a segment == the least of its rows by (first column, second column, ...), the earliest of equals

Columns are compared one 64-bit word at a time, and a later word is read only where all earlier ones tie: strings are
read eight bytes of every row at a time, and further only for the rows that share them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.column import ArrowColumn, Column, is_constant
from monoids.groupby.cells import Integers
from monoids.ordered import words
from monoids.text import Words

RowNumbers = Integers | None
"""Row numbers, ascending; None: all."""
RowKey = Callable[[RowNumbers], Words]
"""Returns the words of the given rows. They compare as the rows do, as far as this key distinguishes them."""

_HIGHEST = np.uint64(2**64 - 1)
_PREFIX_BYTES = 64
_MASKS = np.array([(1 << 64) - (1 << 8 * (8 - used)) for used in range(9)], np.uint64)
"""Masks of the first 0, 1, ..., 8 bytes of a word."""


def least_of_segments(keys: Iterable[RowKey], starts: Integers) -> Integers:
    """The least row of each segment; segment i begins at row ``starts[i]``."""
    racing: RowNumbers = None
    begins = starts
    for key in keys:
        values = key(racing)
        if _all_equal(values):
            continue
        lengths = np.diff(begins, append=len(values))
        tied = values == np.repeat(np.minimum.reduceat(values, begins), lengths)
        racing = np.flatnonzero(tied) if racing is None else racing[tied]
        if len(racing) == len(starts):
            return racing
        counts = np.add.reduceat(tied, begins, dtype=np.int64)
        begins = np.cumsum(counts) - counts
    return begins if racing is None else racing[begins]


def least_of_cells(keys: Iterable[RowKey], cells: Column, size: int, held: Column) -> Integers:
    """The least row of each cell in ``held``; row i is in cell ``cells[i]``, which is below ``size``."""
    racing: RowNumbers = None
    least = np.full(size, _HIGHEST)
    for key in keys:
        values = key(racing)
        if _all_equal(values):
            continue
        least[cells] = _HIGHEST
        np.minimum.at(least, cells, values)
        tied = values == least[cells]
        racing = np.flatnonzero(tied) if racing is None else racing[tied]
        cells = cells[tied]
        if len(racing) == len(held):
            break
    rows = np.empty(size, np.int64)
    rows[cells[::-1]] = np.arange(len(cells))[::-1] if racing is None else racing[::-1]
    return rows[held]


def _all_equal(values: Words) -> bool:
    """Whether a word distinguishes no rows, such as a prefix that all strings share."""
    return len(values) > 0 and bool((values == values[0]).all())


def keys_of(column: Any, descending: bool = False) -> Iterator[RowKey]:
    """The keys that order rows by this column, ascending or descending."""
    if is_constant(column):
        return
    if isinstance(column, ArrowColumn):
        keys = _arrow_keys(column.array)
    else:
        keys = iter([lambda rows: words(column if rows is None else column[rows])])
    for key in keys:
        yield _reversed(key) if descending else key


def present_first(valid: Column) -> Iterator[RowKey]:
    """The key that orders rows with a value before rows without one."""
    if not is_constant(valid) and not valid.all():
        yield lambda rows: (~(valid if rows is None else valid[rows])).astype(np.uint64)


def _reversed(key: RowKey) -> RowKey:
    return lambda rows: ~key(rows)


def _arrow_keys(array: pa.Array) -> Iterator[RowKey]:
    if not pa.types.is_binary(array.type):
        if pa.types.is_decimal128(array.type):
            yield from _decimal_keys(array)
        else:
            yield lambda rows: _ranked(array, rows)
        return
    offsets, data = _bytes_of(array)
    lengths = np.diff(offsets)
    longest = int(lengths.max()) if len(lengths) else 0
    for at in range(0, min(longest, _PREFIX_BYTES), 8):
        yield _bytes_key(offsets[:-1], lengths, data, at)
    if longest > _PREFIX_BYTES:
        yield lambda rows: _ranked(array, rows)
    else:
        yield lambda rows: (lengths if rows is None else lengths[rows]).astype(np.uint64)


def _ranked(array: pa.Array, rows: RowNumbers) -> Words:
    return words(ArrowColumn(array if rows is None else array.take(pa.array(rows))))


def _decimal_keys(array: pa.Array) -> Iterator[RowKey]:
    halves = np.frombuffer(array.buffers()[1], np.dtype("<i8"))[2 * array.offset :][: 2 * len(array)].reshape(-1, 2)
    high, low = halves[:, 1], halves[:, 0].view(np.uint64)
    yield lambda rows: words(high if rows is None else high[rows])
    yield lambda rows: low if rows is None else low[rows]


def _bytes_of(array: pa.Array) -> tuple[Integers, Column]:
    """The offsets of the values, and their bytes, followed by eight zeros."""
    _, offset_buffer, data_buffer = array.buffers()
    if not len(array):
        return np.zeros(1, np.int64), np.zeros(8, np.uint8)
    offsets = np.frombuffer(offset_buffer, np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    data = np.zeros(end - begin + 8, np.uint8)
    if end > begin:
        data[:-8] = np.frombuffer(data_buffer, np.uint8, end - begin, begin)
    return offsets - begin, data


def _bytes_key(begins: Integers, lengths: Integers, data: Column, at: int) -> RowKey:
    """The eight bytes of each value from offset ``at``, as one number, with zeros past the end."""
    words_at = np.lib.stride_tricks.as_strided(data[:8].view(">u8"), (len(data) - 7,), (1,))
    whole = len(lengths) > 0 and int(lengths.min()) >= at + 8

    def key(rows: RowNumbers) -> Words:
        places = (begins if rows is None else begins[rows]) + at
        if whole:
            return words_at[places].astype(np.uint64)
        left = (lengths if rows is None else lengths[rows]) - at
        loaded = words_at[np.minimum(places, len(data) - 8)].astype(np.uint64)
        loaded &= _MASKS[np.clip(left, 0, 8)]
        return loaded

    return key
