"""A snapshot of a value is the value as it is now: changing the original later does not change the snapshot.

snapshot(x) == x          snapshot(x) is x, unless x, or a part of it, can change
"""

from __future__ import annotations

import operator
from copy import deepcopy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.scalars import shown

FROZEN = frozenset({type(None), bool, int, float, complex, str, bytes, Decimal, date, datetime, time, timedelta})
"""Types whose values never change."""
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


def takes_constants(monoid: object) -> bool:
    """Whether a monoid takes only inputs that never change, by its own word: then they need no snapshot."""
    return bool(getattr(monoid, "takes_constants", False))
