"""The times of updates, as users give them: milliseconds since the Unix epoch, zero or more."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.groupby.cells import Integers

TIMESTAMP_MAX = 1 << 62
_DATED = 100_000_000_000
"""Times (ms) from here on, March 1973, are taken for dates: a number less than half of one is an amount, or a number in
a test."""


def checked_timestamp(timestamp: Any) -> int:
    """A timestamp: an integer, milliseconds since the epoch, zero or more. TypeError, ValueError."""
    if isinstance(timestamp, bool) or not isinstance(timestamp, numbers.Integral):
        raise TypeError(
            f"a timestamp is an integer, milliseconds since the Unix epoch, not {timestamp!r}: give message.timestamp, "
            "or round(1000 * seconds)"
        )
    if timestamp < 0:
        raise ValueError(f"timestamp {timestamp} is before 1970")
    if int(timestamp) > TIMESTAMP_MAX:
        raise ValueError(f"timestamp {timestamp} is too large: give milliseconds since the Unix epoch")
    return int(timestamp)


def checked_timestamps(timestamps: Any) -> Integers:
    """Timestamps as int64 ms, zero or more; an Arrow array (of integers or Arrow timestamps) or a NumPy array."""
    if isinstance(timestamps, pa.Array | pa.ChunkedArray):
        if timestamps.null_count:
            raise ValueError(f"{timestamps.null_count} timestamps are null: filter them out first")
        if pa.types.is_timestamp(timestamps.type):
            timestamps = timestamps.cast(pa.timestamp("ms"), safe=timestamps.type.unit == "s").cast(pa.int64())
        timestamps = (
            timestamps.to_numpy(zero_copy_only=False) if isinstance(timestamps, pa.Array) else timestamps.to_numpy()
        )
    if not isinstance(timestamps, np.ndarray) or timestamps.dtype.kind not in "iu" or timestamps.ndim != 1:
        raise TypeError(
            f"timestamps are a one-dimensional NumPy or Arrow array of integers (ms), not {type(timestamps).__name__}"
        )
    if len(timestamps) and int(timestamps.min()) < 0:
        raise ValueError(f"timestamp {int(timestamps.min())} is before 1970")
    if len(timestamps) and int(timestamps.max()) > TIMESTAMP_MAX:
        raise ValueError(f"timestamp {int(timestamps.max())} is too large: give milliseconds since the Unix epoch")
    return timestamps.astype(np.int64, copy=False)


def listed_timestamps(times: list[Any]) -> Integers:
    """The same of a list of integers."""
    if set(map(type, times)) != {int}:
        times = [checked_timestamp(time) for time in times]
    try:
        return checked_timestamps(np.fromiter(times, np.int64, len(times)))
    except OverflowError:
        return checked_timestamps(np.array([checked_timestamp(time) for time in times]))


def is_far_before(updates: Integers, times: Integers) -> bool:
    """Whether some of ``updates``, times other than 0, are implausible for records with the timestamps ``times``."""
    later = updates[updates != 0] if len(updates) and not int(updates.min()) else updates
    return bool(len(later) and len(times) and int(times.min()) >= _DATED and 2 * int(later.min()) < int(times.min()))
