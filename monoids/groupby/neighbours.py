"""Neighbours are adjacent rows in an order; this module compares their keys.

Null equals null and NaN equals NaN, as in a dictionary of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.groupby.cells import CHUNK_ROWS, Integers
from monoids.groupby.sorting import Mask
from monoids.hashing import null_safe_equal
from monoids.text import WORD_BYTES, TextWords

_SHORT_BYTES = 2 * WORD_BYTES


def same_as_next(keys: Sequence[pa.Array], order: Integers) -> Mask:
    """For every row of ``order`` but the last, whether its key equals the key of the next row.

    >>> same_as_next([pa.array(["a", "b", "a", None])], np.array([0, 2, 1, 3])).tolist()
    [True, False, False]
    """
    same = np.ones(max(len(order) - 1, 0), np.bool_)
    for column in keys:
        equal = _equality(column, len(order))
        for start in range(0, len(same), CHUNK_ROWS):
            same[start : start + CHUNK_ROWS] &= equal(order[start : start + CHUNK_ROWS + 1])
    return same


def _equality(column: pa.Array, lookups: int) -> Callable[[Integers], Mask]:
    """A function from rows to whether each equals the next; the caller will ask for ``lookups`` rows in total."""
    is_text = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    if is_text and not column.null_count and 4 * lookups >= len(column):
        text = TextWords(column)
        lengths = text.lengths(0, len(column))
        longest = int(lengths.max(initial=0))
        if longest <= _SHORT_BYTES:
            pairs = _word_pairs(text, len(column))
            sizes = lengths.astype(np.uint8) if int(lengths.min(initial=longest)) < longest else None
            return lambda rows: _pairs_equal(pairs, sizes, rows)
    return lambda rows: _taken_equal(column, rows)


def _word_pairs(text: TextWords, rows: int) -> Any:
    """The two words of every row of short text, side by side, so that each row takes one lookup."""
    words = np.empty((rows, 2), np.uint64)
    for start in range(0, rows, CHUNK_ROWS):
        stop = min(start + CHUNK_ROWS, rows)
        words[start:stop, 0] = text.words(start, stop, 0)
        words[start:stop, 1] = text.words(start, stop, WORD_BYTES)
    return words.view("V16").reshape(rows)


def _pairs_equal(pairs: Any, sizes: Any, rows: Integers) -> Mask:
    """``sizes``: the lengths in bytes; None if all are equal."""
    words = pairs[rows].view(np.uint64)
    equal = words[2:] == words[:-2]
    same: Mask = equal[::2] & equal[1::2]
    if sizes is not None:
        lengths = sizes[rows]
        same &= lengths[1:] == lengths[:-1]
    return same


def _taken_equal(column: pa.Array, rows: Integers) -> Mask:
    taken = column.take(pa.array(rows))
    return null_safe_equal(taken[1:], taken[:-1])
