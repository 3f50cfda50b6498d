"""A task with several states gives each what a task with that state alone would have given it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from monoids import Sum
from persistent import (
    Evolution,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    UserCodeError,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.operations import compact
from persistent.reading import diff, place, state_table
from persistent.storage import MemoryStorage
from persistent.verify import verify
from tests.several import KINDS, Row, World, disordered, drawn_runs, newest


def compared(world: World, seed: int) -> None:
    """Run a job with several states, and each state alone, through the same history."""
    runs = drawn_runs(seed, len(world.rows))
    alone = {name: world.alone(name) for name in world.states}
    for number, run in enumerate(runs):
        for one in (world, *alone.values()):
            one.run(run)
            if (seed + number) % 3 == 0:
                compact(one.pipeline(), take_over=True)
        for name, one in alone.items():
            assert world.shown(name) == one.shown(name), (seed, name, number)
    for name, one in alone.items():
        assert newest(world.published(name)) == newest(one.published(name)), (seed, name)
        if name != "early":
            # Another state can make a step, in which early results are published.
            assert world.published(name) == one.published(name), (seed, name)
        assert world.refused[name] == one.refused[name], (seed, name)
        assert world.expired[name] == one.expired[name], (seed, name)
    assert _late(world) == set.intersection(*(_late(one) for one in alone.values()))
    checked = verify(world.storage)
    assert checked.ok and not checked.findings, checked


def _late(world: World) -> set[tuple[int, int]]:
    """The records that no state takes, by position."""
    return {(row["ordinal"], row["offset"]) for row in world.pipeline().late().to_pylist() if row["reason"] == "late"}


@pytest.mark.parametrize("seed", range(24))
def test_each_state_is_as_if_it_were_alone(seed: int) -> None:
    """A record that one state refuses must reach the others, and no state may get the rows, the clock or the runs of
    another: whatever the order, the steps, the shards and the restarts."""
    draw = random.Random(seed)
    names = draw.sample([*KINDS], draw.randrange(1, 5))
    by = draw.choice(("message", "batch"))
    compared(World({name: KINDS[name] for name in names}, disordered(seed), by), seed)


@pytest.mark.parametrize("seed", range(100, 112))
def test_so_it_is_beside_a_time_to_live(seed: int) -> None:
    """Keys expire by the clock of their own state, however the windows beside them close, and are taken back once."""
    draw = random.Random(seed)
    lasting = draw.sample(["living", "lives", "alive"], draw.randrange(1, 3))
    names = draw.sample([*lasting, *draw.sample(["short", "retracting", "sessions", "early", "total"], 2)], 3)
    world = World({name: KINDS[name] for name in names}, disordered(seed), draw.choice(("message", "batch")))
    compared(world, seed)
    assert any(world.expired.values())


# -- what a task is given ----------------------------------------------------------------------------------------------


class Two(PersistentTask):
    """Counts per window of ten, and in total."""

    key = "key"
    name = "Two"

    def persistent_state(self) -> Any:
        return {"short": WindowState(Sum(int), tumbling("10 ms")), "total": NonWindowState(Sum(int))}

    def process_message(self, state: Any, message: Any) -> None:
        for one in state.values():
            one.update(message.timestamp, message.value["value"])


def rows_at(*times: int, key: Any = "a") -> list[Row]:
    return [{"ts": time, "key": key, "value": 1} for time in times]


def job_of(rows: Sequence[Row], storage: Any, task: Any = Two, **options: Any) -> Pipeline:
    given: dict[str, Any] = {
        "source": MemorySource(list(rows), timestamp="ts", ordered=True),
        "task": task() if isinstance(task, type) else task,
        "checkpoint": storage,
        "sink": {"short": MemorySink(), "total": MemorySink()},
        "step_rows": 1,
    }
    return Pipeline(**{**given, **options})


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    made = MemoryStorage(f"several-{uuid.uuid4().hex}")
    yield made
    made.clear()


def test_a_record_that_one_state_refuses_reaches_the_others(storage: MemoryStorage) -> None:
    """Dropped for all, the totals would lack it; dropped in silence, nobody would know that a window does."""
    job = job_of(rows_at(5, 25, 7, 26), storage)
    report = job.run(engine="embedded")
    assert (report.late, report.late_windows) == (0, {"Two/short": {0: 1}})
    assert "late in Two/short: 1 of 1970-01-01 00:00:00Z" in str(report)
    assert job.state(name="total").to_pylist() == [{"key": "a", "value": 4}]
    assert [row["value"] for row in job.state(name="short").to_pylist()] == [2]
    (row,) = job.late().to_pylist()
    assert (row["reason"], row["timestamp"], row["value"]["ts"]) == ("partly-late in short", 7, 7)
    assert verify(storage).findings == []


def test_an_update_at_another_time_that_a_state_refuses_is_an_error(storage: MemoryStorage) -> None:
    """The record is not late, so nothing would say that its update is missing."""

    class Early(Two):
        def process_message(self, state: Any, message: Any) -> None:
            state["short"].update(max(message.timestamp - 20, 0), 1)
            state["total"].update(message.timestamp, 1)

    job = job_of(rows_at(5, 25, 26), storage, Early, on_error="dead-letter")
    report = job.run(engine="embedded")
    assert report.dead == 1, "the second was before the clock had passed the window"
    assert "every window of that time ended before" in job.dead_letters()["reason"][0].as_py()
    assert job.state(name="total").to_pylist() == [{"key": "a", "value": 2}], "of a dead letter nothing counts"


@pytest.mark.parametrize("how", ["key", "keys", "own", "repeated"])
def test_an_update_of_a_batch_that_a_state_refuses_is_dropped_there(how: str, storage: MemoryStorage) -> None:
    """In whatever way columns say which record they are of."""

    class InColumns(Two):
        def process_batch(self, state: Any, batch: Any) -> None:
            for one in state.values():
                if how == "own":
                    one.update_batch(batch.timestamps, batch["value"])
                elif how == "keys":
                    one.update_batch(np.array(batch.timestamps), batch["value"], keys=batch["key"])
                elif how == "repeated":
                    twice = np.repeat(batch.timestamps, 2)
                    one.update_batch(twice, np.ones(len(twice), np.int64), keys=np.repeat(np.array(batch["key"]), 2))
                else:
                    for message in batch.messages():
                        one.update(message.timestamp, 1, key=message.key)

    job = job_of(rows_at(5, 25, 7, 26), storage, InColumns)
    assert job.run(engine="embedded").late == 0
    times = 2 if how == "repeated" else 1
    assert job.state(name="total").to_pylist() == [{"key": "a", "value": 4 * times}]
    assert [row["value"] for row in job.state(name="short").to_pylist()] == [2 * times]


@pytest.mark.parametrize("failing", ["short", "total"])
def test_a_message_that_fails_in_one_state_counts_in_none(failing: str, storage: MemoryStorage) -> None:
    """Half of a message in the state could not be taken back, and the dead letter would count it again."""

    class Failing(Two):
        def process_message(self, state: Any, message: Any) -> None:
            for name, one in state.items():
                one.update(message.timestamp, "x" if message.timestamp == 6 and name == failing else 1)

    job = job_of(rows_at(5, 6, 7), storage, Failing, on_error="dead-letter", step_rows=3)
    assert job.run(engine="embedded").dead == 1
    assert job.state(name="total").to_pylist() == [{"key": "a", "value": 2}]
    assert [row["value"] for row in job.state(name="short").to_pylist()] == [2]


def test_the_task_is_told_which_states_there_are(storage: MemoryStorage) -> None:
    """A name that is mistyped, or left out, is an error in the line that does it."""

    class Mistyped(Two):
        def process_message(self, state: Any, message: Any) -> None:
            state["totals"].update(message.timestamp, 1)

    class Unnamed(Two):
        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, 1)

    for task, text in (
        (Mistyped, r"no state 'totals': its states are short, total"),
        (Unnamed, r"states short, total\. Name one: state\['short'\]\.update"),
    ):
        with pytest.raises(UserCodeError, match=text):
            job_of(rows_at(5), storage, task).run(engine="embedded")


@pytest.mark.parametrize(
    ("states", "text"),
    [
        ({}, "returned no state"),
        ({"a/b": NonWindowState(Sum())}, "name 'a/b': use letters"),
        ({1: NonWindowState(Sum())}, "name 1: use letters"),
        ({"a": Sum()}, r"persistent_state\(\)\['a'\] Sum\(\): return a WindowState"),
    ],
)
def test_states_that_cannot_be_are_refused_by_name(states: Any, text: str, storage: MemoryStorage) -> None:
    """Before anything is read."""

    class Wrong(Two):
        def persistent_state(self) -> Any:
            return states

    with pytest.raises(InvalidPipeline, match=text):
        job_of([], storage, Wrong, sink=None)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"sink": MemorySink()},
            r"says of no sink which state it takes.* states short, total: .*sink=\{'short': \.\.\.\}",
        ),
        ({"sink": {"shorter": MemorySink()}}, "'shorter' is no state"),
        ({"sink": {}}, "says of no sink"),
        ({"sink": {"total": MemorySink()}}, "the state 'short': a WindowState without sink="),
        (
            {"sink": {"short": {"table": MemorySink()}, "total": {"table": MemorySink()}}},
            "the states 'short' and 'total' each have a sink of the name 'table'",
        ),
        ({"sink": {"short": MemorySink(), "total": MemorySink()}, "discard_closed": True}, "discard_closed=True"),
        ({"evolve": Evolution(removed=["a"])}, r"say of which state, evolve=\{'short': Evolution"),
        ({"allow_dropped": ["Two/short"]}, "names a state of this pipeline"),
    ],
)
def test_options_that_are_not_by_state_are_refused(options: Any, text: str, storage: MemoryStorage) -> None:
    """Rows of one state must not land where those of another are expected."""
    with pytest.raises(InvalidPipeline, match=text):
        job_of([], storage, **options)


def test_two_states_do_not_share_a_sink(storage: MemoryStorage) -> None:
    """Its rows would be of both, and its mark of neither."""
    sink = MemorySink()
    with pytest.raises(InvalidPipeline, match=r"'short' and 'total' are the same, .*: rows of two states"):
        job_of([], storage, sink={"short": sink, "total": sink})


def test_a_state_is_read_by_its_name(storage: MemoryStorage) -> None:
    """The first of several would be a table of something else."""
    job = job_of(rows_at(5), storage)
    job.run(engine="embedded")
    for read in (job.state, lambda: diff(place(storage), place(storage), pipeline=job), lambda: state_table(job)):
        with pytest.raises(InvalidPipeline, match="has the states short, total: say which, name='short'"):
            read()
    with pytest.raises(InvalidPipeline, match="name='x': Two has the states short, total"):
        job.state(name="x")


def test_each_state_without_a_sink_discards_its_own_windows(storage: MemoryStorage) -> None:
    """The windows of the other are published."""
    kinds = {"short": KINDS["short"], "gaps": KINDS["gaps"]}
    world = World(kinds, rows := disordered(3), storage=storage)
    report = world.run(sink={"gaps": (sink := MemorySink())}, discard_closed=True)
    alone = World({"gaps": KINDS["gaps"]}, rows)
    alone.run()
    world.sinks["gaps"] = sink
    assert world.published("gaps") == alone.published("gaps")
    assert report is not None and report.discarded == len(_published_alone("short", rows))


def _published_alone(name: str, rows: Sequence[Row]) -> set[Any]:
    """The windows that a state alone publishes, whatever the key."""
    alone = World({name: KINDS[name]}, rows)
    alone.run()
    return {place[1:] for place in alone.published(name)}


def test_several_sinks_of_a_state_get_its_rows_and_no_others(storage: MemoryStorage) -> None:
    """A sink belongs to one state."""
    sinks = {name: MemorySink() for name in ("a", "b", "total")}
    given = {"short": {"a": sinks["a"], "b": sinks["b"]}, "total": sinks["total"]}
    job_of(rows_at(5, 15), storage, sink=given).run(engine="embedded", end_of_input=True)
    assert sorted(sinks["a"].rows(), key=str) == sorted(sinks["b"].rows(), key=str) and len(sinks["a"].rows()) == 2
    assert [(row["key"], row["value"]) for row in sinks["total"].rows()] == [("a", 2)]
    found = Log(storage).newest()
    assert found is not None and {name: part.node for name, part in found.manifest.sinks.items()} == {
        "a": "Two/short",
        "b": "Two/short",
        "total": "Two/total",
    }
