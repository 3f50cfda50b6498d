"""Every Arrow type, given one value at a time and as columns, to every kind of monoid: equal, or refused alike."""

from __future__ import annotations

import datetime
import decimal
import io
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import monoids as m
from monoids.laws.instances import INSTANCES
from monoids.monoid import Monoid
from monoids.scalars import scalar

WHOLE = pa.array([1_000_000_000, None, 5_000_000_000], pa.int64())
UNITS = ("s", "ms", "us", "ns")
CENTS = [Decimal("1.50"), None, Decimal("2.25")]
INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
TEXTS = (pa.string(), pa.large_string(), pa.string_view())
BYTES = (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))
DECIMALS = (pa.decimal32(7, 2), pa.decimal64(10, 2), pa.decimal128(38, 10), pa.decimal256(50, 3))
TIMES = (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), *(pa.duration(unit) for unit in UNITS))

TOKYO = pa.timestamp("us", "Asia/Tokyo")

COLUMNS: dict[str, pa.Array] = {
    "null": pa.nulls(2),
    "bool": pa.array([True, None, False]),
    "double": pa.array([1.5, float("nan"), -0.0]),
    "float": pa.array([1.5, None], pa.float32()),
    "halffloat": pa.array(np.array([1.5, 3.0], np.float16)),
    "beyond int64": pa.array([2**63 + 5, 1], pa.uint64()),
    "date32": pa.array([datetime.date(2020, 1, 2), None]),
    "date64": pa.array([datetime.date(2020, 1, 2), None], pa.date64()),
    "nanoseconds": pa.array([1_000_000_001, 1_000_000_500]).cast(pa.timestamp("ns")),
    "microseconds": pa.array([1_000_001, 1_000_500]).cast(pa.timestamp("us")),
    "scale below 0": pa.array([Decimal(100), Decimal(300)], pa.decimal128(5, -2)),
    "scale below 0 and null": pa.array([Decimal(100), None, Decimal(300)], pa.decimal128(5, -2)),
    "ends of years": pa.array([datetime.datetime.min, None, datetime.datetime.max]).cast(pa.timestamp("us", "UTC")),
    "ends of years in Tokyo": pa.array([253_402_300_799, None, 0], pa.timestamp("s", "Asia/Tokyo")),
    "ends of years in New York": pa.array([-62_135_596_800, None, 0], pa.timestamp("s", "America/New_York")),
    "38 digits": pa.array([Decimal("1234567890123456789012345678.0123456789")]),
    "null in a dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array([3, None])),
    "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
    "run ends": pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([1, 2])),
    "list": pa.array([[1, 2], None]),
    "struct": pa.array([{"x": 1, "y": 2.0}]),
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "interval": pa.array([pa.MonthDayNano([1, 2, 3])]),
    "union": pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["a"])]
    ),
    **{str(kind): pa.array([1, None, 3], kind) for kind in INTEGERS},
    **{str(kind): pa.array(["a", None, "b"], kind) for kind in TEXTS},
    **{str(kind): pa.array([b"a", None, b"b"], kind) for kind in BYTES},
    **{str(kind): pa.array(CENTS, kind) for kind in DECIMALS},
    **{str(kind): pa.array([1, None, 5], f"int{kind.bit_width}").cast(kind) for kind in TIMES},
    **{
        str(kind): WHOLE.cast(kind)
        for kind in (pa.timestamp(unit, zone) for unit in UNITS for zone in (None, "UTC", "Europe/Paris"))
    },
}
TYPES = (int, float, bool, str, bytes, datetime.date, datetime.datetime, pa.timestamp("ms"), TOKYO, *DECIMALS)
SINGLE: tuple[Monoid[Any], ...] = (
    *(m.Count(), m.CountIf(), m.Sum(), m.Sum(float), m.Sum(int, unbounded=True), m.Sum(pa.decimal128(38, 10))),
    *(m.ExactSum(), m.Product(), m.Product(float), m.Mean(), m.Moments(), m.Any(), m.BitOr(), m.Histogram([0, 10])),
    *(m.HyperLogLog(12), m.Theta(16), m.BloomFilter(100, 0.01), m.Quantiles(), m.exact_until(9, m.HyperLogLog(4))),
    *(
        m.option(m.Sum()),
        m.option(m.Max(str)),
        m.option(m.Count()),
        m.SetIntersection(int),
        m.CountMin(int),
        m.Ranges(),
    ),
    *(made(kind) for kind in TYPES for made in (m.Max, m.SetUnion)),
    *(made(kind) for kind in (str, pa.decimal32(7, 2)) for made in (m.Bag, m.ListConcat, lambda kind: m.TopK(3, kind))),
)
PAIRS: tuple[tuple[Monoid[Any], tuple[str, str]], ...] = (
    (m.Decayed("1 min"), ("timestamp", "value")),
    (m.Covariance(), ("x", "y")),
    (m.HeavyHitters(2, int), ("id", "value")),
    (m.Reservoir(3, datetime.datetime), ("id", "value")),
    (m.Reservoir(3), ("id", "value")),
    (m.MinBy(int, by=datetime.datetime), ("by", "value")),
    (m.MinBy(TOKYO, by=TOKYO), ("by", "value")),
    (m.MaxBy(datetime.datetime, by=int), ("by", "value")),
)

