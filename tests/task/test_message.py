"""Messages and batches are what a task sees of its records."""

from __future__ import annotations

import subprocess
import sys
import uuid
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from monoids import Sum
from persistent import (
    Batch,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
    tumbling,
)
from persistent.storage import MemoryStorage
from persistent.task.message import Message

TABLE = pa.RecordBatch.from_pydict(
    {
        "page": pa.array(["a", "ü", None, "a"]),
        "n": pa.array([1, None, 3, 4], pa.int64()),
        "at": pa.array([0, 1_500, None, 3_000], pa.timestamp("ms")),
        "zoned": pa.array([0, 1_500, None, 3_000], pa.timestamp("us", "Europe/Zurich")),
        "tags": pa.array([["x"], [], None, ["y", "z"]]),
    }
)


def batch_of(table: pa.RecordBatch = TABLE, keys: tuple[str, ...] = ("page",)) -> Batch:
    times = np.arange(len(table), dtype=np.int64) * 1_000
    offsets = np.arange(len(table), dtype=np.int64) * 10 + 7

    def key_of(batch: Batch) -> tuple[pa.Array, ...]:
        return tuple(batch[name] for name in keys)

    return Batch(table, times, "files", 3, offsets, key_of)


def messages(batch: Batch) -> list[Message]:
    return list(batch.messages())


def test_a_value_is_a_mapping_of_python_values() -> None:
    """A task would get Arrow scalars, which compare and add otherwise."""
    first, second, third, _ = messages(batch_of())
    assert dict(first.value) == {
        "page": "a",
        "n": 1,
        "at": datetime(1970, 1, 1, tzinfo=UTC),
        "zoned": datetime(1970, 1, 1, tzinfo=UTC),
        "tags": ["x"],
    }
    assert second.value["at"] == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert second.value["zoned"].utcoffset() == second.value["at"].utcoffset() == timedelta(0)
    assert [third.value[name] for name in TABLE.schema.names] == [None, 3, None, None, None]
    assert list(first.value) == TABLE.schema.names and len(first.value) == 5
    assert "page" in first.value and "pgae" not in first.value
    assert first.value.get("pgae", 5) == 5


def test_an_unknown_field_says_which_there_are() -> None:
    """A misspelt name would have to be looked for in the files."""
    with pytest.raises(KeyError, match=r"no field 'pgae'; the fields are page, n, at, zoned, tags"):
        messages(batch_of())[0].value["pgae"]
    with pytest.raises(KeyError, match=r"no field 'pgae'; the fields are page, n, at, zoned, tags"):
        batch_of()["pgae"]


def test_a_message_knows_its_place() -> None:
    """An order of messages would not be total, or differ from run to run."""
    first, second, *_ = messages(batch_of())
    assert (second.timestamp, second.partition, second.position) == (1_000, "files", (3, 17))
    assert second.order == (1_000, "files", (3, 17)) > first.order
    assert (second.origin, second.sequence, second.delivery) == (None, None, "live")
    assert [message.position for message in batch_of().messages()] == batch_of().positions
    listed = [
        (row["timestamp"], row["partition"], tuple(row["position"].values())) for row in batch_of().order.to_pylist()
    ]
    assert [message.order for message in batch_of().messages()] == listed
    assert "position=(3, 7)" in repr(first) and "'page': 'a'" in repr(first)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (("page",), ["a", "ü", None, "a"]),
        (("page", "n"), [("a", 1), ("ü", None), (None, 3), ("a", 4)]),
        ((), [None, None, None, None]),
    ],
)
def test_a_key_is_a_scalar_a_tuple_or_none(keys: tuple[str, ...], expected: list[Any]) -> None:
    """A task could not tell which key its message has."""
    assert [message.key for message in batch_of(keys=keys).messages()] == expected


def test_a_key_is_not_made_before_it_is_asked_for() -> None:
    """A key that is a function would be called for every message that a filter leaves out."""
    asked: list[Batch] = []

    def key_of(batch: Batch) -> tuple[pa.Array, ...]:
        asked.append(batch)
        return (batch["page"],)

    batch = Batch(TABLE, np.arange(4), "files", 0, np.arange(4), key_of)
    few = batch.filter(np.array([False, True, False, False]))
    assert asked == []
    assert few.keys[0].to_pylist() == few.keys[0].to_pylist() == ["ü"]
    assert len(asked) == 1 and len(asked[0]) == 1


@pytest.mark.parametrize(
    "mask",
    [
        np.array([True, False, False, True]),
        pa.array([True, False, None, True]),
        pa.chunked_array([[True, False], [False, True]]),
    ],
)
def test_a_filter_keeps_what_belongs_together(mask: Any) -> None:
    """Timestamps would be those of other records."""
    batch = batch_of()
    few = batch.filter(mask)
    assert len(few) == 2
    assert few.table.to_pylist() == [TABLE.to_pylist()[0], TABLE.to_pylist()[3]]
    assert few.timestamps.tolist() == [0, 3_000]
    assert few.positions == [(3, 7), (3, 37)]
    assert few.keys[0].to_pylist() == ["a", "a"]
    assert [message.value["n"] for message in few.messages()] == [1, 4]


