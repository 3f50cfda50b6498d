"""A list of rows as a source."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import cloudpickle
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistent.errors import InvalidPipeline, SourceChanged, SourceError
from persistent.sources import NO_TIMESTAMP, Budget, MemorySource, Source, SourceState
from tests.connect.draining import drain


def rows(count):
    return [{"ts": (i * 7) % 100, "page": f"é{i}", "n": None if i % 3 else i} for i in range(count)]


@given(st.integers(1, 60), st.integers(1, 70), st.booleans(), st.integers(1, 5))
def test_every_row_is_read_once_whatever_the_steps(count, step, exact, splits):
    """Without it a step size could drop or repeat rows of the very source that tests are written with."""
    given_rows = rows(count)
    for source in (MemorySource(given_rows), MemorySource(pa.Table.from_pylist(given_rows))):
        drained = drain(source, step, exact, splits)
        assert drained.values == given_rows
        assert [row[1] for row in drained.rows] == list(range(count))
        assert [row[2] for row in drained.rows] == [row["ts"] for row in given_rows]
        assert drained.steps == [min(step, count - done) for done in range(0, count, step)]


def test_appended_rows_are_seen_by_the_next_plan():
    """Without it a test could not extend its input between two runs."""
    growing = rows(3)
    source = MemorySource(growing)
    first = drain(source)
    growing += [{"ts": 5, "page": "new", "n": 1}]
    second = drain(source, state=first.state)
    assert second.values == growing[3:]
    del growing[2:]
    with pytest.raises(SourceChanged, match="only 2"):
        source.plan(second.state, Budget(10))


def test_the_clock_waits_for_the_smallest_unread_row():
    """Without it rows in any order would be late by chance."""
    source = MemorySource([{"ts": 50}, {"ts": 90}, {"ts": None}, {"ts": 20}, {"ts": 70}])
    caps = [source.plan(SourceState({"memory": (0, start)}), Budget(1)).cap["memory"] for start in range(5)]
    assert caps == [20, 20, 20, 70, None]
    ordered = MemorySource(source.rows, ordered=True)
    assert ordered.plan(SourceState({}), Budget(1)).cap == {"memory": None}


def test_rows_that_do_not_fit_are_dead_letters():
    """Without it one odd row would stop a run, or take its neighbours with it."""
    source = MemorySource([{"ts": 1, "v": 1}, "text", {"ts": 2, "v": "one"}, {"v": 3}, None, {"ts": 4, "v": 5}])
    for step in (1, 2, 6):
        drained = drain(source, step, True)
        assert [(row[1], row[2]) for row in drained.rows] == [(0, 1), (3, NO_TIMESTAMP), (5, 4)]
        assert [(dead.offset, dead.data) for dead in drained.dead] == [
            (1, b"'text'"),
            (2, b"{'ts': 2, 'v': 'one'}"),
            (4, b"None"),
        ]
        assert "mapping" in drained.dead[0].reason


def test_the_schema_is_that_of_the_first_plan():
    """Without it a column could change its type between two steps of one job."""
    growing = [{"ts": 1, "v": 1, "w": None}]
    source = MemorySource(growing)
    first = drain(source)
    growing += [{"ts": 2, "v": 1.5, "w": "text"}, {"ts": 3, "v": 2, "x": 1}]
    second = drain(source, state=first.state)
    assert second.values == [{"ts": 3, "v": 2, "w": None}]
    assert [dead.offset for dead in second.dead] == [1]


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([1, 1.0, True], [1.0, 1.0]),
        ([True, 1, 1.5, False], [True, False]),
        ([None, 1.5, 2, False, None], [None, 1.5, 2.0, None]),
        ([Decimal("1.5"), 1, 2.5], [Decimal("1.5")]),
        ([datetime(2020, 1, 2), 7, date(2020, 1, 3)], [datetime(2020, 1, 2), datetime(2020, 1, 3)]),
        (["a", b"b", "c"], ["a", "c"]),
    ],
)
@pytest.mark.parametrize("splits", [1, 2, 3, 5])
def test_the_kind_of_a_value_counts_whatever_stands_beside_it(values, kept, splits):
    """True beside 1.5 was 1.0, and a dead letter in a split of its own: results depended on the number of workers."""
    drained = drain(MemorySource([{"ts": at, "v": value} for at, value in enumerate(values)]), splits=splits)
    found = [row["v"] for row in drained.values]
    assert found == kept and list(map(type, found)) == list(map(type, kept))
    assert len(drained.dead) == len(values) - len(kept)


def test_it_is_a_source_that_can_be_shipped():
    """Without it Spark could not read it."""
    source = MemorySource(rows(4), max_out_of_orderness="5 s")
    again = cloudpickle.loads(cloudpickle.dumps(source))
    assert isinstance(source, Source) and source.kind == "MemorySource"
    assert list(source.partitions()) == ["memory"]
    assert again.max_out_of_orderness == 5_000
    assert drain(again).rows == drain(source).rows


def test_bad_options_and_no_rows_are_refused():
    """Without it a typing error would surface deep in a run."""
    for options in ({"timestamp_unit": "h"}, {"max_out_of_orderness": "soon"}, {"timestamp": 3}, {"ordered": 1}):
        with pytest.raises(InvalidPipeline):
            MemorySource([], **options)
    with pytest.raises(InvalidPipeline, match="list of mappings"):
        MemorySource("rows")
    with pytest.raises(SourceError, match="follow=True"):
        MemorySource([]).plan(SourceState({}), Budget(1))
    assert MemorySource([]).plan(SourceState({}), Budget(1), follow=True).splits == ()
    with pytest.raises(SourceError, match="columns are time"):
        MemorySource([{"time": 1}]).plan(SourceState({}), Budget(1))