Outcome = tuple[str, Any]


def outcome(work: Callable[..., bytes], *given: Any) -> Outcome:
    """The result, or "refused": with one of the three errors that inputs are refused with. Others go through."""
    try:
        return "equal", work(*given)
    except (TypeError, ValueError, OverflowError) as error:
        assert "Exceeds the limit" not in str(error)
        return "refused", None


def folded(monoid: Monoid[Any], columns: Any) -> bytes:
    """The fold of columns, stored and read back, encoded."""
    if not len(columns[0]):
        return monoid.encode(monoid.identity)
    stored = monoid.to_arrow(monoid.reduce_sorted(columns, np.array([0])))
    (element,) = monoid.unpack(monoid.from_arrow(stored))
    return monoid.encode(element)


def in_columns(monoid: Monoid[Any], values: Any) -> bytes:
    return folded(monoid, monoid.lift_columns(values))


def in_a_list(monoid: Monoid[Any], values: list[Any]) -> bytes:
    return folded(monoid, monoid.lift_list(values))


def in_rows(monoid: Monoid[Any], first: Any, second: Any) -> bytes:
    return folded(monoid, monoid.lift_rows((first, second), len(first)))


def one_by_one(monoid: Monoid[Any], values: Any) -> bytes:
    return monoid.encode(monoid.fold([monoid.lift(value) for value in values]))


def every_row(monoid: Monoid[Any], values: Any) -> bytes:
    """As a task gives one value for every row of a batch."""
    return monoid.encode(monoid.fold([monoid.unpack(monoid.lift_rows(value, 1))[0] for value in values]))


@pytest.mark.parametrize("monoid", SINGLE, ids=repr)
def test_every_type_is_the_same_value_by_value_and_in_columns(monoid: Monoid[Any]) -> None:
    """A task is told that process_message and process_batch mean the same; here nanoseconds were once milliseconds."""
    for name, column in COLUMNS.items():
        plain = [scalar(value) for value in column]
        ways = {
            "arrow scalars": outcome(every_row, monoid, column),
            "list": outcome(in_a_list, monoid, plain),
            "column": outcome(in_columns, monoid, column),
            "chunks": outcome(in_columns, monoid, pa.chunked_array([column[:1], column[1:]])),
        }
        if None not in plain and name not in ("union", "run ends"):
            numbers = column.to_numpy(zero_copy_only=False)
            ways["numpy"] = outcome(in_columns, monoid, numbers)
            ways["numpy scalars"] = outcome(every_row, monoid, list(numbers))
        expected = outcome(one_by_one, monoid, plain)
        assert ways == dict.fromkeys(ways, expected), name


@pytest.mark.parametrize(("monoid", "names"), PAIRS, ids=repr)
@pytest.mark.parametrize("place", [0, 1])
def test_every_type_is_the_same_as_a_part_of_a_pair(monoid: Monoid[Any], names: tuple[str, str], place: int) -> None:
    """The parts of a pair took other ways than single values, and NumPy's nanoseconds for milliseconds."""
    for name, column in COLUMNS.items():
        other = pa.array(range(len(column)), pa.int64())
        first, second = (column, other) if place == 0 else (other, column)
        pairs = [(scalar(a), scalar(b)) for a, b in zip(first, second)]
        ways = {
            "arrow scalars": outcome(one_by_one, monoid, list(zip(first, second))),
            "list": outcome(in_a_list, monoid, pairs),
            "rows": outcome(in_rows, monoid, first, second),
            "struct": outcome(in_columns, monoid, pa.StructArray.from_arrays([first, second], list(names))),
        }
        expected = outcome(one_by_one, monoid, pairs)
        assert ways == dict.fromkeys(ways, expected), name


