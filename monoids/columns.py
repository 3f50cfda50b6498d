"""A group-by is one sort: group, pane and row number packed into one 64-bit integer.

    packed = group << (pane_bits + row_bits) | pane << row_bits | row

Sorting the packed integers orders rows by (group, pane), keeps equal ones in their order of arrival (so it serves
monoids that do not commute), and its low bits are the permutation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.hashing import Words, hash_keys, is_injective, null_safe_equal

Integers = np.ndarray[Any, np.dtype[np.int64]]

_DENSE_ROWS_FACTOR = 4
_CELLS_PER_ROW = 8
_DENSE_RANGE_MIN = 1 << 16
_NO_STARTS = np.zeros(0, np.int64)


def segment_starts(changed: np.ndarray[Any, np.dtype[np.bool_]]) -> Integers:
    """Where segments begin, given for rows 1.. whether each differs from the row before."""
    inner = np.flatnonzero(changed)
    starts = np.empty(len(inner) + 1, np.int64)
    starts[0] = 0
    np.add(inner, 1, out=starts[1:])
    return starts


def pane_codes(panes: Integers, step: int) -> tuple[Integers, int]:
    """Small codes, zero or more, in the order of the panes, and how many there may be. All panes are
    multiples of ``step`` apart.

    >>> codes, size = pane_codes(np.array([60_000, 180_000, 60_000]), 60_000)
    >>> codes.tolist(), size
    ([0, 2, 0], 3)
    """
    low, high = int(panes.min()), int(panes.max())
    if low == high:
        return np.broadcast_to(np.int64(0), len(panes)), 1
    codes = panes - low
    if step > 1:
        codes //= step
    return codes, (high - low) // step + 1


def distinct_panes(panes: Integers, step: int) -> Integers:
    """The panes that occur, ascending."""
    codes, size = pane_codes(panes, step)
    if not fits_cells(size, len(panes)):
        return np.unique(panes)
    return int(panes.min()) + cell_counts(codes, size)[1] * step


def cell_counts(cells: Integers, size: int) -> tuple[Integers, Integers]:
    """How many rows each cell has, and the cells that have any, ascending."""
    counts = np.bincount(cells, minlength=size)
    return counts, np.flatnonzero(counts != 0)


def fits_cells(size: int, rows: int) -> bool:
    """Whether so many cells are few enough to address directly instead of sorting the rows."""
    return size <= max(_DENSE_RANGE_MIN, _CELLS_PER_ROW * rows)


def is_dense(keys: Sequence[pa.Array]) -> bool:
    """Whether the keys are one integer column of a range not much larger than its rows."""
    if len(keys) != 1 or not pa.types.is_int64(keys[0].type) or keys[0].null_count or not len(keys[0]):
        return False
    values = keys[0].to_numpy()
    return int(values.max()) - int(values.min()) < max(_DENSE_RANGE_MIN, _DENSE_ROWS_FACTOR * len(values))


def group_codes(codes: Integers, panes: Integers, step: int = 1) -> tuple[Integers, Integers]:
    """Order rows by (code, pane, arrival): the permutation, and the starts of the groups in it.

    ``codes``: int64, zero or more, one a row, dense (their order is the order of the groups). ``panes``: int64.
    """
    rows = len(codes)
    if not rows:
        return _NO_STARTS, _NO_STARTS
    panes, pane_count = pane_codes(panes, step)
    row_bits = (rows - 1).bit_length()
    pane_bits = (pane_count - 1).bit_length()
    if int(codes.max()).bit_length() + pane_bits + row_bits > 63:
        order = np.lexsort((panes, codes))
        changed = (np.diff(codes[order]) != 0) | (np.diff(panes[order]) != 0)
        return order, segment_starts(changed)
    packed = codes << pane_bits
    if pane_bits:
        packed |= panes
    packed <<= row_bits
    packed |= np.arange(rows)
    packed.sort()
    order = packed & ((1 << row_bits) - 1)
    packed >>= row_bits
    return order, segment_starts(packed[1:] != packed[:-1])


def group_hashes(keys: Sequence[pa.Array], hashes: Words, panes: Integers, step: int = 1) -> tuple[Integers, Integers]:
    """Order rows by (hash, key, pane, arrival): the permutation, and the starts of the groups in it.

    Sorts by as long a prefix of the hash as fits beside pane and row number, then repairs the rare places
    where different hashes share a prefix, and the rarer ones where different keys share a hash.
    """
    rows = len(hashes)
    if not rows:
        return _NO_STARTS, _NO_STARTS
    signed_codes, pane_count = pane_codes(panes, step)
    codes = signed_codes.astype(np.uint64)
    row_bits = (rows - 1).bit_length()
    low_bits = row_bits + (pane_count - 1).bit_length()
    if low_bits > 40:
        order = np.lexsort((codes, hashes))
    else:
        prefixes = hashes >> np.uint64(low_bits)
        packed = (prefixes << np.uint64(low_bits)) | (codes << np.uint64(row_bits)) | np.arange(rows, dtype=np.uint64)
        packed.sort()
        order = (packed & np.uint64((1 << row_bits) - 1)).astype(np.int64)
        _repair_prefixes(order, hashes, codes, packed >> np.uint64(low_bits))
    sorted_hashes = hashes[order]
    same_hash = sorted_hashes[1:] == sorted_hashes[:-1]
    if not is_injective(keys) and _repair_ties(order, keys, sorted_hashes, same_hash, codes):
        ranks = _tie_ranks(order, keys, sorted_hashes)
        return order, segment_starts(~same_hash | (np.diff(ranks) != 0) | (np.diff(codes[order]) != 0))
    return order, segment_starts(~same_hash | (np.diff(codes[order]) != 0))


def distinct_keys(keys: Sequence[pa.Array], rows: int) -> tuple[tuple[pa.Array, ...], Words, Integers]:
    """The distinct keys in the order (hash, key), their hashes, and for every row the number of its key."""
    if not keys:
        return (), hash_keys((), min(rows, 1)), np.zeros(rows, np.int64)
    if len(keys) == 1:
        values, codes = _distinct_values(keys[0])
        distinct: tuple[pa.Array, ...] = (values,)
    else:
        distinct, codes = _distinct_tuples(keys)
    hashes = hash_keys(distinct, len(distinct[0]))
    order, _ = group_hashes(distinct, hashes, np.broadcast_to(np.int64(0), len(hashes)))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    taken = pa.array(order)
    return tuple(column.take(taken) for column in distinct), hashes[order], ranks[codes]


def _distinct_values(column: pa.Array) -> tuple[pa.Array, Integers]:
    if is_dense([column]):
        values = column.to_numpy()
        low = int(values.min())
        offsets = values - low
        present = np.zeros(int(offsets.max()) + 1, bool)
        present[offsets] = True
        found = np.flatnonzero(present)
        if len(found) != len(present):
            numbers = np.empty(len(present), np.int64)
            numbers[found] = np.arange(len(found))
            offsets = numbers[offsets]
        return pa.array(found + low), offsets
    if pa.types.is_floating(column.type):
        bits, codes = _distinct_values(column.view(pa.int64()))
        return bits.view(pa.float64()), codes
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.dictionary, np.asarray(encoded.indices).astype(np.int64)


def _distinct_tuples(keys: Sequence[pa.Array]) -> tuple[tuple[pa.Array, ...], Integers]:
    parts = [_distinct_values(column) for column in keys]
    codes = parts[0][1]
    for values, more in parts[1:]:
        if len(codes) and (int(codes.max()) + 1) * len(values) >= 1 << 62:
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
        codes = codes * len(values) + more
    first_rows, codes = np.unique(codes, return_index=True, return_inverse=True)[1:]
    taken = [pa.array(part_codes[first_rows]) for _, part_codes in parts]
    return tuple(values.take(rows) for (values, _), rows in zip(parts, taken)), codes.astype(np.int64)


def _repair_prefixes(order: Integers, hashes: Words, panes: Words, prefixes: Words) -> None:
    """Where different hashes share a prefix, sort those few rows by the whole hash, in place."""
    sorted_hashes = hashes[order]
    mixed = (prefixes[1:] == prefixes[:-1]) & (sorted_hashes[1:] != sorted_hashes[:-1])
    if mixed.any():
        places = np.flatnonzero(np.isin(prefixes, np.unique(prefixes[1:][mixed])))
        rows = order[places]
        order[places] = rows[np.lexsort((rows, panes[rows], hashes[rows]))]


def _repair_ties(order: Integers, keys: Sequence[pa.Array], sorted_hashes: Words, same_hash: Any, panes: Words) -> bool:
    """Where different keys share a whole hash, sort those rows by (key, pane, arrival), in place. True if
    there were any."""
    upper = np.flatnonzero(same_hash)
    if not len(upper):
        return False
    left, right = pa.array(order[upper]), pa.array(order[upper + 1])
    equal = np.ones(len(upper), bool)
    for column in keys:
        equal &= null_safe_equal(column.take(left), column.take(right))
    if equal.all():
        return False
    for tied in np.unique(sorted_hashes[upper[~equal]]):
        places = np.flatnonzero(sorted_hashes == tied)
        rows = order[places].tolist()
        order[places] = sorted(rows, key=lambda row: (_key_bytes(keys, row), int(panes[row]), row))
    return True


def _tie_ranks(order: Integers, keys: Sequence[pa.Array], sorted_hashes: Words) -> Integers:
    """A number for each row, in order, that differs between neighbours iff their keys differ."""
    taken = pa.array(order)
    changed = np.zeros(max(len(order) - 1, 0), bool)
    for column in keys:
        ordered = column.take(taken)
        changed |= ~null_safe_equal(ordered[1:], ordered[:-1])
    changed |= sorted_hashes[1:] != sorted_hashes[:-1]
    return np.concatenate(([0], np.cumsum(changed)))


def _key_bytes(keys: Sequence[pa.Array], row: int) -> bytes:
    return encoding.encode(tuple(column[row].as_py() for column in keys))
