"""Column limits are the ranges of values that a database can hold. Workers check them before anything is committed,
because a committed output must be published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.groupby.sorting import Mask
from persistent.errors import InvalidPipeline
from persistent.sinks.protocol import RefusedKeys

_DAYS = (-719_162, 2_932_896)
"""The first day of the year 1 and the last of 9999, in days since 1970."""
_SECONDS_A_DAY = 86_400
OTHER_KEY = "give the key another value in the task"
_A_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def leaves(name: str, column: pa.ChunkedArray) -> Iterator[tuple[str, pa.Array]]:
    """The values of a column that are not nested, under their paths.

    >>> [(name, values.to_pylist()) for name, values in leaves("a", pa.chunked_array([[{"b": [1, 2]}, None]]))]
    [('a.b', [1, 2])]
    """
    for chunk in column.chunks:
        yield from _leaves(name, chunk)


def _leaves(name: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    kind = values.type
    if pa.types.is_struct(kind):
        for field, child in zip(kind, values.flatten()):
            yield from _leaves(f"{name}.{field.name}", child)
    elif pa.types.is_map(kind):
        # A cast drops the items outside of this slice.
        items = values.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        yield from _leaves(name, items)
    elif pa.types.is_nested(kind):
        yield from _leaves(name, pc.list_flatten(values))
    elif pa.types.is_dictionary(kind):
        yield name, values.dictionary_decode().drop_null()
    else:
        yield name, values.drop_null()


def check_times(outputs: pa.Table, place: str) -> None:
    """InvalidPipeline for a date or timestamp outside the years 1 to 9999, or a time outside a day: its text would be
    wrong or missing."""
    for name, column in zip(outputs.column_names, outputs.columns):
        for where, values in leaves(name, column):
            bounds = _bounds(values.type)
            if bounds is None or not len(values):
                continue
            low, high, unit = bounds
            numbers = values.view(pa.int64() if values.type.bit_width == 64 else pa.int32())
            extremes = pc.min_max(numbers).as_py()
            for number in extremes.values():
                if not low <= number <= high:
                    what = f"{number} {unit}" if pa.types.is_time(values.type) else f"{number} {unit} since 1970"
                    raise InvalidPipeline(
                        f"{place}: column {where!r} has the {_word(values.type)} of {what}, which is not in "
                        f"{'a day' if pa.types.is_time(values.type) else 'the years 1 to 9999'}: give it another "
                        "value in the task, or None"
                    )


def times_refused(keys: pa.Table, place: str) -> RefusedKeys:
    """The rows of key columns with a date or timestamp outside the years 1 to 9999."""
    for name, column in zip(keys.column_names, keys.columns):
        bounds = _bounds(column.type)
        if bounds is not None:
            low, high, _ = bounds
            numbers = column.cast(pa.int64() if column.type.bit_width == 64 else pa.int32())
            word = _word(column.type)
            yield (
                is_true(pc.or_(pc.less(numbers, low), pc.greater(numbers, high))),
                f"{place}: a {word} outside the years 1 to 9999 in the key column {name!r}: {OTHER_KEY}",
            )


def nulls_refused(keys: pa.Table, place: str) -> RefusedKeys:
    """The rows of key columns with a null: nulls are never equal, so the row would never be replaced."""
    for name, column in zip(keys.column_names, keys.columns):
        if column.null_count:
            yield (
                is_true(column.is_null()),
                f'{place}: a null in the key column {name!r}, which mode="upsert" cannot replace, as no two nulls are '
                f"equal: {OTHER_KEY}",
            )


def is_true(column: pa.Array | pa.ChunkedArray) -> Mask:
    """A column of booleans as a mask of its own; null is False."""
    return np.array(column.fill_null(False), np.bool_)


def check_keys(refused: RefusedKeys) -> None:
    """InvalidPipeline for the first of the refused rows of key columns."""
    for rows, reason in refused:
        if rows.any():
            raise InvalidPipeline(reason)


def _word(kind: pa.DataType) -> str:
    return "time" if pa.types.is_time(kind) else "date" if pa.types.is_date(kind) else "timestamp"


def _bounds(kind: pa.DataType) -> tuple[int, int, str] | None:
    """The smallest and the largest integer of a time type that can be written, and its unit."""
    low, high = _DAYS
    if kind == pa.date32():
        return low, high, "days"
    if kind == pa.date64() or pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        unit = "ms" if kind == pa.date64() else kind.unit
        day = _SECONDS_A_DAY * _A_SECOND[unit]
        return (0, day - 1, unit) if pa.types.is_time(kind) else (low * day, (high + 1) * day - 1, unit)
    return None


def check_distinct(names: Sequence[str], place: str) -> None:
    """InvalidPipeline for two names that differ only in case.

    >>> check_distinct(["page", "value"], "t")
    """
    seen: dict[str, str] = {}
    for name in names:
        first_name = seen.setdefault(name.lower(), name)
        if first_name != name:
            raise InvalidPipeline(
                f"{place}: the columns {first_name!r} and {name!r} are the same to SQLite: rename a field of the "
                "record, or the key"
            )
