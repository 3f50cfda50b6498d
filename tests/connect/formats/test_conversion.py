"""A value is converted to the type of its column exactly, or its record is a dead letter that names it."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from persistent.connect.formats.conversion import converted
from persistent.errors import SourceError
from persistent.sources import Budget, FileSource, SourceState
from tests.connect.draining import after, drain

SENTINEL = dt.datetime(9999, 12, 31)
NANOSECOND = "2024-01-01 00:00:00.000000001"


def put(folder, *columns, int96=False):
    """A file for each column ``x``, beside a column of times."""
    for number, column in enumerate(columns):
        table = pa.table({"ts": pa.array(range(1, len(column) + 1), pa.int64()), "x": column})
        pq.write_table(table, folder / f"{number}.parquet", use_deprecated_int96_timestamps=int96, row_group_size=3)


def read(folder, kind=None, step=1_000_000):
    """The values of ``x``, as Arrow has them as text, and the reasons of the dead letters."""
    schema = None if kind is None else {"ts": "int64", "x": kind}
    source = FileSource(folder, timestamp="ts", timestamp_unit="ms", schema=schema)
    drained = drain(source, step, True)
    return [row["x"] for row in drained.values], [(dead.ordinal, dead.offset, dead.reason) for dead in drained.dead]


@pytest.mark.parametrize("step", [1_000_000, 2])
def test_an_int96_of_any_year_is_the_time_that_it_is(tmp_path, step):
    """9999-12-31, which Spark and Hive write for "never", was 1816, and 2608 counted in 2024."""
    times = [SENTINEL, dt.datetime(2608, 7, 22, 23), None, dt.datetime(1, 1, 1), dt.datetime(2024, 5, 6, 7, 8, 9, 10)]
    put(tmp_path, pa.array(times), int96=True)
    assert read(tmp_path, step=step) == (times, [])


def test_an_int96_bounds_no_clock_and_is_the_time_of_its_record(tmp_path):
    """As nanoseconds the record of 2608 counted in 2024."""
    times = pa.array([dt.datetime(2024, 1, 1), dt.datetime(2608, 7, 22, 23)])
    pq.write_table(pa.table({"ts": times}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    source = FileSource(tmp_path, timestamp="ts")
    assert source.plan(SourceState({}), Budget(1, exact=True)).cap == {"files": -1}
    assert [row[2] for row in drain(source).rows] == times.cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist()


@pytest.mark.parametrize("step", [1_000_000, 2])
def test_nanoseconds_of_int96_stay_apart_and_what_they_cannot_hold_is_a_dead_letter(tmp_path, step):
    """In microseconds two times would be one; in nanoseconds a year 9999 would be another."""
    column = pa.array([1, 2, 2_000, None, 10**18], pa.timestamp("ns"))
    put(tmp_path, column, pa.array([SENTINEL, None]), int96=True)
    for kind in (None, "timestamp[ns]"):
        rows, dead = read(tmp_path, kind, step)
        assert pa.array(rows, pa.timestamp("ns")) == pa.concat_arrays([column, pa.nulls(1, column.type)])
        ((ordinal, offset, reason),) = dead
        assert (ordinal, offset) == (1, 0) and "'x' holds 9999-12-31 00:00:00" in reason and "[ns]" in reason
    rows, dead = read(tmp_path, "timestamp[us]", step)
    assert rows == [dt.datetime(1970, 1, 1, 0, 0, 0, 2), None, dt.datetime(2001, 9, 9, 1, 46, 40), SENTINEL, None]
    assert [place[:2] for place in dead] == [(0, 0), (0, 1)] and "000000001 (timestamp[ns])" in dead[0][2]


def test_the_remedy_for_nanoseconds_after_microseconds_of_int96_reads_all_of_them(tmp_path):
    micros, nanos = pa.array([2_000_000], pa.timestamp("ns")), pa.array([2_000_001, -1], pa.timestamp("ns"))
    put(tmp_path, micros, nanos, int96=True)
    rows, dead = read(tmp_path)
    assert rows == [dt.datetime(1970, 1, 1, 0, 0, 0, 2_000)] and [place[:2] for place in dead] == [(1, 0), (1, 1)]
    assert "schema=" in dead[0][2] and "(timestamp[ns])" in dead[0][2]
    rows, dead = read(tmp_path, "timestamp[ns]")
    assert pa.array(rows, pa.timestamp("ns")) == pa.concat_arrays([micros, nanos]) and not dead


def test_int96_in_lists_and_structs_too(tmp_path):
    """A guard for columns alone would let the times within one wrap."""
    kind = pa.struct({"a": pa.list_(pa.timestamp("us")), "n": pa.int64()})
    column = pa.array([{"a": [SENTINEL, None], "n": 1}, None, {"a": [], "n": 2}, {"a": None, "n": 3}], kind)
    put(tmp_path, column, int96=True)
    assert read(tmp_path) == (column.to_pylist(), [])
    rows, dead = read(tmp_path, pa.struct({"a": pa.list_(pa.timestamp("ns")), "n": pa.int64()}))
    assert [row and row["n"] for row in rows] == [None, 2, 3] and [place[:2] for place in dead] == [(0, 0)]


@pytest.mark.parametrize(
    ("kind", "columns", "rows", "dead"),
    [
        ("double", ([1, 2**53 + 1, 2**60, None], [0.5]), [1.0, 2.0**60, None, 0.5], [(0, 1)]),
        ("int64", ([1, 2**53 + 1], [2.0, 0.5, float("nan"), None, 2.0**63]), [1, 2**53 + 1, 2, None], range(3)),
        ("float", ([0.5, 0.1, float("nan"), 1e300],), [0.5, float("nan")], [(0, 1), (0, 3)]),
        ("int32", ([1, 2**31],), [1], [(0, 1)]),
        ("uint64", ([1, -1],), [1], [(0, 1)]),
        (pa.decimal128(4, 1), ([Decimal("1.50"), Decimal("1.25")],), [Decimal("1.5")], [(0, 1)]),
        (pa.list_(pa.float64()), ([[1], [2**53 + 1]], [[0.5]]), [[1.0], [0.5]], [(0, 1)]),
    ],
)
def test_a_declared_type_takes_every_value_that_it_holds_exactly(tmp_path, kind, columns, rows, dead):
    """No schema= read integers in one file and floats in the next, though the error advised it; or it rounded."""
    put(tmp_path, *(pa.array(column) for column in columns))
    places = [(1, 1), (1, 2), (1, 4)] if isinstance(dead, range) else dead
    for step in (1_000_000, 2):
        found, letters = read(tmp_path, kind, step)
        np.testing.assert_equal(found, rows)
        assert [letter[:2] for letter in letters] == places
    assert "'x' holds " in letters[0][2] and "does not hold exactly" in letters[0][2]


def test_a_decimal_that_overflows_is_a_dead_letter(tmp_path):
    """Arrow does not notice every overflow: -10^30 was read as -18960114910927365649.47."""
    values = [Decimal(44), -(Decimal(10) ** 30), Decimal(10) ** 19, None, Decimal(10) ** 22]
    put(tmp_path, pa.array(values, pa.decimal128(38, 0)))
    rows, dead = read(tmp_path, pa.decimal128(38, 18))
    assert rows == [44, 10**19, None] and [letter[1] for letter in dead] == [1, 4]
    assert "holds -1000000000000000000000000000000 (decimal128(38, 0)), which" in dead[0][2]
    assert read(tmp_path, pa.decimal128(38, 2))[0] == values


def test_decimals_within_a_list_that_may_overflow_unnoticed_are_refused(tmp_path):
    """[-10^30] was read as [-18960114910927365649.47]. Where Arrow notices, only the record is a dead letter."""
    put(tmp_path, pa.array([[Decimal(1)], [Decimal(10) ** 30]], pa.list_(pa.decimal128(38, 0))))
    with pytest.raises(SourceError, match=r"type list<.*decimal128\(38, 0\)>, where the recorded schema has list<"):
        read(tmp_path, pa.list_(pa.decimal128(38, 18)))
    rows, dead = read(tmp_path, pa.list_(pa.decimal128(20, 0)))
    assert rows == [[1]] and len(dead) == 1


def test_a_half_float_holds_no_integer_beyond_its_range(tmp_path):
    """-2^31 was read as minus infinity."""
    put(tmp_path, pa.array([-(2**31), 2048], pa.int32()))
    rows, dead = read(tmp_path, pa.float16())
    assert rows == [2048] and len(dead) == 1


@pytest.mark.parametrize(
    ("first", "second", "remedy"),
    [
        (pa.array([1]), pa.array([0.5]), "double"),
        (pa.array([0.5]), pa.array([1]), "double"),
        (pa.array([1], pa.int32()), pa.array([2**40]), "int64"),
        (pa.array([1]), pa.array([1], pa.uint64()), "int64"),
        (pa.array([2_000], pa.timestamp("us")), pa.array([1], pa.timestamp("ns")), "timestamp[ns]"),
        (pa.array([1], pa.timestamp("ms", "UTC")), pa.array([1], pa.timestamp("us")), pa.timestamp("us", "UTC")),
        (pa.array([Decimal("1.5")]), pa.array([Decimal("10.25")]), pa.decimal256(4, 2)),
    ],
)
def test_the_type_that_an_error_names_reads_the_files_that_raised_it(tmp_path, first, second, remedy):
    """It said to give the columns with schema=, and no type read both, or the rows of one file were lost."""
    put(tmp_path, first)
    source = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms")
    plan = source.plan(SourceState({}), Budget(1_000))
    put(tmp_path, first, second)
    with pytest.raises(SourceError) as error:
        source.plan(after(SourceState({}), plan), Budget(1_000))
    assert f"As {repr(remedy) if isinstance(remedy, str) else 'pa.'}" in str(error.value)
    schema = {"ts": "int64", "x": remedy}
    declared = FileSource(tmp_path, timestamp="ts", timestamp_unit="ms", schema=schema)
    drained = drain(declared, state=after(SourceState({}), plan))
    assert len(drained.rows) == 1 and not drained.dead
    assert len(read(tmp_path, remedy)[0]) == 2


def test_text_is_no_number_and_no_number_is_text(tmp_path):
    """Arrow's cast of a list would parse them, and not alone."""
    put(tmp_path, pa.array([["1"]]))
    for kind in (pa.list_(pa.int64()), "int64"):
        with pytest.raises(SourceError, match="where the recorded schema has"):
            read(tmp_path, kind)


