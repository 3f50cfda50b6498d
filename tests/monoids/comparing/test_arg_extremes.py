"""MinBy, MaxBy, First and Last: against min and max of Python, whatever order pairs come in."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import First, Last, MaxBy, MinBy, record

ORDER = pa.struct(
    [
        ("timestamp", pa.int64()),
        ("partition", pa.string()),
        ("position", pa.struct([("ordinal", pa.int64()), ("offset", pa.int64())])),
    ]
)


def _orders(orders: list[Any]) -> pa.StructArray:
    rows = [
        None
        if o is None
        else {"timestamp": o[0], "partition": o[1], "position": dict(zip(("ordinal", "offset"), o[2]))}
        for o in orders
    ]
    return pa.array(rows, ORDER)


def _folded(monoid: Any, columns: Any) -> Any:
    """What one fold of all rows presents: of segments, and of cells."""
    rows = len(columns[0])
    one = np.zeros(1, np.int64)
    sorted_way = monoid.reduce_sorted(columns, one)
    cells_way = monoid.reduce_cells(columns, np.zeros(rows, np.int64), np.array([rows]), one)
    assert monoid.unpack(sorted_way) == monoid.unpack(cells_way)
    return monoid.present_columns(sorted_way).to_pylist()[0]


@pytest.mark.parametrize(("monoid", "best"), [(First(str), min), (Last(str), max)])
def test_the_first_and_last_of_messages_in_any_order(monoid: Any, best: Any) -> None:
    """Ties of timestamp go by partition, then position; of the whole order, by the value."""
    source = random.Random(5)
    for _ in range(60):
        pairs = [
            (
                (source.randrange(3), source.choice("ab"), (source.randrange(2), source.randrange(2))),
                source.choice("xyz"),
            )
            for _ in range(source.randrange(1, 30))
        ]
        expected = best(pairs)[1]
        source.shuffle(pairs)
        lifted = [monoid.lift(pair) for pair in pairs]
        assert monoid.present(monoid.fold(lifted)) == expected
        assert _folded(monoid, monoid.lift_columns(pairs)) == expected
        values = pa.array([value for _, value in pairs])
        ways = (_orders([order for order, _ in pairs]), [order for order, _ in pairs])
        for orders in ways:
            columns = monoid.lift_rows((orders, values), len(pairs))
            assert monoid.unpack(columns) == lifted
            assert _folded(monoid, columns) == expected


@pytest.mark.parametrize(("monoid", "best"), [(MinBy(float, by=str), min), (MaxBy(float, by=str), max)])
def test_the_value_of_the_best_in_every_group(monoid: Any, best: Any) -> None:
    """The kernel with many groups, whose ``by`` is often tied."""
    draw = np.random.default_rng(9)
    by = [f"name{number:012d}" for number in draw.integers(0, 6, 5000).tolist()]
    values = draw.integers(-5, 5, 5000).astype(float)
    cells = draw.integers(0, 700, 5000)
    held = np.unique(cells)
    columns = monoid.lift_rows({"by": pa.array(by), "value": values}, 5000)
    reduced = monoid.reduce_cells(columns, cells, np.bincount(cells), held)
    expected = [best((by[row], values[row]) for row in np.flatnonzero(cells == cell)) for cell in held]
    assert monoid.unpack(reduced) == expected


def test_message_order_and_batch_order_are_one() -> None:
    """A job written message by message and its batch form must choose the same message."""
    from persistent.task.message import Batch

    table = pa.record_batch({"page": ["b", "c", "a"]})
    batch = Batch(table, np.array([7, 5, 5]), "p1", 3, np.array([0, 9, 8]))
    monoid = First(str)
    lifted = [monoid.lift((message.order, message.value["page"])) for message in batch.messages()]
    assert monoid.unpack(monoid.lift_rows((batch.order, batch["page"]), len(batch))) == lifted
    assert monoid.present(monoid.fold(lifted)) == "a"
    nested = record(first=monoid, last=Last(str))
    both = nested.lift_rows({"first": (batch.order, batch["page"]), "last": (batch.order, batch["page"])}, len(batch))
    assert nested.present_columns(nested.reduce_sorted(both, np.array([0]))).to_pylist() == [
        {"first": "a", "last": "b"}
    ]


def test_each_is_written_and_told_apart_as_it_was_made() -> None:
    """State of one must not be read as state of the other."""
    made = [
        (MinBy(), "MinBy(by=int)"),
        (MinBy(str, by=float), "MinBy(str, by=float)"),
        (MaxBy(str, by=float), "MaxBy(str, by=float)"),
        (MaxBy(str, by=(int, (str,))), "MaxBy(str, by=(int, (str,)))"),
        (MaxBy(str, by={"a": int}), "MaxBy(str, by={'a': int})"),
        (First(), "First()"),
        (Last(datetime), "Last(datetime)"),
        (Last(datetime, order=int), "Last(datetime, order=int)"),
        (Last(bool, order=pa.timestamp("ms", "UTC")), "Last(bool, order=pa.timestamp('ms', 'UTC'))"),
    ]
    assert [repr(monoid) for monoid, _ in made] == [written for _, written in made]
    assert len({str(monoid.fingerprint()) for monoid, _ in made}) == len(made)
    assert all(monoid.schema.names[-1] == "value" for monoid, _ in made)
    assert First().schema.names[:2] == ["order.timestamp", "order.partition"]


def test_empty_columns() -> None:
    """A step without records reduces nothing."""
    none = np.zeros(0, np.int64)
    for monoid in (First(str), MaxBy(by=(str, float)), Last(pa.decimal128(9, 2))):
        columns = monoid.lift_columns([])
        assert monoid.unpack(monoid.reduce_sorted(columns, none)) == []
        assert monoid.unpack(monoid.reduce_cells(columns, none, none, none)) == []
        assert len(monoid.present_columns(columns)) == 0
        assert monoid.unpack(monoid.from_arrow(monoid.to_arrow(columns))) == []
