"""A state with a time to live beside others: what it refuses and what expires is its own, and so is its clock."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from monoids import Sum
from persistent import (
    FingerprintChanged,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    NonWindowState,
    OtherJob,
    PersistentTask,
    Pipeline,
    Refused,
    SqliteSink,
    UnknownCheckpoint,
    UserCodeError,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.operations import compact, merge, restart, rollback, savepoint
from persistent.reading import diff, place
from persistent.storage import MemoryStorage
from persistent.testing import verify_task
from persistent.testing.outcome import outcome_of
from persistent.verify import verify
from tests.lives import rows_in
from tests.operations.test_merging import Named
from tests.several import KINDS, Run, Several, World, disordered, newest

Row = dict[str, Any]


class Beside(PersistentTask):
    """Counts by window of ten, and as long as a key lives."""

    name = "Beside"
    key = "key"

    def __init__(self, ttl: int = 30, *, total: bool = False) -> None:
        self.ttl, self.total = ttl, total

    def persistent_state(self) -> Any:
        states: dict[str, Any] = {
            "short": WindowState(Sum(int), tumbling("10 ms")),
            "lives": NonWindowState(Sum(int), ttl=f"{self.ttl} ms", emit="change"),
        }
        return {**states, "total": NonWindowState(Sum(int))} if self.total else states

    def process_message(self, state: Any, message: Any) -> None:
        for one in state.values():
            one.update(message.timestamp, 1)


def at(*times: int, key: str = "a") -> list[Row]:
    return [{"ts": time, "key": key} for time in times]


class Job:
    """A job over some rows, with a sink for each state."""

    def __init__(self, rows: Sequence[Row], task: Any = None) -> None:
        self.rows, self.task = rows, task or Beside()
        self.storage = MemoryStorage(f"expiring-{uuid.uuid4().hex}")
        self.sinks = {name: MemorySink() for name in ("short", "lives", "total")}

    def pipeline(self, rows: Sequence[Row] | None = None, **options: Any) -> Pipeline:
        states = self.task.persistent_state()
        sinks = {name: sink for name, sink in self.sinks.items() if isinstance(states, dict) and name in states}
        source = MemorySource(list(self.rows if rows is None else rows), timestamp="ts", ordered=True)
        given = {"source": source, "task": self.task, "checkpoint": self.storage, "sink": sinks, "step_rows": 1}
        return Pipeline(**{**given, **options})

    def run(self, rows: Sequence[Row] | None = None, *, ends: bool = False, **options: Any) -> Any:
        return self.pipeline(rows, **options).run(engine="embedded", end_of_input=ends)

    def lives(self) -> dict[str, int]:
        return {row["key"]: row["value"] for row in self.pipeline().state(name="lives").to_pylist()}

    def published(self) -> list[tuple[str, int, bool]]:
        rows = sorted(self.sinks["lives"].rows(), key=lambda row: (row["revision"], not row["retracted"]))
        return [(row["key"], row["value"], row["retracted"]) for row in rows]


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job([*at(5), *at(6, key="b"), *at(40)])
    yield made
    made.storage.clear()


class Table(SqliteSink):
    """A table that heirs go on in."""

    def rows(self) -> list[Row]:
        return rows_in(self)


def manifest_of(storage: Any) -> Manifest:
    found = Log(storage).newest()
    assert found is not None
    return found.manifest


# -- what is late, and what expires -----------------------------------------------------------------------------------


def test_what_a_time_to_live_refuses_is_late_for_it_alone(job: Job) -> None:
    """Totals take all: dropped for them, they would lack it; dropped in silence, nobody would know that a life does."""
    job.task = Beside(total=True)
    report = job.run([*at(5, 40, 8, 20)])
    # 8 has no window and no life any more, 20 has no window.
    assert report.late == 0
    assert report.late_windows == {"Beside/short": {0: 1, 20: 1}, "Beside/lives": {None: 1}}
    assert "; late in Beside/lives: 1;" in f"{report};".replace("\n", ";")
    assert job.pipeline().state(name="total").to_pylist() == [{"key": "a", "value": 4}]
    assert job.lives() == {"a": 3}, "20 joins what was there to what came after it"
    reasons = {(row["timestamp"], row["reason"]) for row in job.pipeline().late().to_pylist()}
    assert reasons == {(8, "partly-late in short, lives"), (20, "partly-late in short")}
    assert verify(job.storage).findings == []


def test_a_record_is_late_that_neither_a_window_nor_a_life_takes(job: Job) -> None:
    report = job.run([*at(5, 40, 8, 20)])
    assert (report.late, report.late_windows["Beside/lives"]) == (1, {None: 1})
    reasons = {(row["timestamp"], row["reason"]) for row in job.pipeline().late().to_pylist()}
    assert reasons == {(8, "late"), (20, "partly-late in short")}


def test_an_update_at_another_time_that_a_life_refuses_is_an_error(job: Job) -> None:
    """The record is not late, so nothing would say that its update is missing."""

    class Early(Beside):
        def process_message(self, state: Any, message: Any) -> None:
            state["short"].update(message.timestamp, 1)
            state["lives"].update(max(message.timestamp - 35, 0), 1)

    job.task = Early()
    with pytest.raises(UserCodeError, match=r'with ttl="30 ms" it has ended by the clock of the step'):
        job.run(at(5, 40, 41))


def test_what_expires_is_counted_by_state() -> None:
    """A sum alone would not say of which state keys are gone."""
    world = World({name: KINDS[name] for name in ("lives", "alive", "total")}, disordered(2))
    report = world.run()
    assert report is not None and {*report.expired_in} == {"Several/lives", "Several/alive"}
    assert report.expired == sum(report.expired_in.values()) == sum(world.expired.values())
    each = ", ".join(f"{count} in {name}" for name, count in report.expired_in.items())
    assert f"; {report.expired} keys expired ({each})" in str(report)
    for name in ("lives", "alive"):
        alone = world.alone(name)
        report = alone.run()
        assert report is not None and report.expired == world.expired[name] > 0
        assert (report.expired_in, f"{report.expired} keys expired" in str(report)) == ({}, True)


def test_the_end_of_the_input_closes_windows_beside_lives_that_stay(job: Job) -> None:
    """The end of the input sets the clock of the windows ahead, to their end; it is no time for a key."""
    job.run([*at(5), *at(33, key="b")], ends=True)
    clocks = {name: node.clock.watermark for name, node in manifest_of(job.storage).nodes.items()}
    assert clocks == {"Beside/short": 40, "Beside/lives": 33}
    assert job.lives() == {"a": 1, "b": 1}, "by the clock of the windows, the first would have expired"
    report = job.run([*at(5), *at(33, key="b"), *at(34, key="b")], ends=True)
    assert report.late_windows == {"Beside/short": {30: 1}}
    assert job.lives() == {"a": 1, "b": 2}


def test_it_is_said_which_states_take_the_old_records_of_a_new_source() -> None:
    """That they are late would be wrong of a state that takes all."""

    def notes(task: Any) -> list[str]:
        made, source = Job(at(5, 40), task), MemorySource(at(41), timestamp="ts", ordered=True)
        one = MemorySource(at(5, 40), timestamp="ts", ordered=True)
        made.run(source={"memory": one})
        report = made.run(source={"memory": one, "other": source})
        return [note for note in report.notes if note.startswith("the source")]

    refused = r"records of windows before \S+ \S+, and records that are older than ttl=\"30 ms\" at \S+ \S+, "
    (note,) = notes(Beside())
    assert re.fullmatch(rf"the source 'other' is new: {refused}are late", note), note
    (note,) = notes(Beside(total=True))
    assert re.fullmatch(rf"the source 'other' is new: {refused}count only in total", note), note


# -- states come and go ----------------------------------------------------------------------------------------------


def test_a_state_with_a_time_to_live_is_added_at_the_clock() -> None:
    """It has what was read since, and tells its sink what expired since."""
    world = World({name: KINDS[name] for name in ("short", "total")}, disordered(5, 80))
    world.run(Run(40, 7))
    clock = manifest_of(world.storage).clock.watermark
    names = ("short", "lives", "total", "living")
    more = World({name: KINDS[name] for name in names}, world.rows, world.by, world.storage, world.sinks)
    report = more.run(Run(60, 7))
    assert report is not None and sum("is new: it begins at clock" in note for note in report.notes) == 2
    more.run()
    assert manifest_of(world.storage).nodes["Several/lives"].added == clock
    for name in ("short", "total"):
        alone = world.alone(name)
        for run in (Run(40, 7), Run(60, 7), None):
            alone.run(run)
        assert more.published(name) == alone.published(name) and more.shown(name) == alone.shown(name)
    for name in ("lives", "living"):
        whole = World({name: KINDS[name]}, world.rows)
        for run in (Run(40, 7), Run(60, 7), None):
            whole.run(run)
        late = {row["offset"] for row in whole.pipeline().late().to_pylist()}
        since = World(
            {name: KINDS[name]}, [row for number, row in enumerate(world.rows) if number >= 40 and number not in late]
        )
        since.run()
        assert more.shown(name) == since.shown(name)
    assert more.expired["lives"] and more.refused["lives"] and verify(world.storage).findings == []


def test_a_dropped_state_with_a_time_to_live_has_no_windows(job: Job) -> None:
    job.run(sink={"short": job.sinks["short"]})

    class Without(Beside):
        def persistent_state(self) -> Any:
            return {"short": WindowState(Sum(int), tumbling("10 ms"))}

    job.task = Without()
    with pytest.raises(OtherJob, match=r"allow_dropped=\['Beside/lives'\]"):
        job.run()
    report = job.run([*job.rows, *at(41)], allow_dropped=["Beside/lives"])
    assert "the state 'lives' is dropped" in report.notes
    assert not any(one.has_time_to_live for one in manifest_of(job.storage).nodes.values())


def test_another_time_to_live_of_one_state_is_refused_by_its_name(job: Job) -> None:
    job.run()
    assert any(one.has_time_to_live for one in manifest_of(job.storage).nodes.values())
    job.task = Beside(31)
    with pytest.raises(FingerprintChanged, match=r'Beside/lives.*ttl: "30 ms" -> "31 ms"'):
        job.run()


def test_a_state_that_had_no_name_takes_back_under_its_new_one(job: Job) -> None:
    """Its sink is told what has expired, as it was before."""

    class One(Beside):
        def persistent_state(self) -> Any:
            return NonWindowState(Sum(int), ttl="30 ms", emit="change")

        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, 1)

    class More(Beside):
        def persistent_state(self) -> Any:
            return {"state": One().persistent_state(), "short": WindowState(Sum(int), tumbling("10 ms"))}

    sink = job.sinks["lives"]
    job.task = One()
    job.run([*at(5), *at(6, key="b")], sink=sink)
    job.task = More()
    sinks = {"state": {"memory": sink}, "short": job.sinks["short"]}
    report = job.run([*at(5), *at(6, key="b"), *at(40), *at(41)], sink=sinks)
    # Both had expired before the second message of one came, and the first life of that one has ended.
    assert report.expired_in == {"Beside": 2}
    assert job.published() == [("a", 1, False), ("b", 1, False), ("a", 1, False), ("b", 1, True), ("a", 2, False)]
    assert verify(job.storage).findings == []


# -- operations ------------------------------------------------------------------------------------------------------


def test_a_clock_is_refused_of_the_state_whose_keys_expire(job: Job) -> None:
    """Another state beside it may know it."""
    job.run()
    with pytest.raises(UnknownCheckpoint, match=r"keeps the lives of its keys.*--at ID"):
        job.pipeline().state(name="lives", as_of=10)
    with pytest.raises(InvalidPipeline, match="say which, name='short'"):
        job.pipeline().state()
    with pytest.raises(UnknownCheckpoint, match="holds the state 'lives' as of"):
        restart(job.pipeline(), 10, outputs="again")


def test_the_difference_of_two_checkpoints_shows_what_expired(job: Job) -> None:
    job.run()
    both = manifest_of(job.storage).id - 2
    assert job.pipeline().state(name="lives", at=both).num_rows == 2
    found = diff(place(job.storage, both), place(job.storage), pipeline=job.pipeline(), name="lives")
    assert found.rows is not None and found.rows["key"].to_pylist() == ["b"], "a has come again"
    assert job.lives() == {"a": 1}, "the clock is at 40: a came again, and b has expired"


@pytest.mark.parametrize("outputs", ["retract", "again"])
@pytest.mark.parametrize("names", [("short", "lives"), ("alive", "retracting"), ("living", "total", "sessions")])
def test_a_rollback_takes_back_what_expired(outputs: str, names: Sequence[str]) -> None:
    """A key that has expired after the target lives again."""
    world = World({name: KINDS[name] for name in names}, disordered(4, 80))
    world.run(Run(30, 7))
    id = manifest_of(world.storage).id
    world.run(Run(60, 5))
    rollback(world.storage, id, outputs=outputs)
    world.run()
    calm = World(world.states, world.rows)
    for run in (Run(30, 7), None):
        calm.run(run)
    for name in names:
        assert world.shown(name) == calm.shown(name)
        if outputs == "retract":
            assert newest(world.published(name)) == newest(calm.published(name))
    assert verify(world.storage).ok


@pytest.mark.parametrize("begins", ["savepoint", "checkpoint"])
def test_an_heir_takes_back_in_its_sinks_what_expires(begins: str, tmp_path: Path) -> None:
    """Each of its states knows what its own sink was told last."""
    names = ("lives", "short", "alive")
    mine, calms = ({name: Table(tmp_path / f"{of}.db", name) for name in names} for of in ("mine", "calm"))
    world = World({name: KINDS[name] for name in names}, disordered(9, 80), sinks=mine)
    world.run(Run(40, 7))
    url = savepoint(world.storage, "half") if begins == "savepoint" else world.storage
    heir = World(world.states, world.rows, sinks=world.sinks)
    heir.run(Run(60, 7), start_from=url)
    compact(heir.pipeline())
    heir.run()
    calm = World(world.states, world.rows, sinks=calms)
    for run in (Run(40, 7), Run(60, 7), None):
        calm.run(run)
    for name in names:
        assert any(row["retracted"] for row in mine["lives"].rows())
        assert heir.shown(name) == calm.shown(name)
        assert newest(heir.published(name)) == newest(calm.published(name)), name
    assert verify(heir.storage).findings == []


def test_a_merge_names_the_state_whose_keys_expire() -> None:
    storages = {name: MemoryStorage(f"expiring-{uuid.uuid4().hex}") for name in ("x", "y", "into")}
    for seed, name in enumerate(("x", "y")):
        job = Pipeline(
            source=Named({name: disordered(seed, 20)}),
            task=Several({state: KINDS[state] for state in ("total", "alive")}),
            checkpoint=storages[name],
            sink={state: MemorySink() for state in ("total", "alive")},
        )
        job.run(engine="embedded", end_of_input=True)
    with pytest.raises(Refused, match="keep keys with a time to live, in Several/alive"):
        merge(storages["x"], storages["y"], storages["into"])
    assert not storages["into"].list("m")


def test_lives_leave_the_disk_beside_windows_that_stay() -> None:
    """A fold drops the lives of its own state, by its own clock."""
    rows = [row for number in range(60) for row in at(5 * number, key=f"k{number}")]
    job = Job(rows, Beside(ttl=10, total=True))
    job.run(step_rows=25)
    compact(job.pipeline())
    held = {name: sum(run.rows_left for run in one.runs) for name, one in manifest_of(job.storage).nodes.items()}
    assert held["Beside/total"] == 60 and held["Beside/lives"] < 10
    assert job.pipeline().state(name="total").num_rows == 60
    assert job.lives().keys() == {"k58", "k59"}


# -- the test kit ----------------------------------------------------------------------------------------------------


def test_the_kit_compares_what_readers_see_of_each_state() -> None:
    """A row that is taken back is not a result, and of windows beside it none is left out."""
    rows = sorted(disordered(5, 8), key=lambda row: row["ts"])
    states = {name: KINDS[name] for name in ("lives", "short", "retracting")}
    verify_task(Several(states), rows, timestamp="ts", elsewhere=False)
    job = Job([*at(5), *at(60, 61, key="b")])
    job.run()
    found = outcome_of(job.pipeline(), job.sinks["lives"].rows(), state="lives")
    assert [place.key for place, _ in found.at("outputs")] == [("b",)]
