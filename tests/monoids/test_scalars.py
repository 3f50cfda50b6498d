"""A scalar of Arrow, NumPy or pandas is the value of Python that it stands for, or is refused in words."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import monoids as m
from monoids.monoid import Monoid
from monoids.scalars import scalar
from persistent import MemorySink
from persistent.connect.formats.json_rows import encode_json_lines
from tests.monoids.test_every_type import OURS, folded, one_by_one


@pytest.mark.parametrize("value", [10**5000, -(10**5000)], ids=["large", "small"])
def test_an_integer_too_long_to_print_is_refused_in_words(value: int) -> None:
    """Python refuses to print it, and its error would stand where ours says what to do."""
    for monoid in OURS:
        for way in (lambda m=monoid: m.lift(value), lambda m=monoid: m.lift_rows(value, 1)):
            try:
                way()
            except (TypeError, ValueError, OverflowError) as error:
                assert "Exceeds the limit" not in str(error), monoid


@pytest.mark.parametrize(
    "column", [pd.Series([1, None, 3]), pl.Series([1, None, 3]), pd.array([1, None, 3])], ids=["pd", "pl", "array"]
)
def test_a_column_of_another_library_is_refused(column: Any) -> None:
    """It was taken for one value of every row, so that its nulls were counted."""
    for monoid in (*OURS, m.record(n=m.Count())):
        with pytest.raises(TypeError):
            monoid.lift_rows(column, 3)
    with pytest.raises(TypeError, match="takes a column as"):
        m.record(n=m.Count()).lift_rows({"n": column}, 3)
    if isinstance(column, pd.Series):
        remedy = pa.array(column, from_pandas=True)
        assert m.Count().lift_rows(remedy, 3)[0].tolist() == [1, 0, 1]


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns"])
def test_times_of_numpy_are_times_in_every_unit(unit: str) -> None:
    """Arrow has no hours; an array of them was an error of Arrow's own, a single one was right."""
    times = np.array(["2020-03-01", "2024-05-06"], f"M8[{unit}]")
    kind = datetime.date if unit in "YMWD" else pa.timestamp("us")
    assert folded(m.Max(kind), m.Max(kind).lift_columns(times)) == one_by_one(m.Max(kind), list(times))


def test_times_finer_than_nanoseconds_are_refused() -> None:
    with pytest.raises(TypeError, match="finer than nanoseconds"):
        m.Count().lift_rows(np.datetime64(1, "ps"), 1)
    with pytest.raises(TypeError, match="finer than nanoseconds"):
        m.Max(datetime.datetime).lift_columns(np.array([1], "M8[ps]"))


LAST = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)


FIRST = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(("zone", "moment"), [("Asia/Tokyo", LAST), ("America/New_York", FIRST)])
def test_what_has_no_year_in_its_zone_is_read_in_utc(zone: str, moment: datetime.datetime) -> None:
    """It was stored, and then neither the state nor the results could be read: in Tokyo it is the year 10000."""
    kind = pa.timestamp("us", zone)
    inputs: list[tuple[Monoid[Any], Any]] = [
        *((monoid, moment) for monoid in (m.Max(kind), m.SetUnion(kind), m.ListConcat(kind), m.Bag(kind))),
        *(
            (m.TopK(2, kind), moment),
            (m.First(kind, order=int), (1, moment)),
            (m.mapping(m.Sum(), key=kind), {moment: 1}),
        ),
        *((m.record(a=m.Max(kind)), {"a": moment}), (m.HeavyHitters(1, kind), (1, moment))),
    ]
    for monoid, value in inputs:
        lifted = monoid.lift(value)
        columns = monoid.from_arrow(monoid.to_arrow(monoid.pack([lifted])))
        assert [monoid.encode(element) for element in monoid.unpack(columns)] == [monoid.encode(lifted)]
        sink = MemorySink()
        sink.publish(1, [sink.stage(pa.table({"value": monoid.present_columns(columns)}), 1, "e1-c1-0f8fad5b")])
        assert str(moment.year) in str(sink.rows()), monoid
        encode_json_lines(pa.table({"value": monoid.present_columns(columns)}))
    assert scalar(pa.scalar(moment, kind)) == moment
    assert scalar(pa.scalar({"a": [moment]}, pa.struct({"a": pa.list_(kind)}))) == {"a": [moment]}
    assert m.Count().lift(pa.array([moment], kind).dictionary_encode()[0]) == 1
