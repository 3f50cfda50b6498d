"""JSON lines against the plain writer of the standard library."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids.encoding import to_json
from persistent.connect.formats.json_rows import _ROWS_AT_ONCE, encode_json_lines, json_rows, with_shortest_decimals

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


def parsed(table: pa.Table) -> list[Any]:
    lines = encode_json_lines(table).to_pybytes().decode()
    assert lines == "" or lines.endswith("\n")
    return [json.loads(line) for line in lines.split("\n")[:-1]]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | TEXTS,
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
            st.none() | st.booleans(),
        ),
        max_size=20,
    ),
    TEXTS,
)
def test_plain_values_are_read_back(rows: list[tuple[Any, ...]], name: str) -> None:
    """A quote, a newline or a large number in a key would break its line, or change it."""
    names = [f"a{name}", f"b{name}", f"c{name}", f"d{name}"]
    types = [pa.int64(), pa.string(), pa.float64(), pa.bool_()]
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]
    assert parsed(pa.table(dict(zip(names, columns)))) == [dict(zip(names, row)) for row in rows]


@pytest.mark.parametrize(("unit", "digits"), [("s", ".000"), ("ms", ".000"), ("us", ".000000"), ("ns", ".000000000")])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps_are_utc_with_the_digits_of_their_type(unit: str, digits: str, zone: str | None) -> None:
    """Window borders would shift by the zone of whoever reads them."""
    instants = pa.array([1_700_000_000, -1, None], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp(unit, zone))
    assert [row["t"] for row in parsed(pa.table({"t": instants}))] == [
        f"2023-11-14T22:13:20{digits}Z",
        f"1969-12-31T23:59:59{digits}Z",
        None,
    ]


@pytest.mark.parametrize(
    "type_",
    [
        pa.timestamp("us", "UTC"),
        pa.timestamp("ns"),
        pa.timestamp("ns", "Europe/Berlin"),
        pa.time64("us"),
        pa.time64("ns"),
    ],
    ids=str,
)
def test_values_that_differ_have_texts_that_differ(type_: pa.DataType) -> None:
    """Three keys a microsecond apart would become one for whoever reads the file."""
    values = pa.array([1_700_000_000_123, 1_700_000_000_124, 1_700_000_001_123], pa.int64())
    values = values if pa.types.is_timestamp(type_) else pa.array([123_456, 123_457, 124_456], pa.int64())
    texts = [row["t"] for row in parsed(pa.table({"t": values.cast(type_)}))]
    assert len(set(texts)) == 3 and texts == sorted(texts)


def test_milliseconds_are_kept() -> None:
    """Session windows end between seconds."""
    assert parsed(pa.table({"t": pa.array([1_700_000_000_123], pa.timestamp("ms", "UTC"))})) == [
        {"t": "2023-11-14T22:13:20.123Z"}
    ]


def test_other_values_have_a_documented_text() -> None:
    """Files that no JSON reader accepts: NaN is not JSON, bytes are not text."""
    table = pa.table(
        {
            "float": pa.array([float("nan"), float("inf"), 1.0]),
            "bytes": pa.array([b"hi", None, b""]),
            "decimal": pa.array([Decimal("1.10"), None, Decimal("2.00")]),
            "date": pa.array([date(2024, 2, 29), None, None]),
            "list": pa.array([["a", None], [], None]),
            "nested": pa.array([{"at": datetime(2024, 1, 1, tzinfo=UTC), "n": 1}, None, None]),
            "word": pa.array(["é", None, "é"]).dictionary_encode(),
            "nothing": pa.nulls(3),
        }
    )
    rows = parsed(table)
    assert rows[0] == {
        "float": "nan",
        "bytes": "aGk=",
        "decimal": "1.10",
        "date": "2024-02-29",
        "list": ["a", None],
        "nested": {"at": rows[0]["nested"]["at"], "n": 1},
        "word": "é",
        "nothing": None,
    }
    assert datetime.fromisoformat(rows[0]["nested"]["at"]) == datetime(2024, 1, 1, tzinfo=UTC)
    assert rows[1] == dict.fromkeys(table.column_names) | {"float": "inf", "list": []}
    assert rows[2]["float"] == 1.0


def test_slices_and_many_rows_are_written_once() -> None:
    """Rows would be lost or doubled where one piece ends and the next begins."""
    count = _ROWS_AT_ONCE * 2 + 5
    table = pa.table({"n": range(count)})
    assert [row["n"] for row in parsed(table.slice(3))] == list(range(3, count))
    assert encode_json_lines(table.slice(0, 0)).size == 0
    both = pa.concat_tables([table.slice(5, 3), table.slice(1, 2)])
    assert [row["n"] for row in parsed(both)] == [5, 6, 7, 1, 2]


def test_text_is_escaped_as_one_value_alone() -> None:
    """Most strings have nothing to escape and are not looked at one by one; those that have would break the line."""
    texts = [chr(code) for code in range(0x2100)] + ['a"b\\c\nd', "", "\U0001f600", "plain"]
    (found,) = json_rows(pa.table({"t": texts}))
    assert found == [f'{{"t":{to_json(text)}}}'.encode() for text in texts]
    assert list(json_rows(pa.table({"t": pa.array([None], pa.string())}))) == [[b'{"t":null}']]


def test_a_decimal_key_is_one_text_at_every_scale() -> None:
    """A key would be a second one as soon as a later key has more digits."""
    values = ["1.5", "100", "0", "-2.50", "0.00000001", "12345678901234567890.12", None]
    for kind in (pa.decimal128(38, 8), pa.decimal128(38, 10), pa.decimal256(76, 40)):
        exact = pa.array([value and Decimal(value) for value in values], kind)
        with localcontext(prec=2):
            found = with_shortest_decimals(pa.table({"key": exact, "value": exact}), {"key", "absent"})
        assert found["key"].to_pylist() == ["1.5", "100", "0", "-2.5", "0.00000001", "12345678901234567890.12", None]
        assert found["value"].type == kind and found.column_names == ["key", "value"]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_a_time_of_any_year_has_a_text(unit: str) -> None:
    """Arrow writes "<value out of range>" beyond the year 32767, and readers found that in place of a time."""
    seconds = {"s": 1, "ms": 1_000, "us": 1_000_000}[unit]
    first, last = -1_096_193_779_200, 971_890_963_199
    counts = [first * seconds - 1, first * seconds, None, last * seconds, (last + 1) * seconds, 2**63 - 1, -(2**63)]
    times = [row["at"] for row in parsed(pa.table({"at": pa.array(counts, pa.timestamp(unit))}))]
    digits = ".000000Z" if unit == "us" else ".000Z"
    assert times[1:5] == [
        f"-32767-01-01T00:00:00{digits}",
        None,
        f"32767-12-31T23:59:59{digits}",
        f"32768-01-01T00:00:00{digits}",
    ]
    assert times[0].startswith("-32768-12-31T23:59:59.") and len(set(times)) == len(times)
    found = [None if text is None else int(np.datetime64(text[:-1], unit).astype(np.int64)) for text in times]
    # NumPy takes the last one for a missing value.
    assert found[:-1] == counts[:-1] and times[-1].startswith("-29")


def test_a_date_of_any_year_has_a_text() -> None:
    """One of the year 10000 in a sink of late records stopped every run."""
    dates = pa.array([2_932_897, 0, None, -(2**31), 2**31 - 1], pa.date32())
    found = [row["on"] for row in parsed(pa.table({"on": dates}))]
    assert found == ["10000-01-01", "1970-01-01", None, "-5877641-06-23", "5881580-07-11"]
