"""A table of digits is a vector of integers of any size, one in each lane; a lane is a range of slots.

    integer of a lane == sum(digit * 2**(32 * (slot - first slot of the lane)))    -2**31 <= digit < 2**31

Balanced digits are unique and short: equal integers have equal entries, whatever their sign. Zero digits are not
stored; the entries of a row ascend by slot. As columns: a ``Ragged`` of slots and digits, both int32. Sums of fewer
than 2**30 rows at once are exact, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import encoding
from monoids.column import Column, Ragged, concat, repeat
from monoids.monoid import Monoid
from monoids.numbers.integers import decoded_as

_HALF = 1 << 31
_BLOCK_ROWS = 1 << 15
_BLOCK_SEGMENTS = 1 << 13
_CELLS_MAX = 1 << 22
_LONG = 24
_LARGE = 1 << 30

DIGITS_TYPE = pa.list_(pa.field("item", pa.int32(), nullable=False))
DIGITS_SCHEMA = pa.schema([pa.field(name, DIGITS_TYPE, nullable=False) for name in ("slots", "digits")])

Lanes = Sequence[int]
"""The first slot of each lane, ascending from 0."""


@dataclass(frozen=True)
class DigitLimits:
    """The size of ``owner``'s integers: lane i has the slots ``bounds[i] : bounds[i + 1]``, less two bits."""

    owner: str
    bounds: Lanes

    def check(self, integers: Sequence[int]) -> None:
        """OverflowError unless each integer fits its lane."""
        for lane_number, integer in enumerate(integers):
            self.check_lane(lane_number, integer)

    def check_lane(self, lane_number: int, integer: int) -> None:
        """OverflowError unless the integer fits this lane."""
        bits = 32 * (self.bounds[lane_number + 1] - self.bounds[lane_number]) - 2
        if integer.bit_length() > bits:
            raise OverflowError(f"{self.owner}: a total has more than {bits} bits, which no inputs have")

    def check_table(self, table: Ragged) -> None:
        """OverflowError unless each integer fits. Only integers whose last digit is large are checked."""
        slots, digits = table.flat()
        last = np.zeros(self.bounds[-1], np.bool_)
        last[np.array(self.bounds[1:]) - 1] = True
        large = last[slots] & ((digits >= _LARGE) | (digits <= -_LARGE))
        if large.any():
            rows = np.unique(np.repeat(np.arange(len(table)), table.lengths)[large])
            for integers in ints_of_table(table[rows], self.bounds[:-1]):
                self.check(integers)


NO_LIMITS = DigitLimits("", (0,))


@dataclass(frozen=True)
class Addend:
    """One integer for each of some rows, in pieces: ``sum(pieces[i] * 2**(32 * (slots + i)))``.

    ``rows``: which rows; None for all. ``pieces``: int64, of 32 bits and a sign.
    """

    rows: Column | None
    slots: Column
    pieces: Sequence[Column]


Explode = Callable[..., list[Addend]]
"""Converts the heads of a block of rows to addends. A head is a column of numbers that are not yet in digits."""


def no_digits(rows: int) -> Ragged:
    """A table of zeros, with this many rows."""
    none = np.zeros(0, np.int32)
    (zeros,) = repeat((np.zeros(1, np.int64),), rows)
    return Ragged(zeros, zeros, (none, none))


def sum_sorted(
    heads: Sequence[Column], table: Ragged, starts: Column, explode: Explode, limits: DigitLimits = NO_LIMITS
) -> Ragged:
    """The sum of each segment of rows, over their heads and their tables. OverflowError beyond the limits."""
    alone = np.diff(starts, append=len(table)) == 1
    if not heads and alone.any():
        return _sum_others(table, starts, alone, limits)
    sums = []
    for segments, rows in _blocks(starts, len(table)):
        sizes = np.diff(starts[segments], append=rows.stop)
        total = _Sum(len(sizes), limits)
        numbers = np.repeat(np.arange(len(sizes)), sizes)
        total.add_rows([head[rows] for head in heads], table[rows], numbers, explode)
        sums.append((total.table(),))
    merged: Ragged = concat(sums)[0] if sums else table
    return merged


