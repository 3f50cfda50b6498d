"""A correction puts records in and takes records out, once, and comes to what the right records would have come to."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, Group, Max, Sum, record
from persistent import (
    FileSink,
    FileSource,
    FunctionSink,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    SqliteSink,
    WindowState,
    calendar,
    session,
    sliding,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import Correction
from persistent.checkpoint.running import put_mark
from persistent.driver import step
from persistent.driver.commit import first_manifest
from persistent.engines.embedded import Embedded
from persistent.errors import (
    FingerprintChanged,
    InvalidPipeline,
    NoCheckpoint,
    Refused,
    StillRunning,
    UnknownCheckpoint,
    UserCodeError,
)
from persistent.names import new_nonce
from persistent.operations import compact, merge, restart, rollback, savepoint
from persistent.storage import MemoryStorage
from persistent.storage.subfolder import savepoint_folder
from persistent.verify import verify, verify_source
from tests.checkpoint.samples import body_of
from tests.connect.ledger import Ledger, LedgerSink
from tests.few import examples
from tests.single import only

Row = dict[str, Any]


def row(time: int, key: str, value: int) -> Row:
    return {"ts": time, "key": key, "value": value}


ROWS = [row(4 * number, "abc"[number % 3], number) for number in range(25)]


class Task(PersistentTask):
    """Counts and sums by key."""

    key = "key"
    name = "sums"

    def __init__(self, window: Any = None, monoid: Any = None, **options: Any) -> None:
        self.window, self.options = window, options
        self.monoid = monoid or record(rows=Count(), total=Sum())

    def persistent_state(self) -> Any:
        if self.window is None:
            return NonWindowState(self.monoid, **self.options)
        return WindowState(self.monoid, self.window, **self.options)

    def process_message(self, state: Any, message: Any) -> None:
        if message.value["value"] == 666:
            raise ValueError("no such value")
        if message.value["key"] is not None:
            state.update(message.timestamp, {"rows": 1, "total": message.value["value"]})


class Picky(Group[int]):
    """A sum that presents no large number."""

    identity = 0

    def lift(self, value: Any) -> int:
        return int(value)

    def combine(self, a: int, b: int) -> int:
        return a + b

    def inverse(self, a: int) -> int:
        return -a

    def present(self, a: int) -> int:
        if a > 50:
            raise ValueError("too much")
        return a


class Highest(Task):
    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["value"])


class Job:
    """A checkpoint and a sink that live on."""

    def __init__(self, task: PersistentTask, rows: Sequence[Row] = ROWS, *, step_rows: int = 5) -> None:
        self.task, self.rows, self.step_rows = task, list(rows), step_rows
        self.storage: Any = MemoryStorage(new_nonce())
        self.sink: Any = MemorySink()

    def pipeline(self, **options: Any) -> Pipeline:
        given = {
            "source": MemorySource(self.rows, timestamp="ts", ordered=True),
            "task": self.task,
            "sink": self.sink,
            "checkpoint": self.storage,
            "step_rows": self.step_rows,
        }
        return Pipeline(**{**given, **options})

    def run(self, *, end: bool = False, engine: Any = None, **options: Any) -> Any:
        return self.pipeline(**options).run(engine=engine or Embedded(threads=1), end_of_input=end)

    def correct(self, name: str = "ticket", *, engine: Any = None, **given: Any) -> Correction:
        options = given.pop("options", {})
        return self.pipeline(**options).correct(name=name, engine=engine or Embedded(threads=1), **given)

    @property
    def newest(self) -> Manifest:
        found = Log(self.storage).newest()
        assert found is not None
        return found.manifest

    def state(self) -> dict[Any, tuple[int, int]]:
        """The state by key and start of window, without what has come to nothing."""
        return shown(self.pipeline().state().to_pylist())

    def table(self) -> dict[Any, tuple[int, int]]:
        """What a reader of the sink holds: by largest revision; what is taken back is gone, and was there."""
        found: dict[Any, Any] = {}
        for one in sorted(self.sink.rows(), key=lambda one: (one["revision"], not one.get("retracted", False))):
            place, values = placed(one)
            if one.get("retracted"):
                assert found.pop(place) == values
            else:
                both_signs = "retract" in getattr(self.task, "options", {}).values()
                assert not both_signs or place not in found
                found[place] = values
        return {place: values for place, values in found.items() if values[0]}


def placed(one: Mapping[str, Any]) -> tuple[Any, tuple[int, int]]:
    start = round(one["window_start"].timestamp() * 1000) if "window_start" in one else None
    return (one["key"], start), (one["rows"], one["total"] or 0)


def shown(rows: Sequence[Mapping[str, Any]]) -> dict[Any, tuple[int, int]]:
    return {place: values for place, values in map(placed, rows) if values[0] or values[1]}


def sums(rows: Sequence[Row], window: Any, open_from: int | None = None) -> dict[Any, tuple[int, int]]:
    """The sums of rows by key and window: the plain reference. ``open_from``: only windows that end after it."""
    found: dict[Any, list[int]] = defaultdict(list)
    for one in rows:
        numbers = [None] if window is None else range(window.first_number(one["ts"]), window.last_number(one["ts"]) + 1)
        for number in numbers:
            start = None if number is None else window.start_of(number)
            if open_from is None or window.end_of(number) > open_from:
                found[one["key"], start].append(one["value"])
    return {place: (len(values), sum(values)) for place, values in found.items()}


def without(rows: Sequence[Row], removed: Sequence[Row]) -> list[Row]:
    left = list(rows)
    for one in removed:
        left.remove(one)
    return left


# -- against the plain reference -------------------------------------------------------------------------------------

STATES: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("totals", None, {}),
    ("totals that change", None, {"emit": "change"}),
    ("totals that are taken back", None, {"emit": "change", "changes": "retract"}),
    ("early totals", None, {"early": 15}),
    ("windows", tumbling(20), {"allowed_lateness": 1_000}),
    ("windows that are taken back", tumbling(20), {"allowed_lateness": 1_000, "late": "retract"}),
    ("overlapping windows", sliding(20, every=8), {"allowed_lateness": 1_000}),
    ("windows that change", tumbling(20), {"allowed_lateness": 1_000, "emit": "change", "changes": "retract"}),
    ("early windows", tumbling(40), {"allowed_lateness": 1_000, "early": 15}),
    ("final windows", tumbling(20), {"allowed_lateness": 1_000, "emit": "final"}),
)


@pytest.mark.parametrize("window, options", [one[1:] for one in STATES], ids=[one[0] for one in STATES])
@settings(max_examples=examples(6), deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_correction_comes_to_what_the_right_records_would(window: Any, options: Any, seed: int) -> None:
    """State and sinks are those of a job that never saw what was wrong, whatever the steps before and after, and
    wherever in time the records lie."""
    rng = random.Random(seed)
    job = Job(Task(window, **options), ROWS[: rng.randrange(1, 26)], step_rows=rng.randrange(1, 9))
    removed, added = list[Row](), list[Row]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "SHARD_ROWS", 0)
        # At an end all windows are final, if they are published once.
        job.run(end=options.get("emit") != "final" and rng.random() < 0.3)
        for number in range(rng.randrange(1, 3)):
            left = without(job.rows, removed)
            out = rng.sample(left, rng.randrange(0, min(4, len(left)) + 1))
            more = [row(rng.randrange(110), rng.choice("abcd"), rng.randrange(50)) for _ in range(rng.randrange(1, 4))]
            made = job.correct(f"ticket-{number}", add=more, remove=out, engine=Embedded(threads=1 + seed % 3))
            assert (made.added, made.removed) == (len(more), len(out))
            removed, added = removed + out, added + more
            closed = None if window is None else job.newest.clock.closed
            right = without(job.rows, removed) + added
            assert job.state() == sums(right, window, closed)
            assert verify(job.storage).ok
        job.rows = list(ROWS)
        job.run(end=True)
        if rng.random() < 0.5:
            job.run(end=True)
    right = without(job.rows, removed) + added
    assert job.table() == {place: one for place, one in sums(right, window).items() if one[0]}
    assert verify(job.storage).ok and job.newest.clock.end_of_input
    assert sum(one.read for one in job.newest.accounts.values()) == len(ROWS)
    job.storage.clear()


@pytest.mark.parametrize("late", ["accumulate", "retract"])
def test_a_closed_window_is_corrected_as_late_records_correct_it(late: str) -> None:
    """In the words of its option, under the revision of the correction, and at once."""
    job = Job(Task(tumbling(20), allowed_lateness=1_000, late=late))
    job.run()
    before = len(job.sink.rows())
    made = job.correct(add=[row(5, "a", 100)], remove=[row(12, "a", 3)])
    rows = [one for one in job.sink.rows() if one["revision"] == made.checkpoint]
    values = [(one["rows"], one["total"], one.get("retracted")) for one in rows]
    assert (
        values
        == {
            "accumulate": [(2, 100, False)],
            "retract": [(2, 3, True), (2, 100, False)],
        }[late]
    )
    assert len(job.sink.rows()) == before + len(rows)


def test_a_state_that_publishes_now_and_then_waits_for_its_time() -> None:
    """Early totals are published by their clock, and closed windows at once."""
    job = Job(Task(None, early=1_000))
    job.run()
    job.correct(add=[row(5, "a", 100)])
    assert job.sink.rows() == []
    windows = Job(Task(tumbling(20), allowed_lateness=1_000, early=1_000))
    windows.run()
    before = len(windows.sink.rows())
    windows.correct("open", add=[row(95, "a", 100)])
    assert len(windows.sink.rows()) == before
    windows.correct("closed", add=[row(5, "a", 100)])
    assert windows.table()["a", 0] == (3, 103)


def test_what_it_has_published_is_not_published_again() -> None:
    """The next step would repeat it, and take back what it did not publish."""
    job = Job(Task(None, emit="change", changes="retract"))
    job.run()
    job.correct(add=[row(5, "a", 100)])
    rows = len(job.sink.rows())
    assert job.run().steps == 0 and job.run(end=True).outputs == 0 and len(job.sink.rows()) == rows


def test_totals_wait_for_the_end_of_the_input() -> None:
    """As what a step changes does; and an end that was declared before does not keep them back."""
    job = Job(Task())
    job.run(end=True)
    rows = len(job.sink.rows())
    job.correct(add=[row(5, "a", 100)])
    assert len(job.sink.rows()) == rows and job.run(end=True).outputs == 1
    assert job.table() == sums([*ROWS, row(5, "a", 100)], None)


def test_an_option_that_changes_with_it_counts_from_then_on() -> None:
    """Its checkpoint says how what it holds is published."""
    job = Job(Task(None, early=15))
    job.run()
    job.correct(add=[row(5, "a", 100)], options={"task": Task()})
    assert only(job.newest.nodes).passed is None
    job.run(end=True, task=Task())
    assert job.table() == sums([*ROWS, row(5, "a", 100)], None)


def test_a_state_as_of_a_clock_that_it_can_no_longer_tell_is_refused() -> None:
    """A record between two clocks lies in the pane of all that is older: it would count before its time. An earlier
    checkpoint is without it, and nothing tells there whether it came before the clock."""
    job = Job(Task(None, history=30, interval_ms=10))
    job.run()
    known = only(job.newest.nodes).known_from
    assert known is not None
    job.correct(add=[row(known + 5, "a", 100)])
    now_known = only(job.newest.nodes).known_from
    assert now_known is not None and now_known > known + 5
    with pytest.raises(UnknownCheckpoint, match="with the correction 'ticket', which has changed it in checkpoint"):
        job.pipeline().state(as_of=known)
    after = shown(job.pipeline().state(as_of=now_known).to_pylist())
    assert after == sums([*(one for one in ROWS if one["ts"] < now_known), row(known + 5, "a", 100)], None)


# -- once ------------------------------------------------------------------------------------------------------------


def test_the_same_name_again_changes_nothing() -> None:
    """Whoever is not sure that it was applied asks again, and is told."""
    job = Job(Task())
    job.run()
    records = {"add": [row(5, "a", 100)], "remove": [ROWS[0]]}
    made, id = job.correct(**records), job.newest.id
    assert job.correct(**records) == made and job.newest.id == id
    with pytest.raises(Refused, match=r"has applied a correction 'ticket' of other records \(1 added, 1 removed\)"):
        job.correct(add=[row(6, "a", 100)], remove=[ROWS[0]])
    with pytest.raises(Refused, match="of other records"):
        job.correct(add=[ROWS[0]], remove=[row(5, "a", 100)])
    assert job.newest.id == id
    other = job.correct("other", **records)
    assert other.sha256 == made.sha256 and job.state()["a", None] == (9, 308)


def test_its_account_stands_beside_the_accounts_of_the_source() -> None:
    """They are still what the source says."""
    job = Job(Task(tumbling(20), allowed_lateness=1_000))
    job.run()
    tasks, positions = job.newest.tasks, only(job.newest.sources).positions
    made = job.correct(add=[row(5, "a", 1), row(45, "b", 2)], remove=[ROWS[0]])
    newest = job.newest
    assert (newest.kind, newest.base, newest.tasks) == ("correction", newest.id, tasks)
    assert only(newest.sources).positions == positions
    assert newest.corrections == {"ticket": made} and made.panes == (0, 40)
    body = body_of(newest.encode(), "m")
    assert body["corrections"]["ticket"]["added"] == 2
    found = Log(job.storage).newest()
    assert found is not None and verify_source(job.pipeline(), found).ok and verify(job.storage).ok
    job.rows += [row(120, "a", 1)]
    job.run()
    assert job.newest.kind == "checkpoint" and job.newest.corrections == {"ticket": made}


def test_a_rollback_undoes_it_and_its_name_is_free_again() -> None:
    """What it published is taken back, and the records count no more."""
    job = Job(Task(tumbling(20), allowed_lateness=1_000))
    job.run()
    target, state, table = job.newest.base, job.state(), job.table()
    job.correct(add=[row(5, "a", 100)])
    assert job.table() != table
    rollback(job.storage, target, outputs="retract")
    job.run()
    assert (job.state(), job.table(), job.newest.corrections) == (state, table, {})
    job.correct(add=[row(7, "b", 5)])
    assert job.table()["b", 0] == (3, 10)
    assert verify(job.storage).ok


def test_an_heir_is_corrected_before_it_has_read_anything() -> None:
    """A run with nothing to read makes no checkpoint of windows, so it could not be told to run first."""
    task = Task(tumbling(20), allowed_lateness=1_000)
    job, heir = Job(task), Job(task)
    job.run()
    heir.run(start_from=job.storage)
    assert heir.table().items() <= job.table().items() and heir.table()["a", 0] == (2, 3)
    heir.correct(add=[row(5, "a", 100)])
    assert heir.table()["a", 0] == (3, 103) and verify(heir.storage).ok
    heir.rows += [row(110, "a", 1)]
    heir.run(end=True)
    right = sums([*heir.rows, row(5, "a", 100)], tumbling(20))
    assert heir.table().items() <= right.items() and heir.table()["a", 100] == right["a", 100]


def test_an_heir_of_several_states_runs_on_after_it_was_corrected_first() -> None:
    """Its sinks were noted as those of the only state, and every later run was refused for good."""

    class Both(PersistentTask):
        key = "key"

        def persistent_state(self) -> Any:
            return {"late": WindowState(Sum(), tumbling(20), allowed_lateness=1_000), "all": NonWindowState(Sum())}

        def process_message(self, state: Any, message: Any) -> None:
            for one in state.values():
                one.update(message.timestamp, message.value["value"])

    def pipeline(storage: MemoryStorage, rows: Sequence[Row], **options: Any) -> Pipeline:
        source = MemorySource(rows, timestamp="ts", ordered=True)
        return Pipeline(source=source, task=Both(), checkpoint=storage, step_rows=4, **options)

    first, heir = MemoryStorage(new_nonce()), MemoryStorage(new_nonce())
    pipeline(first, ROWS, sink={"late": MemorySink(), "all": MemorySink()}).run(engine="embedded")
    sinks = {"late": MemorySink(), "all": MemorySink()}
    options = {"sink": sinks, "start_from": first}
    pipeline(heir, ROWS, **options).run(engine="embedded")
    pipeline(heir, ROWS, **options).correct(name="ticket", add=[row(5, "a", 100)], engine="embedded")
    rows = [*ROWS, row(110, "a", 1)]
    pipeline(heir, rows, **options).run(engine="embedded", end_of_input=True)
    right = {key: total for (key, _), (_, total) in sums([*rows, row(5, "a", 100)], None).items()}
    assert {one["key"]: one["value"] for one in sinks["all"].rows()} == right
    assert verify(heir).ok
    for storage in (first, heir):
        storage.clear()


@pytest.mark.parametrize("options", [{"emit": "change"}, {"early": "7 ms"}], ids=str)
def test_without_a_sink_nothing_is_published_of_it(options: Any) -> None:
    """There is nobody to tell of what it changes: it ended in an assertion, behind a fence."""
    job = Job(Task(None, **options))
    job.sink = None
    job.run()
    job.correct(add=[row(5, "a", 100)])
    assert job.state() == sums([*ROWS, row(5, "a", 100)], None)


def test_a_state_as_of_a_clock_without_it_is_refused() -> None:
    """The checkpoint that separates what is before the clock is older than the correction of what is before it."""
    job = Job(Task(None, history=30, interval_ms=10), ROWS[:15])
    job.run(end=True)
    job.rows = list(ROWS)
    job.run()
    asked = only(job.newest.nodes).known_from
    assert asked is not None
    asked -= 10
    assert shown(job.pipeline().state(as_of=asked).to_pylist())
    job.correct(add=[row(5, "a", 100)])
    with pytest.raises(UnknownCheckpoint, match=r"with the correction 'ticket', which has changed it in .*--at \d+"):
        job.pipeline().state(as_of=asked)


@pytest.mark.parametrize(
    ("window", "options", "time", "added"),
    [
        (tumbling(20), {}, 105, [(("a", 100), False)]),
        (session("10 ms", cut="100 ms"), {"allowed_lateness": 50}, 94, [(("a", 85), True), (("a", 85), False)]),
        (session("10 ms", cut="100 ms"), {"allowed_lateness": 50, "emit": "final"}, 97, [(("a", 97), False)]),
    ],
    ids=str,
)
def test_what_it_opens_after_the_end_of_the_input_is_published_by_another_end(
    window: Any, options: Any, time: int, added: Any
) -> None:
    """The input had ended: no further step was made, and what a session had been was taken back with nothing in its
    place. A merge lost it for good."""
    job = Job(Task(window, **options), [row(5, "a", 1), row(85, "a", 1)])
    job.run(end=True)
    assert job.newest.clock.end_of_input
    before = len(job.sink.rows())
    job.correct(add=[row(time, "a", 1)])
    assert not job.newest.clock.end_of_input
    for _ in range(2):
        job.run(end=True)
        assert job.newest.clock.end_of_input and not job.state()
        shown = [(placed(one)[0], bool(one.get("retracted"))) for one in job.sink.rows()[before:]]
        assert shown == added


def test_heirs_and_merged_jobs_know_its_name() -> None:
    """The same ticket would be applied to the same state twice."""
    job, other = Job(Task(None, emit="change")), Job(Task(None, emit="change"))
    other_source = {"source": {"second": MemorySource(ROWS, timestamp="ts", ordered=True)}}
    job.run(end=True)
    other.run(end=True, **other_source)
    made = job.correct(add=[row(5, "a", 100)])
    savepoint(job.storage, "now")
    heir = Job(Task(None, emit="change"))
    heir.run(start_from=savepoint_folder(job.storage, "now"))
    assert heir.newest.corrections == {"ticket": made} and heir.correct(add=[row(5, "a", 100)]) == made
    assert heir.state() == job.state() and heir.table() == job.state()
    compact(job.pipeline())
    assert job.newest.corrections == {"ticket": made}


def test_a_restart_keeps_or_forgets_it_with_what_it_changed() -> None:
    """A name whose records are gone must be free, and one that is half there is refused."""
    job = Job(Task(None, history="1 day", interval_ms=10))
    job.run(end=True)
    job.correct("before", add=[row(5, "a", 100)])
    job.correct("after", add=[row(75, "a", 1)])
    job.correct("both", add=[row(15, "a", 1), row(65, "a", 1)])
    with pytest.raises(Refused, match=r"the correction 'both' has changed the state before .* and after it"):
        restart(job.pipeline(), 40, outputs="again")
    job.rows += [row(110, "a", 1)]
    restart(job.pipeline(), 70, outputs="again")
    assert job.newest.corrections.keys() == {"before", "both"}
    job.run(end=True)
    right = [*job.rows, row(5, "a", 100), row(15, "a", 1), row(65, "a", 1)]
    assert job.state() == sums(right, None)
    job.correct("after", add=[row(75, "a", 1)])
    assert job.state() == sums([*right, row(75, "a", 1)], None)


def test_a_restart_that_would_lose_it_is_refused() -> None:
    """The newest checkpoint that knows the clock can be older than the correction of what was before that clock."""
    job = Job(Task(None, history=30, interval_ms=10), ROWS[:15])
    job.run(end=True)
    job.rows = list(ROWS)
    job.run()
    before = job.newest.base
    job.correct(add=[row(5, "a", 100)])
    id = job.newest.id
    with pytest.raises(Refused, match="it lacks the correction 'ticket', which has changed the state before"):
        restart(job.pipeline(), 40, outputs="again")
    assert job.newest.id == id
    rollback(job.storage, before, outputs="again")
    restart(job.pipeline(), 40, outputs="again")
    job.run(end=True)
    job.correct(add=[row(5, "a", 100)])
    assert job.state() == sums([*ROWS, row(5, "a", 100)], None)


def test_a_step_that_was_planned_before_is_planned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plan is of a state that is no longer the newest; it must neither run on it nor get lost."""
    from persistent.driver import step_effects

    job = Job(Task(None, emit="change"))
    job.rows = ROWS[:10]
    job.run()
    job.rows = list(ROWS)

    def die(*_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(step_effects, "_run_items", die)
        with pytest.raises(RuntimeError, match="killed"):
            job.run()
    base = job.newest.base
    assert Log(job.storage).plan(base, job.newest.replan) is not None
    job.correct(add=[row(5, "a", 100)])
    job.run(end=True)
    assert job.table() == sums([*ROWS, row(5, "a", 100)], None) and verify(job.storage).ok


# -- what records can be given ---------------------------------------------------------------------------------------


def test_records_are_given_as_a_source_gives_them(tmp_path: Any) -> None:
    """A ticket has a file, a notebook a list, and a task that has kept messages those."""
    (tmp_path / "in.jsonl").write_text('{"ts": 5, "key": "a", "value": 100}\n{"ts": 7, "key": "b", "value": 1}\n')
    rows = [row(5, "a", 100), row(7, "b", 1)]
    kept: list[Any] = []

    class Keeps(Task):
        def process_message(self, state: Any, message: Any) -> None:
            kept.append(message)
            super().process_message(state, message)

    Job(Keeps(), rows).run()
    files = FileSource(str(tmp_path / "in.jsonl"), timestamp="ts", timestamp_unit="ms")
    states = []
    for records in (
        rows,
        tuple(rows),
        pa.Table.from_pylist(rows),
        MemorySource(rows),
        files,
        kept,
        tmp_path / "in.jsonl",
    ):
        job = Job(Task())
        job.run()
        assert job.correct(add=records).added == 2
        states.append(job.state())
    assert all(state == sums([*ROWS, *rows], None) for state in states)


def test_records_are_of_the_types_that_the_source_gave_them(tmp_path: Any) -> None:
    """A file of 007 alone looks like one of numbers, and 2 like no 2.0: the task would make other updates of them."""

    class Codes(Task):
        def persistent_state(self) -> Any:
            return NonWindowState(Count())

        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, 1, key=str(message.value["code"]))

    def left(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
        return {one["key"]: one["value"] for one in rows if one["value"]}

    (tmp_path / "in.csv").write_text("ts,key,code\n1,a,007\n2,a,A1\n3,a,007\n")
    (tmp_path / "wrong.csv").write_text("ts,key,code\n1,a,007\n")
    files = Job(Codes())
    source = {"source": FileSource(str(tmp_path / "in.csv"), timestamp="ts", timestamp_unit="ms")}
    files.run(**source)
    files.correct(remove=tmp_path / "wrong.csv", options=source)
    assert left(files.pipeline(**source).state().to_pylist()) == {"007": 1, "A1": 1}
    numbers = [{"ts": 1, "key": "a", "code": 1.5}, {"ts": 2, "key": "a", "code": 2}]
    for wrong in (numbers[1:], pa.Table.from_pylist(numbers[1:])):
        memory = Job(Codes(), numbers)
        memory.run()
        memory.correct(remove=wrong)
        assert left(memory.pipeline().state().to_pylist()) == {"1.5": 1}
    two = {"source": {"one": source["source"], "two": MemorySource(numbers, timestamp="ts")}}
    both = Job(Codes())
    both.run(**two)
    with pytest.raises(InvalidPipeline, match="or they differ in their columns: give remove=FileSource"):
        both.correct(remove=tmp_path / "wrong.csv", options=two)


def test_a_column_of_the_names_of_folders_is_asked_for(tmp_path: Any) -> None:
    """Without it the task would take a record of no day out of the state."""

    for folder in ("in/day=mon", "wrong/day=mon"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.jsonl").write_text('{"ts": 1, "value": 5}\n')
    (tmp_path / "bare.jsonl").write_text('{"ts": 1, "value": 5}\n')
    (tmp_path / "whole.jsonl").write_text('{"ts": 1, "value": 5, "day": "mon"}\n')

    class Sums(Task):
        key = "day"

        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, {"rows": 1, "total": message.value["value"]})

    source = {"source": FileSource(str(tmp_path / "in"), timestamp="ts", timestamp_unit="ms")}
    for name in ("wrong", "whole.jsonl"):
        job = Job(Sums())
        job.run(**source)
        with pytest.raises(Refused, match="a record has no 'day', which the sources take from the names"):
            job.correct(remove=tmp_path / "bare.jsonl", options=source)
        job.correct(remove=tmp_path / name, options=source)
        assert [one["rows"] for one in job.pipeline(**source).state().to_pylist()] == [0]


def test_a_column_of_folders_that_schema_leaves_out_is_not_asked_for(tmp_path: Any) -> None:
    """The correction ended with a KeyError."""
    (tmp_path / "in/day=mon").mkdir(parents=True)
    for name in ("in/day=mon/a.jsonl", "wrong.jsonl"):
        (tmp_path / name).write_text('{"ts": 1, "key": "a", "value": 5}\n')
    schema = {"ts": "int64", "key": "string", "value": "int64"}
    files = FileSource(str(tmp_path / "in"), timestamp="ts", timestamp_unit="ms", schema=schema)
    job = Job(Task())
    job.run(source=files)
    job.correct(remove=tmp_path / "wrong.jsonl", options={"source": files})
    assert [one["rows"] for one in job.pipeline(source=files).state().to_pylist()] == [0]


@pytest.mark.parametrize("records", ['{"ts": 1, "kye": "a", "value": 5}', '{"ts": 1, "key": "a", "vlaue": 5}'])
def test_a_field_that_is_misspelt_in_a_file_is_refused(records: str, tmp_path: Any) -> None:
    """Null was the key, or the value, and the correction said that it had added a record."""
    (tmp_path / "in.jsonl").write_text('{"ts": 1, "key": "a", "value": 5}\n')
    (tmp_path / "wrong.jsonl").write_text('{"ts": 2, "key": "a", "value": 5}\n' + records + "\n")
    (tmp_path / "more.jsonl").write_text('{"ts": 2, "key": "a", "value": 5, "by": "me"}\n')
    files = FileSource(str(tmp_path / "in.jsonl"), timestamp="ts", timestamp_unit="ms")
    job = Job(Task())
    job.run(source=files)
    id = job.newest.id
    says = r"the field '(kye|vlaue)' of '.*wrong.jsonl' is no column of the sources, and a record has no '(key|value)'"
    with pytest.raises(Refused, match=says):
        job.correct(add=tmp_path / "wrong.jsonl", options={"source": files})
    assert job.newest.id == id
    job.correct(add=tmp_path / "more.jsonl", options={"source": files})
    assert [one["rows"] for one in job.pipeline(source=files).state().to_pylist()] == [2]


@pytest.mark.parametrize(
    "given, words",
    [
        ({"add": []}, "give the records to add=, to remove=, or both"),
        ({"add": 7}, "add= takes the path of a file, a list of mappings or of messages, an Arrow table"),
        ({"remove": [1, 2]}, "remove= takes the path"),
        ({"name": "my ticket", "add": [ROWS[0]]}, "the name of the correction 'my ticket': use letters"),
    ],
)
def test_what_is_no_correction_is_refused(given: Any, words: str) -> None:
    job = Job(Task())
    job.run()
    id = job.newest.id
    with pytest.raises(InvalidPipeline, match=words):
        job.correct(**given)
    assert job.newest.id == id


def test_a_file_without_a_record_is_named(tmp_path: Any) -> None:
    """It was given: to ask for records, as if it had not been, helps nobody."""
    job = Job(Task())
    job.run()
    (tmp_path / "none.csv").write_text("ts,key,value\n")
    with pytest.raises(InvalidPipeline, match=r"or both: there are none in '.*none\.csv'"):
        job.correct(add=tmp_path / "none.csv")


REFUSED: tuple[tuple[str, Task, Any, type[Exception], str], ...] = (
    ("final", Task(tumbling(20)), {"add": [row(5, "a", 1)]}, Refused, "is in a window that is final: windows that end"),
    ("partly final", Task(sliding(40, every=20)), {"add": [row(79, "a", 1)]}, Refused, "is in a window that is final"),
    ("no inverse", Highest(monoid=Max()), {"remove": [ROWS[1]]}, Refused, "Max.* is no Group: what was combined"),
    ("in a record", Task(monoid=record(rows=Count(), total=Max())), {"remove": [ROWS[1]]}, Refused, "is no Group"),
    (
        "far ahead",
        Task(),
        {"add": [row(10**14, "a", 1)]},
        Refused,
        "timestamp too far ahead: .* plus max_future",
    ),
    ("before 1970", Task(), {"remove": [row(-5, "a", 1)]}, Refused, "remove=: .*: timestamp before 1970"),
    ("no time", Task(), {"add": [row(5, "a", 1), {"key": "a", "value": 1}]}, Refused, "timestamp"),
    ("not a value", Task(), {"add": [row(5, "a", 1), {**row(6, "a", 1), "value": "x"}]}, Refused, "cannot be read"),
    ("raises", Task(), {"add": [row(5, "a", 1), row(6, "a", 666)]}, UserCodeError, "add=: .*no such value"),
    ("no update", Task(), {"add": [{**row(5, "", 1), "key": None}]}, Refused, "makes no update"),
    ("no key", Task(), {"add": [{"ts": 5, "value": 1}]}, InvalidPipeline, "has no field 'key'"),
    ("another key", Task(), {"add": [{**row(5, "", 1), "key": 7}]}, UserCodeError, "key"),
)


@pytest.mark.parametrize("task, given, error, words", [one[1:] for one in REFUSED], ids=[one[0] for one in REFUSED])
def test_a_record_that_cannot_count_refuses_the_whole_correction(
    task: Task, given: Any, error: type[Exception], words: str
) -> None:
    """Half a correction would have its name; and a refusal leaves no fence."""
    job = Job(task)
    job.run()
    before, files = job.newest, job.storage.list("d/sums")
    with pytest.raises(error, match=words):
        job.correct(**given)
    assert job.newest == before and job.storage.list("d/sums") == files


def test_a_job_that_is_not_at_rest_as_it_was_is_refused() -> None:
    """Another sink or task is for a run to take up, and a driver that runs would be overtaken."""
    job, given = Job(Task(tumbling(20), allowed_lateness=1_000)), {"add": [row(5, "a", 1)]}
    with pytest.raises(NoCheckpoint, match="there is no checkpoint here"):
        job.correct(**given)
    Log(job.storage).create(first_manifest(job.pipeline().job(), "ours"))
    with pytest.raises(NoCheckpoint, match="nothing was counted yet"):
        job.correct(**given)
    job.run()
    with pytest.raises(Refused, match="the sinks of the last step are memory, and those of this pipeline late, memory"):
        job.correct(**given, options={"late_sink": MemorySink()})
    with pytest.raises(Refused, match="those of this pipeline none"):
        job.correct(**given, options={"sink": None, "discard_closed": True, "task": Task(tumbling(20))})
    with pytest.raises(FingerprintChanged):
        job.correct(**given, options={"task": Task(tumbling(30), allowed_lateness=1_000)})
    two = MemorySource(ROWS, timestamp="ts"), MemorySource(ROWS[:1], timestamp="ts")
    joins = {"source": {"memory": two[0], "more": two[1]}}
    put_mark(job.storage, job.newest.epoch + 1, "ff")
    with pytest.raises(StillRunning, match="a driver runs"):
        job.correct(**given)
    assert job.correct(**given, take_over=True, options=joins).added == 1
    assert [*job.newest.sources] == ["memory"]


def test_the_column_of_the_time_is_asked_for_where_it_is_not_known() -> None:
    """Two sources may have two."""
    job = Job(Task())
    other = MemorySource([{"at": 5, "key": "a", "value": 1}], timestamp="at")
    sources = {"source": {"one": MemorySource(ROWS, timestamp="ts"), "two": other}}
    job.run(**sources)
    with pytest.raises(InvalidPipeline, match=r"which column has the timestamp .* add=MemorySource\(rows"):
        job.correct(add=[row(5, "a", 1)], options=sources)
    job.correct(add=MemorySource([row(5, "a", 1)], timestamp="ts"), options=sources)
    assert shown(job.pipeline(**sources).state().to_pylist()) == sums([*ROWS, row(5, "a", 1), row(5, "a", 1)], None)


# -- sinks and windows of other kinds --------------------------------------------------------------------------------


def test_every_kind_of_sink_is_corrected(tmp_path: Any) -> None:
    """A table holds the corrected row, and a rollback brings the old one back."""
    import sqlite3

    def rows() -> list[Any]:
        with sqlite3.connect(tmp_path / "table.db") as database:
            return database.execute("SELECT key, total FROM sums ORDER BY key").fetchall()

    ledger, called = Ledger(), list[Any]()
    sinks = {
        "table": SqliteSink(tmp_path / "table.db", "sums", mode="upsert"),
        "ledger": LedgerSink(ledger),
        "call": FunctionSink(lambda table, id: called.extend(table.to_pylist())),
    }
    job = Job(Task(None, emit="change"))
    job.sink = sinks
    job.run()
    before = rows()
    job.correct(add=[row(5, "a", 1_000)])
    assert rows() == [("a", before[0][1] + 1_000), *before[1:]]
    assert ledger.rows()[-1]["total"] == called[-1]["total"] == rows()[0][1]


def test_sessions_grow_by_records_that_are_added() -> None:
    """They are open; and none can be taken out of them."""
    job = Job(Task(session(30)), [row(1, "a", 1), row(10, "b", 2), row(20, "a", 1)])
    job.run()
    job.correct(add=[row(40, "a", 5)])
    job.rows += [row(200, "c", 1)]
    job.run(end=True)
    assert sorted((one["key"], one["rows"], one["total"]) for one in job.sink.rows()) == [
        ("a", 3, 7),
        ("b", 1, 2),
        ("c", 1, 1),
    ]
    with pytest.raises(Refused, match="is no Group"):
        job.correct("other", remove=[row(300, "c", 1)])


def test_windows_of_a_calendar_are_corrected_by_the_rules_that_the_checkpoint_keeps() -> None:
    hour = 3_600_000
    rows = [row(hour * number, "a", 1) for number in range(0, 100, 7)]
    job = Job(Task(calendar("day", tz="Europe/Berlin"), allowed_lateness="30 days"), rows)
    job.run()
    job.correct(add=[row(hour * 5, "a", 10)], remove=[rows[1]])
    assert job.table()["a", -hour] == (4, 13)


def test_dead_letters_of_a_result_that_cannot_be_presented_are_staged() -> None:
    """As a late record would have them, and once."""

    class Picks(Task):
        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, message.value["value"])

    job = Job(Picks(tumbling(20), Picky(), allowed_lateness=1_000))
    job.run(on_error="dead-letter")
    job.correct(add=[row(5, "a", 500)], options={"on_error": "dead-letter"})
    assert job.pipeline().dead_letters().num_rows == 1
    assert verify(job.storage).ok


