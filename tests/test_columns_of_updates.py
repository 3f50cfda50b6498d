"""``update_batch`` of a list, generator, Series or array is one ``update`` for each row, in every state."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from monoids import Count, HyperLogLog, MaxBy, Mean, Sum, contramap, mapping, option, record
from monoids.arrays import columnar
from monoids.laws.examples import examples_of
from monoids.laws.instances import INSTANCES
from monoids.monoid import Monoid
from persistent import Batch, MemorySource, NonWindowState, PersistentTask, Pipeline
from persistent.storage import MemoryStorage

Way = Callable[[list[Any]], Any]


def objects(values: list[Any]) -> Any:
    return np.fromiter(values, object, len(values))


WAYS: Mapping[str, Way] = {
    "list": list,
    "generator": iter,
    "array of objects": objects,
    "Series of objects": lambda values: pd.Series(objects(values), dtype=object),
}


def _plain(value: Any) -> Any:
    """Missing values of pandas are None."""
    return None if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize("number", range(len(INSTANCES)), ids=[repr(monoid)[:60] for monoid, _ in INSTANCES])
def test_a_column_of_every_monoid_is_one_update_for_each_row(number: int) -> None:
    """``update_batch(times, [1, None, 3])`` counted every row: a list was one value for all of them."""
    monoid, strategy = INSTANCES[number]
    inputs = [_plain(x) for example in examples_of(strategy, 8) for x in example["xs"].xs]
    for rows in range(4):
        for given in (inputs[:rows], [*inputs[: rows - 1], None][-rows:] if rows else []):
            try:
                expected = [monoid.encode(monoid.lift(x)) for x in given]
            except (TypeError, ValueError, OverflowError):
                continue
            for name, way in WAYS.items():
                lifted = monoid.unpack(monoid.lift_rows(columnar(way(given)), len(given)))
                assert [monoid.encode(element) for element in lifted] == expected, (name, given)


LENGTHS = contramap(len, Sum(), name="lengths")
FIELD = contramap(lambda row: row["n"], Sum(), name="field")
TABLE: list[tuple[Monoid[Any], Callable[[Way], Any], list[Any]]] = [
    (Count(), lambda way: way([1, None, 3]), [1, None, 3]),
    (Sum(), lambda way: way([1, None, 3]), [1, None, 3]),
    (Mean(), lambda way: way([1, None, 3]), [1, None, 3]),
    (HyperLogLog(), lambda way: way(["a", None, "a"]), ["a", None, "a"]),
    (option(Count()), lambda way: way([1, None, 3]), [1, None, 3]),
    (LENGTHS, lambda way: way(["a", None, "abc"]), ["a", None, "abc"]),
    (FIELD, lambda way: {"n": way([1, 2, 3]), "m": 1}, [{"n": n} for n in (1, 2, 3)]),
    (mapping(Count()), lambda way: {"a": way([1, None, 3]), "b": 1}, [{"a": a, "b": 1} for a in (1, None, 3)]),
    (
        record(n=Count(), m=Sum()),
        lambda way: {"n": way([1, None, 3]), "m": 2},
        [{"n": n, "m": 2} for n in (1, None, 3)],
    ),
    (record(r=record(n=Count())), lambda way: {"r": {"n": way([1, None, 3])}}, [{"r": {"n": n}} for n in (1, None, 3)]),
    (MaxBy(), lambda way: (way([1, 3, 2]), way([7, 8, 9])), [(1, 7), (3, 8), (2, 9)]),
    (record(b=MaxBy()), lambda way: {"b": (way([1, 3, 2]), 5)}, [{"b": (by, 5)} for by in (1, 3, 2)]),
]
COLUMNS: Mapping[str, Way] = {
    **WAYS,
    "Arrow": pa.array,
    "chunks": lambda values: pa.chunked_array([pa.array(values)[:1], pa.array(values)[1:]]),
    "Series": lambda values: pd.Series(values, dtype="string" if {str} & set(map(type, values)) else "Int64"),
    "Polars": pl.Series,
}


SOURCE = pa.table({"ts": [1, 2, 3], "place": [0, 1, 2]})


def _of_batch(way: Way, batch: Batch) -> Way:
    """The same way, for the rows of a batch."""
    return lambda values: way([values[place] for place in batch["place"].to_pylist()])


class Columns(PersistentTask):
    """Gives a state its rows as columns, and another each row alone."""

    def __init__(self, monoid: Monoid[Any], columns: Callable[[Way], Any], way: Way, rows: list[Any]) -> None:
        self.monoid, self.columns, self.way, self.rows = monoid, columns, way, rows

    def persistent_state(self) -> Any:
        return {"columns": NonWindowState(self.monoid), "rows": NonWindowState(self.monoid)}

    def process_batch(self, state: Any, batch: Batch) -> None:
        state["columns"].update_batch(batch.timestamps, self.columns(_of_batch(self.way, batch)))
        for time, place in zip(batch.timestamps.tolist(), batch["place"].to_pylist()):
            state["rows"].update(time, self.rows[place])


@pytest.mark.parametrize("way", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize(("monoid", "columns", "rows"), TABLE, ids=[repr(row[0]) for row in TABLE])
def test_columns_in_a_pipeline_and_in_a_state_of_its_own(monoid: Any, columns: Any, rows: list[Any], way: Way) -> None:
    """A Series was refused and a list miscounted, in the fields of a record too."""
    task = Columns(monoid, columns, way, rows)
    pipeline = Pipeline(source=MemorySource(SOURCE), task=task, checkpoint=MemoryStorage(uuid.uuid4().hex))
    pipeline.run(engine="embedded")
    shown = {name: pipeline.state(name=name).to_pylist() for name in ("columns", "rows")}
    assert shown["columns"] == shown["rows"] and shown["rows"]
    alone, single = NonWindowState(monoid), NonWindowState(monoid)
    alone.update_batch(np.arange(1, 4), columns(way))
    for time, row in enumerate(rows, 1):
        single.update(time, row)
    assert alone.get() == single.get()


@pytest.mark.parametrize("way", COLUMNS.values(), ids=COLUMNS)
def test_a_column_of_another_length_is_refused(way: Way) -> None:
    """Its values would count at the times of others."""
    for monoid in (Count(), option(Count()), record(n=Count()), mapping(Count())):
        values = {"n": way([1, 2, 3])} if isinstance(monoid, type(record(n=Count())) | type(mapping(Count()))) else None
        with pytest.raises(ValueError, match=r"column of 3 values for [24] rows"):
            NonWindowState(monoid).update_batch(np.arange(2 if values else 4), values or way([1, 2, 3]))


def test_a_pair_of_two_columns_stays_a_pair() -> None:
    """In a batch of two rows it could be taken for a column of two values."""
    state = NonWindowState(MaxBy())
    state.update_batch(np.array([1, 2]), ([1, 5], [7, 8]))
    assert state.get() == 8


@pytest.mark.parametrize(
    "way", [list, iter, pd.Series, pa.array, np.array], ids=["list", "iter", "Series", "Arrow", "NumPy"]
)
def test_keys_may_be_given_in_every_form(way: Way) -> None:
    """A list of keys was refused as one key."""

    class Keyed(PersistentTask):
        key = {"k": None}

        def persistent_state(self) -> Any:
            return NonWindowState(Count())

        def process_batch(self, state: Any, batch: Batch) -> None:
            state.update_batch(batch.timestamps, 1, keys=_of_batch(way, batch)(["a", "b", "a"]))

    pipeline = Pipeline(source=MemorySource(SOURCE), task=Keyed(), checkpoint=MemoryStorage(uuid.uuid4().hex))
    pipeline.run(engine="embedded")
    assert {row["k"]: row["value"] for row in pipeline.state().to_pylist()} == {"a": 2, "b": 1}
