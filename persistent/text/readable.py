"""Values of a column as Python has them; as text where Python has none.

Python has no date or time outside the years 1 to 9999, no interval beyond 10^9 days, and no text that is not UTF-8.
Such a time is ISO 8601, with as many digits of the year as it needs and a minus before the year 0: different times have
different texts, and ``numpy.datetime64`` reads them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa

from monoids.arrays import python_list, python_value

_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_S: Final = 86_400
_NO_VALUE: Final = (OverflowError, ValueError)
"""What Arrow raises for a value that Python does not have."""


def readable_list(values: Any) -> list[Any]:
    """An Arrow array, table or record batch as a list of values.

    >>> readable_list(pa.array([0, 2_932_897, None], pa.date32()))
    [datetime.date(1970, 1, 1), '10000-01-01', None]
    """
    if isinstance(values, pa.RecordBatch):
        values = pa.Table.from_batches([values])
    kinds = values.schema.types if isinstance(values, pa.Table) else [values.type]
    try:
        if not any(map(_is_of_pandas, kinds)):
            return python_list(values)
    except _NO_VALUE:
        pass
    if not isinstance(values, pa.Table):
        return [readable(value) for value in values]
    columns = [readable_list(column) for column in values.columns]
    return [dict(zip(values.column_names, row)) for row in zip(*columns)]


def readable(value: pa.Scalar) -> Any:
    """An Arrow scalar as a value."""
    try:
        return _as_text(value) if _is_of_pandas(value.type) else python_value(value)
    except _NO_VALUE:
        return _as_text(value)


def _is_of_pandas(kind: pa.DataType) -> bool:
    """Whether values of a type, or in it, are those of pandas where it is installed, with texts of their own."""
    return bool(
        kind == pa.duration("ns") or any(_is_of_pandas(kind.field(place).type) for place in range(kind.num_fields))
    )


def _as_text(value: pa.Scalar) -> Any:
    kind, types = value.type, pa.types
    if not value.is_valid:
        return None
    if kind == pa.duration("ns") and value.value % 1_000 == 0:
        return timedelta(microseconds=value.value // 1_000)
    if types.is_timestamp(kind):
        return instant(value.value, kind.unit) + ("+00:00" if kind.tz else "")
    if types.is_date(kind):
        return _date(value.value if types.is_date32(kind) else value.value // (_DAY_S * 1_000))
    if types.is_duration(kind) or types.is_time(kind):
        return f"{value.value} {kind.unit}"
    if types.is_string(kind) or types.is_large_string(kind):
        return value.as_buffer().to_pybytes().decode("utf-8", "backslashreplace")
    if types.is_dictionary(kind):
        return readable(value.value)
    if types.is_struct(kind):
        return {field.name: readable(value[place]) for place, field in enumerate(kind)}
    if types.is_map(kind):
        return [(readable(entry[0]), readable(entry[1])) for entry in value.values]
    if types.is_nested(kind):
        return [readable(item) for item in value.values]
    return value.cast(pa.string()).as_py()


def instant(count: int, unit: str, digits: int | None = None) -> str:
    """A count of units since 1970 as ISO 8601. ``digits``: of the fraction; by default as many as Python shows.

    >>> instant(253_402_300_800_000_000, "us"), instant(-(2**63), "us"), instant(1, "ms", 3)
    ('10000-01-01T00:00:00', '-290308-12-21T19:59:05.224192', '1970-01-01T00:00:00.001')
    """
    seconds, part = divmod(count, _PER_SECOND[unit])
    days, second = divmod(seconds, _DAY_S)
    nanos = part * (10**9 // _PER_SECOND[unit])
    if digits is None:
        digits = 9 if nanos % 1_000 else 6 if nanos else 0
    fraction = f".{nanos:09}"[: digits + 1] if digits else ""
    return f"{_date(days)}T{second // 3_600:02}:{second // 60 % 60:02}:{second % 60:02}{fraction}"


def _date(days: int) -> str:
    # Of a year before 0 NumPy writes the minus as one of four digits.
    text = str(np.datetime64(days, "D"))
    return f"-{text[1:].zfill(10)}" if text.startswith("-") else text
