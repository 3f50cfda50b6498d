"""A key that a sink can never hold is refused with its record, before the record counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from monoids import Count, Sum
from persistent import MemorySink, MemorySource, NonWindowState, PersistentTask, Pipeline, UserCodeError
from persistent.engines.embedded import Embedded

ROWS = [{"ts": 1_000 + number, "k": key, "v": number} for number, key in enumerate("a-bb-c--a")]


class NoDashes(MemorySink):
    """Refuses the key "-", and counts how often it is asked."""

    limits_keys = True

    def __init__(self, refused: str = "-") -> None:
        super().__init__()
        self.refused, self.asked = refused, 0

    def refused_keys(self, keys: pa.Table) -> Iterator[tuple[Any, str]]:
        self.asked += 1
        for name in keys.column_names:
            yield np.asarray(pc.equal(keys[name], self.refused).fill_null(False)), f"no {self.refused} in {name}"


class ByColumns(PersistentTask):
    key: Any = "k"
    name = "totals"

    def persistent_state(self) -> Any:
        return NonWindowState(Sum())

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, batch["v"])


class ByParts(ByColumns):
    """Updates the state in two calls, the second of which has the refused keys."""

    def process_batch(self, state: Any, batch: Any) -> None:
        for letter in (True, False):
            part = batch.filter(pc.equal(pc.not_equal(batch["k"], "-"), letter))
            state.update_batch(part.timestamps, part["v"])


class ByRows(ByColumns):
    process_batch = PersistentTask.process_batch

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["v"])


class GivingKeys(ByColumns):
    key: Any = {"k": None}

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(np.asarray(batch["ts"]), batch["v"], keys=batch["k"])


class Filtering(ByColumns):
    """Updates nothing for the keys that the sink refuses."""

    def process_batch(self, state: Any, batch: Any) -> None:
        part = batch.filter(pc.not_equal(batch["k"], "-"))
        state.update_batch(part.timestamps, part["v"])


class Two(ByColumns):
    """Of two states the first is published."""

    def persistent_state(self) -> Any:
        return {"sums": NonWindowState(Sum()), "counts": NonWindowState(Count())}

    def process_batch(self, state: Any, batch: Any) -> None:
        state["counts"].update_batch(batch.timestamps, 1)
        state["sums"].update_batch(batch.timestamps, batch["v"])


def job(task: PersistentTask, sink: Any, checkpoint: str, rows: Any = ROWS, **options: Any) -> Pipeline:
    return Pipeline(source=MemorySource(rows, timestamp="ts"), task=task, sink=sink, checkpoint=checkpoint, **options)


def run(pipeline: Pipeline) -> Any:
    return pipeline.run(engine=Embedded(threads=1), end_of_input=True)


@pytest.mark.parametrize(
    "task", [ByColumns(), ByParts(), ByRows(), GivingKeys(), Two()], ids=lambda task: type(task).__name__
)
def test_a_refused_key_is_judged_with_its_record(task: PersistentTask) -> None:
    """It would count, and be refused when its result is published, in this run and in every later one."""
    name, sink = f"memory://refused-{type(task).__name__}", NoDashes()
    sinks: Any = {"sums": sink} if isinstance(task, Two) else sink
    with pytest.raises(UserCodeError, match=r'no - in k.*\'k\': \'-\'.*set on_error="dead-letter"'):
        run(job(task, sinks, name))
    again = job(task, sinks, name, on_error="dead-letter")
    report = run(again)
    assert report.dead == 4 and report.rows == 9 and report.set_aside == 0
    assert {row["k"]: row["value"] for row in sink.rows()} == {"a": 8, "b": 5, "c": 5}
    dead = again.dead_letters().to_pylist()
    assert [row["value"]["k"] for row in dead] == ["-"] * 4 and {row["reason"] for row in dead} == {
        "ValueError: no - in k"
    }
    # A record counts in all states, or in none.
    counted = again.state(name="counts" if isinstance(task, Two) else None)
    assert {row["k"] for row in counted.to_pylist()} == {"a", "b", "c"}


def test_a_record_that_updates_nothing_has_no_key_to_refuse() -> None:
    """A task that leaves such records out would stop for them."""
    sink = NoDashes()
    assert run(job(Filtering(), sink, "memory://refused-filtering")).dead == 0
    assert {row["k"] for row in sink.rows()} == {"a", "b", "c"}


def test_many_refused_keys_do_not_halve_the_batch() -> None:
    """A column in which every other key is null would cost as many runs of the task as it has rows."""
    sink = NoDashes()
    rows = [{"ts": 1_000 + number, "k": "-" if number % 2 else "a", "v": 1} for number in range(20_000)]
    report = run(job(ByColumns(), sink, "memory://refused-many", rows, on_error="dead-letter"))
    assert report.dead == 10_000 and sink.rows()[0]["value"] == 10_000
    assert sink.asked < 20


def test_reasons_stay_with_their_records() -> None:
    """Dead letters would be listed with the reason of another record."""

    class Some(ByColumns):
        def process_batch(self, state: Any, batch: Any) -> None:
            state.update_batch(batch.timestamps, batch["v"])
            if "c" in batch["k"].to_pylist():
                raise RuntimeError("a c")

    again = job(
        Some(), {"dashes": NoDashes(), "letters": NoDashes("b")}, "memory://refused-reasons", on_error="dead-letter"
    )
    assert run(again).dead == 7
    found = {(row["value"]["k"], row["reason"].partition(" (")[0]) for row in again.dead_letters().to_pylist()}
    assert found == {("-", "ValueError: no - in k"), ("b", "ValueError: no b in k"), ("c", "RuntimeError: a c")}


def test_the_task_can_give_the_key_another_value() -> None:
    """It is the advice of the error."""

    class Named(ByColumns):
        key: Any = {"k": lambda message: "other" if message.value["k"] == "-" else message.value["k"]}

    sink = NoDashes()
    with pytest.raises(UserCodeError, match="the key raised"):
        run(job(ByColumns(), sink, "memory://refused-advice"))
    run(job(Named(), sink, "memory://refused-advice"))
    assert {row["k"]: row["value"] for row in sink.rows()} == {"a": 8, "b": 5, "c": 5, "other": 18}
