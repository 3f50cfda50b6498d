"""A column is an array with one row per element, of one of three kinds: numbers, Arrow values, or tables of entries.

    numbers     a NumPy array; stride 0 (``np.broadcast_to``) marks it as constant
    ArrowColumn a pyarrow array: strings, bytes, decimals
    Ragged      each row is a table of its own length: a set, a sketch, a mapping

All have a length; ``column[start:stop]`` slices and ``column[rows]`` gathers. Grouping, storing and merging need only
``take``, ``concat`` and ``repeat``, which work on several columns at once.

    take(concat([a, b]), rows) == the rows of a, then those of b
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

Column = np.ndarray[Any, Any]
Columns = tuple[Any, ...]
"""Elements as columns: equally long columns of any kind."""


@dataclass(frozen=True, eq=False)
class ArrowColumn:
    """Values of variable width, or wider than a machine word. ``array`` is one pyarrow array, without chunks."""

    array: pa.Array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, rows: slice | Column) -> ArrowColumn:
        return ArrowColumn(self.array[rows] if isinstance(rows, slice) else self.array.take(pa.array(rows)))

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)


@dataclass(frozen=True, eq=False)
class Ragged:
    """Row i is the entries ``starts[i] : starts[i] + lengths[i]`` of ``columns``.

    Rows may stand in any order, share entries or skip some. So taking rows touches no entry, and truncating a row only
    lowers its length. ``flat`` gathers the entries in row order.
    """

    starts: Column
    lengths: Column
    columns: Columns

    @classmethod
    def of(cls, lengths: Column, columns: Columns) -> Ragged:
        """Rows of these lengths, whose entries are consecutive in ``columns``."""
        lengths = np.asarray(lengths, np.int64)
        ends = np.cumsum(lengths)
        return cls(ends - lengths, lengths, columns)

    @classmethod
    def singles(cls, columns: Columns) -> Ragged:
        """One entry per row."""
        rows = len(columns[0])
        return cls(np.arange(rows), np.broadcast_to(np.int64(1), rows), columns)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: slice | Column) -> Ragged:
        starts, lengths = take((self.starts, self.lengths), rows)
        return Ragged(starts, lengths, self.columns)

    @property
    def nbytes(self) -> int:
        return int(self.starts.nbytes + self.lengths.nbytes + sum(column.nbytes for column in self.columns))

    @property
    def entries(self) -> int:
        """The number of entries in all rows together."""
        return int(self.lengths.sum())

    def flat(self) -> Columns:
        """The entries of all rows, row after row."""
        entries = self.entries
        if not entries:
            return tuple(column[:0] for column in self.columns)
        if self._in_order(entries):
            begin = int(self.starts[0])
            if entries == len(self.columns[0]):
                return self.columns
            return tuple(column[begin : begin + entries] for column in self.columns)
        if is_constant(self.lengths) and self.lengths[0] == 1:
            return take(self.columns, self.starts)
        shifts = self.starts - (np.cumsum(self.lengths) - self.lengths)
        return take(self.columns, np.repeat(shifts, self.lengths) + np.arange(entries))

    def spread(self, values: Column) -> Column:
        """One value per row, repeated for each entry of the row, in the order of ``flat``."""
        if is_constant(self.lengths):
            return values if self.lengths[0] == 1 else np.repeat(values, self.lengths[0])
        return np.repeat(values, self.lengths)

    def head(self, entries_max: int) -> Ragged:
        """Each row cut to its first ``entries_max`` entries."""
        return Ragged(self.starts, np.minimum(self.lengths, entries_max), self.columns)

    def _in_order(self, entries: int) -> bool:
        """Whether each row begins where the previous one ends; empty rows can begin anywhere."""
        if not is_constant(self.lengths):
            filled = self.lengths > 0
            starts, lengths = self.starts[filled], self.lengths[filled]
        else:
            starts, lengths = self.starts, self.lengths
        if len(starts) == 1:
            return bool(self.starts[0] == starts[0])
        return bool(self.starts[0] == starts[0] and (starts[1:] == starts[:-1] + lengths[:-1]).all())


def take(columns: Columns, rows: Any) -> Columns:
    """The given rows (numbers, or a slice) of every column; constants stay constants."""
    return tuple(_take(column, rows) for column in columns)


def _take(column: Any, rows: Any) -> Any:
    if isinstance(rows, slice) or not is_constant(column):
        return column[rows]
    return np.broadcast_to(column[:1], (len(rows), *column.shape[1:]))


def repeat(columns: Columns, length: int) -> Columns:
    """The first row of ``columns``, ``length`` times. Numbers and tables take the space of one row."""
    return tuple(_repeat(column, length) for column in columns)


def _repeat(column: Any, length: int) -> Any:
    if isinstance(column, Ragged):
        starts, lengths = repeat((column.starts, column.lengths), length)
        return Ragged(starts, lengths, column.columns)
    if isinstance(column, ArrowColumn):
        return column[np.zeros(length, np.int64)]
    return np.broadcast_to(column[:1], (length, *column.shape[1:]))


def concat(parts: Sequence[Columns]) -> Columns:
    """The rows of all parts, in order. A column of numbers stays constant if it has the same constant in every part."""
    if len(parts) == 1:
        return parts[0]
    return tuple(_concat(columns) for columns in zip(*parts, strict=True))


def _concat(columns: Sequence[Any]) -> Any:
    filled = [column for column in columns if len(column)]
    if not filled:
        return columns[0]
    if len(filled) == 1:
        return filled[0]
    match filled[0]:
        case Ragged():
            return _concat_ragged(filled)
        case ArrowColumn():
            return ArrowColumn(pa.concat_arrays([column.array for column in filled]))
    if all(map(is_constant, filled)) and len({_row_bytes(column) for column in filled}) == 1:
        return _repeat(filled[0], sum(map(len, filled)))
    return np.concatenate(filled)


def _concat_ragged(parts: Sequence[Ragged]) -> Ragged:
    dense = [part if part.entries >= len(part.columns[0]) else Ragged.of(part.lengths, part.flat()) for part in parts]
    sizes = np.array([len(part.columns[0]) for part in dense], np.int64)
    begins = np.cumsum(sizes) - sizes
    starts = np.concatenate([part.starts + begin for part, begin in zip(dense, begins)])
    (lengths,) = concat([(part.lengths,) for part in dense])
    return Ragged(starts, lengths, concat([part.columns for part in dense]))


def is_constant(column: Any) -> bool:
    """Whether all rows are known to be equal without reading them: an array of stride 0."""
    return isinstance(column, np.ndarray) and len(column) > 0 and column.strides[0] == 0


def _row_bytes(column: Column) -> bytes:
    """The first row as bytes; in an object column, the reference."""
    return column[:1].tobytes()


def object_column(elements: Sequence[Any]) -> Column:
    """A one-dimensional array of Python objects of any kind, even lists, which NumPy would unpack."""
    return np.fromiter(elements, dtype=object, count=len(elements))