def _sum_others(table: Ragged, starts: Column, alone: Column, limits: DigitLimits) -> Ragged:
    """The sums of tables. A table that is alone in its segment is left unchanged."""
    sizes = np.diff(starts, append=len(table))
    others = table[np.flatnonzero(np.repeat(~alone, sizes))]
    ends = np.cumsum(sizes[~alone])
    sums = sum_sorted((), others, ends - sizes[~alone], list, limits)
    both: Ragged = concat([(table[starts[alone]],), (sums,)])[0]
    return both[np.where(alone, np.cumsum(alone), int(alone.sum()) + np.cumsum(~alone)) - 1]


def sum_segments(
    heads: Sequence[Column], table: Ragged, segments: Column, count: int, explode: Explode, limits: DigitLimits
) -> Ragged | None:
    """The sum of each of ``count`` segments, with row i in ``segments[i]``; None if sorting is faster.

    OverflowError beyond the limits.
    """
    total = _Sum(count, limits, _CELLS_MAX)
    return total.table() if total.add_rows(heads, table, segments, explode) else None


def _blocks(starts: Column, rows: int) -> Iterator[tuple[slice, slice]]:
    """Segments and their rows, in blocks of as much work as the cache holds."""
    low, segments = 0, len(starts)
    while low < segments:
        high = int(np.searchsorted(starts, starts[low] + _BLOCK_ROWS, "right")) - 1
        high = min(max(high, low + 1), low + _BLOCK_SEGMENTS, segments)
        yield slice(low, high), slice(int(starts[low]), int(starts[high]) if high < segments else rows)
        low = high


class _Sum:
    """Sums of digits, one per segment: the rows of ``_sums`` are slots, its columns are segments."""

    def __init__(self, segments: int, limits: DigitLimits, cells_max: int = 1 << 62) -> None:
        self._segments = segments
        self._limits = limits
        self._lanes = {end - 1: number for number, end in enumerate(limits.bounds[1:])}
        self._slots_max = cells_max // max(segments, 1)
        self._slots = np.zeros(0, np.int64)
        self._sums = np.zeros((0, segments), np.int64)

    def add_rows(self, heads: Sequence[Column], table: Ragged, segments: Column, explode: Explode) -> bool:
        """Add what rows hold; False, and not all is added, if that takes more than ``cells_max`` cells.

        ``segments``: the number of the segment of each row.
        """
        for begin in range(0, len(segments), _BLOCK_ROWS):
            rows = slice(begin, begin + _BLOCK_ROWS)
            addends = [(addend, segments[rows]) for addend in explode(*(head[rows] for head in heads))] if heads else []
            part = table[rows]
            if part.entries:
                slots, digits = part.flat()
                entries = Addend(None, slots.astype(np.int64), [digits.astype(np.int64)])
                addends.append((entries, part.spread(segments[rows])))
            if not all(self._add(addend, of_rows) for addend, of_rows in addends):
                return False
        return True

    def _add(self, addend: Addend, segments: Column) -> bool:
        if not len(addend.slots):
            return True
        if addend.rows is not None:
            segments = segments[addend.rows]
        width = len(addend.pieces)
        place = self._places(addend.slots, width)
        if len(self._slots) > self._slots_max:
            return False
        for number, piece in enumerate(addend.pieces):
            if piece.any():
                np.add.at(self._sums.reshape(-1), place[addend.slots + number] + segments, piece)
        return True

    def _places(self, slots: Column, width: int) -> Column:
        """The cell of each slot's first segment; adds cells for the slots and their carry."""
        reach = int(slots.max()) + width + 1
        used = np.zeros(max(reach, int(self._slots.max(initial=-1)) + 1), np.bool_)
        used[slots] = True
        for _ in range(width):
            used[1:] |= used[:-1].copy()
        used[self._slots] = False
        fresh = np.flatnonzero(used)
        if len(fresh):
            self._slots = np.concatenate((self._slots, fresh))
            if len(self._slots) > self._slots_max:
                return fresh
            self._sums = np.concatenate((self._sums, np.zeros((len(fresh), self._segments), np.int64)))
        places = np.zeros(len(used), np.int64)
        places[self._slots] = np.arange(len(self._slots)) * self._segments
        return places

    def table(self) -> Ragged:
        """The sums in balanced digits. Nothing can be added after this."""
        order = np.argsort(self._slots)
        slots = self._slots[order]
        sums = [self._sums[row] for row in order.tolist()]
        for low, digits in enumerate(sums):
            if int(slots[low]) in self._lanes:
                self._check(sums, slots, low)
            carry = (digits + _HALF) >> 32
            if carry.any():
                digits -= carry << 32
                sums[low + 1] += carry
        digits = np.stack(sums, axis=1) if sums else np.zeros((self._segments, 0), np.int64)
        filled = digits != 0
        columns = (slots[np.nonzero(filled)[1]].astype(np.int32), digits[filled].astype(np.int32))
        return Ragged.of(filled.sum(axis=1), columns)

    def _check(self, sums: Sequence[Column], slots: Column, last: int) -> None:
        """OverflowError unless the sums of the lane that ends at this slot fit it, carries from below included."""
        number = self._lanes[int(slots[last])]
        first_slot = self._limits.bounds[number]
        for segment in np.flatnonzero((sums[last] >= _LARGE) | (sums[last] <= -_LARGE)).tolist():
            digits = ((slot - first_slot, int(sums[at][segment])) for at, slot in enumerate(slots[: last + 1].tolist()))
            total = sum(digit << (32 * place) for place, digit in digits if place >= 0)
            self._limits.check_lane(number, total)