OURS = [monoid for monoid, _ in INSTANCES if "Reflections" not in repr(monoid)]
"""A user's own lift gets what the task gave it."""


@pytest.mark.parametrize("missing", [pd.NaT, pd.NA, np.datetime64("NaT"), np.timedelta64("NaT")], ids=repr)
def test_what_is_missing_contributes_nothing(missing: Any) -> None:
    """It was counted once and not the other time, by whether it came alone, in a list or in a column."""
    assert len(OURS) > 50
    for monoid in OURS:
        nothing = monoid.encode(monoid.lift(None))
        assert monoid.encode(monoid.lift(missing)) == nothing, monoid
        assert every_row(monoid, [missing]) == nothing, monoid
        assert monoid.encode(monoid.unpack(monoid.lift_list([missing]))[0]) == nothing, monoid


@pytest.mark.parametrize("monoid", [m.Count(), m.Sum(), m.Max(), m.SetUnion(int), m.HyperLogLog(12)], ids=repr)
def test_a_mask_over_one_value_is_kept(monoid: Monoid[Any]) -> None:
    """An array of stride 0 was lifted once for all rows, with the mask of the first."""
    masked = np.ma.MaskedArray(np.broadcast_to(np.int64(5), 4), mask=[False, True, False, True])
    lifted = [monoid.encode(element) for element in monoid.unpack(monoid.lift_rows(masked, 4))]
    assert lifted == [monoid.encode(monoid.lift(value)) for value in (5, None, 5, None)]


LONG = pa.decimal128(38, 10)
LONGEST = [Decimal("1234567890123456789012345678.0123456789"), Decimal("0.0000000001"), None]


@pytest.mark.parametrize(
    "monoid",
    [m.Sum(LONG), m.Max(LONG), m.SetUnion(LONG), m.Bag(LONG), m.TopK(2, LONG), m.CountMin(LONG), m.HyperLogLog(12)],
    ids=repr,
)
@pytest.mark.parametrize("context", [None, decimal.Context(prec=6, capitals=0)], ids=["usual", "six digits"])
def test_decimals_do_not_depend_on_the_callers_context(monoid: Monoid[Any], context: Any) -> None:
    """Max(pa.decimal128(38, 10)) could be written and then not be recovered: ``abs`` rounds to the context."""
    expected = one_by_one(monoid, LONGEST)
    shown = monoid.present_columns(monoid.lift_list(LONGEST)).to_pylist()
    with decimal.localcontext(context):
        assert folded(monoid, monoid.lift_list(LONGEST)) == expected == one_by_one(monoid, LONGEST)
        assert monoid.encode(monoid.decode(expected)) == expected
        assert monoid.present_columns(monoid.lift_list(LONGEST)).to_pylist() == shown


def test_decimals_in_json_and_in_keys_do_not_depend_on_the_context_either() -> None:
    counts = m.mapping(m.Count())
    lifted = counts.lift_list([{Decimal("1E-10"): 1}])
    expected = counts.present_columns(lifted), counts.encode(counts.unpack(lifted)[0])
    with decimal.localcontext(decimal.Context(prec=6, capitals=0)):
        lifted = counts.lift_list([{Decimal("1E-10"): 1}])
        assert (counts.present_columns(lifted), counts.encode(counts.unpack(lifted)[0])) == expected
        counts.decode(expected[1])


@pytest.mark.parametrize("names", [("element", "value"), ("key", "value"), ("element", "key"), ("value", "a")])
def test_a_mapping_of_a_record_is_a_file_that_arrow_reads(names: tuple[str, str]) -> None:
    """Two columns of one name were written, and no reader of Arrow files could read them."""
    monoid = m.mapping(m.record(**{name: m.Sum() for name in names}))
    columns = monoid.lift_list([{"a": dict.fromkeys(names, 2)}])
    table = pa.table(monoid.to_arrow(columns), names=monoid.schema.names)
    data = io.BytesIO()
    with pa.ipc.new_stream(data, table.schema) as writer:
        writer.write_table(table)
    again = pa.ipc.open_stream(data.getvalue()).read_all()
    assert len(again.to_pylist()) == 1
    assert monoid.unpack(monoid.from_arrow([column.combine_chunks() for column in again.columns])) == monoid.unpack(
        columns
    )


