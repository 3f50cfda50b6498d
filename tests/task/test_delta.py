"""A delta is the sum of a step's updates, a whole batch at a time."""

from __future__ import annotations

import math
import random
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, ListConcat, Max, Sum, contramap, mapping, record
from monoids.hashing import key_column
from persistent import (
    Batch,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
    session,
    sliding,
    tumbling,
)
from persistent.state.state import PersistentState
from persistent.storage import MemoryStorage
from persistent.task.delta import Delta
from tests.few import examples

WINDOWED = WindowState(Sum(), tumbling(10))


def batch_of(rows: list[tuple[int, Any]]) -> Batch:
    """Records of (timestamp, key)."""
    table = pa.RecordBatch.from_pydict({"key": pa.array([key for _, key in rows])})
    times = np.array([time for time, _ in rows], np.int64)
    return Batch(table, times, "p", 0, np.arange(len(rows)), lambda batch: (key_column(batch["key"]),))


def delta_of(state: PersistentState = WINDOWED, names: tuple[str, ...] = ("key",), watermark: int = 0) -> Delta:
    return Delta(state, names, watermark)


def held(delta: Delta, state: PersistentState = WINDOWED) -> dict[Any, Any]:
    """(key, pane) to element; every pair once, in the order of (hash, key, pane)."""
    rows = delta.rows()
    if rows is None:
        return {}
    keys = list(zip(*(column.to_pylist() for column in rows.keys))) if rows.keys else [()] * len(rows)
    keys = [key[0] if len(key) == 1 else key for key in keys]
    pairs = list(zip(keys, rows.panes.tolist()))
    assert len(set(map(repr, pairs))) == len(pairs), "a pair stands twice"
    assert (np.diff(rows.hashes.astype(object)) >= 0).all(), "not in the order of hashes"
    return dict(zip(pairs, state.monoid.unpack(rows.columns)))


keys = st.sampled_from(["a", "b", "ü", "", None])
updates = st.lists(st.tuples(st.integers(0, 40), keys, st.none() | keys.map(lambda key: (key,)), st.integers(-5, 5)))


