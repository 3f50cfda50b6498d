"""Closing sessions publishes each that is due once, in every shard, and no other: even if a fold raises."""

from __future__ import annotations

import json
import uuid
from typing import Any

import numpy as np
import pytest

from monoids import Monoid
from persistent import Embedded, MemorySink, MemorySource, PersistentTask, Pipeline, UserCodeError, WindowState, session
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.driver import step as steps
from persistent.reading import diff, place, state_table
from persistent.storage import MemoryStorage
from persistent.worker import publish_shard


class Fragile(Monoid[int]):
    """A sum that cannot be more than ten."""

    identity = 0
    commutative = True

    def combine(self, a: int, b: int) -> int:
        if a + b > 10:
            raise ValueError(f"{a + b} is too much")
        return a + b


class Totals(PersistentTask):
    key = "key"

    def persistent_state(self) -> WindowState:
        return WindowState(Fragile(), session(10, cut=1000))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


def at(*pairs: tuple[int, int], key: str = "a") -> list[dict[str, Any]]:
    return [{"ts": time, "key": key, "n": n} for time, n in pairs]


ROWS = [
    *at((0, 1), (1, 2)),
    *at((2, 6), key="b"),
    *at((20, 7)),
    *at((25, 7)),  # together too much, in the second session of its key
    *at((40, 3), key="c"),
    *at((60, 3)),
    *at((75, 1), key="c"),
]


def pipeline(
    storage: MemoryStorage, sink: MemorySink | None, rows: list[dict[str, Any]] = ROWS, **options: Any
) -> Pipeline:
    source = MemorySource(rows, timestamp="ts", ordered=True)
    return Pipeline(source=source, task=Totals(), sink=sink, checkpoint=storage, step_rows=1, **options)


def published(sink: MemorySink) -> list[tuple[str, int, int]]:
    return sorted((row["key"], round(row["window_start"].timestamp() * 1000), int(row["value"])) for row in sink.rows())


def test_a_session_whose_fold_raises_is_set_aside_alone_and_once() -> None:
    """The sessions of its key before and after it are published, although all of them lie in one cell."""
    storage, sink = MemoryStorage(uuid.uuid4().hex), MemorySink()
    made = pipeline(storage, sink, on_error="dead-letter")
    made.run(engine="embedded", end_of_input=True)
    assert published(sink) == [("a", 0, 3), ("a", 60, 3), ("b", 2, 6), ("c", 40, 3), ("c", 75, 1)]
    (dead,) = made.dead_letters().to_pylist()
    assert dead["reason"] == (
        "no result for key (key='a'), window 1970-01-01 00:00:00.020Z to 1970-01-01 00:00:00.035Z: "
        "ValueError: 14 is too much"
    )
    storage.clear()


def test_a_run_stops_at_a_session_whose_fold_raises_when_it_is_due() -> None:
    """Not before: it could not know yet."""
    storage, sink = MemoryStorage(uuid.uuid4().hex), MemorySink()
    with pytest.raises(UserCodeError, match=r"window .*00.020Z to .*00.035Z: ValueError: 14 .* new checkpoint"):
        pipeline(storage, sink).run(engine="embedded", end_of_input=True)
    assert published(sink) == [("a", 0, 3), ("b", 2, 6)]
    storage.clear()


class Shy(Fragile):
    """A sum that shows no five."""

    def present(self, element: int) -> int:
        if element == 5:
            raise ValueError("five")
        return element


def test_a_session_that_cannot_be_shown_is_set_aside_as_an_element_of_its_values() -> None:
    """Its task has that monoid, and can read it."""

    class Shown(Totals):
        def persistent_state(self) -> WindowState:
            return WindowState(Shy(), session(10, cut=1000))

    storage, sink = MemoryStorage(uuid.uuid4().hex), MemorySink()
    source = MemorySource(at((0, 2), (4, 3), (7, 0), (20, 1)), timestamp="ts", ordered=True)
    made = Pipeline(source=source, task=Shown(), sink=sink, checkpoint=storage, step_rows=1, on_error="dead-letter")
    made.run(engine="embedded", end_of_input=True)
    assert published(sink) == [("a", 20, 1)]
    (dead,) = made.dead_letters().to_pylist()
    facts = json.loads(dead["data"])
    assert (facts["window_start"], facts["window_end"]) == (0, 17)
    assert Shy().decode(bytes.fromhex(facts["element"])) == 5
    storage.clear()


def read(made: Pipeline, **options: Any) -> list[tuple[str, int]]:
    return sorted((row["key"], int(row["value"])) for row in state_table(made, **options).to_pylist())


def test_a_state_is_read_beside_a_session_that_was_set_aside() -> None:
    """It is closed, and its fold raises for as long as it is in the state."""
    storage, sink = MemoryStorage(uuid.uuid4().hex), MemorySink()
    made = pipeline(storage, sink, on_error="dead-letter")
    made.run(engine="embedded")
    assert len(made.dead_letters()) == 1
    assert read(made) == read(made, key="c") == [("c", 1)] and read(made, key="a") == []
    ids = sorted(newest_of(Log(storage)).manifest.bases)
    assert diff(place(storage, ids[-2]), place(storage, ids[-1]), pipeline=made).rows is not None
    storage.clear()


def test_an_open_session_whose_fold_raises_is_named_or_omitted(caplog: pytest.LogCaptureFixture) -> None:
    storage, sink = MemoryStorage(uuid.uuid4().hex), MemorySink()
    aside = pipeline(storage, sink, ROWS[:5], on_error="dead-letter")
    aside.run(engine="embedded")
    assert read(aside) == [] and "no result for key (key='a')" in caplog.text and not aside.dead_letters().num_rows
    stops = pipeline(storage, sink, ROWS[:5])
    assert read(stops, key="b") == [], "of another key"
    with pytest.raises(UserCodeError, match=r"no result for key \(key='a'\), window .*00.020Z .*: 14 is too much"):
        read(stops)
    storage.clear()


def test_sessions_without_a_sink_are_counted_and_not_folded() -> None:
    """What nobody gets stops no run."""
    storage = MemoryStorage(uuid.uuid4().hex)
    made = pipeline(storage, None, discard_closed=True)
    assert made.run(engine="embedded", end_of_input=True).discarded == 6
    storage.clear()


def test_each_shard_publishes_its_own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that two shards look up is published twice."""
    monkeypatch.setattr(steps, "SHARD_ROWS", 3)
    rows = [{"ts": time, "key": f"k{number}", "n": 1} for time in range(0, 300, 30) for number in range(20)]
    storage, sink = MemoryStorage(uuid.uuid4().hex), MemorySink()
    source = MemorySource(rows, timestamp="ts", ordered=True)
    items: list[Any] = []
    comparisons_of = publish_shard.comparisons_of

    def watched(job: Any, item: Any) -> Any:
        items.append(item)
        return comparisons_of(job, item)

    monkeypatch.setattr(publish_shard, "comparisons_of", watched)
    made = Pipeline(source=source, task=Totals(), sink=sink, checkpoint=storage, step_rows=40)
    made.run(engine=Embedded(threads=3), end_of_input=True)
    assert published(sink) == sorted((row["key"], row["ts"], 1) for row in rows)
    assert max(np.bincount([item.close_at for item in items])) > 1, "several shards in one step"
    storage.clear()
