"""A group is all rows of one (key, pane). Rows are ordered by the hash of the key, the key, the pane and arrival.

The sort key is the pane and as many bits of the hash as separate keys almost surely. Where neighbours share those bits
but differ in their keys, those few rows are sorted again by the whole hash. So two keys are never taken for one.

Neighbours are adjacent rows in an order. Null equals null and NaN equals NaN, as in a dictionary of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.groupby.cells import CHUNK_ROWS, Integers, PaneCodes, code_panes, segment_starts
from monoids.groupby.sorting import Mask, stable_order
from monoids.hashing import hash_keys, is_injective, null_safe_equal
from monoids.text import WORD_BYTES, TextWords, Words

_SPARE_BITS = 12
_HALF = 32
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Groups:
    """Rows in the order (hash, key, pane, arrival). Group i is the rows ``order[starts[i] : starts[i + 1]]``, with key
    number ``keys[i]`` and pane ``panes[i]``; the first row of key number k is ``key_rows[k]``."""

    order: Integers
    starts: Integers
    keys: Integers
    panes: Integers
    key_rows: Integers


def group_rows(keys: Sequence[pa.Array], hashes: Words, panes: Integers, step: int = 1) -> Groups:
    """The groups of rows, given the hash of each row. ``panes`` are multiples of ``step`` apart."""
    rows = len(hashes)
    if not rows:
        return Groups(_NONE, _NONE, _NONE, _NONE, _NONE)
    coding = code_panes(panes, step)
    order, ordered, same = _sorted_rows(keys, hashes, panes, coding)
    is_key = np.ones(rows, np.bool_)
    np.logical_not(same, out=is_key[1:])
    is_group = is_key.copy()
    is_group[1:] |= ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(is_group)
    numbers, group_panes = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64)
    mask, number = np.uint64((1 << coding.bits) - 1), -1
    for start in range(0, len(starts), CHUNK_ROWS):
        piece = slice(start, start + CHUNK_ROWS)
        np.cumsum(is_key[starts[piece]], out=numbers[piece])
        numbers[piece] += number
        number = int(numbers[piece][-1])
        group_panes[piece] = coding.panes((ordered[starts[piece]] & mask).view(np.int64))
    return Groups(order, starts, numbers, group_panes, order[np.flatnonzero(is_key)])


def _sorted_rows(
    keys: Sequence[pa.Array], hashes: Words, panes: Integers, coding: PaneCodes
) -> tuple[Integers, Words, Mask]:
    """Rows in the order (hash, key, pane, arrival); their sort keys, which end in the pane code; and whether each row
    has the same key as the next."""
    rows = len(hashes)
    key_bits = min(64 - coding.bits, (rows - 1).bit_length() + _SPARE_BITS)
    bits = np.uint64(coding.bits)
    order, ordered = stable_order(_packed(hashes, panes, coding, key_bits), key_bits + coding.bits)
    same_prefix = _same_prefix(ordered, bits)
    same = _same_neighbours(keys, hashes, key_bits, order, same_prefix)
    mixed = (same_prefix & ~same).nonzero()[0]
    if len(mixed):
        places = _runs_of(ordered, ordered[mixed] >> bits, bits)
        _sort_places(order, same, places, keys, hashes, panes)
        ordered[places] = _packed(hashes[order[places]], panes[order[places]], coding, key_bits)
    return order, ordered, same


def hash_order(keys: Sequence[pa.Array], rows: int) -> tuple[Words, Integers]:
    """The hashes of distinct keys in the order (hash, key), and the permutation to that order."""
    hashes = hash_keys(keys, rows)
    if not rows:
        return hashes, _NONE
    order, _, _ = _sorted_rows(keys, hashes, np.zeros(rows, np.int64), PaneCodes(1, 0, 1))
    return hashes[order], order


def number_keys(keys: Sequence[pa.Array], hashes: Words) -> tuple[Integers, Integers]:
    """For rows in the order (hash, key): the number of each row's key, from 0, and the first row of each key."""
    is_new_key = hashes[1:] != hashes[:-1]
    if not is_injective(keys):
        is_new_key |= ~same_as_next(keys, np.arange(len(hashes)))
    numbers = np.zeros(len(hashes), np.int64)
    np.cumsum(is_new_key, out=numbers[1:])
    return numbers, segment_starts(is_new_key) if len(hashes) else _NONE


