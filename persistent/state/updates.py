"""The keys and the timestamps of updates, as users give them: columns of one type, times in milliseconds since the Unix
epoch, zero or more, and no key that a sink can never hold.

A key is checked against the limits of the sinks before its record counts, because a sink must not refuse what the state
has counted. Updates that are well formed but surely mistakes are errors too: time and value are swapped, or a mapping
would count as 1.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.arrays import columnar
from monoids.groupby.sorting import Integers, Mask
from monoids.hashing import key_column
from persistent.codec.fields import agreed_types
from persistent.text.figures import utc_text

TIMESTAMP_MAX = 1 << 62
_DATED = 100_000_000_000
"""Times (ms) from here on, March 1973, are taken for dates: a number less than half of one is an amount, or a number in
a test."""
_CONTAINERS = {list, tuple, set, frozenset, dict}

KeyLimit = Callable[[pa.Table], Iterable[tuple[Mask, str]]]
"""Rows of key columns that a sink can never hold, each time with the reason."""


class KeysRefused(ValueError):
    """A sink can never hold the keys of some messages. ``reasons``: the reason by the offset of the message; empty if
    the messages are unknown."""

    def __init__(self, reason: str = "", reasons: Mapping[int, str] | None = None) -> None:
        super().__init__(reason)
        self.reasons = reasons or {}

    def of(self, offset: int) -> ValueError:
        """The error of one message."""
        return ValueError(self.reasons.get(offset, str(self)))


class KeyLimits:
    """The limits of those ``sinks`` that have limits. ``names``: the names of the key columns. Notes the messages of a
    batch whose keys are refused."""

    def __init__(self, sinks: Iterable[Any] = (), names: Sequence[str] = ()) -> None:
        self._limits: list[KeyLimit] = [sink.refused_keys for sink in sinks if names and sink.limits_keys]
        self._names = tuple(names)
        self._reasons: dict[int, str] = {}

    def __bool__(self) -> bool:
        return bool(self._limits)

    def note(self, distinct: Sequence[pa.Array], keys: Sequence[pa.Array], offsets: Integers | None) -> None:
        """Note the messages whose keys are refused. ``distinct``: each key once; ``keys``: the key of each update;
        ``offsets``: the offset of its message, None if unknown. KeysRefused for a refused key without an offset."""
        for limit in self._limits:
            if not any(refused.any() for refused, _ in limit(self._table(distinct))):
                continue
            for refused, reason in limit(self._table(keys)):
                if refused.any() and offsets is None:
                    raise KeysRefused(reason)
                if offsets is not None:
                    self._reasons.update(dict.fromkeys(offsets[refused].tolist(), reason))

    def check(self) -> None:
        """KeysRefused if a message is noted."""
        if self._reasons:
            raise KeysRefused(reasons=self._reasons)

    def clear(self) -> None:
        """Forget the noted messages."""
        self._reasons = {}

    def _table(self, columns: Sequence[pa.Array]) -> pa.Table:
        return pa.table(list(columns), self._names)


def key_array(keys: Any, rows: int, name: str) -> pa.Array:
    """A column (an array, list, generator or Series), or one value for every row, as a key column."""
    keys = columnar(keys)
    if isinstance(keys, list | pa.Array | pa.ChunkedArray | np.ndarray):
        if len(keys) != rows:
            raise ValueError(f"key column {name!r} has {len(keys)} rows, timestamps have {rows}")
        return listed_key(keys, name) if isinstance(keys, list) else readable_key(keys, name)
    return listed_key([keys], name).take(pa.array(np.zeros(rows, np.int64)))


def readable_key(keys: pa.Array | pa.ChunkedArray | np.ndarray, name: str) -> pa.Array:
    """An array as a key column. ValueError for a text that is not UTF-8, which no reader can decode; ArrowInvalid for
    another value that no key has."""
    column = key_column(keys)
    if pa.types.is_string(column.type):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise ValueError(f"key column {name!r} has a text that is not UTF-8") from error
    return column


def listed_key(keys: Sequence[Any], name: str) -> pa.Array:
    """Python values as a key column. TypeError if they are of several types."""
    kinds = {type(key) for key in keys} - {type(None)}
    for key in keys if kinds & _CONTAINERS else ():
        if type(key) in _CONTAINERS:
            raise TypeError(
                f"key column {name!r}: {repr(key)[:100]} is a {type(key).__name__}, but a key is one value: use "
                "one of them, join them to text, or name a column for each"
            )
    if len(kinds) > 1:
        named = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(f"key column {name!r} is given values of different types: {named}")
    try:
        return key_column(pa.array(keys))
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise TypeError(f"key column {name!r}: {error}") from error


def types_with(
    keys: Sequence[pa.Array], known: tuple[pa.DataType, ...], names: Sequence[str]
) -> tuple[pa.DataType, ...]:
    """The types of the key columns, ``known`` so far, including these. TypeError if one differs from those of earlier
    keys."""
    types = tuple(column.type for column in keys)
    if types == known or not known:
        return types
    agreed: list[pa.DataType] = []
    for name, first, later in zip(names, known, types):
        try:
            agreed += agreed_types([[first], [later]])
        except TypeError as error:
            raise TypeError(
                f"key column {name!r} holds {first}, as in its first key, but this one is {later}: give it one type"
            ) from error
    return tuple(agreed)


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


def check_no_mapping(values: Sequence[Any]) -> None:
    """TypeError if a mapping of fields was given to a state that is ``Count()``, and would count as 1."""
    if any(issubclass(kind, Mapping) for kind in set(map(type, values))):
        first = next(value for value in values if isinstance(value, Mapping))
        raise TypeError(
            f"an update of a Count() by the mapping {str(first)[:80]}: a Count() takes each value as 1, whatever is in "
            "it. Give 1, as in state.update(timestamp, 1); or let the state be a record, as in record(count=Count())"
        )


def swapped(method: str, time: int, value: int) -> ValueError:
    """The error for an update whose value is the timestamp of its message."""
    return ValueError(
        f"an update at {time} ({utc_text(time)}) whose value, {value}, is the timestamp of its message: the two are "
        f"swapped. Use state.{method}(timestamp, value)"
    )