def test_merged_jobs_have_the_corrections_of_both(tmp_path: Any) -> None:
    """Nothing that either has applied can be applied to their sum."""
    jobs, both = (Job(Task()), Job(Task())), Job(Task())
    sources = {}
    for name, job in zip(("eu", "us"), jobs):
        (tmp_path / name).mkdir()
        (tmp_path / name / "in.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in ROWS))
        sources[name] = FileSource(str(tmp_path / name / "*.jsonl"), timestamp="ts", timestamp_unit="ms")
        options = {"source": {name: sources[name]}}
        job.run(end=True, **options)
        job.correct(add=[row(5, "a", 100)], options=options)
        job.run(end=True, **options)
    merge(jobs[0].storage, jobs[1].storage, both.storage)
    assert [*both.newest.corrections] == ["ticket", "ticket-2"] and verify(both.storage).ok
    both.run(end=True, source=sources)
    right = sums([*ROWS, *ROWS, row(5, "a", 100), row(5, "a", 100)], None)
    assert shown(both.pipeline(source=sources).state().to_pylist()) == right == both.table()


@pytest.mark.check
@pytest.mark.spark
def test_on_spark_it_publishes_the_same(spark: Any, tmp_path: Any) -> None:
    """Workers of another process stage what is corrected."""
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in ROWS))
    source = FileSource(str(tmp_path / "in.jsonl"), timestamp="ts", timestamp_unit="ms", ordered=True)
    found = []
    for name in ("embedded", "spark"):
        sink = FileSink(tmp_path / name, format="jsonl")
        pipeline = Pipeline(
            source=source,
            task=Task(tumbling(20), allowed_lateness=1_000, late="retract"),
            sink=sink,
            checkpoint=str(tmp_path / f"{name}-checkpoint"),
            step_rows=5,
        )
        pipeline.run(engine="embedded")
        where = {"spark": spark} if name == "spark" else {"engine": "embedded"}
        made = pipeline.correct(name="ticket", add=[row(5, "a", 100)], remove=[ROWS[1]], **where)
        lines = [line for file in sink.published() for line in (tmp_path / name / file).open()]
        found.append((made, sorted(lines)))
    assert found[0] == found[1] and any('"retracted":true' in line for line in found[0][1])
