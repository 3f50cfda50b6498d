"""Timestamps of every sort become milliseconds of one clock."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistent.connect.formats.timestamps import milliseconds, require_readable
from persistent.connect.source import NO_TIMESTAMP
from persistent.errors import SourceError

MOMENT_MS = 1_704_067_201_234
STEP = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-01T00:00:01.234Z", MOMENT_MS),
        ("2024-01-01 00:00:01.234", MOMENT_MS),
        ("2024-01-01T02:00:01.234+02:00", MOMENT_MS),
        ("2023-12-31T19:00:01.234-0500", MOMENT_MS),
        ("2024-01-01T00:00:01.234999Z", MOMENT_MS),
        ("2024-01-01T00:00:01.234999999Z", MOMENT_MS),
        ("2024-01-01T00:00:01.2349999999", NO_TIMESTAMP),
        ("2024-01-01T02:00:01.23499999+02:00", MOMENT_MS),
        ("2024-01-01T00:00:01", MOMENT_MS - 234),
        ("2024-01-01", MOMENT_MS - 1_234),
        ("1969-12-31T23:59:59.9999999Z", -1),
        ("3000-01-01T00:00:00Z", 32_503_680_000_000),
        ("2024-13-01T00:00:00Z", NO_TIMESTAMP),
        ("soon", NO_TIMESTAMP),
        ("", NO_TIMESTAMP),
        (None, NO_TIMESTAMP),
    ],
)
def test_a_string_reads_the_same_alone_and_among_others(text, expected):
    """Without it a timestamp could depend on the records beside it, and so on how a file is split."""
    others = ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00", "2024-01-01T00:00:00.123456789Z", "never", None]
    assert milliseconds(pa.array([text], pa.string())).tolist() == [expected]
    for other in others:
        for count in (1, 40):
            column = pa.array([other] * count + [text] + [other] * count, pa.string())
            assert milliseconds(column)[count] == expected
            assert milliseconds(column.slice(count, 1)).tolist() == [expected]


@given(st.lists(st.none() | st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)), max_size=20))
def test_arrow_timestamps_of_all_units_and_zones_agree_with_python(moments):
    """Without it a unit or zone could shift every window, or times before the epoch round the wrong way."""
    expected = [NO_TIMESTAMP if m is None else (m.replace(tzinfo=UTC) - EPOCH) // STEP for m in moments]
    exact = pa.array(moments, pa.timestamp("us"))
    for unit in ("us", "ns"):
        for zone in (None, "UTC", "Asia/Tokyo"):
            assert milliseconds(exact.cast(pa.timestamp(unit, zone))).tolist() == expected
    rounded = exact.cast(pa.timestamp("s"), safe=False)
    assert milliseconds(rounded).tolist() == [
        NO_TIMESTAMP if s is None else s * 1_000 for s in rounded.cast(pa.int64()).to_pylist()
    ]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)), st.sampled_from(["s", "ms", "us", "ns"]))
def test_integers_agree_with_integer_arithmetic(numbers, unit):
    """Without it an overflow could wrap a time into another year."""
    times, parts = {"s": (1_000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}[unit]
    exact = [None if n is None else n * times // parts for n in numbers]
    expected = [NO_TIMESTAMP if n is None or abs(n) >= 2**63 else n for n in exact]
    assert milliseconds(pa.array(numbers, pa.int64()), unit).tolist() == expected
    texts = pa.array([None if n is None else str(n) for n in numbers], pa.string())
    assert milliseconds(texts, unit).tolist() == expected


def test_dates_and_dictionaries():
    """Without it a column of days, or one that Parquet kept as a dictionary, would not be a time."""
    assert milliseconds(pa.array([date(1970, 1, 2), None])).tolist() == [86_400_000, NO_TIMESTAMP]
    assert milliseconds(pa.array([date(1970, 1, 2)], pa.date64())).tolist() == [86_400_000]
    assert milliseconds(pa.array(["1970-01-02", None]).dictionary_encode()).tolist() == [86_400_000, NO_TIMESTAMP]


@pytest.mark.parametrize(
    ("schema", "unit", "says"),
    [
        (pa.schema([("time", pa.int64()), ("page", pa.string())]), "ms", "columns are time, page"),
        (pa.schema([("ts", pa.int64())]), None, "timestamp_unit="),
        (pa.schema([("ts", pa.float64())]), "s", "double"),
        (pa.schema([("ts", pa.bool_())]), None, "bool"),
        (pa.schema([("ts", pa.int64()), ("ts", pa.int64())]), "ms", "twice"),
    ],
)
def test_a_column_that_tells_no_time_is_refused_with_what_to_do(schema, unit, says):
    """Without it a wrong option would come out as dead letters, or as windows in 1970."""
    with pytest.raises(SourceError, match=says):
        require_readable(schema, "ts", unit)


def test_a_number_as_a_name_is_no_missing_header_but_in_csv() -> None:
    """A Parquet file has no first line to which names could be added."""
    schema = pa.schema([("2024-05-01", pa.string()), ("7", pa.int64())])
    for of_csv, remedy in ((False, "Give timestamp="), (True, "seems to be a record")):
        with pytest.raises(SourceError, match=remedy):
            require_readable(schema, "ts", None, of_csv=of_csv)


@pytest.mark.parametrize(
    ("count", "unit", "expected"),
    [
        (2**63 + 123_456_789, "ns", 9_223_372_036_978),
        (2**63 + 5_000, "us", 9_223_372_036_854_780),
        (2**63, "ms", NO_TIMESTAMP),
        (2**63, "s", NO_TIMESTAMP),
        (2**63 - 1, "ms", 2**63 - 1),
        (5, "s", 5_000),
        (5_999, "us", 5),
        (None, "ns", NO_TIMESTAMP),
    ],
)
def test_an_unsigned_count_beyond_int64_is_the_time_that_it_is(count, unit, expected):
    """Nanoseconds after 2262 were "before 1970"."""
    assert milliseconds(pa.array([1_000_000_000, count, None], pa.uint64()), unit)[1] == expected
    assert milliseconds(pa.array([count], pa.uint64()), unit).tolist() == [expected]
