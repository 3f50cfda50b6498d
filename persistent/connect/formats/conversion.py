"""A column is converted to its recorded type; a value that this type does not hold exactly is named, by its row.

    a value is held iff the conversion back gives the same value

What becomes of a value depends on that value alone, not on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.arrays import exact_decimals
from monoids.groupby.sorting import Mask
from persistent.connect.formats.schemas import widens
from persistent.text.readable import readable

_SHOWN: Final = 80


def converted(column: pa.ChunkedArray, field: pa.Field, misfits: dict[int, str]) -> pa.ChunkedArray:
    """The column in the type of ``field``. A value that the type does not hold is null, with the reason in ``misfits``.

    >>> misfits = {}
    >>> converted(pa.chunked_array([[1.0, 1.5]]), pa.field("n", pa.int64()), misfits).to_pylist()
    [1, None]
    >>> misfits
    {1: "column 'n' holds 1.5 (double), which int64 does not hold exactly"}
    """
    have, kind, types = column.type, field.type, pa.types
    if have == kind:
        return column
    if widens(have, kind) or not (types.is_floating(kind) or types.is_decimal(kind)):
        try:
            # Arrow refuses what is not exact, except of floats and decimals.
            return column.cast(kind)
        except pa.ArrowInvalid:
            pass
    if types.is_decimal(have):
        return _by_halves([column], 0, lambda part: exact_decimals(part, kind), field, misfits)
    if types.is_timestamp(have) and types.is_timestamp(kind):
        back = column.cast(kind, safe=False).cast(have, safe=False)
        lossy = pc.not_equal(back, column).fill_null(False).to_numpy()
    elif _is_number(have) and _is_number(kind):
        lossy = _lossy(column.fill_null(0).to_numpy(), np.dtype(kind.to_pandas_dtype()))
    else:
        return _by_halves([column], 0, lambda part: part.cast(kind), field, misfits)
    return _without(lossy, column, column, field, misfits).cast(kind, safe=False)


def of_int96(
    micros: pa.ChunkedArray, nanos: pa.ChunkedArray, field: pa.Field, misfits: dict[int, str]
) -> pa.ChunkedArray:
    """A column of INT96 in the type of ``field``, from what Arrow reads of it in microseconds, which cuts digits, and
    in nanoseconds, which are a number modulo 2^64. Together they are exact."""
    is_ns, kind = _unit(field.type) == "ns", field.type
    if not pa.types.is_timestamp(micros.type):
        if is_ns:
            return _by_halves([nanos, micros], 0, partial(_exact_nanos, kind=kind), field, misfits)
        return _by_halves([micros, nanos], 0, partial(_exact_micros, kind=kind), field, misfits)
    counts = [column.cast(pa.int64()).fill_null(0).to_numpy() for column in (micros, nanos)]
    if is_ns:
        return _without(counts[1] // 1_000 != counts[0], nanos, micros, field, misfits).cast(kind)
    return converted(_without(counts[0] * 1_000 != counts[1], micros, nanos, field, misfits), field, misfits)


def has_nanoseconds(micros: pa.ChunkedArray, nanos: pa.ChunkedArray) -> bool:
    """Whether a time of an INT96 column has digits below the microsecond."""
    return any(pc.any(pc.not_equal(nano, pc.multiply(micro, 1000))).as_py() for micro, nano in _counts(micros, nanos))


def _without(
    lossy: Mask, column: pa.ChunkedArray, exact: pa.ChunkedArray, field: pa.Field, misfits: dict[int, str]
) -> pa.ChunkedArray:
    """The column with null in the ``lossy`` rows. ``misfits`` gets the reasons, with the values in ``exact``."""
    rows = np.flatnonzero(lossy)
    if not len(rows):
        return column
    for row, value in zip(rows.tolist(), exact.take(rows)):
        misfits.setdefault(row, _reason(value, field))
    return pc.if_else(pa.array(lossy), pa.scalar(None, column.type), column)


def _reason(value: pa.Scalar, field: pa.Field) -> str:
    text = str(readable(value))[:_SHOWN]
    return f"column {field.name!r} holds {text} ({value.type}), which {field.type} does not hold exactly"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _lossy(values: np.ndarray[Any, Any], kind: np.dtype[Any]) -> Mask:
    """Which numbers another type does not hold.

    >>> _lossy(np.array([1, 2**53 + 1, 2**60]), np.dtype(np.float64)).tolist()
    [False, True, False]
    """
    with np.errstate(all="ignore"):
        if values.dtype.kind == kind.kind == "f":
            return np.asarray((values.astype(kind).astype(values.dtype) != values) & ~np.isnan(values))
        if values.dtype.kind != "f" and kind.kind != "f":
            return (values < int(np.iinfo(kind).min)) | (values > int(np.iinfo(kind).max))
        floats, whole = (values, kind) if values.dtype.kind == "f" else (values.astype(kind), values.dtype)
        floats = floats.astype(np.float64, copy=False)
        # The border above is a power of two, which a float holds; it does not hold the largest integer.
        low, above = float(np.iinfo(whole).min), float(int(np.iinfo(whole).max) + 1)
        inside = (floats >= low) & (floats < above)
        return np.asarray(~inside | (np.where(inside, floats, 0).astype(whole) != values))


_Conversion = Callable[..., pa.ChunkedArray]


def _by_halves(
    columns: Sequence[pa.ChunkedArray], start: int, convert: _Conversion, field: pa.Field, misfits: dict[int, str]
) -> pa.ChunkedArray:
    """The columns converted to one, by halves until a value that does not convert is alone. The last column has the
    value for the reason."""
    try:
        return convert(*columns)
    except pa.ArrowInvalid:
        rows = len(columns[0])
        if rows == 1:
            misfits.setdefault(start, _reason(columns[-1][0], field))
            return pa.chunked_array([pa.nulls(1, field.type)])
    middle = rows // 2
    before = _by_halves([_rows(column, 0, middle) for column in columns], start, convert, field, misfits)
    after = _by_halves([_rows(column, middle, rows) for column in columns], start + middle, convert, field, misfits)
    return pa.chunked_array([pa.chunked_array([*before.chunks, *after.chunks], field.type).combine_chunks()])


def _rows(column: pa.ChunkedArray, start: int, stop: int) -> pa.ChunkedArray:
    # Arrow casts what is in a list beside the rows of a slice, too.
    return column.take(np.arange(start, stop)) if pa.types.is_nested(column.type) else column.slice(start, stop - start)


def _exact_micros(micros: pa.ChunkedArray, nanos: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if has_nanoseconds(micros, nanos):
        raise pa.ArrowInvalid("a time has digits below the microsecond")
    return micros.cast(kind)


def _exact_nanos(nanos: pa.ChunkedArray, micros: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    for micro, nano in _counts(micros, nanos):
        if (nano.to_numpy() // 1_000 != micro.to_numpy()).any():
            raise pa.ArrowInvalid("a time is beyond 64 bits of nanoseconds")
    return nanos.cast(kind)


def _unit(kind: pa.DataType) -> str:
    """The unit of the times in a type, at any depth; empty without one."""
    if pa.types.is_timestamp(kind):
        return str(kind.unit)
    units = [_unit(kind.field(place).type) for place in range(kind.num_fields)]
    return "ns" if "ns" in units else "".join(units[:1])


def _counts(micros: pa.ChunkedArray, nanos: pa.ChunkedArray) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The times of INT96 in two readings of a column, at any depth, as integers without nulls."""
    for micro_chunk, nano_chunk in zip(micros.chunks, nanos.chunks, strict=True):
        for micro, nano in zip(_leaves(micro_chunk), _leaves(nano_chunk), strict=True):
            if micro.type != nano.type:
                yield micro.cast(pa.int64()).drop_null(), nano.cast(pa.int64()).drop_null()


def _leaves(array: pa.Array) -> list[pa.Array]:
    if pa.types.is_timestamp(array.type):
        return [array]
    if pa.types.is_struct(array.type):
        return [leaf for child in array.flatten() for leaf in _leaves(child)]
    return _leaves(array.flatten()) if pa.types.is_nested(array.type) else []