def take_keys(keys: Sequence[pa.Array], rows: Integers) -> tuple[pa.Array, ...]:
    """The keys of these rows."""
    numbers = None
    taken = []
    for column in keys:
        if pa.types.is_int64(column.type) and not column.null_count:
            taken.append(pa.array(column.to_numpy()[rows]))
        else:
            numbers = pa.array(rows) if numbers is None else numbers
            taken.append(column.take(numbers))
    return tuple(taken)


def _packed(hashes: Words, panes: Integers, coding: PaneCodes, key_bits: int) -> Words:
    """The first bits of the hash, followed by the pane code."""
    packed = np.empty(len(hashes), np.uint64)
    for start in range(0, len(hashes), CHUNK_ROWS):
        piece = slice(start, start + CHUNK_ROWS)
        part = hashes[piece] >> np.uint64(64 - key_bits)
        if coding.size > 1:
            part <<= np.uint64(coding.bits)
            part |= coding.codes(panes[piece]).view(np.uint64)
        packed[piece] = part
    return packed


def _same_neighbours(
    keys: Sequence[pa.Array], hashes: Words, key_bits: int, order: Integers, same_prefix: Mask
) -> Mask:
    """Whether neighbours have the same key. Keys are compared only where the prefixes are equal."""
    candidates = same_prefix.nonzero()[0]
    if 4 * len(candidates) < len(order):
        same = same_prefix.copy()
        if is_injective(keys):
            same[candidates] = hashes[order[candidates]] == hashes[order[candidates + 1]]
        elif len(candidates):
            pairs = np.empty(2 * len(candidates), np.int64)
            pairs[::2], pairs[1::2] = order[candidates], order[candidates + 1]
            same[candidates] = same_as_next(keys, pairs)[::2]
        return same
    if not is_injective(keys):
        return same_as_next(keys, order) & same_prefix
    rest: Any = hashes.astype(np.uint32) if key_bits >= _HALF else hashes
    same = np.empty(len(same_prefix), np.bool_)
    for start in range(0, len(same), CHUNK_ROWS):
        part = rest[order[start : start + CHUNK_ROWS + 1]]
        np.equal(part[1:], part[:-1], out=same[start : start + CHUNK_ROWS])
    same &= same_prefix
    return same


def _same_prefix(ordered: Words, bits: np.uint64) -> Mask:
    """Whether neighbours agree in all but the last bits."""
    same = np.empty(max(len(ordered) - 1, 0), np.bool_)
    for start in range(0, len(same), CHUNK_ROWS):
        prefixes = ordered[start : start + CHUNK_ROWS + 1] >> bits
        np.equal(prefixes[1:], prefixes[:-1], out=same[start : start + CHUNK_ROWS])
    return same


def _runs_of(ordered: Words, prefixes: Words, bits: np.uint64) -> Integers:
    """The positions of every number with one of these prefixes, ascending."""
    lows = np.unique(prefixes) << bits
    begins = np.searchsorted(ordered, lows)
    lengths = np.searchsorted(ordered, lows | np.uint64((1 << int(bits)) - 1), side="right") - begins
    shifts = begins - (np.cumsum(lengths) - lengths)
    return np.repeat(shifts, lengths) + np.arange(int(lengths.sum()))


def _sort_places(
    order: Integers, same: Mask, places: Integers, keys: Sequence[pa.Array], hashes: Words, panes: Integers
) -> None:
    """Sort the rows at these positions by (hash, key, pane, arrival), in place, and update ``same``."""
    rows = order[places]
    rows = rows[np.lexsort((rows, panes[rows], hashes[rows]))]
    like_next = same_as_next(keys, rows)
    tied = (hashes[rows[1:]] == hashes[rows[:-1]]) & ~like_next
    for hash_ in np.unique(hashes[rows[1:]][tied]):
        at = np.flatnonzero(hashes[rows] == hash_)
        encoded = {row: encoding.encode(tuple(column[row].as_py() for column in keys)) for row in rows[at].tolist()}
        rows[at] = sorted(encoded, key=lambda row: (encoded[row], int(panes[row]), row))
    order[places] = rows
    like_next = same_as_next(keys, rows)
    inner = places[1:] == places[:-1] + 1
    same[places[:-1][inner]] = like_next[inner]


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
