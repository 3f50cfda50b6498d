"""A row counts, is late, or is a dead letter; where the task fails, it is told on which message."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monoids import Monoid, Sum
from persistent import (
    Batch,
    FileSource,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    Message,
    NonWindowState,
    PersistentError,
    PersistentTask,
    Pipeline,
    Refused,
    State,
    UserCodeError,
    Window,
    WindowState,
    sliding,
    tumbling,
)
from persistent.codec.sealed import decode_table
from persistent.connect.formats.timestamps import TimeLimit
from persistent.connect.source import Budget, SourceState
from persistent.names import Attempt
from persistent.storage import MemoryStorage
from persistent.testing import ManualClock
from persistent.worker.job import MapSplit, SplitOfNode
from persistent.worker.map_split import map_split
from tests.visits import GOOD, Visits, pipeline_of, run, says, visits_of, write_lines


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("soon", "timestamp unreadable: column 'ts' holds 'soon' (string)"),
        (None, "timestamp missing: column 'ts' (string) is null"),
        ("3000-01-01T00:00:00Z", "too far ahead: 3000-01-01 00:00:00Z is after 20"),
        ("1969-12-31T23:59:59.999Z", "before 1970"),
    ],
)
def test_a_bad_timestamp_is_a_dead_letter(bad: str | None, reason: str, tmp_path: Path, storage: MemoryStorage) -> None:
    """One bad record would close every window, or stop a run for good."""
    rows = [{"ts": f"2024-01-01T00:00:{n:02d}Z", "page": "a", "n": n} for n in range(20)]
    rows.insert(7, {"ts": bad, "page": "bad", "n": -1})
    write_lines(tmp_path / "a.jsonl", rows)
    pipeline = pipeline_of(FileSource(tmp_path, timestamp="ts"), storage, sink=MemorySink())
    report = run(pipeline, end_of_input=True)
    (account,) = report.ledger.values()
    assert (account.read, account.processed, account.dead, report.late) == (21, 20, 1, 0)
    (dead,) = pipeline.dead_letters().to_pylist()
    assert reason in dead["reason"]
    assert dead["value"] == {"ts": bad, "page": "bad", "n": -1}
    assert (dead["file"], dead["ordinal"]) == ("a.jsonl", 0)
    assert dead["offset"] == sum(len(json.dumps(row)) + 1 for row in rows[:7])
    assert {row["page"] for row in pipeline.sink.rows()} == {"a"}
    assert sum(row["visits"] for row in pipeline.sink.rows()) == 20
    assert report.clock_ms == 1_704_070_800_000


def test_a_day_ahead_is_allowed_and_the_limit_can_be_moved(storage: MemoryStorage) -> None:
    """A clock that is a little fast would lose its records; a backfill of the future could not be run."""
    rows = [{"ts": 4_000_000_000_000, "page": "a", "n": 1}]
    assert run(pipeline_of(rows, storage)).dead == 1
    assert run(pipeline_of(rows, f"memory://{uuid.uuid4().hex}", max_future="40000 days")).dead == 0


@pytest.mark.parametrize(
    ("limit", "not_after", "dead"),
    [(50, None, {51, 90}), (50, 70, {51, 90}), (50, 50, {51, 90}), (70, 50, {51, 90}), (95, 51, {90}), (95, 95, set())],
)
def test_the_stricter_limit_counts_and_each_is_told(limit: int, not_after: int | None, dead: set[int]) -> None:
    """The limit of a clock that was set back is no matter of max_future, and has another remedy."""
    rows = [{"ts": time, "page": "a", "n": 1} for time in (3, 50, 51, 90)]
    storage = MemoryStorage(uuid.uuid4().hex)
    job = pipeline_of(rows, storage).job()
    plan = job.sources["memory"].plan(SourceState({}), Budget(9))
    times, nodes = TimeLimit(limit, not_after), dict.fromkeys(job.nodes, SplitOfNode(0, 0))
    item = MapSplit(Attempt(1, 1), "memory", "memory", plan.splits[0], plan.recorded, nodes, times)
    mapped = map_split(job, item)
    assert (mapped.account.dead, mapped.account.processed) == (len(dead), 4 - len(dead))
    if mapped.dead is None:
        assert not dead
        return
    found = decode_table(storage.read(mapped.dead.name), mapped.dead.sha256, "dead").to_pylist()
    assert {row["timestamp"] for row in found} == dead
    for row in found:
        past = row["timestamp"] > limit
        assert ("the time of day plus max_future" in row["reason"]) == past
        assert ("the limit of a clock that was set back" in row["reason"]) != past
    assert mapped.largest == max({3, 50, 51, 90} - dead)


def test_a_time_of_day_that_is_set_back_makes_nothing_dead(storage: MemoryStorage) -> None:
    """A host that comes up in 1970 would put every record aside, until somebody looks."""
    day, rows = 86_400_000, [{"ts": 1_700_000_000_000, "page": "a", "n": 1}]
    with ManualClock(1_700_000_000_000) as clock:
        assert run(pipeline_of(rows, storage)).dead == 0
        clock.set(0)
        rows += [{"ts": 1_700_000_000_000 + ahead, "page": "a", "n": 1} for ahead in (1, day, day + 1)]
        report = run(pipeline_of(rows, storage))
    assert (report.rows, report.dead) == (3, 1)
    (dead,) = pipeline_of(rows, storage).dead_letters().to_pylist()
    assert (dead["timestamp"], dead["offset"]) == (1_700_000_000_000 + day + 1, 3)


def test_a_clock_that_is_behind_is_not_what_counts(storage: MemoryStorage) -> None:
    """The first records of a source that has been idle for a week would be dead letters."""
    week, rows = 7 * 86_400_000, [{"ts": 1_700_000_000_000, "page": "a", "n": 1}]
    with ManualClock(1_700_000_000_000) as clock:
        run(pipeline_of(rows, storage))
        clock.advance("7 days")
        rows.append({"ts": 1_700_000_000_000 + week, "page": "a", "n": 1})
        assert run(pipeline_of(rows, storage)).dead == 0


def test_an_unknown_key_column(storage: MemoryStorage) -> None:
    """With dead letters every message would be put aside for a misspelt name."""

    class Misspelt(Visits):
        key = "pgae"

    for on_error in ("stop", "dead-letter"):
        with pytest.raises(InvalidPipeline) as error:
            run(pipeline_of(GOOD, storage, Misspelt(), on_error=on_error))
        says(error, "'pgae'", "ts, page, n", "Misspelt")


class Failing(Visits):
    """Fails at n == 13, after an update."""

    name = "Visits"

    def process_message(self, state: State, message: Message) -> None:
        super().process_message(state, message)
        if message.value["n"] == 13:
            raise ValueError("thirteen")


class FailingByBatch(Failing):
    def process_batch(self, state: State, batch: Batch) -> None:
        state.update_batch(batch.timestamps, {"visits": 1, "total": batch["n"]})
        if 13 in batch["n"].to_pylist():
            raise ValueError("thirteen")


@pytest.mark.parametrize("task", [Failing, FailingByBatch])
def test_an_exception_in_the_task(task: type[PersistentTask], storage: MemoryStorage) -> None:
    """Who has millions of messages could not tell which one it was."""
    pipeline = pipeline_of(GOOD, storage, task(), step_rows=5)
    with pytest.raises(UserCodeError) as error:
        run(pipeline)
    says(
        error, task.__name__, "partition 'memory'", "position (0, 13)", "key 'b'", "ValueError: thirteen", "dead-letter"
    )
    assert isinstance(error.value.__cause__, ValueError)
    assert visits_of(pipeline) == 10, "steps before the failing one are committed"
    aside = pipeline_of(GOOD, storage, task(), step_rows=5, on_error="dead-letter")
    report = run(aside)
    assert (report.rows, report.dead) == (10, 1)
    assert visits_of(aside) == 19, "the updates of the failing message do not apply"
    (dead,) = aside.dead_letters().to_pylist()
    assert (dead["offset"], dead["value"]["n"]) == (13, 13)
    assert re.fullmatch(r"ValueError: thirteen \(test_map_split\.py, line \d+\)", dead["reason"])
    assert dead["timestamp"] == GOOD[13]["ts"]


def test_many_failing_messages_are_each_put_aside(storage: MemoryStorage) -> None:
    """A batch with two of them would lose its neighbours."""

    class Odd(Visits):
        def process_message(self, state: State, message: Message) -> None:
            super().process_message(state, message)
            if message.value["n"] % 3 == 0:
                raise KeyError(message.value["n"])

    pipeline = pipeline_of(GOOD, storage, Odd(), on_error="dead-letter")
    report = run(pipeline)
    assert report.dead == 7
    dead = pipeline.dead_letters().to_pylist()
    assert [row["value"]["n"] for row in dead] == [0, 3, 6, 9, 12, 15, 18]
    assert [row["reason"].split(" (")[0] for row in dead] == [f"KeyError: {n}" for n in range(0, 19, 3)]
    assert visits_of(pipeline) == 13


class Mutating(Monoid[dict[str, int]]):
    """Counts, but into its left operand."""

    identity: Any = {}

    def combine(self, a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
        for name, count in b.items():
            a[name] = a.get(name, 0) + count
        return a

    def lift(self, value: Any) -> dict[str, int]:
        return {value: 1}


@pytest.mark.parametrize("on_error", ["stop", "dead-letter"])
@pytest.mark.parametrize("step_rows", [None, 1])
def test_a_combine_that_mutates(on_error: str, step_rows: int | None, storage: MemoryStorage) -> None:
    """Elements are shared: sums would hold what belongs to others."""

    class Pages(Visits):
        key = None

        def persistent_state(self) -> Any:
            return NonWindowState(Mutating())

        def process_message(self, state: State, message: Message) -> None:
            state.update(message.timestamp, message.value["page"])

    pipeline = pipeline_of(GOOD, storage, Pages(), on_error=on_error, step_rows=step_rows)
    with pytest.raises(PersistentError) as error:
        run(pipeline)
        pipeline.state()
    says(error, "Mutating", "changes one of its operands", "return a new one", "Pages")


def test_an_update_of_the_past(storage: MemoryStorage) -> None:
    """A window that was published would change."""

    class Backwards(Visits):
        size = "10 s"

        def process_message(self, state: State, message: Message) -> None:
            state.update(message.timestamp - 60_000, {"visits": 1})

    with pytest.raises(UserCodeError) as error:
        run(pipeline_of(GOOD, storage, Backwards(), step_rows=15))
    says(error, "position (0, 15)", "before the clock of the step", "message's own timestamp")


class Back(PersistentTask):
    """Sums at times before those of the messages, in windows that overlap; by columns, if it is told to."""

    key = "page"

    def __init__(self, names: str = "") -> None:
        self.names = names.split()

    def persistent_state(self) -> Any:
        states = {"slid": WindowState(Sum(), sliding("20 ms", every="10 ms")), "total": NonWindowState(Sum())}
        return {name: states[name] for name in self.names} or states["slid"]

    def process_message(self, state: Any, message: Message) -> None:
        for one in state.values() if self.names else [state]:
            one.update(message.timestamp - message.value["back"], message.value["n"])


class BackByColumns(Back):
    def process_batch(self, state: Any, batch: Batch) -> None:
        for one in state.values() if self.names else [state]:
            one.update_batch(batch.timestamps - np.array(batch["back"]), batch["n"], keys=batch.keys)


BACK = [
    {"ts": ts, "page": "a", "back": back, "n": 10**place}
    for place, (ts, back) in enumerate([(5, 0), (25, 0), (27, 10), (28, 0), (18, 0), (19, 1), (26, 2)])
]


@pytest.mark.parametrize("task", [Back, BackByColumns])
@pytest.mark.parametrize("names", ["", "slid", "slid total"])
@pytest.mark.parametrize("step_rows", [2, 3])
def test_a_message_with_an_update_that_misses_a_window_is_partly_late(
    task: type[Back], names: str, step_rows: int, storage: MemoryStorage
) -> None:
    """The update was missing in the window that was final, and nothing said so."""
    first, late = MemorySink(), MemorySink()
    sink = {name: first if name == "slid" else MemorySink() for name in names.split()} or first
    source = MemorySource(BACK, timestamp="ts", ordered=True)
    job = Pipeline(source=source, task=task(names), sink=sink, late_sink=late, checkpoint=storage, step_rows=step_rows)
    report = run(job, end_of_input=True)
    reason = "partly-late in slid" if names == "slid total" else "partly-late"
    missed = {2: [2, 4, 5], 3: [4, 5]}[step_rows]
    assert [(row["offset"], row["reason"]) for row in job.late().to_pylist()] == [(one, reason) for one in missed]
    assert [row["offset"] for row in late.rows()] == missed
    (account,) = report.ledger.values()
    assert (account.processed, account.late, account.dead) == (7, 0, 0)
    shown = {row["window_start"].microsecond // 1_000: row["value"] for row in first.rows()}
    assert shown == {990: 1, 0: {2: 1, 3: 101}[step_rows], 10: 1_111_110, 20: 1_001_010}


class Apart(PersistentTask):
    """What counts in one state by its own time counts in another by the time that it names."""

    key = "page"

    def persistent_state(self) -> Any:
        return {
            "own": WindowState(Sum(), tumbling("10 ms")),
            "named": WindowState(Sum(), sliding("20 ms", every="10 ms"), allowed_lateness="20 ms"),
            "total": NonWindowState(Sum()),
        }

    def process_message(self, state: Any, message: Any) -> None:
        if message.value["n"] < 0:
            raise ValueError("refused")
        for name in state:
            state[name].update(message.value["named"] if name == "named" else message.timestamp, message.value["n"])


def test_a_message_names_each_state_that_lacks_it_and_none_if_it_fails(storage: MemoryStorage) -> None:
    """One that lacked it by another time than its own was not named; a dead letter was listed as one that counts."""
    times = [(5, 5, 1), (41, 41, 1), (42, 42, 1), (25, 15, 1), (25, 15, -1), (43, 15, 1), (25, 35, 1), (25, 35, -1)]
    rows = [{"ts": ts, "named": named, "page": "a", "n": n} for ts, named, n in times]
    names = ("own", "named", "total")
    for step_rows in (1, 5):
        storage.clear()
        given: dict[str, Any] = {"late_sink": (late := MemorySink()), "on_error": "dead-letter", "step_rows": step_rows}
        source = MemorySource([*rows[:3], *rows[2:3] * 2, *rows[3:]], timestamp="ts", ordered=True)
        sinks = {name: MemorySink() for name in names}
        job = Pipeline(source=source, task=Apart(), sink=sinks, checkpoint=storage, **given)
        (account,) = run(job, end_of_input=True).ledger.values()
        assert (account.processed, account.late, account.dead) == (8, 0, 2)
        told = [(5, "partly-late in own, named"), (7, "partly-late in named"), (8, "partly-late in own")]
        assert [(row["offset"], row["reason"]) for row in job.late().to_pylist()] == told
        assert [row["offset"] for row in late.rows()] == [5, 7, 8]
        assert [row["offset"] for row in job.dead_letters().to_pylist()] == [6, 9]


class NamedByColumns(PersistentTask):
    """Counts at times of its own, which it gives as a column of which nobody knows the messages."""

    key = "page"

    def __init__(self, window: Window) -> None:
        self.window = window

    def persistent_state(self) -> Any:
        return {"named": WindowState(Sum(), self.window), "total": NonWindowState(Sum())}

    def process_batch(self, state: Any, batch: Batch) -> None:
        state["named"].update_batch(np.array(batch["named"]), batch["n"], keys=batch.keys)
        state["total"].update_batch(batch.timestamps, batch["n"])


@pytest.mark.parametrize("window", [tumbling("10 ms"), sliding("20 ms", every="10 ms")])
@pytest.mark.parametrize("at_once", [True, False])
def test_an_update_at_the_late_time_of_another_message_is_not_its_own(
    window: Window, at_once: bool, storage: MemoryStorage
) -> None:
    """It was taken for that of the message which is late there, and was missing without a word."""
    times = [(35, 35, 1), (25, 25, 10), (42, 25, 100), (43, 43, 1_000)]
    rows = [{"ts": ts, "named": named, "page": "a", "n": n} for ts, named, n in times]
    sinks = {name: MemorySink() for name in ("named", "total")}
    given: dict[str, Any] = {"checkpoint": storage, "sink": sinks, "on_error": "dead-letter"}
    for stop in (1, 4) if at_once else (1, 2, 3, 4):
        source = MemorySource(rows[:stop], timestamp="ts", ordered=True)
        job = Pipeline(source=source, task=NamedByColumns(window), **given)
        (account,) = run(job, end_of_input=stop == 4).ledger.values()
    counted, late, dead = sum(row["value"] for row in sinks["named"].rows()), job.late(), job.dead_letters()
    if window == tumbling("10 ms"):
        assert (account.processed, counted, late["offset"].to_pylist(), dead["offset"].to_pylist()) == (
            (3, 1_001, [1], [2])
        )
        assert "every window of that time ended before" in dead["reason"][0].as_py()
    else:
        assert (account.processed, counted, late["offset"].to_pylist()) == (4, 1 + 1 + 10 + 100 + 2_000, [1, 2])
    assert set(late["reason"].to_pylist()) == {"partly-late in named"}
    (total,) = sinks["total"].rows()
    assert total["value"] == (1_111 if account.processed == 4 else 1_011)


def test_a_correction_is_refused_if_an_update_misses_a_window(storage: MemoryStorage) -> None:
    """It would count in one window, and not in the other."""
    for task in (Back(), BackByColumns()):
        url = MemoryStorage(uuid.uuid4().hex)
        job = Pipeline(source=MemorySource(BACK[:2]), task=task, sink=MemorySink(), checkpoint=url)
        run(job)
        run(job)
        with pytest.raises(Refused) as error:
            job.correct(name="late", add=[{"ts": 31, "page": "a", "back": 0, "n": 1}, BACK[2]], engine="embedded")
        says(error, "'back': 10", "at a time of which a window is final", "00.025Z have left", "Nothing was changed")


class Marked(MemorySource):
    """Rows of which some count elsewhere, and some nowhere, as their fields say."""

    def read(self, split: Any, recorded: Any) -> Any:
        for records in super().read(split, recorded):
            marks = {name: np.array(records.batch.column(name)) for name in ("elsewhere", "nowhere")}
            yield replace(records, unreadable=lambda row: f"nowhere: row {row}", **marks)


def marked(ts: int, n: int, elsewhere: bool = False, nowhere: bool = False) -> dict[str, Any]:
    return {"ts": ts, "page": "a", "n": n, "elsewhere": elsewhere, "nowhere": nowhere}


MARKED = [
    marked(1_000, 1),
    marked(2_000, 2, elsewhere=True),
    marked(3_000, 4, nowhere=True),
    marked(-1, 8, elsewhere=True),
    marked(4_000, 16),
    marked(2**60, 32, nowhere=True),
]


def test_rows_that_count_elsewhere_or_nowhere_do_not_count_here(storage: MemoryStorage) -> None:
    """In a source of several parts a record would count twice, or vanish from the account."""
    pipeline = pipeline_of(Marked(MARKED), storage, step_rows=10)
    (account,) = run(pipeline).ledger.values()
    assert (account.read, account.processed, account.dead, account.duplicate) == (6, 2, 3, 1)
    (state,) = pipeline.state().to_pylist()
    assert (state["visits"], state["total"]) == (2, 17)
    assert [(one["value"]["n"], one["reason"][:14]) for one in pipeline.dead_letters().to_pylist()] == [
        (4, "nowhere: row 2"),
        (8, "timestamp befo"),
        (32, "timestamp too "),
    ]


@pytest.mark.parametrize(
    ("since", "fates"),
    [(0, (2, 3, 1)), (1_000, (2, 3, 1)), (3_000, (1, 3, 2)), (3_001, (1, 2, 3)), (5_000, (0, 2, 4))],
)
def test_what_was_counted_before_a_restart_is_no_dead_letter(
    since: int, fates: tuple[int, int, int], storage: MemoryStorage
) -> None:
    """Such a record is in the state, whatever part of the source has it now."""
    pipeline = pipeline_of(Marked(MARKED), storage)
    job = pipeline.job()
    ((name, source),) = job.sources.items()
    plan, nodes = source.plan(SourceState({}), Budget(10)), dict.fromkeys(job.nodes, SplitOfNode(0, 0))
    item = MapSplit(Attempt(1, 1), name, "memory", plan.splits[0], plan.recorded, nodes, TimeLimit(2**50), since)
    account = map_split(job, item).account
    assert (account.processed, account.dead, account.duplicate) == fates and account.balances