@given(batches=st.lists(updates, max_size=4), rng=st.randoms(use_true_random=False))
@settings(max_examples=examples(60), deadline=None)
def test_a_delta_is_the_sum_of_its_updates(batches: list[list[Any]], rng: random.Random) -> None:
    """Keys would be mixed up, most likely where a task gives some of them itself."""
    delta, expected = delta_of(), Counter()
    for rows in batches:
        delta.begin(batch_of([(time, own) for time, own, _, _ in rows]))
        for row, (time, own, given_key, value) in enumerate(rows):
            delta.row = row
            for _ in range(rng.randrange(3)):
                if given_key is None:
                    delta.update(time, value)
                else:
                    delta.update(time, value, key=given_key[0])
                expected[own if given_key is None else given_key[0], time // 10 * 10] += value
        delta.end()
        delta.settle()
    assert held(delta) == dict(expected)


@given(batches=st.lists(updates, max_size=4))
@settings(max_examples=examples(60), deadline=None)
def test_columns_and_single_updates_sum_to_the_same_rows(batches: list[list[Any]]) -> None:
    """process_batch would come to another state than process_message."""
    single, columns = delta_of(), delta_of()
    for rows in batches:
        batch = batch_of([(time, own) for time, own, _, _ in rows])
        single.begin(batch)
        for row, (time, _, _, value) in enumerate(rows):
            single.row = row
            single.update(time, value)
        single.end()
        columns.begin(batch)
        columns.update_batch(batch.timestamps, pa.array([value for *_, value in rows], pa.int64()))
        columns.end()
    assert held(single) == held(columns)


def test_single_updates_and_columns_keep_their_order() -> None:
    """A list would hold its values in another order than the task gave them."""
    state = NonWindowState(ListConcat(str))
    delta = delta_of(state)
    batch = batch_of([(1, "a"), (2, "a")])
    delta.begin(batch)
    delta.row = 0
    delta.update(1, "first")
    delta.update_batch(batch.timestamps, pa.array(["second", "third"]))
    delta.update(1, "fourth")
    delta.update_batch(batch.timestamps, pa.array(["fifth", "sixth"]))
    delta.end()
    (element,) = held(delta, state).values()
    assert state.monoid.present(element) == ["first", "second", "third", "fourth", "fifth", "sixth"]


def test_many_parts_are_folded_on_the_way() -> None:
    """A step of many small batches would hold each of them to its end."""
    delta = delta_of()
    for number in range(1000):
        delta.begin(batch_of([(number % 20, "ab"[number % 2])]))
        delta.row = 0
        delta.update(number % 20, 1)
        delta.end()
        delta.settle()
        assert len(delta._parts) <= 33
    assert held(delta) == {("a", 0): 250, ("a", 10): 250, ("b", 0): 250, ("b", 10): 250}


def test_a_batch_applies_whole_or_not_at_all() -> None:
    """A message set aside would have been counted by half."""
    delta = delta_of()
    batch = batch_of([(1, "a"), (2, "b")])
    delta.begin(batch)
    delta.row = 0
    delta.update(1, 1)
    delta.update_batch(batch.timestamps, 5)
    delta.abandon()
    assert delta.rows() is None
    delta.begin(batch)
    delta.update_batch(batch.timestamps, 7)
    delta.row = 1
    delta.update(1, "seven")
    with pytest.raises(TypeError, match=r"Sum\(\)"):
        delta.end()
    delta.abandon()
    assert delta.rows() is None
    delta.begin(batch)
    delta.update_batch(batch.timestamps, 7)
    delta.end()
    assert held(delta) == {("a", 0): 7, ("b", 0): 7}


def test_which_keys_are_the_same() -> None:
    """Sums of one key would be split in two, or those of two keys become one."""
    float_keys = [0.0, -0.0, math.nan, float("nan"), 1.5, None, math.inf]
    delta = delta_of(NonWindowState(Count()))
    delta.begin(batch_of([(1, key) for key in float_keys]))
    for row in range(len(float_keys)):
        delta.row = row
        delta.update(1, 1)
    delta.end()
    found = {repr(key): count for (key, _), count in held(delta, NonWindowState(Count())).items()}
    assert found == {"0.0": 2, "nan": 2, "1.5": 1, "None": 1, "inf": 1}

    texts = ["é", "e\u0301", "E", "e", "", " ", "\0"]
    delta = delta_of()
    delta.begin(batch_of([(1, text) for text in texts]))
    for row in range(len(texts)):
        delta.row = row
        delta.update(1, 1)
    delta.end()
    assert {key for key, _ in held(delta)} == set(texts)


@pytest.mark.parametrize("mixed", [[1, 1.0], [1, True], ["a", b"a"], [1, "1"], [1.0, False]])
def test_keys_of_different_types_in_one_column_are_refused(mixed: list[Any]) -> None:
    """Python says that 1, 1.0 and True are equal, Arrow makes one of the other; a column has one type."""
    delta = delta_of()
    delta.begin(batch_of([(1, "a")]))
    for key in mixed:
        delta.update(1, 1, key=key)
    with pytest.raises(TypeError, match="key column 'key'"):
        delta.end()
    delta = delta_of(names=("word",))
    for key, is_refused in zip(mixed, (False, True)):
        delta.begin(batch_of([(1, "a")]))
        delta.update(1, 1, key=key)
        if is_refused:
            with pytest.raises(TypeError, match=r"key column 'word' holds .* but this one is .*: give it one type"):
                delta.end()
            delta.abandon()
        else:
            delta.end()
    assert held(delta) == {(mixed[0], 0): 1}


def test_composite_keys_and_no_keys() -> None:
    """A tuple would be taken for one key, or its parts change places."""
    delta = delta_of(names=("city", "floor"))
    batch = batch_of([(1, "x"), (12, "y")])
    delta.begin(batch)
    delta.update(1, 1, key=("Zürich", 1))
    delta.update(1, 2, key=("Zürich", None))
    delta.update_batch(np.array([1, 12]), 4, keys=(pa.array(["Zürich", None]), 1))
    delta.update_batch(np.array([3, 12]), 8, keys={"floor": np.array([1, 7]), "city": "Zürich"})
    delta.end()
    assert held(delta) == {
        (("Zürich", 1), 0): 1 + 4 + 8,
        (("Zürich", None), 0): 2,
        ((None, 1), 10): 4,
        (("Zürich", 7), 10): 8,
    }
    alone = delta_of(names=())
    alone.begin(batch)
    alone.update(1, 1)
    alone.update_batch(np.array([2, 12]), 2)
    alone.end()
    assert held(alone) == {((), 0): 3, ((), 10): 2}


def test_a_filtered_batch_brings_its_keys() -> None:
    """Every filter would need keys=, or get those of the records left out."""
    delta = delta_of()
    batch = batch_of([(1, "a"), (2, "b"), (13, "a")])
    few = batch.filter(np.array([False, True, True]))
    delta.begin(batch)
    delta.update_batch(few.timestamps, pa.array([5, 7]))
    delta.end()
    assert held(delta) == {("b", 0): 5, ("a", 10): 7}


def test_updates_in_no_window_are_nothing_and_others_in_all() -> None:
    """A time in a gap between windows would make a window of its own."""
    state = WindowState(Sum(), sliding(3, every=10))
    delta = delta_of(state)
    delta.begin(batch_of([(time, "a") for time in (1, 5, 12)]))
    for row, time in enumerate((1, 5, 12)):
        delta.row = row
        delta.update(time, 1)
    delta.update_batch(np.array([7, 8]), 1, keys="a")
    delta.end()
    assert held(delta, state) == {("a", 0): 1, ("a", 10): 1}


def test_an_update_whose_windows_have_all_ended_is_an_error() -> None:
    """A window would change after it was published."""
    delta = delta_of(watermark=20)
    delta.begin(batch_of([(25, "a")]))
    delta.row = 0
    delta.update(19, 1)
    with pytest.raises(
        ValueError,
        match=r"update at 19 \(1970-01-01 00:00:00.019Z\): .* ended before the clock of the step, 1970-.*020Z;",
    ):
        delta.end()
    delta.abandon()
    with pytest.raises(ValueError, match="update at 3"):
        delta.update_batch(np.array([25, 3]), 1, keys="a")
    sliding_state = WindowState(Sum(), sliding(10, every=5))
    delta = delta_of(sliding_state, watermark=20)
    delta.begin(batch_of([(25, "a")]))
    delta.row = 0
    delta.update(15, 1)
    delta.end()
    assert held(delta, sliding_state) == {("a", 15): 1}


def test_none_makes_its_key_exist() -> None:
    """A key all of whose values are missing would not be published at all."""
    state = WindowState(record(n=Count(), total=Sum()), tumbling(10))
    delta = delta_of(state)
    delta.begin(batch_of([(1, "a"), (2, "b")]))
    for row, value in enumerate(({"n": None}, None)):
        delta.row = row
        delta.update(row + 1, value)
    delta.end()
    assert held(delta, state) == {("a", 0): (0, 0), ("b", 0): (0, 0)}


@pytest.mark.parametrize(
    ("names", "call", "error"),
    [
        (("key",), lambda d, b: d.update_batch(b.timestamps + 0, 1), "needs keys="),
        (("key",), lambda d, b: d.update_batch(b.timestamps, 1, keys=pa.array(["a"])), "1 rows, timestamps have 2"),
        (("key",), lambda d, b: d.update_batch(b.timestamps, 1, keys=("a", "b")), "2 columns, the task's key has 1"),
        (("key",), lambda d, b: d.update_batch(b.timestamps, pa.array([1])), "1 values for 2 rows"),
        (("key",), lambda d, b: d.update_batch([1, 2], 1, keys="a"), "Arrow array of integers"),
        (("key",), lambda d, b: d.update(1, 1, key=["a"]), "'key'"),
        (("key",), lambda d, b: d.update(1, 1, key=object()), "'key'"),
        (("key",), lambda d, b: d.update(1, 1, key=("a", "b")), "'key'"),
        (("a", "b"), lambda d, b: d.update(1, 1, key="a"), "a tuple of 2, in the order a, b"),
        (("a", "b"), lambda d, b: d.update(1, 1, key=("a",)), "a tuple of 2"),
        (("a", "b"), lambda d, b: d.update_batch(b.timestamps, 1, keys="a"), "1 columns, the task's key has 2"),
        ((), lambda d, b: d.update(1, 1, key="a"), "the task has no key"),
        ((), lambda d, b: d.update_batch(b.timestamps, 1, keys="a"), "the task has no key"),
        (("key",), lambda d, b: d.update(None, 1, key="a"), "timestamp is an integer"),
        (("key",), lambda d, b: d.update(1 << 70, 1, key="a"), "too large: give milliseconds"),
        (("key",), lambda d, b: d.get(), "pipeline.state"),
    ],
)
def test_wrong_updates_are_refused(names: tuple[str, ...], call: Callable[[Delta, Batch], None], error: str) -> None:
    """A value would be credited to a key that nobody has meant."""
    delta = delta_of(names=names)
    batch = batch_of([(1, "a"), (2, "b")])
    delta.begin(batch)
    with pytest.raises((TypeError, ValueError), match=error):
        call(delta, batch)
        delta.end()
    delta.abandon()
    assert delta.rows() is None


def test_an_update_after_the_limit_is_refused() -> None:
    """One far-off update would, at the end of the input, close every window there will ever be."""
    delta = Delta(WINDOWED, ("key",), 0, limit=1_000)
    batch = batch_of([(1, "a"), (2, "b")])
    delta.begin(batch)
    with pytest.raises(ValueError, match=r"1001.*too far ahead"):
        delta.update_batch(np.array([1, 1_001]), 1, keys="a")
    delta.abandon()
    delta.begin(batch)
    delta.update(1_001, 1, key="a")
    with pytest.raises(ValueError, match="too far ahead"):
        delta.end()


def test_an_update_before_a_restart_is_refused() -> None:
    """The state as of the clock has it if its message had been read; then it would count twice."""
    delta = Delta(WINDOWED, ("key",), 0, since=10)
    delta.begin(batch_of([(10, "a"), (20, "b")]))
    delta.update_batch(np.array([10, 20]), 1, keys="a")
    with pytest.raises(ValueError, match=r"an update at 9 .*before the clock of a restart.*count twice.*rollback"):
        delta.update_batch(np.array([10, 9]), 1, keys="a")
    delta.abandon()
    assert delta.rows() is None
    with pytest.raises(ValueError, match="an update at 9"):
        delta.at_once().update(9, 1, key="a")


def test_whose_message_an_update_is_must_be_known() -> None:
    """It would count for whichever message came last, silently."""
    delta = delta_of()
    delta.begin(batch_of([(1, "a"), (2, "b")]))
    with pytest.raises(TypeError, match=r"key=message\.key"):
        delta.update(1, 1)
    delta.update(1, 1, key="a")
    delta.end()
    assert held(delta) == {("a", 0): 1}


NOW = 1_700_000_000_000


@pytest.mark.parametrize("state", [WINDOWED, NonWindowState(Sum())])
@pytest.mark.parametrize("at_once", [False, True])
def test_value_and_timestamp_the_other_way_round_are_an_error(state: PersistentState, at_once: bool) -> None:
    """In the first step no window has ended: everything would count in January 1970, and the sums be of times."""
    delta, batch = delta_of(state), batch_of([(NOW + n, "a") for n in range(5)])
    delta = delta.at_once() if at_once else delta
    delta.begin(batch)
    with pytest.raises(ValueError, match=r"an update at 3 \(1970-.*whose value, 1700000000002, .*swapped"):
        for row, time in enumerate(batch.timestamps.tolist()):
            delta.row = row
            delta.update(*((time, 1) if row < 2 else (3, time)))
        delta.end()
    delta.abandon()
    delta.begin(batch)
    with pytest.raises(ValueError, match=r"are swapped\. Use state\.update_batch\(timestamp, value\)"):
        delta.update_batch(np.array([0, 1, 2, 3, 4]), batch.timestamps, keys="k")
    delta.abandon()
    assert delta.rows() is None


@pytest.mark.parametrize(
    ("own", "time", "value"),
    [
        (NOW, NOW // 86_400_000 * 86_400_000, NOW),
        (NOW, NOW - 10 * 365 * 86_400_000, NOW),
        (NOW, 0, NOW),
        (NOW, 1, NOW + 1),
        (NOW, 1, float(NOW)),
        (1_000, 1, 1_000),
    ],
)
def test_other_times_than_the_messages_own_are_taken(own: int, time: int, value: Any) -> None:
    """The day of a record, with its time as the value, is no mistake; nor is 0, where time means nothing."""
    state, batch = NonWindowState(Max(float)), batch_of([(own, "a"), (own, "a")])
    delta = delta_of(state)
    delta.begin(batch)
    for delta.row in range(2):
        delta.update(time, value)
    if time:
        delta.update_batch(np.array([own - 1, own]), batch.timestamps, keys="k")
    delta.update_batch(np.array([0, 0]), batch.timestamps, keys="k")
    delta.end()
    assert set(held(delta, state).values()) == {float(value), float(own)}


@pytest.mark.parametrize(
    "state", [NonWindowState(Count()), WindowState(Count(), session("1 min"))], ids=["keys", "sessions"]
)
def test_a_mapping_of_fields_is_no_value_to_count(state: PersistentState) -> None:
    """``{"visits": 5}``, as for a record, would be one visit, and nobody would be told."""
    said = r"an update of a Count\(\) by the mapping \{'visits': 5\}: .*Give 1.*or let the state be a record"
    delta = delta_of(state)
    delta.begin(batch_of([(1, "a")]))
    delta.row = 0
    delta.update(1, {"visits": 5})
    with pytest.raises(TypeError, match=said):
        delta.end()
    other = delta_of(state)
    other.begin(batch := batch_of([(1, "a")]))
    with pytest.raises(TypeError, match=said):
        other.update_batch(batch.timestamps, {"visits": 5})
    of_record = delta_of(NonWindowState(record(visits=Count())))
    of_record.begin(batch)
    of_record.update_batch(batch.timestamps, {"visits": 5})
    of_record.end()


class Reuses(PersistentTask):
    """One value for all updates, changed in place: its total depends on when it is looked at."""

    key = "key"

    def __init__(self, state: PersistentState, value: Any, fill: Callable[[Any, int], None]) -> None:
        self.state, self.value, self.fill = state, value, fill

    def persistent_state(self) -> PersistentState:
        return self.state

    def process_message(self, state: Any, message: Any) -> None:
        self.fill(self.value, message.value["n"])
        state.update(message.timestamp, self.value)


def _put(value: Any, n: int) -> None:
    value["n"] = n


def _put_inside(value: Any, n: int) -> None:
    value["m"]["a"] = n


def _put_first(value: Any, n: int) -> None:
    value[0] = n


Total = contramap(sum, Sum(), name="total")


@pytest.mark.parametrize(
    ("monoid", "value", "fill"),
    [
        (record(n=Sum()), {}, _put),
        (record(n=Sum(), other=Count()), {}, _put),
        (record(n=Sum(), other=Count()), {"other": 1}, _put),
        (record(m=mapping(Sum(), key=str)), {"m": {}}, _put_inside),
        (record(r=record(n=Sum())), {"r": {}}, lambda value, n: _put(value["r"], n)),
        (mapping(Sum(), key=str), {}, _put),
        (Total, [0], _put_first),
        (Total, np.zeros(1, np.int64), _put_first),
        (contramap(sum, Sum(), name="total"), bytearray(1), _put_first),
        (contramap(lambda row: row["n"], Sum(), name="n"), Counter(), _put),
        (record(t=Total), {"t": [0]}, lambda value, n: _put_first(value["t"], n)),
    ],
)
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_value_counts_as_it_is_when_it_is_given(monoid: Any, value: Any, fill: Any, rows: int) -> None:
    """One dict for all updates counted as its last value, by the borders of steps: 15 became 18 or 30."""
    records = [{"ts": 1_000 + n, "key": "a", "n": n} for n in range(1, 6)]
    task = Reuses(NonWindowState(monoid), value, fill)
    pipeline = Pipeline(
        source=MemorySource(records), task=task, checkpoint=MemoryStorage(uuid.uuid4().hex), step_rows=rows
    )
    pipeline.run(engine="embedded")
    assert "15" in str(pipeline.state().to_pylist())
    alone = NonWindowState(monoid)
    for record_ in records:
        fill(value, record_["n"])
        alone.update(1_000, value)
    assert "15" in str(alone.get())


def test_a_key_counts_as_it_is_when_it_is_given() -> None:
    """Bytes read into one buffer would all be counted under the last key."""
    delta, key = delta_of(), bytearray(b"a")
    delta.begin(batch_of([]))
    delta.update(1, 1, key=key)
    key[0] = ord("b")
    delta.update(1, 2, key=key)
    delta.end()
    assert held(delta) == {(b"a", 0): 1, (b"b", 0): 2}