POWERS = [sign * 2**power for power in (0, 8, 24, 31, 53, 60, 63, 64) for sign in (1, -1)]
VALUES = [*(power + step for power in POWERS for step in (-1, 0, 1)), 0.5, math.nan, math.inf, 2.0**200]
NUMBERS = [pa.int8(), pa.uint32(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()]


def held(kind, value):
    """A number as a type holds it, by the definition: the conversion back gives the same; None if it does not."""
    if pa.types.is_floating(kind):
        with np.errstate(all="ignore"):
            found = float(np.float32(value) if kind == pa.float32() else value)
        return found if found == value or value != value else None
    limits = np.iinfo(kind.to_pandas_dtype())
    whole = math.isfinite(value) and int(value) == value
    return int(value) if whole and int(limits.min) <= value <= int(limits.max) else None


@pytest.mark.parametrize("have", NUMBERS, ids=str)
@pytest.mark.parametrize("want", NUMBERS, ids=str)
def test_numbers_at_the_borders_of_every_type(have, want):
    """Casts of Arrow and NumPy wrap, saturate or round there, each in a way of its own."""
    exact = [one for one in VALUES if held(have, one) is not None]
    misfits = {}
    column = pa.chunked_array([pa.array([held(have, one) for one in exact] + [None], have)])
    found = converted(column, pa.field("x", want), misfits)
    expected = [held(want, one) for one in exact]
    np.testing.assert_equal(found.to_pylist(), [*expected, None])
    assert found.type == want and sorted(misfits) == [row for row, one in enumerate(expected) if one is None]