@pytest.mark.parametrize("mask", [np.array([True]), np.array([1, 0, 0, 1]), np.ones(5, bool)])
def test_a_wrong_mask_is_refused(mask: Any) -> None:
    """Numbers would be taken for booleans, and the wrong records kept."""
    with pytest.raises(ValueError, match="a filter needs 4 booleans"):
        batch_of().filter(mask)


def test_a_batch_knows_the_timestamps_that_are_its_own() -> None:
    """An update with timestamps of one batch would be given the keys of another."""
    batch = batch_of()
    few = batch.filter(np.array([True, True, False, True]))
    fewer = few.filter(np.array([False, True, True]))
    assert batch.of_timestamps(batch.timestamps) is batch
    assert batch.of_timestamps(few.timestamps) is few
    assert batch.of_timestamps(fewer.timestamps) is fewer
    assert fewer.keys[0].to_pylist() == ["ü", "a"]
    assert batch.of_timestamps(batch.timestamps.copy()) is None
    assert batch.of_timestamps(batch.timestamps + 0) is None
    everything = batch.filter(np.ones(4, bool))
    assert batch.of_timestamps(everything.timestamps) is not None
    piece = batch.slice(1, 3)
    assert piece.of_timestamps(piece.timestamps) is piece and piece.of_timestamps(few.timestamps) is None
    assert (piece.positions, piece.keys[0].to_pylist()) == ([(3, 17), (3, 27)], ["ü", None])


@pytest.mark.parametrize("rows", [[3, 2, 1, 0], [0, 0, 0, 0], [0, 1, 2, 3], [1], [0, 1, 2, 3, 0]])
def test_rows_are_taken_in_the_order_asked_for(rows: list[int]) -> None:
    """As many rows as there are came as they were, whichever had been asked for: wrong values, without a word."""
    batch, wanted = batch_of(), np.array(rows)
    taken = batch.take(wanted)
    assert taken["n"].to_pylist() == [batch["n"][row].as_py() for row in rows]
    assert taken.timestamps.tolist() == [row * 1_000 for row in rows]
    assert taken.offsets.tolist() == [row * 10 + 7 for row in rows]
    assert taken.keys[0].to_pylist() == [batch["page"][row].as_py() for row in rows]
    assert (taken is batch) == (rows == [0, 1, 2, 3])


def test_a_value_that_python_does_not_have_fails_alone() -> None:
    """A column was converted whole: one date of the year 10000 hid every value beside it."""
    dates = pa.array([2_932_897, 0, None], pa.date32())
    batch = batch_of(pa.RecordBatch.from_pydict({"page": pa.array(["a", "b", "c"]), "on": dates}), ("page", "on"))
    far, near, none = batch.messages()
    assert (near.value["on"], none.value["on"], near.key) == (date(1970, 1, 1), None, ("b", date(1970, 1, 1)))
    with pytest.raises(ValueError, match=r"^field 'on' holds 10000-01-01 \(date32\[day\]\).*batch\['on'\]"):
        far.value["on"]
    with pytest.raises(ValueError, match=r"^the key holds 10000-01-01"):
        _ = far.key
    assert far.value["page"] == "a"
    assert "'on': '10000-01-01'" in repr(far) and "'on': datetime.date(1970, 1, 1)" in repr(near)


@pytest.mark.parametrize("rejected", [False, True])
@pytest.mark.parametrize("filtered", [False, True])
def test_a_task_cannot_change_the_times_of_its_batch(filtered: bool, rejected: bool) -> None:
    """``times -= lag`` shifted them for its other state too, and for the clock: 18 of 20 updates were lost."""

    class Shifts(PersistentTask):
        def persistent_state(self) -> Any:
            return {"a": NonWindowState(Sum()), "b": WindowState(Sum(), tumbling(10))}

        def process_batch(self, state: Any, batch: Batch) -> None:
            times = batch.filter(pc.greater(batch["n"], 0)).timestamps if filtered else batch.timestamps
            times -= 1

    rows = [{"ts": time, "n": time % 2} for time in (1_000, -5 if rejected else 1_002, 1_001, 1_003)]
    options: dict[str, Any] = {
        "checkpoint": MemoryStorage(uuid.uuid4().hex),
        "sink": {"b": MemorySink()},
        "on_error": "dead-letter",
    }
    pipeline = Pipeline(source=MemorySource(rows), task=Shifts(), **options)
    pipeline.run(engine="embedded")
    reasons = pipeline.dead_letters()["reason"].to_pylist()
    assert sum("read-only" in reason for reason in reasons) == 4 - rejected, reasons


def test_the_times_and_offsets_of_every_batch_are_read_only() -> None:
    """Dead letters and partly late records would be those of other records."""
    batch = batch_of()
    for part in (
        batch,
        batch.filter(np.array([True, False, True, True])),
        batch.slice(1, 3),
        batch.take(np.array([2])),
    ):
        assert not part.offsets.flags.writeable and not part.timestamps.flags.writeable


def test_nanoseconds_without_pandas_are_refused_with_the_remedy() -> None:
    """With pandas they are its Timestamps; the error was that Python has no such value."""
    code = """
import sys
import pyarrow as pa

class NoPandas:
    def find_spec(name, *_):
        if name == "pandas":
            raise ImportError(name)

sys.meta_path.insert(0, NoPandas)

from persistent.task.message import _python_value

_python_value(pa.scalar(1_000_000_001, pa.timestamp("ns")), "field", "column")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "for which Python has no value" in done.stderr and "or install pandas, which has one" in done.stderr
