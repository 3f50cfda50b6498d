"""A single value from a user is converted to the Python value that a column holding it would give back.

    scalar(column[i]) == python_values(column)[i]

None, NaT and NA are missing values and contribute nothing. Arrow and NumPy scalars are unwrapped, whatever their unit.

A snapshot is the value as it is now: changing the original later does not change the snapshot. It is the value itself,
unless that, or a part of it, can change.
"""

from __future__ import annotations

import operator
from copy import deepcopy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.arrays import from_numpy, no_column, offers, python_value

PLAIN = frozenset({type(None), bool, int, float, str, bytes, tuple, list, dict, set, frozenset})
"""Types that need no conversion. Of their values, only None is missing."""
_MAY_BE_MISSING = frozenset({type(None), np.datetime64, np.timedelta64})
_SHOWN_MAX, _SHOWN_BITS_MAX = 60, 190
FROZEN = frozenset({type(None), bool, int, float, complex, str, bytes, Decimal, date, datetime, time, timedelta})
"""Types whose values never change."""
_UNCHANGED = PLAIN | FROZEN


def scalar(value: Any) -> Any:
    """One value as the Python value that a column holding it would give back; None for NaT and NA.

    TypeError for a column from another library, which would otherwise count as one value for every row.

    >>> scalar(np.int64(3)), scalar(pa.scalar("a")), scalar(np.datetime64("2024-05-06T10:00", "ns"))
    (3, 'a', datetime.datetime(2024, 5, 6, 10, 0))
    """
    if value.__class__ in _UNCHANGED:
        return value
    if isinstance(value, pa.Scalar):
        return _finest(python_value(value))
    if isinstance(value, np.ndarray):
        value = value[()]
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return _finest(from_numpy(np.array([value]))[0].as_py())
    if isinstance(value, np.generic):
        return value.item()
    if is_missing(value):
        return None
    if offers(value, "__arrow_c_stream__") or offers(value, "__array__"):
        raise no_column("a monoid", value)
    return _finest(value)


def _finest(value: Any) -> Any:
    """A pandas timestamp as a datetime, unless it has nanoseconds."""
    return plain_datetime(value) if isinstance(value, datetime) and not nanosecond(value) else value


def nanosecond(value: datetime) -> int:
    """The nanoseconds of a pandas timestamp after its microsecond; 0 for any other datetime."""
    return int(getattr(value, "nanosecond", 0))


def plain_datetime(value: datetime) -> datetime:
    """A plain datetime, from a subclass such as a pandas timestamp too."""
    if value.__class__ is datetime:
        return value
    parts = (value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)
    return datetime(*parts, tzinfo=value.tzinfo, fold=value.fold)


def is_missing(value: Any) -> bool:
    """Whether the value is missing: None, NumPy's or pandas' NaT, or pandas' NA.

    >>> is_missing(None), is_missing(np.datetime64("NaT")), is_missing(0), is_missing(float("nan"))
    (True, True, False, False)
    """
    return value is None or (value.__class__ not in PLAIN and may_be_missing(value.__class__) and _is_null(value))


def may_be_missing(kind: type) -> bool:
    """Whether values of this type can be missing."""
    return kind in _MAY_BE_MISSING or kind.__name__ in ("NaTType", "NAType") or issubclass(kind, pa.Scalar)


def _is_null(value: Any) -> bool:
    if isinstance(value, pa.Scalar):
        # A dictionary may hold null as one of its values: then the scalar is valid, but missing.
        return not value.is_valid or (pa.types.is_dictionary(value.type) and python_value(value) is None)
    return not isinstance(value, (np.datetime64, np.timedelta64)) or bool(np.isnat(value))


def shown(value: Any) -> str:
    """A value for an error message, kept short. Python refuses to print integers of many digits.

    >>> shown(10**5000), shown("a" * 80)[-8:]
    ('an integer of 16610 bits', 'aaaaa...')
    """
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS_MAX:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = repr(value)
    except ValueError:
        return f"a {value.__class__.__name__} that cannot be printed"
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."


_AS_IS = (*(FROZEN - {type(None)}), frozenset, np.generic, pa.Scalar, pa.Array, pa.ChunkedArray, pa.Table)


def snapshot(value: Any) -> Any:
    """The value, with a copy of each part that can change. TypeError for an object that Python cannot copy.

    >>> visits = {"n": 1}
    >>> kept = snapshot(visits); visits["n"] = 2; kept
    {'n': 1}
    """
    kind = value.__class__
    if kind is dict:
        for part in value.values():
            if part.__class__ not in FROZEN:
                return {key: snapshot(item) for key, item in value.items()}
        return value.copy()
    if kind in FROZEN or isinstance(value, _AS_IS):
        return value
    if kind is list:
        return [snapshot(part) for part in value]
    if kind is tuple:
        parts = tuple(map(snapshot, value))
        return value if all(map(operator.is_, parts, value)) else parts
    try:
        return deepcopy(value)
    except TypeError as error:
        raise TypeError(
            f"{shown(value)} can change later, and cannot be copied ({error}): give its plain values, such as numbers, "
            "text, dicts and lists"
        ) from error
