"""Monoids whose scalar half is right, and whose columns are wrong in one place each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from monoids import Monoid
from monoids.column import is_constant, repeat
from monoids.monoid import object_column
from tests.monoids.laws.defects import Integers

# Lifting.


class FloatList(Integers):
    """A list of Python integers goes through floats."""

    def lift_columns(self, values: Any) -> Any:
        if isinstance(values, list):
            return (np.array([value or 0 for value in values], np.float64).astype(np.int64),)
        return super().lift_columns(values)


class NarrowArrow(Integers):
    """An Arrow array is read as 32 bits."""

    def of_array(self, values: pa.Array) -> Any:
        (column,) = super().of_array(values)
        return (column.astype(np.int32).astype(np.int64),)

    def lift_columns(self, values: Any) -> Any:
        return self.pack([value or 0 for value in values]) if isinstance(values, list) else super().lift_columns(values)


class NullsAreOne(Integers):
    """A null of Arrow counts."""

    def of_array(self, values: pa.Array) -> Any:
        if isinstance(values, pa.DictionaryArray):
            values = values.dictionary_decode()
        return super().of_array(values.cast(pa.int64()).fill_null(1) if values.null_count else values)

    def lift_columns(self, values: Any) -> Any:
        return self.pack([value or 0 for value in values]) if isinstance(values, list) else super().lift_columns(values)


class IgnoresOffset(Integers):
    """Reads the buffer of a slice from its start."""

    def of_array(self, values: pa.Array) -> Any:
        if not pa.types.is_int64(values.type) or values.null_count:
            return super().of_array(values)
        return (np.frombuffer(values.buffers()[1], np.int64)[: len(values)],) if len(values) else self.pack([])


class OneChunk(Integers):
    """Of several chunks the last is dropped at the border."""

    def lift_columns(self, values: Any) -> Any:
        if isinstance(values, pa.ChunkedArray) and values.num_chunks > 3:
            columns = super().lift_columns(values)[0].copy()
            columns[-len(values.chunk(values.num_chunks - 2)) :] = 0
            return (columns,)
        return super().lift_columns(values)


class IgnoresStrides(Integers):
    """Reads a NumPy array as if its values were side by side."""

    def lift_columns(self, values: Any) -> Any:
        if isinstance(values, np.ndarray) and values.base is not None and values.dtype == np.int64:
            memory = values.base.reshape(-1)
            return (memory[: len(values)].copy(),)
        return super().lift_columns(values)


class CodesForValues(Integers):
    """Takes the codes of a dictionary for its values."""

    def of_array(self, values: pa.Array) -> Any:
        return super().of_array(values.indices if isinstance(values, pa.DictionaryArray) else values)


class LooksAtFirst(Integers):
    """Looks at the first row, whether there is one or not."""

    def lift_columns(self, values: Any) -> Any:
        values[0]
        return super().lift_columns(values)


class OneForAll(Integers):
    """One value is one row, however many were asked for."""

    def lift_rows(self, values: Any, length: int) -> Any:
        if isinstance(values, int):
            return self.pack([values])
        return super().lift_rows(values, length)


class ListBeyondThousand(Integers):
    """A long list is lifted a thousand at a time, and the last of these left as zeros."""

    def lift_columns(self, values: Any) -> Any:
        (column,) = super().lift_columns(values)
        if isinstance(values, list) and len(column) > 1_000:
            column = np.where(np.arange(len(column)) < len(column) // 1_000 * 1_000, column, 0)
        return (column,)


class OneWidth(Integers):
    """Reads the buffer of any integers as if they had 64 bits."""

    def lift_columns(self, values: Any) -> Any:
        if isinstance(values, pa.Array) and pa.types.is_int32(values.type) and not values.null_count and len(values):
            words = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values)]
            return (np.resize(np.append(words, words)[: len(words) * 2].view(np.int64), len(values)),)
        return super().lift_columns(values)


class NumPyWidth(OneWidth):
    """Only of NumPy."""

    def lift_columns(self, values: Any) -> Any:
        if isinstance(values, np.ndarray) and values.dtype == np.int32:
            return (values.astype(np.int64) & 0xFFFF,)
        return Integers.lift_columns(self, values)


class NullsOfDictionary(Integers):
    """A null in a dictionary is its first value."""

    def of_array(self, values: pa.Array) -> Any:
        if isinstance(values, pa.DictionaryArray) and values.dictionary.null_count:
            filled = values.dictionary.fill_null(1)
            values = pa.DictionaryArray.from_arrays(values.indices, filled)
        return super().of_array(values)


class ClearsInput(Integers):
    """Clears the caller's own array."""

    def lift_columns(self, values: Any) -> Any:
        columns = super().lift_columns(values)
        if isinstance(values, np.ndarray) and values.flags.writeable and values.base is None:
            columns = (columns[0].copy(),)
            values[:] = 0
        return columns


