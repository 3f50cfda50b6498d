"""The table of aggregates: what Spark computes of some rows, the monoid computes too."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

import monoids
from monoids import Monoid, record
from persistent import MemorySource, NonWindowState, PersistentTask, Pipeline
from tests.test_readme import PAGES

LINE = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \|$", re.M)
LINES = LINE.findall(PAGES["migrating/structured-streaming.md"])
ESTIMATED = {'percentile_approx("y", 0.5)': 0.01}
"""The relative error of what is estimated; five texts are counted exactly by both."""
ROWS = [
    {"x": 3, "y": 0.5, "s": "a", "b": True},
    {"x": 1, "y": 2.25, "s": "b", "b": False},
    {"x": None, "y": 7.5, "s": None, "b": None},
    {"x": 7, "y": -1.0, "s": "e", "b": True},
    {"x": 4, "y": 3.0, "s": "b", "b": True},
    {"x": 4, "y": 1e3, "s": "c", "b": True},
    {"x": 5, "y": 1.25, "s": "d", "b": True},
]


def ours() -> dict[str, Any]:
    """Of each line, what is read of the state."""

    class Aggregates(PersistentTask):
        key = None

        def persistent_state(self) -> NonWindowState:
            return NonWindowState(record(**{f"a{place}": self._monoid(line) for place, line in enumerate(LINES)}))

        def process_message(self, state: Any, message: Any) -> None:
            named = {"v": message.value, "message": message}
            added = {f"a{place}": eval(line[2], {}, named) for place, line in enumerate(LINES)}
            state.update(message.timestamp, added)

        def _monoid(self, line: tuple[str, ...]) -> Monoid[Any]:
            made = eval(line[1], vars(monoids) | {"float": float, "str": str})
            assert isinstance(made, Monoid)
            return made

    rows = [{"t": place, **row} for place, row in enumerate(ROWS)]
    source = MemorySource(rows, timestamp="t", timestamp_unit="s")
    pipeline = Pipeline(source=source, task=Aggregates(), checkpoint="memory://aggregates")
    pipeline.run(engine="embedded")
    (state,) = pipeline.state().to_pylist()
    return {line[0]: eval(line[3], {"value": state[f"a{place}"]}) for place, line in enumerate(LINES)}


def test_each_line_computes_something() -> None:
    """A line with a mistake in it would be found by its first reader."""
    assert len(LINES) > 25
    found = ours()
    assert (found['count("*")'], found['count("x")'], found['collect_set("s")']) == (7, 6, [*"abcde"])
    assert (found['mode("s")'], found['first("s", ignorenulls=True)'], found['count_if(col("x") > 2)']) == ("b", "a", 5)


@pytest.mark.spark
@pytest.mark.check
def test_spark_computes_the_same(spark: Any) -> None:
    """The page would promise what one of the two does not compute."""
    from pyspark.sql import functions

    frame = spark.createDataFrame(ROWS, "x LONG, y DOUBLE, s STRING, b BOOLEAN").coalesce(1)
    columns = [eval(line[0], vars(functions)).alias(f"a{place}") for place, line in enumerate(LINES)]
    (row,) = frame.agg(*columns).collect()
    found = ours()
    for place, (name, *_) in enumerate(LINES):
        theirs, own = row[f"a{place}"], found[name]
        if isinstance(own, float):
            assert math.isclose(theirs, own, rel_tol=ESTIMATED.get(name, 1e-9)), (name, theirs, own)
        elif isinstance(own, list):
            assert sorted(theirs) == sorted(own), (name, theirs, own)
        else:
            assert theirs == own, (name, theirs, own)
