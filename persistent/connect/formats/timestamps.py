"""Timestamps are read from a column as int64 milliseconds since the epoch, UTC.

- An Arrow timestamp or date is taken as it is; without a zone it is UTC.
- A string is ISO 8601 with 'T' or a space, with or without fraction and zone; without a zone it is UTC.
- An integer, or a string of digits, needs ``unit``.
- Null, and anything that cannot be read, is ``NO_TIMESTAMP``. Finer times are rounded down.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.groupby.sorting import Integers, Mask
from persistent.connect import remedies
from persistent.connect.source import NO_TIMESTAMP, Records
from persistent.errors import SourceError
from persistent.text.figures import date_text

UNITS: Final = ("s", "ms", "us", "ns")
_SCALE = {"s": (1_000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}
_SINGLY = 16
_SHOWN = 40
_COUNT = re.compile(r"[+-]?[0-9]+")
_VALUE = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)|\d{4}-\d\d-\d\d(?:[T ].*)?")
_NAMES_FIRST = "The first line of a CSV file has the names of its columns, and this one"
_YEAR = re.compile(r"(?:19|20)\d\d")


def require_readable(schema: pa.Schema, name: str, unit: str | None, *, of_csv: bool = False) -> None:
    """Raise ``SourceError`` unless the column ``name`` exists and has a type that can hold a time. ``of_csv``: the
    names are those in the first line of a CSV file."""
    places = schema.get_all_field_indices(name)
    if len(places) != 1:
        fault = f"there is no column {name!r} to take the timestamp from" if not places else f"{name!r} occurs twice"
        remedy = (of_csv and misread(schema.names, "")) or remedies.COLUMN
        raise SourceError(f"{fault}; the columns are {', '.join(schema.names)}. {remedy}")
    kind = schema.field(name).type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or _is_text(kind):
        return
    if not pa.types.is_integer(kind):
        raise SourceError(
            f"the timestamp column {name!r} is of type {kind}, which holds no time; it must be a timestamp, a date, "
            "a string of ISO 8601, or an integer with timestamp_unit="
        )
    if unit is None:
        raise SourceError(
            f"the timestamp column {name!r} holds integers ({kind}); give their unit: "
            "timestamp_unit='s', 'ms', 'us' or 'ns'"
        )


def separator_in(names: Sequence[str], delimiter: str = ",") -> str | None:
    """What seems to separate the names of a CSV file that was read as one name; None if it may be one."""
    others = (separator for separator in (";", "\t", "|", ",") if separator != delimiter)
    return next((separator for separator in others if len(names) == 1 and separator in names[0]), None)


def misread(names: Sequence[str], delimiter: str = ",") -> str:
    """The remedy for a first line of a CSV file that seems not to hold the names of columns; empty if it may hold them.
    A year may be a name: tables have a column for each year.

    >>> misread(["time;page"]), misread(["time", "page"])
    ("The names seem to be separated by ';': give delimiter=';'", '')
    >>> misread(["user", "2023", "2024"]), misread(["2024-05-01", "7"])[37:73]
    ('', 'names of its columns, and this one s')
    >>> misread(["# exported today"])[-32:], misread(["#ts", "page"])
    ('seems to be a comment: remove it', '')
    """
    separator = separator_in(names, delimiter)
    if names and names[0].startswith("#" if len(names) == 1 and not separator else "# "):
        return f"{_NAMES_FIRST} seems to be a comment: remove it"
    if separator:
        return f"The names seem to be separated by {separator!r}: give delimiter={separator!r}"
    if any(_VALUE.fullmatch(name) and not _YEAR.fullmatch(name) for name in names):
        return f"{_NAMES_FIRST} seems to be a record: add them"
    return ""


def milliseconds(column: pa.Array, unit: str | None = None) -> Integers:
    """The milliseconds of each value of a column that ``require_readable`` accepts.

    >>> milliseconds(pa.array(["1970-01-01T00:00:01.5Z", "1970-01-01 00:00:02", "soon", None])).tolist()[:2]
    [1500, 2000]
    >>> milliseconds(pa.array([1, 2]), "s").tolist()
    [1000, 2000]
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return milliseconds(column.cast(kind.value_type), unit)
    if pa.types.is_timestamp(kind):
        return _scaled(column.view(pa.int64()), kind.unit)
    if pa.types.is_date(kind):
        return _scaled(column.cast(pa.timestamp("ms")).cast(pa.int64()), "ms")
    if _is_text(kind):
        return _integers_of_text(column, unit) if unit else _iso(column)
    whole = column if kind in (pa.int64(), pa.uint64()) else column.cast(pa.int64())
    return _scaled(whole, unit or "ms")


def why_none(column: pa.Array, name: str, unit: str | None, row: int) -> str:
    """Why a value of a timestamp column has no ``milliseconds``.

    >>> why_none(pa.array([None], pa.int64()), "ts", "s", 0)
    "timestamp missing: column 'ts' (int64) is null"
    """
    value, kind = column[row], column.type
    if not value.is_valid:
        return f"timestamp missing: column {name!r} ({kind}) is null"
    if not _is_text(kind) and not pa.types.is_integer(kind):
        return f"timestamp unreadable: column {name!r} ({kind}) holds a time that is beyond 64 bits of milliseconds"
    text = value.as_buffer().to_pybytes().decode(errors="replace") if _is_text(kind) else str(value)
    literal = repr(text[:_SHOWN] + "..." if len(text) > _SHOWN else text) if _is_text(kind) else text
    counts = _COUNT.fullmatch(text) is not None
    if unit is not None and counts:
        expected = f"too many for timestamp_unit={unit!r}: {remedies.UNIT}"
    elif unit is not None:
        expected = f"where timestamp_unit={unit!r} expects digits: {remedies.ISO}"
    else:
        remedy = f"{remedies.UNIT}, timestamp_unit='s', 'ms', 'us' or 'ns'" if counts else remedies.OTHER_COLUMN
        expected = f"where ISO 8601 is expected, as in '2024-05-01T10:00:00Z': {remedy}"
    return (
        f"timestamp unreadable: column {name!r} holds {literal} ({kind}), {expected}. Another timestamp= or "
        "timestamp_unit= needs a new checkpoint and sink"
    )