def lane(table: Ragged, first_slot: int, end: int) -> Ragged:
    """The tables of one lane, renumbered to begin at slot 0."""
    slots, digits = table.flat()
    inside = (slots >= first_slot) & (slots < end)
    if inside.all() and not first_slot:
        return table
    rows = np.repeat(np.arange(len(table)), table.lengths)[inside]
    return Ragged.of(np.bincount(rows, minlength=len(table)), (slots[inside] - np.int32(first_slot), digits[inside]))


def signs(table: Ragged) -> Column:
    """The sign of each row of a one-lane table, -1, 0 or 1: the sign of its last digit."""
    _, digits = table.flat()
    filled = np.flatnonzero(table.lengths)
    row_signs = np.zeros(len(table), np.int64)
    row_signs[filled] = np.sign(digits[np.asarray(np.cumsum(table.lengths))[filled] - 1])
    return row_signs


# Tables as integers, scalar and stored.


def table_of_ints(rows: Sequence[Sequence[int]], lanes: Lanes) -> Ragged:
    """One table row for each row of integers, with one integer per lane."""
    slots: list[Column] = []
    digits: list[Column] = []
    lengths = np.zeros(len(rows), np.int64)
    for row, integers in enumerate(rows):
        for first_slot, integer in zip(lanes, integers):
            if integer:
                dense = _balanced(integer)
                filled = np.flatnonzero(dense)
                slots.append(filled + first_slot)
                digits.append(dense[filled])
                lengths[row] += len(filled)
    if not slots:
        return no_digits(len(rows))
    return Ragged.of(lengths, (np.concatenate(slots).astype(np.int32), np.concatenate(digits)))


def ints_of_table(table: Ragged, lanes: Lanes) -> list[list[int]]:
    """The inverse of ``table_of_ints``."""
    rows = [[0] * len(lanes) for _ in range(len(table))]
    slots, digits = table.flat()
    numbers = np.repeat(np.arange(len(table)), table.lengths)
    of_lane = np.asarray(np.searchsorted(np.array(lanes), slots, "right")) - 1
    places = slots - np.array(lanes)[of_lane]
    starts = np.flatnonzero(np.diff(numbers * len(lanes) + of_lane, prepend=-1))
    stops = np.append(starts[1:], len(slots))
    long = stops - starts > _LONG
    for start, stop in zip(starts[long].tolist(), stops[long].tolist()):
        dense = np.zeros(int(places[stop - 1]) + 1, np.int32)
        dense[places[start:stop]] = digits[start:stop]
        rows[numbers[start]][of_lane[start]] = _integer(dense)
    short = np.repeat(~long, stops - starts)
    entries = (numbers[short].tolist(), of_lane[short].tolist(), (32 * places[short]).tolist(), digits[short].tolist())
    for number, lane_number, shift, digit in zip(*entries):
        rows[number][lane_number] += digit << shift
    return rows


