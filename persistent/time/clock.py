"""A clock states a bound in event time: no earlier timestamp is expected.

Times are integers, milliseconds since the Unix epoch, UTC. Laws:

- a clock never goes back;
- ``closed <= watermark``: a window closes only in a step after the one that moved the watermark past its end.

This is the only module that reads the time of day.

The times of updates, as users give them: milliseconds since the Unix epoch, zero or more.
"""

from __future__ import annotations

import numbers
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.groupby.cells import Integers
from persistent.errors import InvalidPipeline
from persistent.text.figures import DURATION_UNITS

Duration = int | str | timedelta
"""Milliseconds, a ``timedelta``, or text such as ``"1 min"``."""
Instant = int | str | datetime
"""Milliseconds since the epoch, a ``datetime``, or text in ISO 8601."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_UNITS_MS = {name: ms for ms, names in DURATION_UNITS for name in names}
_DURATION = re.compile(r"([0-9]{1,30})\s*([a-z]+)")
_DURATION_MAX_MS = 2**61
"""Its sum with any time fits 64 bits."""
_MILLISECONDS = re.compile(r"-?[0-9]{1,30}")
_DATE_DIGITS = 8


def duration_ms(value: Duration, name: str = "duration") -> int:
    """A duration in milliseconds, zero or more, at most 2**61.

    >>> duration_ms("1 min"), duration_ms(timedelta(seconds=2)), duration_ms(7), duration_ms("2 days")
    (60000, 2000, 7, 172800000)
    >>> duration_ms("1 hour") == duration_ms("1 h") == duration_ms("1h") == 60 * duration_ms("1 minute")
    True
    """
    original = value
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if not match or match[2] not in _UNITS_MS:
            units = "; ".join(", ".join(names) for _, names in DURATION_UNITS)
            raise ValueError(
                f"{name}: {value!r} is not a duration: give a whole number and a unit, for example '500 ms', '1 min', "
                f"'2 days'. The units: {units}"
            )
        value = int(match[1]) * _UNITS_MS[match[2]]
    if isinstance(value, timedelta):
        if value % timedelta(milliseconds=1):
            raise ValueError(f"{name}: {value} is not a whole number of milliseconds")
        value = value // timedelta(milliseconds=1)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: {value!r} is neither milliseconds, a timedelta, nor text such as '1 min'")
    if value < 0:
        raise ValueError(f"{name}: {value} is negative")
    if value > _DURATION_MAX_MS:
        raise ValueError(
            f"{name}: {original!r} is too long: a duration is at most {_DURATION_MAX_MS} ms, 73 million years"
        )
    return value


def option_ms(value: Duration, name: str) -> int:
    """The option ``name``, a duration, in milliseconds. InvalidPipeline."""
    try:
        return duration_ms(value, name)
    except (TypeError, ValueError) as error:
        raise InvalidPipeline(str(error)) from error


def bare(**durations: Duration | None) -> dict[str, int]:
    """The durations without a unit that may have been meant as seconds, because they are not whole seconds: 60, 300 and
    86400 milliseconds, but not 60_000.

    >>> bare(history=60, max_future=60_000, size="60 ms")
    {'history': 60}
    """
    return {name: value for name, value in durations.items() if isinstance(value, int) and value % 1_000}


def instant_ms(value: Any, name: str = "clock") -> int:
    """A point in time in milliseconds since the epoch; in UTC if it names no zone. ValueError, TypeError.

    >>> instant_ms("2013-12-20T00:00Z"), instant_ms(datetime(2013, 12, 20)), instant_ms(1_387_497_600_000)
    (1387497600000, 1387497600000, 1387497600000)
    """
    if isinstance(value, str):
        value = _read(value.strip(), name)
    if isinstance(value, datetime):
        since = value.replace(tzinfo=value.tzinfo or UTC) - _EPOCH
        if since % timedelta(milliseconds=1):
            raise ValueError(f"{name}: {value} is not a whole number of milliseconds")
        value = since // timedelta(milliseconds=1)
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name}: {value!r} is neither milliseconds since 1970, a datetime, nor text in ISO 8601")
    return int(value)


def _read(text: str, name: str) -> int | datetime:
    """A point in time from text: milliseconds, or ISO 8601."""
    if not _MILLISECONDS.fullmatch(text):
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(
                f"{name}: {text!r} is not a time: give 2024-05-01T10:00:00Z, or milliseconds since 1970"
            ) from None
    number = int(text)
    if _is_date(text):
        date, instant = datetime.fromisoformat(text).date(), _EPOCH + timedelta(milliseconds=number)
        raise ValueError(
            f"{name}: {text!r} can be a date or milliseconds since 1970: give {date}, or {instant.isoformat()}"
        )
    return number


def _is_date(digits: str) -> bool:
    """Whether digits are a date such as 20240501."""
    with suppress(ValueError):
        return len(digits) == _DATE_DIGITS and bool(datetime.fromisoformat(digits))
    return False


def wall_ms() -> int:
    """The time of day, milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def monotonic_s() -> float:
    """Seconds that only ever go forward, for measuring."""
    return time.perf_counter()


def sleep_s(seconds: float) -> None:
    """Pause."""
    time.sleep(seconds)


def later_of(largest: Mapping[str, int], seen: Mapping[str, int]) -> dict[str, int]:
    """The largest timestamp of each partition: before, and seen since."""
    return {**largest, **{name: max(timestamp, largest.get(name, timestamp)) for name, timestamp in seen.items()}}


def bound_of(largest: Mapping[str, int], cap: Mapping[str, int | None], lag_ms: int) -> int | None:
    """The event time that the partitions in ``cap`` have reached; None if the clock waits for none of them. A partition
    without a record counts as 0. ``cap``: bounds of listed, unread data; ``lag_ms``: allowed disorder.

    >>> bound_of({"a": 9, "b": 7}, {"a": None, "b": 5}, 1), bound_of({"a": 9}, {}, 1)
    (5, None)
    """
    bounds = []
    for partition, bound in cap.items():
        reached = largest[partition] - lag_ms if partition in largest else 0
        bounds.append(reached if bound is None or partition not in largest else min(reached, bound))
    return min(bounds, default=None)


@dataclass(frozen=True)
class Clock:
    """The event time of a checkpoint.

    ``watermark``: no earlier timestamp is expected. ``closed``: every window with ``end <= closed`` has been staged.
    ``largest``: the largest processed timestamp of each partition. ``end_of_input``: the input was declared complete,
    and no record has arrived since.
    """

    watermark: int = 0
    closed: int = 0
    largest: Mapping[str, int] = field(default_factory=dict)
    end_of_input: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "watermark": self.watermark,
            "closed": self.closed,
            "largest": dict(self.largest),
            "end_of_input": self.end_of_input,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Clock:
        return Clock(data["watermark"], data["closed"], dict(data["largest"]), data["end_of_input"])


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
