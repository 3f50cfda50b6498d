"""An ordered column stores values of one type and compares them as 64-bit words, a whole column at a time.

    words(column)[i] <  words(column)[j]   iff value i sorts before value j
    words(column)[i] == words(column)[j]   iff they are the same value

Numbers, dates and times are stored as fixed-width numbers, strings and bytes as Arrow bytes, decimals as Arrow
decimals. Strings sort by code point, NaN sorts above all numbers. Compare words only within one column.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.column import ArrowColumn, Column
from monoids.fixed import canonical_floats
from monoids.scalars import is_missing
from monoids.text import Words
from monoids.values import ValueType

_FIXED: Mapping[str, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.int32(),
    "datetime": pa.int64(),
}
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class Ordered:
    """How values of one ``ValueType`` are stored in a column and read back."""

    type: ValueType

    @property
    def arrow(self) -> pa.DataType:
        """The type in a file: the value type's own; bytes for strings, which may hold lone surrogates."""
        return pa.binary() if self.type.kind == "str" else self.type.arrow

    def store(self, values: Any) -> tuple[Any, Column | None]:
        """Inputs (Arrow array, NumPy array or list) as a column, and a mask of those that are not null (None: all).

        The column holds an arbitrary value where the input is null. Raises as ``ValueType.column`` does.
        """
        if isinstance(values, np.ndarray) and values.dtype.kind in "OU" and values.ndim == 1:  # lone surrogates
            values = values.tolist()
        if self.type.kind == "str" and isinstance(values, list):
            accepted = [None if is_missing(value) else self.type.accept(value) for value in values]
            array = pa.array([v if v is None else v.encode("utf-8", "surrogatepass") for v in accepted], pa.binary())
        else:
            array = self.type.column(values)
        valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
        return self._of_arrow(array), valid

    def load(self, column: Any) -> list[Any]:
        """The Python values of a column."""
        if self.type.kind == "datetime":
            return self.type.moments(self.to_arrow(column))
        values = self.to_arrow(column).to_pylist()
        if self.type.kind == "str":
            return [value.decode("utf-8", "surrogatepass") for value in values]
        if self.type.kind == "float":
            return [value if value == value else math.nan for value in values]
        return list(values)

    def to_arrow(self, column: Any, valid: Column | None = None) -> pa.Array:
        """A column as an Arrow array of type ``arrow``, null where ``valid`` is false."""
        if isinstance(column, ArrowColumn):
            return (
                column.array
                if valid is None
                else pc.if_else(pa.array(valid), column.array, pa.scalar(None, self.arrow))
            )
        return pa.array(column, mask=None if valid is None else ~valid).view(self.type.arrow)

    def from_arrow(self, array: pa.Array) -> Any:
        """The inverse of ``to_arrow``; an arbitrary value where null. ValueError for what ``store`` never writes."""
        self.type.check_stored(array)
        return self._of_arrow(array)

    def _of_arrow(self, array: pa.Array) -> Any:
        stored = _FIXED.get(self.type.kind)
        if stored is None:
            array = array.cast(self.arrow) if array.type != self.arrow else array
            filler = pa.scalar(b"") if pa.types.is_binary(self.arrow) else pa.scalar(Decimal(0), self.arrow)
            return ArrowColumn(array.fill_null(filler) if array.null_count else array)
        array = array.view(stored) if array.type != stored else array
        if array.null_count:
            array = array.fill_null(pa.scalar(0, stored).cast(stored) if stored != pa.bool_() else False)
        numbers = array.to_numpy(zero_copy_only=False)
        return canonical_floats(numbers) if self.type.kind == "float" else numbers

    def show(self, column: Any, valid: Column | None = None) -> pa.Array:
        """A column as an Arrow array of the value type's own type, for readers."""
        array = self.to_arrow(column, valid)
        if self.type.kind != "str":
            return array
        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid:
            texts = [None if data is None else _printable(data) for data in array.to_pylist()]
            return pa.array(texts, pa.string())


@dataclass(frozen=True)
class IntegerKeys:
    """Integers of one width, such as the registers, hashes and buckets of sketches, stored unchanged."""

    dtype: np.dtype[Any]

    @property
    def arrow(self) -> pa.DataType:
        return pa.from_numpy_dtype(self.dtype)

    def store(self, values: Any) -> tuple[Column, Column | None]:
        return np.asarray(values, self.dtype), None

    def load(self, column: Column) -> list[int]:
        return list(column.tolist())

    def to_arrow(self, column: Column) -> pa.Array:
        return pa.array(column)

    def from_arrow(self, array: pa.Array) -> Column:
        return np.asarray(array.to_numpy(zero_copy_only=False), self.dtype)


Keys = Ordered | IntegerKeys


def _printable(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass").encode("utf-8", "backslashreplace").decode()


def words(column: Any) -> Words:
    """The values of a column as words that compare as the values do. Accepts numbers of any width."""
    if isinstance(column, ArrowColumn):
        return _ranks(column.array)
    if column.dtype.kind == "f":
        bits: Words = np.ascontiguousarray(column, np.float64).view(np.uint64)
        flipped: Words = np.where(bits & _SIGN, ~bits, bits | _SIGN)
        return flipped
    if column.dtype.kind == "i":
        integers: Words = column.astype(np.int64).view(np.uint64)
        integers ^= _SIGN
        return integers
    unsigned: Words = column.astype(np.uint64)
    return unsigned


def _ranks(array: pa.Array) -> Words:
    """The rank of each value among the sorted distinct values."""
    encoded = array.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(order), np.uint64)
    ranks[order] = np.arange(len(order), dtype=np.uint64)
    ranked: Words = ranks[encoded.indices.to_numpy()]
    return ranked
