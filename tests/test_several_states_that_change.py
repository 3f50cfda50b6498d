"""States are added to a task, and dropped; their sinks stay theirs; and what operations do, they do to each."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from monoids import Count, Monoid, Sum, record
from persistent import (
    Dedupe,
    Evolution,
    FingerprintChanged,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    NonWindowState,
    OtherJob,
    Pipeline,
    UnknownCheckpoint,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.operations import compact, merge, restart, rollback, savepoint
from persistent.reading import clock_reading, diff, place
from persistent.storage import MemoryStorage
from persistent.testing.faults import Killed
from persistent.verify import verify, verify_source
from tests.operations.test_merging import Named
from tests.several import KINDS, Row, Run, Several, World, disordered, newest


def manifest_of(storage: Any) -> Manifest:
    found = Log(storage).newest()
    assert found is not None
    return found.manifest


def world_of(*names: str, seed: int = 5, rows: int = 80) -> World:
    return World({name: KINDS[name] for name in names}, disordered(seed, rows))


def with_states(world: World, *names: str) -> World:
    """The same job, whose task has other states."""
    return World({name: KINDS[name] for name in names}, world.rows, world.by, world.storage, world.sinks)


# -- states come and go ----------------------------------------------------------------------------------------------


def test_a_state_that_is_added_begins_at_the_clock() -> None:
    """It has what was read since, as a job that began there; the others go on as if it were not there."""
    world = world_of("short", "total")
    world.run(Run(40, 7))
    clock = manifest_of(world.storage).clock.watermark
    more = with_states(world, "short", "total", "known", "gaps")
    report = more.run(Run(60, 7))
    assert report is not None
    notes = [note for note in report.notes if note.startswith("the state")]
    assert len(notes) == 2 and all("is new: it begins at clock" in note for note in notes)
    found = manifest_of(world.storage)
    assert {name: one.added for name, one in found.nodes.items()} == {
        "Several/short": None,
        "Several/total": None,
        "Several/known": clock,
        "Several/gaps": clock,
    }
    more.run()
    for name in ("short", "total"):
        alone = world.alone(name)
        for run in (Run(40, 7), Run(60, 7), None):
            alone.run(run)
        assert more.published(name) == alone.published(name) and more.shown(name) == alone.shown(name)
    since = World({"known": KINDS["known"]}, world.rows[40:])
    since.run()
    assert more.shown("known") == since.shown("known")
    assert verify(world.storage).findings == []


def test_of_a_state_that_was_added_nothing_is_known_before() -> None:
    """An empty table would be taken for an answer: with windows or without, at once and steps later."""
    world = world_of("total")
    world.run(Run(40, 7))
    clock = manifest_of(world.storage).clock.watermark // 10 * 10
    more = with_states(world, "total", "known", "sliding", "short")
    for run in (Run(41, 7), Run(60, 7)):
        more.run(run)
        for name in ("known", "sliding", "short"):
            with pytest.raises(UnknownCheckpoint, match="was added later, and is known from"):
                more.pipeline().state(name=name, as_of=clock - 60)
    later = manifest_of(world.storage).clock.watermark // 10 * 10
    assert more.pipeline().state(name="known", as_of=later).num_rows


def test_a_state_is_read_at_a_checkpoint_from_before_another_was_added() -> None:
    """The one that was there is as it was; of the other it is told that it was not."""
    world = world_of("short", "total")
    world.run(Run(40, 7))
    id, shown = manifest_of(world.storage).id, world.shown("total")
    more = with_states(world, "short", "total", "days")
    with pytest.raises(UnknownCheckpoint, match=f"checkpoint {id} is from before the state 'days' was added"):
        more.pipeline().state(name="days")
    assert more.shown("total") == shown
    more.run(Run(60, 7))
    assert more.shown("total", at=id) == shown
    before, after = place(world.storage, id), place(world.storage)
    assert diff(before, after, pipeline=more.pipeline(), name="total").differing
    for read in (
        lambda: more.pipeline().state(name="days", at=id),
        lambda: diff(before, after, pipeline=more.pipeline(), name="days"),
    ):
        with pytest.raises(UnknownCheckpoint, match=f"checkpoint {id} is from before the state 'days' was added"):
            read()


def test_an_operation_says_what_the_task_has_more_and_less_than_the_checkpoint() -> None:
    """The remedy is one that works."""
    world = world_of("short", "total")
    world.run(Run(40, 7))
    more, less = with_states(world, "short", "total", "gaps"), with_states(world, "short")
    with pytest.raises(OtherJob, match=r"fewer states: .*\. Run the pipeline once: it adds them"):
        compact(more.pipeline())
    for refused in (lambda: compact(less.pipeline()), lambda: less.run(Run(41, 7))):
        with pytest.raises(OtherJob, match=r"or drop its state: Pipeline\(allow_dropped=\['Several/total'\]\)"):
            refused()
    report = less.run(Run(41, 7), allow_dropped=["Several/total"])
    assert report is not None
    assert [note for note in report.notes if "dropped" in note] == ["the state 'total' is dropped"]
    assert manifest_of(world.storage).nodes.keys() == {"Several/short"}
    compact(less.pipeline())
    more.sinks["total"] = MemorySink()
    more.run(Run(50, 7))
    compact(more.pipeline())
    assert manifest_of(world.storage).nodes.keys() == {"Several/short", "Several/total", "Several/gaps"}
    assert verify(world.storage).findings == []


def test_the_note_of_a_dropped_state_speaks_of_its_windows() -> None:
    """Only if it had some."""
    world = world_of("days", "total")
    world.run(Run(40, 7))
    report = with_states(world, "total").run(Run(41, 7), allow_dropped=["Several/days"])
    assert report is not None
    (note,) = [note for note in report.notes if "dropped" in note]
    assert note.startswith("the state 'days' is dropped, with its windows that were not closed, which end after 1970")


def test_files_of_a_dropped_state_are_collected() -> None:
    """No sweep looks into its folder later."""
    world = world_of("days", "total")
    world.run(Run(40, 7))
    assert world.storage.list("d/Several/days")
    less = with_states(world, "total")
    for stop in range(41, 70):
        less.run(Run(stop, 1), allow_dropped=["Several/days"])
    from persistent.operations import collect_garbage

    collect_garbage(world.storage, take_over=True)
    assert not world.storage.list("d/Several/days") and world.storage.list("d/Several/total")


def test_a_state_evolves_by_its_name() -> None:
    """The others stay as they are."""
    storage = MemoryStorage(f"several-{uuid.uuid4().hex}")
    rows = disordered(3, 30)
    both = {"one": lambda: NonWindowState(record(rows=Count())), "other": lambda: NonWindowState(Count())}
    more = {**both, "one": lambda: NonWindowState(record(rows=Count(), total=Sum(int)))}

    class Counts(Several):
        def _value(self, name: str, value: Any) -> Any:
            return 1 if name == "other" else {"rows": 1, "total": value} if self.states is more else {"rows": 1}

    def run(states: Any, stop: int, **options: Any) -> Pipeline:
        task = Counts(states)
        task.states = states
        job = Pipeline(
            source=MemorySource(rows[:stop], timestamp="ts", ordered=True), task=task, checkpoint=storage, **options
        )
        job.run(engine="embedded")
        return job

    run(both, 20)
    with pytest.raises(FingerprintChanged, match="the state of Several/one has another definition"):
        run(more, 30)
    job = run(more, 30, evolve={"one": Evolution()})
    counted = {row["key"]: row["value"] for row in job.state(name="other").to_pylist()}
    assert sum(counted.values()) > 20 and all(row["rows"] for row in job.state(name="one").to_pylist())
    assert verify(storage).findings == []


# -- sinks -----------------------------------------------------------------------------------------------------------


def swapped(world: World) -> dict[str, Any]:
    """The sinks of two states, each given to the other."""
    one, other = world.states
    return {one: {other: world.sinks[other]}, other: {one: world.sinks[one]}}


def test_a_sink_does_not_take_another_state() -> None:
    """Its place would hold rows of both."""
    world = world_of("short", "gaps")
    world.run(Run(40, 7))
    with pytest.raises(InvalidPipeline, match="has rows of the state 'gaps', and would now get those of the state 'sh"):
        world.run(Run(60, 7), sink=swapped(world))
    assert world.run(Run(60, 7)) is not None


def test_the_sinks_of_an_heir_take_the_states_that_they_had() -> None:
    """Its manifest lists no sink before its first checkpoint; what it inherits tells."""
    world = world_of("short", "gaps")
    world.run(Run(40, 7))
    url = savepoint(world.storage, "half")
    heir = World(world.states, world.rows)
    heir.pipeline()
    with pytest.raises(InvalidPipeline, match="has rows of the state 'gaps', and would now get those of the state 'sh"):
        heir.run(Run(60, 7), start_from=url, sink=swapped(heir))
    heir.run(Run(60, 7), start_from=url)
    again = World(world.states, world.rows)
    again.pipeline()
    with pytest.raises(InvalidPipeline, match="has rows of the state 'gaps'"):
        again.run(Run(60, 7), start_from=savepoint(heir.storage, "more"), sink=swapped(again))


def test_a_state_without_a_name_becomes_one_of_several() -> None:
    """It is called "state", and keeps its rows, and the name of its sink."""
    storage, sink, total = MemoryStorage(f"several-{uuid.uuid4().hex}"), MemorySink(), MemorySink()
    rows = disordered(5)

    class One(Several):
        def persistent_state(self) -> Any:
            return KINDS["short"]()

        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, self._value("short", message.value["value"]))

    class More(One):
        def persistent_state(self) -> Any:
            return {"state": KINDS["short"](), "total": KINDS["total"]()}

        def process_message(self, state: Any, message: Any) -> None:
            for one in state.values():
                super().process_message(one, message)

    def run(task: type[Several], stop: int, sinks: Any) -> Pipeline:
        source = MemorySource(rows[:stop], timestamp="ts", ordered=True)
        job = Pipeline(source=source, task=task({}), checkpoint=storage, sink=sinks, step_rows=5)
        job.run(engine="embedded", end_of_input=stop == len(rows))
        return job

    run(One, 30, sink)
    with pytest.raises(InvalidPipeline, match=r"give it that name again, sink=\{'state': \{'memory': \.\.\.\}\}"):
        run(More, 60, {"state": sink, "total": total})
    job = run(More, 60, {"state": {"memory": sink}, "total": total})
    alone, only = MemorySink(), MemoryStorage(f"several-{uuid.uuid4().hex}")
    for stop in (30, 60):
        source = MemorySource(rows[:stop], timestamp="ts", ordered=True)
        Pipeline(source=source, task=One({}), checkpoint=only, sink=alone, step_rows=5).run(
            engine="embedded", end_of_input=stop == 60
        )
    assert sorted(map(str, sink.rows())) == sorted(map(str, alone.rows()))
    assert sum(row["rows"] for row in job.state(name="total").to_pylist()) == 30
    assert verify(storage).findings == []


# -- operations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("final", "total"), ("short", "changes"), ("retracting", "total", "gaps")])
def test_jobs_with_several_states_are_merged_state_by_state(names: Sequence[str]) -> None:
    """Each has closed windows of its own up to a clock of its own."""
    lists = {"x": disordered(1, 40), "y": disordered(2, 40)}
    storages = {name: MemoryStorage(f"several-{uuid.uuid4().hex}") for name in (*lists, "into", "both")}

    def run(place: str, given: dict[str, list[Row]], sinks: dict[str, Any]) -> Pipeline:
        source = Named(given)
        job = Pipeline(
            source=source,
            task=Several({name: KINDS[name] for name in names}),
            checkpoint=storages[place],
            sink=sinks,
        )
        job.run(engine="embedded", end_of_input=True)
        return job

    for name, rows in lists.items():
        run(name, {name: rows}, {one: MemorySink() for one in names})
    merge(storages["x"], storages["y"], storages["into"])
    job = run("into", lists, {one: MemorySink() for one in names})
    whole = run("both", lists, {one: MemorySink() for one in names})
    for name in {"total", "changes"} & {*names}:
        assert sorted(job.state(name=name).to_pylist(), key=str) == sorted(whole.state(name=name).to_pylist(), key=str)
    assert verify(storages["into"]).findings == []


@pytest.mark.parametrize("outputs", ["retract", "again"])
@pytest.mark.parametrize("seed", range(4))
def test_a_rollback_takes_back_every_state(outputs: str, seed: int) -> None:
    """One that stayed would count what is read again twice."""
    names = (("short", "total"), ("sliding", "changes"), ("early", "sessions", "known"), ("final", "changing"))[seed]
    world = world_of(*names, seed=seed)
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


def test_a_rollback_to_before_a_state_was_added_adds_it_again() -> None:
    """With what was read since, and none of what it had."""
    world = world_of("total")
    world.run(Run(30, 7))
    id = manifest_of(world.storage).id
    more = with_states(world, "total", "changes", "short")
    more.run(Run(60, 7))
    rollback(world.storage, id, outputs="retract")
    more.run()
    calm = world_of("total")
    calm.run(Run(30, 7))
    added = with_states(calm, "total", "changes", "short")
    added.run()
    for name in more.states:
        assert more.shown(name) == added.shown(name)
        assert newest(more.published(name)) == newest(added.published(name)), name
    assert verify(world.storage).ok


def test_a_restart_cuts_every_state_at_its_clock() -> None:
    """Records before the clock are in each of them, and are skipped when they are read again."""
    world = World(
        {"short": KINDS["short"], "known": KINDS["known"]}, sorted(disordered(7, 60), key=lambda row: row["ts"])
    )
    world.run(Run(50, 5))
    clock = manifest_of(world.storage).clock.watermark // 10 * 10
    restart(world.pipeline(), clock, outputs="retract")
    world.run()
    calm = World(world.states, world.rows)
    calm.run()
    assert world.shown("known") == calm.shown("known")
    assert newest(world.published("short")) == newest(calm.published("short"))
    with pytest.raises(UnknownCheckpoint, match="holds the state 'total' as of"):
        restart(with_states(world_again := _ran("short", "total"), "short", "total").pipeline(), 10, outputs="again")
    assert verify(world_again.storage).ok


def _ran(*names: str) -> World:
    world = world_of(*names)
    world.run(Run(40, 5))
    return world


def test_the_source_proves_the_account_of_a_job_with_several_states() -> None:
    """Every record is counted once, not once for each state."""
    world = _ran("short", "total", "sessions")
    job = world.pipeline(Run(40, 5))
    found = Log(world.storage).newest()
    assert found is not None and verify_source(job, found).findings == []
    assert sum(one.read for one in found.manifest.accounts.values()) == 40


def test_a_clock_reading_has_the_clock_of_each_state() -> None:
    """After the end of the input each has closed its own last window."""
    world = world_of("short", "sliding", "total")
    world.run()
    found = clock_reading(world.storage)
    assert found.states.keys() == {"Several/short", "Several/sliding", "Several/total"}
    closed = {name: closed for name, (_, closed) in found.states.items()}
    assert closed["Several/total"] is None and closed["Several/short"] != closed["Several/sliding"]
    assert (found.closed, found.ended) == (min(end for end in closed.values() if end is not None), True)


# -- steps that were begun, and options ------------------------------------------------------------------------------


def test_a_step_that_was_begun_is_run_with_a_state_that_was_added_meanwhile() -> None:
    """Its plan says nothing of the new state, which closes nothing in it, and counts what it reads."""
    world = world_of("short", "total")
    world.run(Run(40, 7))
    plans: list[str] = []

    class Dying(MemoryStorage):
        def put_if_absent(self, name: str, data: Any) -> Any:
            answer = super().put_if_absent(name, data)
            if name.startswith("p/"):
                plans.append(name)
                raise Killed(name)
            return answer

    dying = Dying(world.storage.url.removeprefix("memory://"))
    with pytest.raises(Killed):
        world.pipeline(Run(60, 7), checkpoint=dying).run(engine="embedded")
    assert len(plans) == 1
    more = with_states(world, "short", "total", "gaps", "changes")
    more.run(Run(60, 7))
    more.run()
    calm = world_of("short", "total")
    calm.run(Run(40, 7))
    added = with_states(calm, "short", "total", "gaps", "changes")
    added.run(Run(60, 7))
    added.run()
    for name in more.states:
        assert more.shown(name) == added.shown(name), name
        assert newest(more.published(name)) == newest(added.published(name)), name
    assert verify(world.storage).findings == []


def test_a_step_that_was_begun_is_run_without_a_state_that_was_dropped() -> None:
    """Its plan names a state that is no more."""
    world = world_of("days", "total")
    world.run(Run(40, 7))

    class Dying(MemoryStorage):
        def put_if_absent(self, name: str, data: Any) -> Any:
            answer = super().put_if_absent(name, data)
            if name.startswith("p/"):
                raise Killed(name)
            return answer

    with pytest.raises(Killed):
        world.pipeline(Run(60, 7), checkpoint=Dying(world.storage.url.removeprefix("memory://"))).run(engine="embedded")
    less = with_states(world, "total")
    less.run(Run(60, 7), allow_dropped=["Several/days"])
    alone = world.alone("total")
    for run in (Run(40, 7), Run(60, 7)):
        alone.run(run)
    assert less.shown("total") == alone.shown("total")


def test_the_order_of_the_states_does_not_matter() -> None:
    """A mapping has none that a user minds."""
    world = world_of("short", "total", "changes")
    world.run(Run(40, 7))
    other = with_states(world, "changes", "short", "total")
    other.run()
    calm = world_of("short", "total", "changes")
    calm.run(Run(40, 7))
    calm.run()
    for name in world.states:
        assert other.shown(name) == calm.shown(name) and other.published(name) == calm.published(name)


def test_an_heir_may_have_other_states() -> None:
    """One that is added begins at the clock of the savepoint; one that is dropped is not copied into it for long."""
    world = world_of("short", "total")
    world.run(Run(40, 7))
    url = savepoint(world.storage, "half")
    heir = World({name: KINDS[name] for name in ("total", "changes")}, world.rows)
    with pytest.raises(OtherJob, match=r"allow_dropped=\['Several/short'\]"):
        heir.run(start_from=url)
    assert not heir.storage.list("m")
    heir.run(start_from=url, allow_dropped=["Several/short"])
    alone = world.alone("total")
    for run in (Run(40, 7), None):
        alone.run(run)
    assert heir.shown("total") == alone.shown("total")
    since = World({"changes": KINDS["changes"]}, world.rows[40:])
    since.run()
    assert heir.shown("changes") == since.shown("changes")
    found = manifest_of(heir.storage)
    assert found.nodes["Several/changes"].added == manifest_of(world.storage).clock.watermark


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_counts_once_in_every_state(seed: int) -> None:
    """Copies are recognised before any state sees them, until none of the states has use for that."""
    rows = [{**row, "id": number} for number, row in enumerate(disordered(seed, 40))]
    again = [row for number, row in enumerate(rows) for row in ([row, rows[number - 3]] if number % 4 == 3 else [row])]
    worlds = [World({name: KINDS[name] for name in ("short", "total", "retracting")}, given) for given in (rows, again)]
    for world in worlds:
        world.run(Run(len(world.rows), 1, end_of_input=True), dedupe=Dedupe.by_id("id", within="1 day"))
    for name in ("short", "total", "retracting"):
        once, twice = (world.shown(name) for world in worlds)
        assert once == twice
        assert newest(worlds[0].published(name)) == newest(worlds[1].published(name))
    account = next(iter(manifest_of(worlds[1].storage).accounts.values()))
    assert (account.read, account.duplicate) == (len(again), len(again) - len(rows))


class Raising(Monoid[int]):
    """A sum that cannot be presented where it is 4."""

    identity, commutative = 0, True

    def lift(self, value: int) -> int:
        return value

    def combine(self, a: int, b: int) -> int:
        return a + b

    def present(self, element: int) -> int:
        if element == 4:
            raise ValueError("four")
        return element


def test_a_key_without_a_result_is_a_dead_letter_of_its_state() -> None:
    """The others have one, and the dead letter says which state it is of."""
    rows = [{"ts": ts, "key": key, "value": value} for ts, key, value in ((1, "a", 1), (2, "b", 2), (3, "a", 3))]

    class Odd(Several):
        def _value(self, name: str, value: Any) -> Any:
            return value

        def process_message(self, state: Any, message: Any) -> None:
            for one in state.values():
                one.update(message.timestamp, message.value["value"])

    storage, sinks = MemoryStorage(f"several-{uuid.uuid4().hex}"), {"bad": MemorySink(), "good": MemorySink()}
    states = {
        "bad": lambda: WindowState(Raising(), tumbling("10 ms")),
        "good": lambda: WindowState(Sum(int), tumbling("10 ms")),
    }
    source = MemorySource(rows, timestamp="ts")
    job = Pipeline(source=source, task=Odd(states), checkpoint=storage, sink=sinks, on_error="dead-letter")
    report = job.run(engine="embedded", end_of_input=True)
    assert (report.set_aside, len(sinks["bad"].rows()), len(sinks["good"].rows())) == (1, 1, 2)
    (letter,) = job.dead_letters().to_pylist()
    assert letter["reason"].endswith(", of the state 'bad'")
    assert verify(storage).findings == []
