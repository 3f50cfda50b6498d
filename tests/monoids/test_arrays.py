"""What a user gives as a column: read-only views, views of strings, dictionaries, decimals, other libraries."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from monoids import (
    Bag,
    BottomK,
    Count,
    ExactSum,
    ListConcat,
    Max,
    Mean,
    Min,
    SetIntersection,
    SetUnion,
    Sum,
    contramap,
    mapping,
    option,
    record,
)
from monoids.arrays import from_numpy, nearest_floats, plain_array
from monoids.hashing import key_column


def _read_only(values: Any) -> Any:
    """A view that cannot be written to, of memory that can: what pandas gives under copy-on-write."""
    view = values[:]
    view.flags.writeable = False
    return view


@pytest.mark.parametrize(
    "monoid",
    [Sum(), Sum(float), Mean(), ExactSum(), Min(), Max(float), SetUnion(int), Bag(int), BottomK(2), option(Sum())],
)
@pytest.mark.parametrize("type", [np.int64, np.float64])
def test_what_was_lifted_does_not_change_with_the_memory_it_came_from(monoid: Any, type: Any) -> None:
    """Without it a state would change after the fact when the user's array does."""
    if type is np.float64 and "int" in str(monoid.schema) and not isinstance(monoid, Mean):
        return
    memory = np.array([1, 2, 3], type)
    for given in (memory, _read_only(memory), _read_only(memory)[::1], _read_only(memory[:])):
        expected = [monoid.lift(value) for value in given.tolist()]
        columns = monoid.lift_columns(given)
        memory[:] = 77
        assert monoid.unpack(columns) == expected
        memory[:] = [1, 2, 3]


def test_a_series_of_pandas_may_be_written_to_afterwards() -> None:
    """Copy-on-write hands out read-only views of what the series itself still writes to."""
    with pd.option_context("mode.copy_on_write", True):
        series = pd.Series([1, 2, 3])
        columns = Sum().lift_columns(series.to_numpy())
        series.iloc[0] = 100
    assert Sum().unpack(columns) == [1, 2, 3]


def test_keys_do_not_change_with_the_memory_they_came_from() -> None:
    """A key that changes under its element is counted for another one."""
    memory = np.array([1, 2, 3])
    columns = [key_column(memory), key_column(_read_only(memory)), contramap(abs, Min()).lift_columns(memory)]
    memory[0] = 100
    assert columns[0].to_pylist() == columns[1].to_pylist() == [1, 2, 3]
    assert contramap(abs, Min()).unpack(columns[2]) == [1, 2, 3]


def test_memory_that_nobody_writes_to_is_not_copied() -> None:
    """It costs a pass over every column of every batch."""
    arrow = pa.array(np.arange(1000))
    owned = np.arange(1000)
    owned.flags.writeable = False
    for given in (arrow.to_numpy(), owned, np.frombuffer(bytes(8000), np.int64)):
        assert from_numpy(given).buffers()[1].address == given.ctypes.data
    assert from_numpy(_read_only(np.arange(1000))).to_pylist() == list(range(1000))


def test_decimals_become_the_nearest_floats() -> None:
    """Arrow's cast is a bit off, so that a column and its values would have different sums."""
    draw = random.Random(3)
    for type in (pa.decimal128(10, 2), pa.decimal128(38, 25), pa.decimal256(60, 30), pa.decimal128(20, -2)):
        digits = min(type.precision, 18)
        units = [draw.randrange(-(10**digits) + 1, 10**digits) for _ in range(300)]
        values = [None if i % 7 == 0 else Decimal(unit).scaleb(-type.scale) for i, unit in enumerate(units)]
        array = pa.array(values, type)
        assert nearest_floats(array).to_pylist() == [None if value is None else float(value) for value in values]
        assert nearest_floats(array[5:]).to_pylist() == nearest_floats(array).to_pylist()[5:]
        assert ExactSum().unpack(ExactSum().lift_columns(array)) == [ExactSum().lift(value) for value in values]
    assert nearest_floats(pa.array([], pa.decimal128(5, 2))).to_pylist() == []
    wrong = pa.array([-3950718.57]).cast(pa.decimal128(10, 2))
    assert wrong.cast(pa.float64())[0].as_py() != nearest_floats(wrong)[0].as_py() == -3950718.57


@pytest.mark.parametrize("view", [pa.string_view(), pa.binary_view()])
def test_views_of_strings_are_strings(view: pa.DataType) -> None:
    """DuckDB and Polars give them, and Arrow neither filters nor takes them."""
    kind, values = (str, ["x", None, "y"]) if view == pa.string_view() else (bytes, [b"x", None, b"y"])
    array = pa.array(values, view)
    keys = pa.DictionaryArray.from_arrays(pa.array([0, None, 1]), pa.array([values[0], values[2]], view))
    for given in (array, keys, pa.chunked_array([array]), pa.chunked_array([array[:1], array[1:]])):
        for monoid in (Max(kind), option(Max(kind)), SetUnion(kind), contramap(_same, Max(kind), columns=_same)):
            assert monoid.unpack(monoid.lift_columns(given)) == [monoid.lift(value) for value in values]
        assert key_column(given).to_pylist() == values
    both = record(a=Max(kind), n=Count())
    struct = pa.StructArray.from_arrays([array, pa.array([1, 2, 3])], ["a", "n"], mask=pa.array([False, False, True]))
    expected = [both.lift({"a": values[0], "n": 1}), both.lift({"a": None, "n": 2}), both.identity]
    assert both.unpack(both.lift_columns(struct)) == expected
    maps = pa.MapArray.from_arrays(pa.array([0, 1, None, 1], pa.int32()), array[:1], pa.array([5]))
    counts = mapping(Sum(), key=kind)
    assert counts.unpack(counts.lift_columns(maps)) == [{values[0]: 5}, {}, {}]
    sets = SetIntersection(kind)
    lists = pa.ListArray.from_arrays(pa.array([0, 3, None, 3], pa.int32()), array)
    assert sets.unpack(sets.lift_columns(lists)) == [frozenset((values[0], values[2])), frozenset(), None]


def _same(values: Any) -> Any:
    return values


def test_dictionaries_of_several_chunks_are_one_column() -> None:
    """Each chunk of a file may have a dictionary of its own."""
    chunks = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", None]).dictionary_encode()]
    assert plain_array(pa.chunked_array(chunks)).to_pylist() == ["a", "b", "c", None]
    assert plain_array(pa.chunked_array([], pa.string_view())).type == pa.string()


@pytest.mark.parametrize("given", [pd.Series([1, 2]), pl.Series([1, 2]), (1, 2)])
@pytest.mark.parametrize(
    "monoid",
    [
        Sum(),
        Max(),
        SetUnion(int),
        ListConcat(int),
        option(Sum()),
        record(a=Sum()),
        mapping(Sum()),
        SetIntersection(int),
    ],
)
def test_a_column_of_another_library_is_refused_with_a_remedy(monoid: Any, given: Any) -> None:
    """An AttributeError from the inside says nothing."""
    with pytest.raises(TypeError):
        monoid.lift_columns(given)
    remedy = {"Series": r"\.to_(numpy|arrow)\(\)", "tuple": r"write list\(\.\.\.\)"}[type(given).__name__]
    with pytest.raises(TypeError, match=rf"takes a column as an Arrow array, NumPy array or list.*{remedy}"):
        Sum().lift_columns(given)