def count_ms(count: int, unit: str) -> int:
    """A count of units since the epoch in milliseconds, rounded down. The count may have any size.

    >>> count_ms(-1, "us")
    -1
    """
    times, parts = _SCALE[unit]
    return count * times // parts


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _scaled(column: pa.Array, unit: str) -> Integers:
    """Milliseconds of whole counts of ``unit``; null, and values that int64 cannot hold, are NO_TIMESTAMP."""
    values: Integers = column.fill_null(0).to_numpy() if column.null_count else column.to_numpy()
    times, parts = _SCALE[unit]
    if parts > 1:
        values = values // parts
    if times > 1 or values.dtype == np.uint64:
        limit = (2**63 - 1) // times
        beyond = (values > limit) | (values < -limit)
        values = np.where(beyond, NO_TIMESTAMP, values.astype(np.int64) * times)
    if column.null_count:
        values = np.where(column.is_null().to_numpy(zero_copy_only=False), NO_TIMESTAMP, values)
    return values


def _iso(column: pa.Array) -> Integers:
    return _read(column, (_with_zone, _without_zone, _beyond_microseconds), "us")


def _integers_of_text(column: pa.Array, unit: str) -> Integers:
    return _read(column, (lambda texts: texts.cast(pa.int64()),), unit)


def _read(column: pa.Array, readings: Sequence[Callable[[pa.Array], pa.Array]], unit: str) -> Integers:
    """The first reading that accepts the whole column; otherwise half by half, so odd values cost only themselves.

    A value reads the same alone as among others, because a reading accepts a column iff it accepts each of its values.
    """
    for reading in readings:
        try:
            return _scaled(reading(column), unit)
        except pa.ArrowInvalid:
            continue
    if len(column) == 1:
        return np.array([NO_TIMESTAMP], np.int64)
    step = 1 if len(column) <= _SINGLY else len(column) // 2 + 1
    pieces = [_read(column.slice(row, step), readings, unit) for row in range(0, len(column), step)]
    return np.concatenate(pieces)


def _with_zone(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.timestamp("us", "UTC")).cast(pa.int64())


def _without_zone(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.timestamp("us")).cast(pa.int64())


def _beyond_microseconds(texts: pa.Array) -> pa.Array:
    shortened = pc.replace_substring_regex(texts, r"(\.\d{6})\d{1,3}(Z|[+-][\d:]+)?$", r"\1\2")
    try:
        return _with_zone(shortened)
    except pa.ArrowInvalid:
        return _without_zone(shortened)


class Bounded(Protocol):
    """A range of time, such as a window, that holds no timestamp after ``time_max``."""

    @property
    def time_max(self) -> int: ...


@dataclass(frozen=True)
class TimeLimit:
    """Which records are dead by their timestamps: without one, before 1970, or after the limit.

    ``ahead``: later timestamps are too far ahead of the time of day, and of the clock. ``not_after``: later ones are
    after the limit of a clock that was set back; None without that limit. ``of_windows``: ``ahead`` is the last time
    that the windows can hold.

    >>> limit = TimeLimit(90, not_after=70)
    >>> limit.last, limit.covers(0, 70), limit.covers(-1, 70), limit.covers(0, 71)
    (70, True, False, False)
    """

    ahead: int
    not_after: int | None = None
    of_windows: bool = field(default=False, compare=False)

    @property
    def last(self) -> int:
        """The largest timestamp that is not dead."""
        return self.ahead if self.not_after is None else min(self.ahead, self.not_after)

    def within(self, windows: Iterable[Bounded | None]) -> TimeLimit:
        """The same limit, for states with these windows: no timestamp is later than the last that each of them can
        hold."""
        time_max = min((window.time_max for window in windows if window is not None), default=self.ahead)
        return replace(self, ahead=time_max, of_windows=True) if time_max < self.ahead else self

    def covers(self, lowest: int, highest: int) -> bool:
        """Whether no timestamp from ``lowest`` to ``highest`` is dead."""
        return lowest >= 0 and highest <= self.last

    def dead(self, timestamps: Integers) -> Mask:
        """Whether each of these is dead."""
        return (timestamps < 0) | (timestamps > self.last)

    def reason(self, records: Records, row: int) -> str:
        """Why a record is a dead letter: by its timestamp, or by what its source says of it."""
        time = int(records.timestamps[row])
        if time == NO_TIMESTAMP:
            return records.unreadable(row)
        if time < 0:
            return "timestamp before 1970"
        if time > self.ahead:
            limit = "the last time that a window can hold" if self.of_windows else "the time of day plus max_future"
            return (
                f"timestamp too far ahead: {date_text(time)} is after {date_text(self.ahead)}, {limit}; "
                f"{remedies.UNIT_IS_WRONG}"
            )
        if time <= self.last:
            return records.unreadable(row)
        return (
            f"timestamp after the limit: {date_text(time)} is after {date_text(self.last)}, the limit of a clock that "
            "was set back ('persistent clock URL --not-after none' lifts it)"
        )

    def fault(self, records: Records, row: int) -> str:
        """The reason, without the remedy at the source."""
        return remedies.fault_of(self.reason(records, row))