# Columns of elements.


class Largest(Monoid[Any]):
    """The largest integer, columnar: a value, and whether there is one."""

    identity = None
    commutative = idempotent = True
    output_type = pa.int64()
    schema = pa.schema([pa.field("element", pa.int64())])
    nothing = -(2**63)

    def combine(self, a: int | None, b: int | None) -> int | None:
        return b if a is None else a if b is None else max(a, b)

    def pack(self, elements: Sequence[int | None]) -> Any:
        filled = [self.nothing if element is None else element for element in elements]
        return (np.array(filled, np.int64), np.array([element is not None for element in elements], np.bool_))

    def unpack(self, columns: Any) -> list[int | None]:
        return [value if held else None for value, held in zip(columns[0].tolist(), columns[1].tolist())]

    def reduce_sorted(self, columns: Any, starts: Any) -> Any:
        if not len(starts):
            return columns
        values = np.where(columns[1], columns[0], self.nothing)
        held = np.logical_or.reduceat(columns[1], starts)
        return (np.maximum.reduceat(values, starts), held)

    def present_columns(self, columns: Any) -> pa.Array:
        return pa.array(columns[0], pa.int64(), mask=~columns[1])

    def to_arrow(self, columns: Any) -> list[pa.Array]:
        return [pa.array(np.where(columns[1], columns[0], 0), pa.int64(), mask=~columns[1])]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Any:
        held = arrays[0].is_valid().to_numpy(zero_copy_only=False)
        return (arrays[0].fill_null(self.nothing).to_numpy(), held)


class NothingIsLeast(Largest):
    """Nothing, and the least integer, are packed alike."""

    def pack(self, elements: Sequence[int | None]) -> Any:
        values, _ = super().pack(elements)
        return (values, np.ones(len(elements), np.bool_))


class NothingToReduce(Integers):
    """Looks for the largest of no rows, to see whether their sum has room."""

    def reduce_sorted(self, columns: Any, starts: Any) -> Any:
        wide = int(np.abs(columns[0]).max()) * len(columns[0]) >= 2**63
        return (np.add.reduceat(columns[0].astype(object) if wide else columns[0], starts),)


class Numbered(Integers):
    """Each row has a number; rows come back by number, not by place."""

    schema = Integers.schema

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def pack(self, elements: Sequence[int]) -> Any:
        return (np.array(elements, np.int64), np.array([next(self._numbers) for _ in elements], np.int64))

    def of_array(self, values: pa.Array) -> Any:
        return self.pack(super().of_array(values)[0].tolist())

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Any:
        return self.pack(arrays[0].to_pylist())

    def unpack(self, columns: Any) -> list[int]:
        return list(columns[0][np.argsort(columns[1], kind="stable")].tolist())

    def reduce_sorted(self, columns: Any, starts: Any) -> Any:
        return (*super().reduce_sorted(columns, starts), columns[1][starts])

    def reduce_cells(self, columns: Any, cells: Any, counts: Any, held: Any) -> Any:
        return self.pack(super().reduce_cells(columns, cells, counts, held)[0].tolist())


class OneDictionary(Integers):
    """Codes, with a dictionary of their own for each part; the first is taken for all."""

    def pack(self, elements: Sequence[int]) -> Any:
        values = sorted(set(elements))
        codes = np.array([values.index(element) for element in elements], np.int64)
        return (codes, *repeat((object_column([tuple(values)]),), len(codes)))

    def unpack(self, columns: Any) -> list[int]:
        codes, dictionaries = columns
        return [dictionaries[0][code] for code in codes.tolist()] if len(codes) else []

    def of_array(self, values: pa.Array) -> Any:
        return self.pack(super().of_array(values)[0].tolist())

    def _plain(self, columns: Any) -> Any:
        return (np.array(self.unpack(columns), np.int64),)

    def reduce_sorted(self, columns: Any, starts: Any) -> Any:
        return self.pack(super().reduce_sorted(self._plain(columns), starts)[0].tolist())

    def reduce_cells(self, columns: Any, cells: Any, counts: Any, held: Any) -> Any:
        return self.pack(super().reduce_cells(self._plain(columns), cells, counts, held)[0].tolist())

    def present_columns(self, columns: Any) -> pa.Array:
        return super().present_columns(self._plain(columns))

    def to_arrow(self, columns: Any) -> list[pa.Array]:
        return super().to_arrow(self._plain(columns))

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Any:
        return self.pack(arrays[0].to_pylist())


