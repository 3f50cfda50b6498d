"""The extremes of one type of value: Min and Max of the values that are not None. NaN is above all numbers.

As columns, the extreme of a segment or cell is its least row:

    least row of a segment == the least of its rows by (first column, second column, ...), the earliest of equals

Columns are compared one 64-bit word at a time, and a later word is read only where all earlier ones tie: strings are
read eight bytes of every row at a time, and further only for the rows that share them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from monoids.column import ArrowColumn, Column, Columns, is_constant, repeat, take
from monoids.fixed import TRUE, canonical_floats
from monoids.groupby.cells import Integers
from monoids.monoid import Monoid, check_schema, decode_lifted
from monoids.ordered import Ordered, words
from monoids.scalars import is_missing
from monoids.text import Words
from monoids.values import ALL_KINDS, INT64_MAX, INT64_MIN, ValueType, value_type

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


def Min(type: Any = int) -> Monoid[Any]:
    """The smallest value; None without input. NaN is above all numbers, strings compare by code point.

    >>> Min(str).combine("b", "a")
    'a'
    """
    return _extreme("Min", type, _FixedMin, _WideMin)


def Max(type: Any = int) -> Monoid[Any]:
    """The largest value; None without input. NaN is above all numbers, strings compare by code point.

    >>> Max().combine(3, Max().identity)
    3
    """
    return _extreme("Max", type, _FixedMax, _WideMax)


def _extreme(owner: str, type: Any, fixed: type[_Extreme], wide: type[_Extreme]) -> Monoid[Any]:
    value = value_type(owner, type, ALL_KINDS)
    return fixed(value) if value.kind in _STORED else wide(value)


class _Extreme(Monoid[Any]):
    """``Min`` and ``Max``: the element is a value, or None for none."""

    identity = None
    commutative = True
    idempotent = True

    def __init__(self, type: ValueType) -> None:
        self.type = type
        self.output_type = type.arrow

    def parameters(self) -> dict[str, Any]:
        return {"type": str(self.type.arrow)}

    def __repr__(self) -> str:
        return self.type.title

    def lift(self, value: Any) -> Any:
        return None if is_missing(value) else self.type.accept(value)

    def decode(self, data: bytes) -> Any:
        return decode_lifted(self, data)


def _smaller(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return b if a != a or b < a else a


def _larger(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return b if a == a and (b != b or b > a) else a


class _FixedExtreme(_Extreme):
    """An extreme in two columns: the values, as fixed-width numbers, and a flag for whether there is one.

    Without a value the number is one that never wins, so reducing needs no mask.
    """

    takes_constants = True
    _kernel: ClassVar[np.ufunc]
    _losers: ClassVar[Mapping[str, Any]]

    def __init__(self, type: ValueType) -> None:
        super().__init__(type)
        self.schema = pa.schema([pa.field("element", type.arrow)])

    def lift_columns(self, values: Any) -> Columns:
        return self._of_arrow(self.type.column(values))

    def pack(self, elements: Sequence[Any]) -> Columns:
        return self._of_arrow(pa.array(elements, self.type.arrow))

    def unpack(self, columns: Columns) -> list[Any]:
        (elements,) = self.to_arrow(columns)
        return self.type.moments(elements) if self.type.kind == "datetime" else list(elements.to_pylist())

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        values, valid = columns
        if len(starts) == len(values):
            return columns
        reduced = self._kernel.reduceat(values, starts)
        if is_constant(valid):
            return (reduced, np.broadcast_to(valid[:1], len(starts)))
        return (reduced, np.logical_or.reduceat(valid, starts))

    def combine_columns(self, a: Columns, b: Columns) -> Columns:
        best = self._kernel(a[0], b[0])
        if is_constant(a[1]) and is_constant(b[1]):
            return (best, np.broadcast_to(a[1][:1] | b[1][:1], len(best)))
        return (best, a[1] | b[1])

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        values, valid = columns
        best = np.full(len(counts), self._losers[self.type.kind], values.dtype)
        with np.errstate(invalid="ignore"):
            self._kernel.at(best, cells, values)
        if is_constant(valid):
            return (best[held], np.broadcast_to(valid[:1], len(held)))
        valid_cells = np.zeros(len(counts), np.bool_)
        valid_cells[cells[valid]] = True
        return (best[held], valid_cells[held])

    def present_columns(self, columns: Columns) -> pa.Array:
        return self.to_arrow(columns)[0]

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        values, valid = columns
        present = (is_constant(valid) and valid[0]) or valid.all()
        return [pa.array(values, mask=None if present else ~valid).view(self.type.arrow)]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        """ValueError for other types, and for dates and times that Python cannot hold."""
        check_schema(self, arrays)
        self.type.check_stored(arrays[0])
        return self._of_arrow(arrays[0])

    def _of_arrow(self, array: pa.Array) -> Columns:
        array = array.view(_STORED[self.type.kind])
        valid = repeat(TRUE, len(array))[0]
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            array = array.fill_null(pa.scalar(self._losers[self.type.kind], array.type))
        values = array.to_numpy(zero_copy_only=False)
        return (canonical_floats(values) if self.type.kind == "float" else values, valid)


class _FixedMin(_FixedExtreme):
    name = "Min"
    _kernel = np.fmin
    _losers = {"int": INT64_MAX, "datetime": INT64_MAX, "date": 2**31 - 1, "float": math.nan, "bool": True}

    def combine(self, a: Any, b: Any) -> Any:
        return _smaller(a, b)


class _FixedMax(_FixedExtreme):
    name = "Max"
    _kernel = np.maximum
    _losers = {"int": INT64_MIN, "datetime": INT64_MIN, "date": -(2**31), "float": -math.inf, "bool": False}

    def combine(self, a: Any, b: Any) -> Any:
        return _larger(a, b)


class _WideExtreme(_Extreme):
    """An extreme of strings, bytes or decimals in two columns: the values, and a flag for whether there is one."""

    _descending: ClassVar[bool]

    def __init__(self, type: ValueType) -> None:
        super().__init__(type)
        self.values = Ordered(type)
        self.schema = pa.schema([pa.field("element", self.values.arrow)])

    def lift_columns(self, values: Any) -> Columns:
        column, valid = self.values.store(values)
        return (column, repeat(TRUE, len(column))[0] if valid is None else valid)

    def pack(self, elements: Sequence[Any]) -> Columns:
        return self.lift_columns(list(elements))

    def unpack(self, columns: Columns) -> list[Any]:
        column, valid = columns
        return [value if is_valid else None for value, is_valid in zip(self.values.load(column), valid.tolist())]

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        if len(starts) == len(columns[0]):
            return columns
        return take(columns, least_of_segments(self._keys(columns), starts))

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        return take(columns, least_of_cells(self._keys(columns), cells, len(counts), held))

    def _keys(self, columns: Columns) -> Any:
        column, valid = columns
        yield from present_first(valid)
        yield from keys_of(column, self._descending)

    def present_columns(self, columns: Columns) -> pa.Array:
        return self.values.show(columns[0], _mask(columns[1]))

    def to_arrow(self, columns: Columns) -> list[pa.Array]:
        return [self.values.to_arrow(columns[0], _mask(columns[1]))]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Columns:
        check_schema(self, arrays)
        (array,) = arrays
        valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else repeat(TRUE, len(array))[0]
        return (self.values.from_arrow(array), valid)


def _mask(valid: Column) -> Column | None:
    """Which rows hold a value; None if all do."""
    return None if (is_constant(valid) and valid[0]) or valid.all() else valid


class _WideMin(_WideExtreme):
    name = "Min"
    _descending = False

    def combine(self, a: Any, b: Any) -> Any:
        return _smaller(a, b)


class _WideMax(_WideExtreme):
    name = "Max"
    _descending = True

    def combine(self, a: Any, b: Any) -> Any:
        return _larger(a, b)


_STORED: Mapping[str, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.int32(),
    "datetime": pa.int64(),
}