def _balanced(integer: int) -> Column:
    """The digits of an integer, zeros included: the unsigned digits of the integer shifted to be positive."""
    count = (integer.bit_length() + 1) // 32 + 1
    data = (integer + _bias(count)).to_bytes(4 * count, "little")
    return (np.frombuffer(data, "<u4").astype(np.uint32) ^ np.uint32(_HALF)).view(np.int32)


def _integer(dense: Column) -> int:
    data = (dense.view(np.uint32) ^ np.uint32(_HALF)).astype("<u4").tobytes()
    return int.from_bytes(data, "little") - _bias(len(dense))


def _bias(count: int) -> int:
    return int.from_bytes(b"\0\0\0\x80" * count, "little")


def encode_integers(integers: Sequence[int]) -> bytes:
    """Integers as canonical bytes. The binary zeros at the end of each are counted, not written."""
    zeros = [(integer & -integer).bit_length() - 1 if integer else 0 for integer in integers]
    return encoding.encode(tuple((integer >> count, count) for integer, count in zip(integers, zeros)))


def decode_integers(monoid: Monoid[Any], data: bytes, bounds: Lanes) -> list[int]:
    """The inverse of ``encode_integers``. ValueError for other bytes, or integers too large for their lanes.

    ``bounds``: the first slot of each lane, and the end of the last.
    """
    parts = decoded_as(monoid, data, tuple)
    pairs = all(type(part) is tuple and list(map(type, part)) == [int, int] for part in parts)
    if not pairs or len(parts) != len(bounds) - 1:
        raise ValueError(f"{monoid!r}: the encoded element does not have {len(bounds) - 1} integers")
    integers = []
    for (odd, zeros), first_slot, end in zip(parts, bounds, bounds[1:]):
        bits = 32 * (end - first_slot) - 2
        if not 0 <= zeros <= bits or (odd % 2 == 0 and (odd, zeros) != (0, 0)):
            raise ValueError(f"{monoid!r}: the encoded element is not in canonical form")
        if odd.bit_length() + zeros > bits:
            raise ValueError(f"{monoid!r}: the encoded element has an integer of more than {bits} bits")
        integers.append(odd << zeros)
    return integers


def table_to_arrow(table: Ragged) -> list[pa.Array]:
    """The slots and the digits as lists of int32."""
    offsets = pa.array(np.concatenate(([0], np.cumsum(table.lengths))).astype(np.int32))
    return [pa.ListArray.from_arrays(offsets, pa.array(column), type=DIGITS_TYPE) for column in table.flat()]


def table_from_arrow(arrays: Sequence[pa.Array], limits: DigitLimits) -> Ragged:
    """The inverse of ``table_to_arrow``. ValueError for lists that are not a table, or integers beyond the limits."""
    slot_lists, digit_lists = arrays
    lengths = np.diff(slot_lists.offsets.to_numpy()).astype(np.int64)
    entries = [lists.flatten() for lists in arrays]
    if any(column.null_count for column in (*arrays, *entries)):
        raise ValueError(f"{limits.owner}: a stored table of digits has a null")
    slots, digits = (column.to_numpy() for column in entries)
    ascending = np.ones(len(slots), np.bool_)
    ascending[1:] = slots[1:] > slots[:-1]
    starts = np.cumsum(lengths) - lengths
    ascending[starts[lengths > 0]] = True
    alike = np.array_equal(
        slot_lists.offsets.to_numpy() - slot_lists.offsets[0].as_py(),
        digit_lists.offsets.to_numpy() - digit_lists.offsets[0].as_py(),
    )
    if not alike or not ascending.all() or not digits.all():
        raise ValueError(
            f"{limits.owner}: a stored table of digits has unsorted slots, or digits that are 0 or have no slot"
        )
    if len(slots) and not (slots.min() >= 0 and slots.max() < limits.bounds[-1]):
        raise ValueError(f"{limits.owner}: a stored table of digits has slots outside 0 to {limits.bounds[-1] - 1}")
    table = Ragged.of(lengths, (slots, digits))
    try:
        limits.check_table(table)
    except OverflowError as error:
        raise ValueError(f"a stored table of digits: {error}") from error
    return table