@pytest.mark.parametrize("made", [m.CountMin, lambda kind: m.HeavyHitters(3, kind)])
def test_a_sketch_refuses_at_once_what_it_cannot_take(made: Callable[[Any], Any]) -> None:
    """It passed the constructor, and failed at the first value."""
    with pytest.raises(TypeError, match="38 digits"):
        made(pa.decimal256(50, 3))


@pytest.mark.parametrize("made", [m.Sum, m.Max, m.SetUnion, m.Bag, lambda kind: m.TopK(2, kind), m.CountMin, m.option])
def test_decimals_of_a_scale_below_0_are_refused_when_a_monoid_is_made(made: Callable[[Any], Any]) -> None:
    """Beside a null Arrow makes 300 of what it stores as 3: a sum was 100 times as large, a maximum unreadable."""
    with pytest.raises(TypeError, match=r"no scale below 0: write pa.decimal128\(12, 0\)"):
        made(m.Max(pa.decimal128(10, -2)) if made is m.option else pa.decimal128(10, -2))
    with pytest.raises(TypeError, match=r"write pa.decimal128\(38, 0\)"):
        m.Sum(pa.decimal128(38, -2))


def test_a_zone_that_is_none_is_refused_when_a_monoid_is_made() -> None:
    """It passed the constructor, and its results could not be read."""
    with pytest.raises(TypeError, match=r"Mars/Base.*unknown time zone 'Mars/Base': use one such as 'UTC'"):
        m.Max(pa.timestamp("us", "Mars/Base"))
    m.Max(pa.timestamp("us", "+05:30"))


HOURS = np.array(["2024-01-01T05", "NaT", "2024-01-01T07"], "M8[h]")
SWAPPED = np.ma.MaskedArray(np.array([1, 2, 3], ">i8"), mask=[False, True, False])


@pytest.mark.parametrize(
    ("monoid", "column"),
    [
        (m.option(m.Max(datetime.datetime)), HOURS),
        (m.option(m.Count()), np.array([1, "NaT", 3], "m8[D]")),
        (m.option(m.Sum()), SWAPPED),
        (m.Sum(), SWAPPED),
    ],
)
def test_an_option_takes_the_arrays_that_its_monoid_takes(monoid: Monoid[Any], column: Any) -> None:
    """Which rows are given was asked of Arrow, that has neither hours nor numbers of the other byte order."""
    values = [None if value is np.ma.masked or scalar(value) is None else scalar(value) for value in column]
    assert in_columns(monoid, column) == one_by_one(monoid, values)
    record = m.record(a=monoid)
    assert in_columns(m.option(monoid), column) == one_by_one(m.option(monoid), values)
    assert folded(record, record.lift_rows({"a": column}, 3)) == one_by_one(record, [{"a": value} for value in values])


def test_what_arrow_has_no_type_for_is_refused_in_words_and_runs_of_a_dictionary_are_taken() -> None:
    """Arrow's own errors, such as "Unsupported numpy type 13", say neither what nor what to do."""
    for column in (np.array([1.5], np.longdouble), np.array([1j])):
        with pytest.raises(TypeError, match="has no Arrow type: give another"):
            m.Sum(float).lift_columns(column)
    with pytest.raises(ValueError, match=r"ids of type timestamp\[ns\] cannot be keys"):
        m.Reservoir(2).lift_rows((pa.array([1, 2], pa.timestamp("ns")), 1), 2)
    runs = pa.RunEndEncodedArray.from_arrays([2, 3, 5], pa.array([4, 7, None]).dictionary_encode())
    for column in (runs, runs[1:4], runs[3:], pa.chunked_array([runs, runs[1:]])):
        assert in_columns(m.Sum(), column) == m.Sum().encode(sum(value.as_py() or 0 for value in column))
    assert m.Count().lift_columns(pa.array([["a", None], None], pa.large_list(pa.string_view())))[0].tolist() == [1, 0]
