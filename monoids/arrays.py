"""Converting a user's array into one immutable Arrow array, of a type that all of Arrow's functions accept.

plain_array     decodes chunks, dictionary, run ends and views
from_numpy      copies memory that could still change
python_list     as Python values, whatever the zone
nearest_floats  decimals, correctly rounded

A wider type stores the values of a column that outgrow the type in the schema:

    int64                decimal128(38, 0): Arrow has no integers of more than 64 bits
    decimal128(38, s)    decimal256(76, s)

A monoid whose ``widens`` is true may read and write such columns, also inside lists and structs. Few values need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_EXACT_INT, _EXACT_POWER = 2**53, 22
"""The largest integer, and the largest power of ten, up to which every one is exactly a float."""

_ARROW_UNITS = {
    "generic": "s",
    **dict.fromkeys("YMWD", "D"),
    **dict.fromkeys("hms", "s"),
    **{unit: unit for unit in ("ms", "us", "ns")},
}
"""NumPy's units of time, each with the nearest Arrow unit that loses nothing."""


def from_numpy(values: np.ndarray[Any, Any]) -> pa.Array:
    """A NumPy array as an immutable Arrow array: memory that can still be written to is copied.

    Times in a unit that Arrow does not have become days or seconds. TypeError for units finer than nanoseconds.
    """
    if values.dtype.kind in "mM":
        values = _in_arrow_unit(values)
    shared = values.dtype.kind not in "OSUb" and not _is_frozen(values)
    try:
        return pa.array(values.astype(values.dtype.newbyteorder("="), copy=shared), from_pandas=False)
    except pa.ArrowNotImplementedError as error:
        raise TypeError(
            f"a column of {values.dtype} has no Arrow type: give another, such as values.astype(float)"
        ) from error


def _in_arrow_unit(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    unit, _ = np.datetime_data(values.dtype)
    wanted = _ARROW_UNITS.get(unit)
    if wanted is None:
        raise TypeError(f"a column of {values.dtype} is finer than nanoseconds: round it, values.astype('M8[us]')")
    kind = values.dtype.kind
    return values.astype(f"{kind}8[{'s' if kind == 'm' and wanted == 'D' else wanted}]", copy=False)


def _is_frozen(values: np.ndarray[Any, Any]) -> bool:
    """Whether neither this array nor any array it views allows writing to the memory."""
    owner: Any = values
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return owner is None or isinstance(owner, (bytes, pa.Buffer, pa.Array))


def plain_array(values: Any) -> pa.Array:
    """An Arrow array without chunks, dictionary, run ends and views, which many Arrow functions do not accept.

    >>> plain_array(pa.chunked_array([pa.array(["a"], pa.string_view()).dictionary_encode()])).type
    DataType(string)
    """
    if isinstance(values, pa.ChunkedArray):
        if values.num_chunks == 1:
            return plain_array(values.chunk(0))
        if pa.types.is_run_end_encoded(values.type):
            values = pa.chunked_array([_without_runs(chunk) for chunk in values.chunks], values.type.value_type)
        if pa.types.is_dictionary(values.type):
            # Before chunks are combined: each has its own dictionary, and Arrow cannot unify all of them.
            type_ = _without_views(values.type.value_type)
            values = pa.chunked_array([plain_array(chunk) for chunk in values.chunks], type_)
        values = values.combine_chunks()
    if pa.types.is_run_end_encoded(values.type):
        values = _without_runs(values)
    if pa.types.is_dictionary(values.type):
        value_type = values.type.value_type
        if value_type == _without_views(value_type):
            return values.cast(value_type)
        return values.dictionary.cast(_without_views(value_type)).take(values.indices)
    type_ = _without_views(values.type)
    return values if values.type == type_ else values.cast(type_)


def _without_runs(values: pa.Array) -> pa.Array:
    """The value of each row. Arrow cannot decode runs of dictionary values, so those are gathered by index."""
    if not pa.types.is_dictionary(values.type.value_type):
        return pc.run_end_decode(values)
    places = pa.array(np.arange(len(values.values)))
    return values.values.take(
        pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(values.run_ends, places))[values.offset :][: len(values)]
    )


