"""A value that Python does not have is a text, and a different value another text."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from persistent.text.readable import instant, readable, readable_list

YEAR_10000 = 253_402_300_800
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@pytest.mark.parametrize("unit", UNITS)
def test_a_text_of_a_time_is_the_time_again(unit: str) -> None:
    """A reader of the text could not tell which time it was."""
    counts = [-(2**63), -(2**63) + 1, 2**63 - 1, 2**62 + 1, -1, 0, 1]
    counts += [second * UNITS[unit] + 1 for second in (YEAR_10000, -62_167_219_201) if unit != "ns"]
    texts = [instant(count, unit) for count in counts]
    assert len(set(texts)) == len(texts)
    # NumPy takes the least of them for a missing value.
    assert [int(np.datetime64(text, unit).astype(np.int64)) for text in texts[1:]] == counts[1:]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (
            pa.array([0, 2_932_897, -719_529, None], pa.date32()),
            [dt.date(1970, 1, 1), "10000-01-01", "-0001-12-31", None],
        ),
        (pa.array([YEAR_10000 * 1_000], pa.date64()), ["10000-01-01"]),
        (pa.array([0, YEAR_10000], pa.timestamp("s")), [dt.datetime(1970, 1, 1), "10000-01-01T00:00:00"]),
        (pa.array([YEAR_10000 * 10**6 + 5], pa.timestamp("us", "UTC")), ["10000-01-01T00:00:00.000005+00:00"]),
        (pa.array([5, 2**62], pa.duration("s")), [dt.timedelta(seconds=5), f"{2**62} s"]),
        (pa.array([b"\xff", b"a"]).view(pa.string()), ["\\xff", "a"]),
        (
            pa.array([{"d": [2_932_897, 1]}, None], pa.struct([("d", pa.list_(pa.date32()))])),
            [{"d": ["10000-01-01", dt.date(1970, 1, 2)]}, None],
        ),
        (pa.array([[("a", 2_932_897)]], pa.map_(pa.string(), pa.date32())), [[("a", "10000-01-01")]]),
        (pa.DictionaryArray.from_arrays([0], pa.array([2_932_897], pa.date32())), ["10000-01-01"]),
    ],
    ids=lambda one: str(one.type) if isinstance(one, pa.Array) else "",
)
def test_only_a_value_that_python_has_not_is_a_text(column: pa.Array, values: list[Any]) -> None:
    """One date of the year 10000 ended what shows records, or made texts of all dates beside it."""
    assert readable_list(column) == values == [readable(value) for value in column]
    assert readable_list(pa.table({"x": column})) == [{"x": value} for value in values]


def test_intervals_of_nanoseconds_have_one_text_with_and_without_pandas() -> None:
    """A sink of late records held other texts where pandas was installed."""
    intervals = pa.array([2_000, 1_001, None], pa.duration("ns"))
    expected = [dt.timedelta(microseconds=2), "1001 ns", None]
    assert readable_list(intervals) == [readable(value) for value in intervals] == expected
    nested = pa.table({"l": [[2_000]], "s": [{"d": 1_001}]}).cast(
        pa.schema([("l", pa.list_(pa.duration("ns"))), ("s", pa.struct([("d", pa.duration("ns"))]))])
    )
    assert readable_list(nested) == [{"l": expected[:1], "s": {"d": "1001 ns"}}]
