"""A state goes on when its task changes: as fields of a record, by a function, or under another task."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from monoids import Count, HyperLogLog, Last, Max, Mean, Min, Monoid, SetUnion, Sum, record
from persistent import (
    CorruptCheckpoint,
    FileSink,
    FileSource,
    FingerprintChanged,
    InvalidPipeline,
    MemorySource,
    NonWindowState,
    OtherJob,
    PersistentTask,
    Pipeline,
    Retention,
    RunReport,
    UserCodeError,
    WindowState,
    sliding,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.parts import NOTHING, default_name
from persistent.checkpoint.successor import Entry
from persistent.codec.runs import decode_run, encode_run
from persistent.driver import commit, naming
from persistent.driver.evolution import Evolution, with_nodes
from persistent.engines.embedded import Embedded
from persistent.operations import collect_garbage, compact, rollback, savepoint
from persistent.state.state import PersistentState
from persistent.storage import MemoryStorage, Storage
from persistent.verify import verify
from tests.checkpoint.samples import full_manifest
from tests.crash.sweep import Deaths, anywhere, few_deaths
from tests.faults import FaultyStorage, Killed, Operations
from tests.few import one_in
from tests.single import only

ROWS = [{"ts": 3 * i, "page": "abc"[i % 3], "n": i} for i in range(30)]
BEFORE = 18
RENAMED = Evolution(renamed={"visits": "views"}, removed=("top",))

Row = Mapping[str, Any]


class Visits(PersistentTask):
    """A task of any monoid: each field of a record is given the number, any other monoid too."""

    name = "Visits"
    key: Any = "page"

    def __init__(self, monoid: Monoid[Any], window: bool = True) -> None:
        self.monoid = monoid
        self.window = window

    def persistent_state(self) -> PersistentState:
        return WindowState(self.monoid, sliding(10, every=4)) if self.window else NonWindowState(self.monoid)

    def process_message(self, state: Any, message: Any) -> None:
        fields = getattr(self.monoid, "fields", None)
        number = message.value["n"]
        state.update(message.timestamp, dict.fromkeys(fields, number) if fields else number)


class Other(Visits):
    name = "Other"


class ByNumber(Visits):
    key = "n"


OLD = record(visits=Count(), total=Sum(), top=Max())
NEW = record(low=Min(), total=Sum(), views=Count(), people=HyperLogLog())


@dataclass
class World:
    """A checkpoint and a folder of results that outlive the processes that work on them."""

    checkpoint: MemoryStorage
    sink: MemoryStorage

    def pipeline(
        self, task: PersistentTask, rows: int = len(ROWS), operations: Operations | None = None, **options: Any
    ) -> Pipeline:
        def seen(storage: Storage) -> Storage:
            return FaultyStorage(storage, operations) if operations else storage

        return Pipeline(
            source=MemorySource(ROWS[:rows], timestamp="ts"),
            task=task,
            checkpoint=seen(self.checkpoint),
            sink=FileSink(seen(self.sink), format="jsonl"),
            step_rows=5,
            **options,
        )

    def run(self, task: PersistentTask, rows: int = len(ROWS), *, ends: bool = False, **options: Any) -> RunReport:
        return self.pipeline(task, rows, **options).run(engine=Embedded(threads=1), end_of_input=ends)

    def newest(self) -> Entry:
        newest = Log(self.checkpoint).newest()
        assert newest is not None
        return newest

    def kinds(self) -> list[str]:
        log = Log(self.checkpoint)
        return [log.read(id).manifest.kind for id in log.ids()]

    def published(self) -> list[str]:
        names = [name for name in self.sink.list("") if name.endswith(".jsonl")]
        return sorted(line for name in names for line in self.sink.read(name).to_pybytes().decode().splitlines())


@pytest.fixture
def worlds(request: pytest.FixtureRequest) -> Iterator[Callable[[], World]]:
    number = iter(range(1_000_000))

    def world() -> World:
        name = f"{request.node.name}-{next(number)}"
        return World(MemoryStorage(name), MemoryStorage(f"{name}-out"))

    yield world


@pytest.fixture
def world(worlds: Callable[[], World]) -> World:
    return worlds()


def table(pipeline: Pipeline) -> list[Row]:
    return sorted(pipeline.state().to_pylist(), key=str)


def without(rows: list[Row], *names: str) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


# Fields of a record


@pytest.mark.parametrize("window", [True, False], ids=["windows", "no windows"])
def test_fields_come_go_and_take_other_names(window: bool, worlds: Callable[[], World]) -> None:
    """A task is never finished: without this each change of it would cost the state of years."""
    world, fresh = worlds(), worlds()
    world.run(Visits(OLD, window), BEFORE)
    before = table(world.pipeline(Visits(OLD, window), BEFORE))
    old = world.newest().manifest
    at = world.pipeline(Visits(NEW, window), BEFORE, evolve=RENAMED)
    at.run(engine="embedded")
    after = table(at)
    assert world.kinds()[-2:] == ["fence", "migration"], "also where nothing else is to be done"
    new = world.newest().manifest
    for carried in ("base", "clock", "sources", "tasks", "sinks", "aside", "oldest", "pins", "committed_ms"):
        assert getattr(new, carried) == getattr(old, carried), carried
    was, is_now = old.nodes["Visits"], new.nodes["Visits"]
    assert is_now.key_types == was.key_types
    assert is_now.lowest == was.lowest
    assert is_now.published == (was.published if window else NOTHING)
    assert [run.name for run in is_now.runs] != [run.name for run in was.runs]
    kept = [{**row, "views": row["visits"], "low": None, "people": 0} for row in before]
    assert [{**row} for row in after] == [
        {name: row[name] for name in after[0]} for row in without(kept, "visits", "top")
    ], "old rows hold the identity in new fields"
    assert verify(world.checkpoint).ok
    world.run(Visits(NEW, window), evolve=RENAMED, ends=True)
    fresh.run(Visits(NEW, window), ends=True)
    totals = [
        without(sorted(map(eval_row, one.published()), key=str), "low", "people", "revision") for one in (world, fresh)
    ]
    if window:
        # What was closed before the change was published as the task was then.
        closed = [row for row in totals[0] if "visits" in row]
        assert closed and len(closed) < len(totals[0])
        totals[0] = sorted(
            ({**without([row], "visits", "top")[0], "views": row.get("visits", row.get("views"))} for row in totals[0]),
            key=str,
        )
    assert sorted(map(sorted_items, totals[0])) == sorted(map(sorted_items, totals[1]))
    assert verify(world.checkpoint).ok


def eval_row(line: str) -> Row:
    row: Row = json.loads(line)
    return row


def sorted_items(row: Row) -> str:
    return str(sorted(row.items()))


@pytest.mark.parametrize(
    "monoid",
    [
        Count(),
        Sum(),
        Sum(float),
        Max(),
        Min(str),
        Mean(),
        HyperLogLog(),
        SetUnion(str),
        Last(),
        record(a=Max(), b=Mean()),
    ],
    ids=repr,
)
def test_an_added_field_is_the_bytes_of_its_identity(monoid: Monoid[Any], world: World) -> None:
    """Columns that are filled in must be those that the monoid would write, or equal states would differ in bytes."""
    new = record(total=Sum(), more=monoid)
    world.run(Visits(OLD, False), BEFORE)
    task = Visits(new, False)
    task.process_message = lambda state, message: None  # type: ignore[method-assign]
    world.run(task, BEFORE, evolve=Evolution(removed=("visits", "top")))
    runs = world.newest().manifest.state_runs()
    assert len(runs) > 1
    for run in runs:
        data = world.checkpoint.read(run.name)
        rows = decode_run(new, data, run, run.name)
        elements = new.unpack(rows.columns)
        assert all(monoid.encode(element[1]) == monoid.encode(monoid.identity) for element in elements)
        again, sha256 = encode_run(new, rows, ["page"], sorted(set(rows.panes.tolist())))
        assert sha256 == run.sha256 and again == data.to_pybytes()


def test_order_alone_is_a_change_too(world: World) -> None:
    """The order of the fields is that of the columns: taken for the same, one field would be read as another."""
    world.run(Visits(record(a=Count(), b=Count())), BEFORE)
    before = table(world.pipeline(Visits(record(a=Count(), b=Count())), BEFORE))
    turned = Visits(record(b=Count(), a=Count()))
    with pytest.raises(FingerprintChanged, match=r"Pipeline\(evolve=Evolution"):
        world.run(turned, BEFORE)
    world.run(turned, BEFORE, evolve=Evolution())
    assert sorted(map(sorted_items, table(world.pipeline(turned, BEFORE)))) == sorted(map(sorted_items, before))


def test_names_may_be_exchanged(world: World) -> None:
    """A rename that reads what another has just written would double one field and lose the other."""
    world.run(Visits(record(a=Count(), b=Sum())), BEFORE)
    before = table(world.pipeline(Visits(record(a=Count(), b=Sum())), BEFORE))
    world.run(Visits(record(b=Count(), a=Sum())), BEFORE, evolve=Evolution(renamed={"a": "b", "b": "a"}))
    after = table(world.pipeline(Visits(record(b=Count(), a=Sum())), BEFORE))
    assert [(row["a"], row["b"]) for row in before] == [(row["b"], row["a"]) for row in after]


@pytest.mark.parametrize(
    ("monoid", "evolve"),
    [
        (record(a=Sum(), b=Sum()), Evolution(renamed={"a": "b", "b": "a"})),
        (record(a=Sum(), b=Sum(), c=Sum()), Evolution(renamed={"a": "b", "b": "c", "c": "a"})),
        (record(a=Sum(), b=Sum()), Evolution(renamed={"a": "b"}, removed=["b"])),
    ],
)
def test_equal_fields_that_change_places_are_refused(monoid: Monoid[Any], evolve: Evolution, world: World) -> None:
    """The state would look as if it were done: ignored, sums of one field would go on with those of another."""
    world.run(Visits(monoid), BEFORE)
    with pytest.raises(InvalidPipeline, match=r"change places \([abc].*two runs.*'[abc]_before'"):
        world.run(Visits(monoid), evolve=evolve)


def test_equal_fields_change_places_by_way_of_a_new_name(world: World) -> None:
    """The remedy that the refusal names must lead there."""
    task = Visits(record(a=Sum(), b=Sum()), False)
    world.run(Visits(record(a=Sum()), False), 3)
    world.run(task, 6, evolve=Evolution())
    before = {(row["page"], row["b"], row["a"]) for row in world.pipeline(task).state().to_pylist()}
    world.run(Visits(record(a_before=Sum(), b=Sum()), False), 6, evolve=Evolution(renamed={"a": "a_before"}))
    world.run(task, 6, evolve=Evolution(renamed={"b": "a", "a_before": "b"}))
    after = {(row["page"], row["a"], row["b"]) for row in world.pipeline(task).state().to_pylist()}
    assert after == before != {(page, b, a) for page, a, b in before}


def test_a_function_to_the_same_monoid_is_refused(world: World) -> None:
    """It would be ignored: nothing in the state says that it has not been done."""
    world.run(Visits(Sum()), BEFORE)
    with pytest.raises(InvalidPipeline, match=r"changes a monoid into the same one.*record\(value=Sum\(\)\)"):
        world.run(Visits(Sum()), evolve=Evolution(before=Sum(), change=lambda cents: cents // 100))


def test_a_name_that_became_free_may_be_used_again(world: World) -> None:
    """What a field held is in one field afterwards, and not in two."""
    world.run(Visits(record(a=Sum())), BEFORE)
    before = table(world.pipeline(Visits(record(a=Sum())), BEFORE))
    both = Visits(record(a=Sum(), b=Sum()))
    world.run(both, BEFORE, evolve=Evolution(renamed={"a": "b"}))
    after = table(world.pipeline(both, BEFORE))
    assert [(row["a"], row["b"]) for row in after] == [(0, row["a"]) for row in before]


def test_a_field_may_begin_anew_with_another_monoid(world: World) -> None:
    """Removed and added under one name: said once, it must neither be kept as bytes nor be refused."""
    world.run(Visits(record(n=Sum(), x=Count())), BEFORE)
    changed = Visits(record(n=Max(), x=Count()))
    with pytest.raises(FingerprintChanged, match=r"list 'n' in Evolution\(removed=...\)"):
        world.run(changed, BEFORE, evolve=Evolution())
    world.run(changed, BEFORE, evolve=Evolution(removed=["n"]))
    rows = table(world.pipeline(changed, BEFORE))
    assert {row["n"] for row in rows} == {None} and all(row["x"] for row in rows)


def test_nothing_is_done_twice(world: World) -> None:
    """The option may stay in the code: a second migration would drop what the first has kept."""
    world.run(Visits(OLD), BEFORE)
    world.run(Visits(NEW), BEFORE, evolve=RENAMED)
    id, rows = world.newest().manifest.id, table(world.pipeline(Visits(NEW), BEFORE))
    world.run(Visits(NEW), BEFORE, evolve=RENAMED)
    world.run(Visits(NEW), BEFORE)
    assert (world.newest().manifest.id, table(world.pipeline(Visits(NEW), BEFORE))) == (id, rows)
    with pytest.raises(FingerprintChanged, match="another definition"):
        world.run(Visits(OLD), BEFORE)


def test_what_it_takes_and_keeps_is_bounded_by_the_kept_checkpoints(world: World) -> None:
    """Its files must go with it: those of a migration that nobody names any more would lie there for ever."""
    world.run(Visits(OLD, False), BEFORE)
    old = world.newest().manifest.base
    rows = table(world.pipeline(Visits(OLD, False), BEFORE))
    world.run(Visits(NEW, False), evolve=RENAMED)
    compact(world.pipeline(Visits(NEW, False)))
    collect_garbage(world.checkpoint)
    assert not verify(world.checkpoint).findings
    rollback(world.checkpoint, old, outputs="retract")
    assert table(world.pipeline(Visits(OLD, False), BEFORE)) == rows, "back to before the change, with the old code"
    world.run(Visits(NEW, False), evolve=RENAMED)
    assert verify(world.checkpoint).ok


def test_its_files_are_kept_as_long_as_it_is(world: World) -> None:
    """A later process knows of it by the list of what is kept alone: its runs, folded by then, would be swept away."""
    world.run(Visits(OLD, False), BEFORE)
    world.run(Visits(NEW, False), BEFORE, evolve=RENAMED)
    migration = world.newest().manifest
    rows = table(world.pipeline(Visits(NEW, False)))
    compact(world.pipeline(Visits(NEW, False)))
    world.run(Visits(NEW, False))
    assert not verify(world.checkpoint).findings
    kept = world.pipeline(Visits(NEW, False)).state(at=migration.id).to_pylist()
    assert sorted(kept, key=str) == rows


def test_its_files_go_when_it_goes(world: World) -> None:
    """The driver that made it is the one that lets it go: a long run would keep each file of the state twice."""
    world.run(Visits(OLD, False), BEFORE)
    world.run(Visits(NEW, False), evolve=RENAMED, retention=Retention(last=2))
    newest = world.newest().manifest
    assert "migration" not in world.kinds()
    named = {name for kept in Log(world.checkpoint).kept(newest).values() for name in kept.files()}
    assert {f"d/Visits/{name}" for name in world.checkpoint.list("d/Visits")} == {
        name for name in named if name.startswith("d/Visits/")
    }


# The rest


def pairs(element: int) -> tuple[int, int]:
    return (element, element and 1)


@pytest.mark.parametrize("window", [True, False], ids=["windows", "no windows"])
def test_a_function_changes_every_element(window: bool, world: World) -> None:
    """What is no matter of fields: without it a running sum could never become a record."""
    world.run(Visits(Sum(), window), BEFORE)
    before = table(world.pipeline(Visits(Sum(), window), BEFORE))
    task = Visits(record(cents=Sum(), rows=Sum()), window)
    world.run(task, BEFORE, evolve=Evolution(before=Sum(), change=lambda euros: (100 * euros, 0)))
    after = table(world.pipeline(task, BEFORE))
    assert [{**row, "cents": 100 * row["value"], "rows": 0} for row in before] == [
        {**row, "value": row["cents"] // 100} for row in after
    ]
    assert verify(world.checkpoint).ok
    world.run(task, ends=True)
    assert verify(world.checkpoint).ok


def test_a_function_is_spared_what_no_window_needs(world: World) -> None:
    """What has been published is past changing, and may be of a time when the function would not have done."""
    world.run(Visits(Sum()), 20)
    manifest = world.newest().manifest
    window = WindowState(Sum(), sliding(10, every=4)).window
    assert window.last_end(min(run.pane_min for run in manifest.state_runs())) <= manifest.clock.closed
    world.run(Visits(Count()), 20, evolve=Evolution(before=Sum(), change=abs))
    runs = world.newest().manifest.state_runs()
    assert runs
    assert all(window.last_end(run.pane_min) > manifest.clock.closed for run in runs)


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("apart", [True, False])
def test_totals_are_published_anew_once_they_were_changed(more: int, apart: bool, world: World) -> None:
    """A sink would have the values of both tasks side by side: those of the old one for keys that change no more."""
    world.run(Visits(Sum(), False), BEFORE, ends=True)
    first = [eval_row(line) for line in world.published()]
    assert len(first) == 3
    changes = Evolution(before=Sum(), change=lambda total: 100 * total)
    if apart:
        world.run(Visits(Count(), False), BEFORE + more, evolve=changes)
    world.run(Visits(Count(), False), BEFORE + more, evolve=changes, ends=True)
    rows = sorted(map(eval_row, world.published()), key=lambda row: int(row["revision"]))
    newest = {row["page"]: row for row in rows}
    assert len(rows) == 6 and len(newest) == 3
    state = table(world.pipeline(Visits(Count(), False), BEFORE + more))
    assert without(sorted(newest.values(), key=str), "revision", "retracted") == state
    assert world.run(Visits(Count(), False), BEFORE + more, ends=True).steps == 0
    assert verify(world.checkpoint).ok


def test_a_function_sees_the_sum_however_it_is_stored(worlds: Callable[[], World]) -> None:
    """How many runs hold a key depends on the sizes of steps: the state must not."""
    seen = []
    for compacts in (False, True):
        world = worlds()
        world.run(Visits(Sum(), False), BEFORE)
        if compacts:
            compact(world.pipeline(Visits(Sum(), False), BEFORE))
        runs = world.newest().manifest.nodes["Visits"].runs
        assert (len(runs) > 1) != compacts
        task = Visits(record(total=Sum(), keys=Sum()), False)
        world.run(task, BEFORE, evolve=Evolution(before=Sum(), change=pairs))
        seen.append(table(world.pipeline(task, BEFORE)))
    assert seen[0] == seen[1] and {row["keys"] for row in seen[0]} == {1}


@pytest.mark.parametrize(
    "change, fault",
    [
        (lambda element: 1 // 0, "ZeroDivisionError"),
        (lambda element: (element,), "ValueError: 1 parts"),
        (lambda element: (element, "one"), "TypeError|ValueError"),
        (lambda element: element, "TypeError"),
    ],
    ids=["raises", "short", "type", "no element"],
)
def test_a_function_that_fails_changes_nothing(change: Any, fault: str, world: World) -> None:
    """A migration that gives up half way must leave the state as it was, and say at which key."""
    world.run(Visits(Sum(), False), BEFORE)
    rows = table(world.pipeline(Visits(Sum(), False), BEFORE))
    task = Visits(record(total=Sum(), keys=Sum()), False)
    with pytest.raises(UserCodeError, match=rf"state of key \('[abc]'\): ({fault})"):
        world.run(task, BEFORE, evolve=Evolution(before=Sum(), change=change))
    assert table(world.pipeline(Visits(Sum(), False), BEFORE)) == rows
    assert verify(world.checkpoint).ok


def test_the_old_monoid_must_be_the_old_monoid(world: World) -> None:
    """Decoded by another, the bytes of an element would be taken for something that they are not."""
    world.run(Visits(Sum()), BEFORE)
    with pytest.raises(FingerprintChanged, match="Give the monoid that made it"):
        world.run(Visits(Count()), BEFORE, evolve=Evolution(before=Sum(float), change=int))


# Another task


@pytest.mark.parametrize("window", [True, False], ids=["windows", "no windows"])
def test_another_task_begins_empty_where_the_old_one_stood(window: bool, world: World) -> None:
    """The source is read on, not again: what the old task held goes only where that was said."""
    world.run(Visits(OLD, window), BEFORE)
    with pytest.raises(OtherJob, match=r"Pipeline\(allow_dropped=\['Visits'\]\)"):
        world.run(Other(Sum(), window))
    with pytest.raises(OtherJob, match=r"Pipeline\(allow_dropped=\['Visits'\]\)"):
        world.run(Other(Sum(), window), allow_dropped=["visits"])
    world.run(Other(Sum(), False) if not window else Other(Sum()), allow_dropped=["Visits"])
    assert list(world.newest().manifest.nodes) == ["Other"]
    if not window:
        rows = table(world.pipeline(Other(Sum(), False)))
        assert sum(row["value"] for row in rows) == sum(row["n"] for row in ROWS[BEFORE:])
    (account,) = world.newest().manifest.accounts.values()
    assert account.read == len(ROWS)
    assert verify(world.checkpoint).ok
    with pytest.raises(OtherJob):
        world.run(Visits(OLD, window))


@pytest.fixture
def clicks(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """While this is set, a source is called otherwise than by its kind."""
    with monkeypatch.context() as named:
        named.setattr(
            naming, "default_name", lambda kind, part: "clicks" if part == "source" else default_name(kind, part)
        )
        yield named


def check_reads_clicks(world: World) -> None:
    """The task has read all rows of a source that is called so."""
    newest = world.newest().manifest
    assert [*newest.sources] == ["clicks"] and [*only(newest.tasks).inputs] == ["clicks"]
    assert sum(account.read for account in newest.accounts.values()) == len(ROWS)
    assert verify(world.checkpoint).ok


def test_another_task_reads_the_source_under_its_recorded_name(world: World, clicks: pytest.MonkeyPatch) -> None:
    """Under the name of its kind, the migration was a manifest that no command could read."""
    world.run(Visits(OLD), BEFORE)
    world.run(Other(Sum()), allow_dropped=["Visits"])
    check_reads_clicks(world)


def test_an_adopted_task_reads_the_source_under_its_recorded_name(world: World, clicks: pytest.MonkeyPatch) -> None:
    """The same, where nothing had been committed yet."""
    Log(world.checkpoint).create(commit.first_manifest(world.pipeline(Visits(OLD)).job(), "0" * 32))
    world.run(Visits(NEW))
    check_reads_clicks(world)


def test_the_files_of_a_dropped_task_go_with_its_checkpoints(world: World) -> None:
    """Nobody looks into its folder any more once no manifest names the task: what is left then is left for ever."""
    operations = Operations(at=None)
    world.run(Visits(OLD, False), BEFORE, operations=operations)
    names = [name for verb, _, name in operations.log if verb == "write" and name.startswith("d/Visits/")]
    stray = "d/Visits/e1-c9-" + "0" * 32 + ".arrow"
    world.checkpoint.write(stray, b"of a step that came to nothing")
    assert names and set(names) <= {f"d/Visits/{name}" for name in world.checkpoint.list("d/Visits")}
    task = Other(Sum(), False)
    world.run(task, allow_dropped=["Visits"], retention=Retention(last=1))
    assert world.checkpoint.list("d/Visits") == []
    assert not verify(world.checkpoint).findings


# What cannot be


@pytest.mark.parametrize(
    "task, evolve, sentence",
    [
        (Visits(NEW), Evolution(removed=["top"]), r"a field 'visits' that the task no longer has.*renamed=.'visits'"),
        (Visits(NEW), Evolution(renamed={"visits": "views"}), r"a field 'top'.*removed=\['top'\]"),
        (Visits(record(visits=Sum(), total=Sum(), top=Max())), Evolution(), r"field 'visits': Count\(\) -> Sum\(int\)"),
        (
            Visits(record(visits=Count(), total=Sum(), top=Max(), more=Sum())),
            Evolution(removed=["top"]),
            "Remove it from there",
        ),
        (Visits(Count()), Evolution(), r"is not a record, .*Evolution\(before="),
        (
            Visits(NEW, window=False),
            RENAMED,
            "its interval_ms and state and window changed|its state and window changed",
        ),
        (ByNumber(NEW), RENAMED, "its key changed.*cannot be split again"),
    ],
    ids=["lost", "removed", "monoid", "left over", "no record", "window", "key"],
)
def test_what_cannot_evolve_is_refused_before_anything_is_written(
    task: PersistentTask, evolve: Evolution, sentence: str, world: World
) -> None:
    """A field dropped by mistake is gone: it takes a word for each, and the refusal says which."""
    world.run(Visits(OLD), BEFORE)
    id = world.newest().manifest.id
    with pytest.raises(FingerprintChanged, match=sentence):
        world.run(task, evolve=evolve)
    assert world.newest().manifest.id == id


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"renamed": {"a": "x", "b": "x"}}, "two fields become 'x'"),
        ({"renamed": {"a": "x"}, "removed": ["a"]}, "'a' is renamed and removed"),
        ({"renamed": ["a"]}, "old field"),
        ({"removed": "abc"}, r"\[\"old\"\]"),
        ({"before": Sum()}, "together"),
        ({"before": Sum(), "change": int, "removed": ["a"]}, "nothing else"),
        ({"before": Sum(), "change": 3}, "give a function"),
        ({"before": Sum, "change": int}, "write Sum"),
    ],
)
def test_an_evolution_that_says_two_things_is_none(options: Any, sentence: str) -> None:
    """Found when the job is written, not after its fence."""
    with pytest.raises(InvalidPipeline, match=sentence):
        Evolution(**options)


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"evolve": {"a": "b"}}, "give Evolution"),
        (
            {"evolve": Evolution(renamed={"visits": "viws"})},
            "no field 'viws'; its fields are low, total, views, people",
        ),
        ({"allow_dropped": "Old"}, "in a list"),
        ({"allow_dropped": ["Visits"]}, "names the task of this pipeline"),
    ],
)
def test_a_pipeline_says_what_it_cannot_take(options: Any, sentence: str, world: World) -> None:
    """A misspelt name would else be found by a refusal that speaks of another field, or never."""
    with pytest.raises(InvalidPipeline, match=sentence):
        world.pipeline(Visits(NEW), **options)
    with pytest.raises(InvalidPipeline, match="not a record"):
        world.pipeline(Visits(Sum()), evolve=RENAMED)


def test_a_damaged_run_stops_it(world: World) -> None:
    """Rewritten unread, damage would be given a hash of its own and be nobody's fault any more."""
    world.run(Visits(OLD), BEFORE)
    name = world.newest().manifest.state_runs()[-1].name
    data = bytearray(world.checkpoint.read(name).to_pybytes())
    for at in (len(data) // 3, None):
        damaged = bytes(data[:-9]) if at is None else bytes(data[:at]) + bytes([data[at] ^ 1]) + bytes(data[at + 1 :])
        world.checkpoint._files[name] = pa.py_buffer(damaged)
        with pytest.raises(CorruptCheckpoint, match=f"{name}.*persistent verify"):
            world.run(Visits(NEW), evolve=RENAMED)
        assert world.newest().manifest.kind == "fence"


# Crashes


def copied(world: World, worlds: Callable[[], World]) -> World:
    """Another world, in which everything lies as in this one."""
    copy = worlds()
    copy.checkpoint._files.update(world.checkpoint._files)
    copy.sink._files.update(world.sink._files)
    return copy


def begun(worlds: Callable[[], World], task: PersistentTask, moment: str) -> World:
    """A checkpoint whose last driver, of the old task, died: once a step was planned, or before the outputs of one that
    was committed were published."""
    operations = Operations()
    worlds().run(task, operations=operations)
    folder = {"planned": "p/", "unpublished": "m/"}[moment]
    puts = [at for at, (verb, _, name) in enumerate(operations.log) if (verb, name[:2]) == ("put_if_absent", folder)]
    world = worlds()
    with pytest.raises(Killed):
        world.run(task, operations=Operations(puts[-2], "after"))
    return world


@pytest.mark.parametrize(
    "way, moment",
    one_in(4, [("fields", "planned"), ("fields", "unpublished"), ("function", "unpublished"), ("dropped", "planned")]),
)
@anywhere
def test_an_evolution_killed_anywhere_equals_the_one_that_was_not(
    way: str, moment: str, worlds: Callable[[], World], deaths: Deaths
) -> None:
    """I7 where the state is rewritten as a whole: a crash must neither lose it nor evolve it twice."""
    old = Visits(Sum() if way == "function" else OLD)
    new, options = {
        "fields": (Visits(NEW), {"evolve": RENAMED}),
        "function": (Visits(record(n=Sum(), m=Sum())), {"evolve": Evolution(before=Sum(), change=lambda n: (n, 0))}),
        "dropped": (Other(NEW), {"allow_dropped": ["Visits"]}),
    }[way]
    origin = begun(worlds, old, moment)
    newest, log = origin.newest().manifest, Log(origin.checkpoint)
    assert (log.plan(newest.base, 0) is not None) == (moment == "planned")
    staged = {name.rpartition("/")[2] for name in newest.unpublished()}
    assert moment == "planned" or staged & set(origin.sink.list("_staged"))

    def outcome(world: World) -> tuple[Any, ...]:
        newest = world.newest().manifest
        assert not verify(world.checkpoint).findings
        assert world.kinds().count("migration") == 1
        return table(world.pipeline(new, **options)), world.published(), newest.accounts, newest.clock

    operations, calm = Operations(), copied(origin, worlds)
    calm.run(new, operations=operations, **options)
    expected = outcome(calm)
    for killing in deaths(operations.log):
        world = copied(origin, worlds)
        with pytest.raises(Killed):
            world.run(new, operations=Operations(killing.at, killing.how), **options)
        world.run(new, **options)
        assert outcome(world) == expected, killing
    assert len(operations.log) >= 20


# From a savepoint


@pytest.mark.check
def test_a_savepoint_of_the_task_as_it_was_starts_the_task_as_it_is(worlds: Callable[[], World]) -> None:
    """What was saved before a release could otherwise only be started by the release before it."""
    old, new, calm = worlds(), worlds(), worlds()
    old.run(Visits(OLD), BEFORE)
    saved = savepoint(old.checkpoint, "monday")
    with pytest.raises(FingerprintChanged, match=r"Pipeline\(evolve=Evolution"):
        new.run(Visits(NEW), start_from=saved)
    assert new.checkpoint.list("m") == [], "refused before anything is written"
    calm.run(Visits(OLD), BEFORE)
    calm.run(Visits(NEW), evolve=RENAMED)
    new.run(Visits(NEW), start_from=saved, evolve=RENAMED)
    assert "savepoint" in new.kinds() and "migration" in new.kinds()
    expected = table(calm.pipeline(Visits(NEW)))
    assert table(new.pipeline(Visits(NEW))) == expected
    assert verify(new.checkpoint).ok
    operations = Operations()
    worlds().run(Visits(NEW), start_from=saved, evolve=RENAMED, operations=operations)
    for death in few_deaths(operations.log):
        again = worlds()
        with pytest.raises(Killed):
            again.run(Visits(NEW), start_from=saved, evolve=RENAMED, operations=Operations(death.at, death.how))
        again.run(Visits(NEW), start_from=saved, evolve=RENAMED)
        assert table(again.pipeline(Visits(NEW))) == expected, death


class AsItsSource(Visits):
    """A task that is called as the kind of its source is: runs of its state and of the index are in one folder."""

    name = "FileSource"


def test_a_dropped_task_leaves_the_index_of_its_source(tmp_path: Path) -> None:
    """The pending plan names an index run: without it no run can ever go on."""
    source = FileSource(str(tmp_path / "*.jsonl"), timestamp="ts", timestamp_unit="ms")
    inner = MemoryStorage("index-of-its-source")

    def run(task: PersistentTask, storage: Storage = inner, **options: Any) -> RunReport:
        pipeline = Pipeline(source=source, task=task, checkpoint=storage, step_rows=5, **options)
        return pipeline.run(engine="embedded")

    def write(number: int) -> None:
        (tmp_path / f"{number}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS[number::2]))

    write(0)
    run(AsItsSource(Sum(), False))
    write(1)
    with pytest.raises(Killed):
        run(AsItsSource(Sum(), False), _DiesAfterAPlan(inner, Operations()))
    assert run(Visits(Sum(), False), allow_dropped=["FileSource"]).rows == len(ROWS[1::2])
    assert verify(inner).ok


class _DiesAfterAPlan(FaultyStorage):
    """The process ends when the first plan is put."""

    def put_if_absent(self, name: str, data: Any) -> Any:
        answer = super().put_if_absent(name, data)
        if name.startswith("p/"):
            raise Killed(name)
        return answer


def test_a_task_of_another_name_begins_where_the_one_before_stands() -> None:
    """From the beginning, it would wait for records that were read before it was there."""
    one = full_manifest()
    assert with_nodes(one, one.nodes) == one
    other = with_nodes(one, {"Other": only(one.nodes)})
    assert (other.clock, other.accounts, [*other.nodes]) == (one.clock, one.accounts, ["Other"])
    assert only(other.sinks).node == "Other"
    assert replace(other, tasks=one.tasks, nodes=one.nodes, sinks=one.sinks) == one
