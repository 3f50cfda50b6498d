"""Keys expire exactly once, in every shard, and take back what they had: even if a fold raises."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from monoids import Monoid
from persistent import Embedded, MemorySink, MemorySource, NonWindowState, PersistentTask, Pipeline, UserCodeError
from persistent.driver import step as steps
from persistent.storage import MemoryStorage
from tests.lives import MODES, Devices, devices, plain, run_of, shown_in


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

    def __init__(self, mode: tuple[str, str]) -> None:
        self.mode = mode

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Fragile(), ttl="10 ms", emit=self.mode[0], changes=self.mode[1])

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


def at(*pairs: tuple[int, int], key: str = "a") -> list[dict[str, Any]]:
    return [{"ts": time, "key": key, "n": n} for time, n in pairs]


ROWS = [
    *at((0, 1), (1, 2)),
    *at((2, 6), key="b"),
    *at((5, 8)),  # together too much
    *at((30, 7), key="c"),
    *at((31, 7)),  # a life of its own
    *at((60, 3), (62, 3), key="c"),
]


def pipeline(storage: MemoryStorage, sink: MemorySink, mode: tuple[str, str], **options: Any) -> Pipeline:
    source = MemorySource(ROWS, timestamp="ts", ordered=True)
    made = {"max_future": "40000 days", "step_rows": 1, **options}
    return Pipeline(source=source, task=Totals(mode), sink=sink, checkpoint=storage, **made)


def rows_of(sink: MemorySink) -> list[tuple[str, str, bool]]:
    return [(row["key"], json.loads(row["value"]), row["retracted"]) for row in sink.rows()]


@pytest.mark.parametrize("mode", MODES[1:])
def test_a_life_whose_fold_raises_is_apart_and_all_others_are_published(mode: tuple[str, str]) -> None:
    """One bad sum must neither keep others from expiring, nor stay in the sink when its key has expired."""
    storage, sink = MemoryStorage(uuid.uuid4().hex), MemorySink()
    made = pipeline(storage, sink, mode, on_error="dead-letter")
    report = made.run(engine="embedded")
    found = rows_of(sink)
    gone = [(key, value) for key, value, retracted in found if retracted]
    by_mode = {
        "retract": [("a", 1), ("a", 3), ("a", 7), ("b", 6), ("c", 3), ("c", 7)],
        "update": [("a", 3), ("a", 7), ("b", 6)],
    }
    assert sorted(gone) == by_mode[mode[1]], "what a had is taken back when its sum raises, and then when it ends"
    assert [(key, value) for key, value, retracted in found if not retracted][-1] == ("c", 6)
    assert report.set_aside == 1
    (letter,) = made.dead_letters().to_pylist()
    assert "no result for key (key='a')" in letter["reason"]
    assert report.expired == 4


def test_without_dead_letters_the_run_stops_and_names_the_key() -> None:
    storage, sink = MemoryStorage(uuid.uuid4().hex), MemorySink()
    with pytest.raises(
        UserCodeError, match=r"no result for key \(key='a'\).*Give the task another monoid, a new check"
    ):
        pipeline(storage, sink, MODES[1]).run(engine="embedded")


@pytest.mark.parametrize("mode", MODES)
def test_shards_change_nothing(mode: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key expires in the shard that has it, and in no other."""
    rows, found = devices(11, 60, 4, 10), []
    monkeypatch.setattr(steps, "SHARD_ROWS", 0)
    for parallelism in (1, 7):
        with run_of(rows, task=Devices(10, mode), behind=4, step_rows=4) as run:
            report = run.run(engine=Embedded(parallelism))
            twin = plain(rows, 10, 4, 4)
            assert (run.state(), report.expired) == (twin.state(), twin.expired)
            found.append((run.shown(), sorted(map(repr, run.sink.rows()))))
    assert found[0] == found[1]


def test_an_equal_value_is_not_taken_back() -> None:
    """A row and the same row again are noise, where each counts."""

    class Largest(Devices):
        def process_batch(self, state: Any, batch: Any) -> None:
            state.update_batch(batch.timestamps, {"most": 7})

    with run_of([{"ts": time, "key": "a"} for time in (0, 1, 2)], task=Largest(10, MODES[2]), step_rows=1) as run:
        run.run()
        assert [(row["most"], row["retracted"]) for row in run.sink.rows()] == [(7, False)]
        run.rows = [*run.rows, {"ts": 30, "key": "a"}, {"ts": 31, "key": "b"}]
        run.run()
        found = [(row["key"], row["most"], row["retracted"]) for row in run.sink.rows()]
        assert found in (
            [("a", 7, False), ("b", 7, False)],
            [("a", 7, False), ("a", 7, True), ("a", 7, False), ("b", 7, False)],
        )
        assert shown_in(run.sink.rows()) == run.state()


def test_a_task_without_a_key_expires_as_a_whole() -> None:
    class Whole(Devices):
        key = None

        def process_batch(self, state: Any, batch: Any) -> None:
            state.update_batch(batch.timestamps, {"rows": 1})

    rows = [{"ts": time, "key": "a"} for time in (0, 5, 30, 31)]
    with run_of(rows, task=Whole(10), step_rows=1) as run:
        report = run.run()
        assert run.pipeline().state().to_pylist() == [{"rows": 2, "total": 0, "most": None}]
        assert report.expired == 1