def _without_views(type_: pa.DataType) -> pa.DataType:
    """The type with plain strings and bytes in place of views, at any depth."""
    if pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_binary_view(type_):
        return pa.binary()
    return _with_inner_types(type_, _without_views)


def _with_inner_types(type_: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A nested type with ``change`` applied to the types of its fields."""

    def changed(field: pa.Field) -> pa.Field:
        return field.with_type(change(field.type))

    if pa.types.is_struct(type_):
        return pa.struct([changed(field) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(changed(type_.value_field))
    if pa.types.is_large_list(type_):
        return pa.large_list(changed(type_.value_field))
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(changed(type_.value_field), type_.list_size)
    if pa.types.is_map(type_):
        return pa.map_(changed(type_.key_field), changed(type_.item_field), type_.keys_sorted)
    return type_


def python_list(values: Any) -> list[Any]:
    """An Arrow array or table as a list of Python values. Times whose year Python cannot hold in their zone are in UTC.

    >>> end = pa.scalar(253_402_300_799, pa.timestamp("s", "UTC")).cast(pa.timestamp("s", "Asia/Tokyo"))
    >>> python_list(pa.array([end]))[0].year
    9999
    """
    try:
        return list(values.to_pylist())
    except OverflowError:
        if isinstance(values, pa.Table):
            return list(
                values.cast(pa.schema([field.with_type(_in_utc(field.type)) for field in values.schema])).to_pylist()
            )
        return list(values.cast(_in_utc(values.type)).to_pylist())


def python_value(value: pa.Scalar) -> Any:
    """An Arrow scalar as a Python value, converted as ``python_list`` does."""
    try:
        return value.as_py()
    except OverflowError:
        return value.cast(_in_utc(value.type)).as_py()


def _in_utc(type_: pa.DataType) -> pa.DataType:
    """The type with every time zone replaced by UTC, at any depth."""
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp(type_.unit, "UTC")
    return _in_utc(type_.value_type) if pa.types.is_dictionary(type_) else _with_inner_types(type_, _in_utc)


def exact_decimals(values: Any, type_: pa.DataType) -> Any:
    """Decimals, or texts, as decimals of another type. ``pa.ArrowInvalid`` if that type cannot hold a value
    exactly; Arrow's own cast may then give another number, because it does not notice every overflow.

    >>> exact_decimals(pa.array(["44", "-1.5"]), pa.decimal128(38, 2)).to_pylist()
    [Decimal('44.00'), Decimal('-1.50')]
    """
    wide = values.cast(pa.decimal256(76, type_.scale))
    made = wide.cast(type_)
    is_wide = pa.types.is_decimal256(values.type)
    if not made.cast(wide.type).equals(wide) or (is_wide and not wide.cast(values.type).equals(values)):
        raise pa.ArrowInvalid(f"a decimal does not fit in {type_}")
    return made


def nearest_floats(values: pa.Array) -> pa.Array:
    """Decimals as the nearest floats. Arrow's own cast can be off by one bit."""
    scale = values.type.scale
    if pa.types.is_decimal128(values.type) and 0 <= scale <= _EXACT_POWER and len(values):
        words = np.frombuffer(values.buffers()[1], "<i8")[2 * values.offset :][: 2 * len(values)].reshape(-1, 2)
        units, high = words[:, 0], words[:, 1]
        valid = None if not values.null_count else values.is_valid().to_numpy(zero_copy_only=False)
        exact = (high == units >> 63) & (units >= -_EXACT_INT) & (units <= _EXACT_INT)
        if (exact if valid is None else exact | ~valid).all():  # both operands are exact floats: one rounding
            return pa.array(units / float(10**scale), mask=None if valid is None else ~valid, from_pandas=False)
    return values.cast(pa.string()).cast(pa.float64())


def check_text(owner: str, array: pa.Array) -> None:
    """ValueError unless the bytes of every string are UTF-8, where lone surrogates are allowed."""
    stored = array.cast(pa.binary())
    try:
        stored.cast(pa.string())
    except pa.ArrowInvalid:
        for data in stored.to_pylist():
            if data is None:
                continue
            try:
                data.decode("utf-8", "surrogatepass")
            except UnicodeDecodeError as error:
                raise ValueError(f"{owner}: a string is not UTF-8: {error}") from error


def columnar(values: Any) -> Any:
    """A user's input as columns: a list, generator, range or Series becomes a list or an Arrow array, also as a part of
    a dict or tuple. What a Series calls missing, NaN too, becomes null. Anything else is returned as it is.

    >>> columnar({"n": (n for n in (1, 2)), "m": range(2), "total": 5})
    {'n': [1, 2], 'm': [0, 1], 'total': 5}
    """
    kind = values.__class__
    if kind is dict:
        return {name: columnar(item) for name, item in values.items()}
    if kind is tuple:
        return tuple(map(columnar, values))
    if isinstance(values, Iterator | range):
        return list(values)
    if kind.__module__.partition(".")[0] in ("pyarrow", "numpy", "builtins") or offers(values, "columns"):
        return values
    if offers(values, "isna", "__array__"):
        if values.dtype == object:
            return [None if missing else value for value, missing in zip(values, values.isna())]
        return pa.array(values, from_pandas=True)
    return pa.chunked_array(values) if offers(values, "__arrow_c_stream__") else values


def offers(values: Any, *names: str) -> bool:
    """Whether an array, column or table of any library has all of these attributes."""
    return all(hasattr(values, name) for name in names)


def no_column(owner: str, values: Any) -> TypeError:
    """The error for a value that is not an Arrow array, NumPy array or list. It says how to convert one."""
    way = next((f".{name}()" for name in ("to_arrow", "to_numpy") if offers(values, name)), None)
    kind = f"{type(values).__module__}.{type(values).__qualname__}".removeprefix("builtins.")
    remedy = f"give what its {way} returns" if way else "write list(...)"
    return TypeError(f"{owner} takes a column as an Arrow array, NumPy array or list, not {kind}: {remedy}")


def type_of(values: Any) -> str:
    """The type of the items of an Arrow or NumPy array, otherwise of the value itself, for an error message."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return str(values.type)
    return str(values.dtype) if isinstance(values, np.ndarray) else type(values).__name__


WIDE_INTEGER = pa.decimal128(38, 0)
"""For sums of 64-bit integers: 2**63 of them have at most 38 digits."""


def wider(type: pa.DataType) -> pa.DataType | None:
    """The type for values that outgrow ``type``; None if there is no wider one.

    >>> print(wider(pa.decimal128(38, 2)))
    decimal256(76, 2)
    """
    if type == pa.int64():
        return WIDE_INTEGER
    if pa.types.is_decimal128(type) and type.precision == WIDE_INTEGER.precision:
        return pa.decimal256(76, type.scale)
    return None


def is_as_wide(column_type: pa.DataType, type: pa.DataType) -> bool:
    """Whether a column of ``column_type`` can stand for a column of ``type``: equal, or wider in some parts.

    >>> is_as_wide(pa.list_(pa.decimal128(38, 0)), pa.list_(pa.int64())), is_as_wide(pa.int64(), pa.decimal128(38, 0))
    (True, False)
    """
    if column_type == type or column_type == wider(type):
        return True
    if not pa.types.is_nested(type) or column_type.id != type.id or column_type.num_fields != type.num_fields:
        return False
    pairs = [(column_type.field(number), type.field(number)) for number in range(type.num_fields)]
    return all(wide.with_type(narrow.type) == narrow and is_as_wide(wide.type, narrow.type) for wide, narrow in pairs)


def widest(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The wider of two types at each part, where both types widen the same type."""
    if is_as_wide(a, b):
        return a
    if is_as_wide(b, a):
        return b
    pairs = [(a.field(number), b.field(number)) for number in range(a.num_fields)]
    fields = [left.with_type(widest(left.type, right.type)) for left, right in pairs]
    return pa.struct(fields) if pa.types.is_struct(a) else pa.list_(*fields)