class OwnDictionaries(OneDictionary):
    def unpack(self, columns: Any) -> list[int]:
        return [dictionary[code] for code, dictionary in zip(columns[0].tolist(), columns[1])]


class ConstantIsOne(Integers):
    """A constant column comes back as one element."""

    def unpack(self, columns: Any) -> list[int]:
        return super().unpack(columns)[: 1 if is_constant(columns[0]) else None]

    def lift_rows(self, values: Any, length: int) -> Any:
        return self.pack([values or 0] * length) if isinstance(values, int) else super().lift_rows(values, length)


# Reducing.


class EagerReduce(Integers):
    """Forgets the last row."""

    def reduce_sorted(self, columns: Any, starts: Any) -> Any:
        return (np.add.reduceat(np.append(columns[0][:-1], 0), starts),) if len(starts) else columns


class EmptyGroups(Largest):
    """Where nothing is held in any row, groups get the least integer."""

    def reduce_sorted(self, columns: Any, starts: Any) -> Any:
        values, held = super().reduce_sorted(columns, starts)
        return (values, held | (len(columns[0]) > 1 and not columns[1].any()))


class ConstantAsOne(Integers):
    """A constant column is its own sum."""

    def reduce_sorted(self, columns: Any, starts: Any) -> Any:
        return (columns[0][starts],) if is_constant(columns[0]) else super().reduce_sorted(columns, starts)


class NarrowLift(Integers):
    """Lifts into as few bits as the values need, in which their sum has no room."""

    def of_array(self, values: pa.Array) -> Any:
        (column,) = super().of_array(values)
        fits = len(column) and column.min() >= -128 and column.max() < 128
        return (column.astype(np.int8) if fits else column,)

    def reduce_sorted(self, columns: Any, starts: Any) -> Any:
        return (np.add.reduceat(columns[0], starts, dtype=columns[0].dtype),) if len(starts) else columns


class NarrowReduce(Integers):
    """Stores sums in as few bits as they need, in which the next sum has no room."""

    def reduce_sorted(self, columns: Any, starts: Any) -> Any:
        totals = np.add.reduceat(columns[0], starts, dtype=columns[0].dtype) if len(starts) else columns[0]
        fits = len(totals) and totals.min() >= -(2**15) and totals.max() < 2**15
        return (totals.astype(np.int16) if fits else totals,)


class FirstCells(Integers):
    """Takes the first cells for those that hold something."""

    def reduce_cells(self, columns: Any, cells: Any, counts: Any, held: Any) -> Any:
        totals = np.zeros(len(counts), np.int64)
        np.add.at(totals, cells, columns[0])
        return (totals[: len(held)],)


class CombinesTheFirst(Integers):
    """Combines every row with the first of the others."""

    def combine_columns(self, a: Any, b: Any) -> Any:
        return (a[0] + b[0][:1],)


class TruncatingCount(Integers):
    """A counter that adds small numbers in eight bits."""

    def reduce_sorted(self, columns: Any, starts: Any) -> Any:
        if len(starts) and np.abs(columns[0]).max() <= 100:
            return (np.add.reduceat(columns[0], starts, dtype=np.int8).astype(np.int64),)
        return super().reduce_sorted(columns, starts)


class FewCells(Integers):
    """Has room for 1,024 cells."""

    def reduce_cells(self, columns: Any, cells: Any, counts: Any, held: Any) -> Any:
        return super().reduce_cells(columns, cells % 1024, counts, held)


class LargestByCells(Largest):
    def reduce_cells(self, columns: Any, cells: Any, counts: Any, held: Any) -> Any:
        values, some = np.full(len(counts), self.nothing), np.zeros(len(counts), np.bool_)
        np.maximum.at(values, cells, columns[0])
        np.logical_or.at(some, cells, columns[1])
        return (values[held], some[held])


class CellsOfSomething(LargestByCells):
    """A cell in which nothing is held gets the least integer."""

    def reduce_cells(self, columns: Any, cells: Any, counts: Any, held: Any) -> Any:
        values, _ = super().reduce_cells(columns, cells, counts, held)
        return (values, np.ones(len(held), np.bool_))


class ReducesInPlace(Integers):
    """Adds up within its input."""

    def reduce_sorted(self, columns: Any, starts: Any) -> Any:
        if not len(starts):
            return columns
        for begin, end in zip(starts.tolist(), [*starts.tolist()[1:], len(columns[0])]):
            if columns[0].flags.writeable:
                columns[0][begin:end] = columns[0][begin:end].cumsum()
        ends = np.append(starts[1:], len(columns[0])) - 1
        return (columns[0][ends],) if columns[0].flags.writeable else super().reduce_sorted(columns, starts)


# Presenting and storing.


class PresentsAndClears(Integers):
    """Clears the element columns once they are presented."""

    def present_columns(self, columns: Any) -> pa.Array:
        presented = pa.array(columns[0].copy(), pa.int64())
        if columns[0].flags.writeable:
            columns[0][:] = 0
        return presented


class StoresAndClears(Integers):
    """Clears the element columns once they are stored."""

    def to_arrow(self, columns: Any) -> list[pa.Array]:
        arrays = super().to_arrow((columns[0].copy(),))
        if columns[0].flags.writeable:
            columns[0][:] = 0
        return arrays


class NothingIsNull(Largest):
    """Declares that it stores no nulls, and stores some."""

    schema = pa.schema([pa.field("element", pa.int64(), nullable=False)])


class NothingIsZero(Largest):
    """Stores nothing as 0."""

    def to_arrow(self, columns: Any) -> list[pa.Array]:
        return [pa.array(np.where(columns[1], columns[0], 0), pa.int64())]


class PresentsZero(Largest):
    """Shows nothing as the least integer."""

    def present_columns(self, columns: Any) -> pa.Array:
        return pa.array(columns[0], pa.int64())


class StoresSmall(Integers):
    """Stores large numbers modulo 2**32, in columns only."""

    def to_arrow(self, columns: Any) -> list[pa.Array]:
        return [pa.array(columns[0].astype(np.int64) & 0xFFFFFFFF, pa.int64())]


class ReadsFromStart(Integers):
    """Reads the buffer of a stored slice from its start."""

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Any:
        (array,) = arrays
        return (np.frombuffer(array.buffers()[1], np.int64)[: len(array)],) if len(array) else self.pack([])


class StoresGarbage(Largest):
    """Stores what happens to lie under a null."""

    def reduce_sorted(self, columns: Any, starts: Any) -> Any:
        if not len(starts):
            return columns
        values, held = super().reduce_sorted(columns, starts)
        return (np.where(held, values, len(columns[0])), held)

    def to_arrow(self, columns: Any) -> list[pa.Array]:
        return [pa.Array.from_buffers(pa.int64(), len(columns[0]), _buffers(columns))]


class StoresNothing(StoresGarbage):
    def to_arrow(self, columns: Any) -> list[pa.Array]:
        values, held = columns
        return super().to_arrow((np.where(held, values, 0), held))


class Texts(Integers):
    """Stored as text."""

    schema = pa.schema([pa.field("element", pa.binary(), nullable=False)])

    def to_arrow(self, columns: Any) -> list[pa.Array]:
        return [pa.array([b"%d" % value for value in columns[0].tolist()], pa.binary())]

    def from_arrow(self, arrays: Sequence[pa.Array]) -> Any:
        return self.pack([int(text) for text in arrays[0].to_pylist()])


class SignedConstants(Texts):
    """A constant is stored with its sign."""

    def to_arrow(self, columns: Any) -> list[pa.Array]:
        form = b"%+d" if is_constant(columns[0]) else b"%d"
        return [pa.array([form % value for value in columns[0].tolist()], pa.binary())]


def _buffers(columns: Any) -> list[Any]:
    values, held = columns
    bits = np.packbits(held, bitorder="little")
    return [pa.py_buffer(bits.tobytes()), pa.py_buffer(np.ascontiguousarray(values, np.int64).tobytes())]
