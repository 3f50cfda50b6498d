"""Keys with a time to live come to the plain ones, whatever the disorder, the steps, the folds and the restarts."""

from __future__ import annotations

import json
import uuid
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, First, ListConcat, Sum, record
from persistent import (
    Evolution,
    FileSink,
    FileSource,
    FingerprintChanged,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    Refused,
    SqliteSink,
    UnknownCheckpoint,
    UserCodeError,
)
from persistent.checkpoint import compaction
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.operations import compact, merge, rollback, savepoint
from persistent.reading import diff, place
from persistent.state.rows import OPEN_PANE
from persistent.state.time_to_live import TimeToLive
from persistent.storage import MemoryStorage
from persistent.testing import simulate, verify_task
from persistent.testing.outcome import outcome_of
from persistent.time.session_window import group_sessions
from persistent.verify import verify
from tests.few import examples
from tests.lives import EARLY, MODES, Devices, Run, devices, plain, rows_in, run_of, shown_in
from tests.single import only

SEEDS = st.integers(0, 10**6)
TTLS = st.sampled_from((1, 3, 10, 37))


def at(*times: int, key: str = "a") -> list[dict[str, Any]]:
    return [{"ts": time, "key": key, "value": time} for time in times]


@settings(max_examples=12, deadline=None)
@given(SEEDS, TTLS, st.sampled_from(MODES), st.sampled_from((1, 2, 7, 60)), st.lists(st.integers(1, 40), max_size=2))
def test_keys_come_to_the_plain_ones(seed: int, ttl: int, mode: Any, step_rows: int, stops: list[int]) -> None:
    """State, results and figures are those of the plain computation, however the job is cut into steps and runs."""
    comes_to_the_plain_ones(seed, ttl, mode, step_rows, stops)


@pytest.mark.check
@settings(max_examples=examples(120), deadline=None)
@given(SEEDS, TTLS, st.sampled_from(MODES), st.sampled_from((1, 2, 3, 7, 60)), st.lists(st.integers(1, 60), max_size=3))
def test_many_come_to_the_plain_ones(seed: int, ttl: int, mode: Any, step_rows: int, stops: list[int]) -> None:
    comes_to_the_plain_ones(seed, ttl, mode, step_rows, stops)


def comes_to_the_plain_ones(seed: int, ttl: int, mode: Any, step_rows: int, stops: list[int]) -> None:
    behind = (0, 4, 30)[seed % 3]
    rows = devices(seed, 30, behind, ttl)
    with run_of(rows, task=Devices(ttl, mode), behind=behind, step_rows=step_rows) as run:
        reports = [run.run(rows[:stop]) for stop in sorted(stops)] + [run.run()]
        twin = plain(rows, ttl, behind, step_rows, stops)
        assert run.state() == twin.state()
        assert run.shown() == twin.state()
        assert sum(one.late for one in reports) == twin.late
        assert sum(one.expired for one in reports) == twin.expired
        assert run.run().outputs == 0, "a second end publishes nothing again"
        assert verify(run.storage).ok


@settings(max_examples=8, deadline=None)
@given(SEEDS, TTLS, st.sampled_from(MODES))
def test_with_nothing_late_no_step_size_and_no_fold_changes_anything(seed: int, ttl: int, mode: Any) -> None:
    """A time to live that depended on the steps would give other sums after each restart."""
    rows = devices(seed, 30, 0, ttl)
    rows = sorted(rows, key=lambda row: row["ts"])
    found = []
    for step_rows, fan_in in ((1, 2), (1, 8), (4, 2), (100, 8)):
        with pytest.MonkeyPatch.context() as patch, run_of(rows, task=Devices(ttl, mode), step_rows=step_rows) as run:
            patch.setattr(compaction, "FAN_IN", fan_in)
            report = run.run()
            found.append((run.state(), run.shown(), report.expired, report.late))
            compact(run.pipeline())
            assert run.state() == found[-1][0]
    assert all(one == found[0] for one in found)


@settings(max_examples=3, deadline=None)
@given(SEEDS, TTLS, st.sampled_from(EARLY), st.sampled_from((1, 2, 7)), st.lists(st.integers(1, 40), max_size=2))
def test_early_ones_come_to_the_plain_ones(seed: int, ttl: int, mode: Any, step_rows: int, stops: list[int]) -> None:
    """What has expired is taken back with the next early results, or at the end, and nothing of it is forgotten."""
    comes_to_the_plain_ones(seed, ttl, mode, step_rows, stops)


def test_what_expires_is_taken_back_with_the_next_early_results() -> None:
    """And not in the step that finds it so: between two multiples nothing is published."""
    rows = [*at(18, 19), *at(22, 23, 33, 34, 41, 42, key="b")]
    with run_of(rows, task=Devices(10, ("close", "retract", 20)), step_rows=1) as run:
        assert run.run(rows).expired == 2
        found = [(row["revision"], row["key"], row["rows"], row["retracted"]) for row in run.sink.rows()]
    first, second = sorted({revision for revision, *_ in found})
    assert sorted(found) == [
        (first, "a", 2, False),
        (first, "b", 2, False),
        (second, "a", 2, True),
        (second, "b", 2, True),
        (second, "b", 4, False),
    ]


@pytest.mark.parametrize("mode", (*MODES, EARLY[1]))
@pytest.mark.parametrize("operations", ["chc", "srh", "rcr"])
def test_so_it_is_after_operations(operations: str, mode: Any, tmp_path: Any) -> None:
    """Compaction, a savepoint or an heir that goes on in the old table, and a rollback lose no expiry."""
    is_so_after(operations, mode, sum(map(ord, operations)), tmp_path)


@pytest.mark.check
@settings(max_examples=examples(30), deadline=None)
@given(SEEDS, st.sampled_from(MODES), st.text("chsr", min_size=1, max_size=6))
def test_so_it_is_after_any_operations(seed: int, mode: Any, operations: str) -> None:
    with TemporaryDirectory() as folder:
        is_so_after(operations, mode, seed, folder)


def is_so_after(operations: str, mode: Any, seed: int, folder: Any) -> None:
    ttl, behind = (3, 10)[seed % 2], 4
    rows = devices(seed, 20 * (len(operations) + 1), behind, ttl)
    with run_of(rows, task=Devices(ttl, mode), behind=behind, step_rows=2) as run:
        run.sink = SqliteSink(f"{folder}/shown.db", "shown")
        stops: list[int] = []
        for number, operation in enumerate(operations):
            stop = 20 * (number + 1)
            before = run.pipeline(rows[:stop]).run(engine="embedded", end_of_input=(seed + number) % 2 == 0)
            stops.append(stop)
            if operation == "c":
                compact(run.pipeline(rows[:stop]))
            elif operation == "r":
                run.run(rows[: stop + 3])
                rollback(run.storage, before.checkpoint, outputs="retract")
            else:
                origin = run.storage if operation == "h" else savepoint(run.storage, "half")
                run.storage = MemoryStorage(f"lives-{uuid.uuid4().hex}")
                run.pipeline(rows[:stop], start_from=origin).run(engine="embedded")
            assert run.state() == plain(rows[:stop], ttl, behind, 2, stops).state()
        run.run()
        expected = plain(rows, ttl, behind, 2, stops).state()
        assert run.state() == expected
        assert shown_in(rows_in(run.sink), strict=not {"h", "s"} & set(operations)) == expected


def test_a_key_that_comes_back_begins_at_zero() -> None:
    """With the values of a life that has ended, a count would be of two lives."""
    with run_of(at(0, 5, 16), task=Devices(10)) as run:
        run.run()
        assert run.state() == {"a": (1, 16, 16)}


@pytest.mark.parametrize(("second", "rows"), [(9, 2), (10, 1), (11, 1)])
def test_a_message_at_the_end_of_a_life_begins_another(second: int, rows: int) -> None:
    """A life ends at its last message + ttl, and does not hold that time."""
    with run_of(at(0, second), task=Devices(10), step_rows=2) as run:
        run.run()
        assert run.state()["a"][0] == rows


@pytest.mark.parametrize(("clock", "lives"), [(9, True), (10, False), (11, False)])
def test_a_key_is_hidden_when_the_clock_reaches_its_end(clock: int, lives: bool) -> None:
    """One that is shown a millisecond longer at one reader is a difference that nobody can explain."""
    with run_of([*at(0), *at(clock, key="b")], task=Devices(10), step_rows=1) as run:
        assert run.run().expired == (not lives)
        assert ("a" in run.state()) == ("a" in run.shown()) == lives
        assert run.state(key="a") == ({"a": (1, 0, 0)} if lives else {})


@pytest.mark.parametrize(("time", "late"), [(29, 1), (30, 1), (31, 0)])
def test_what_is_late_would_live_no_longer(time: int, late: int) -> None:
    """Late is what would belong to a life that has ended at the clock of the step before."""
    rows = [*at(40, key="b"), *at(time)]
    with run_of(rows, task=Devices(10), step_rows=1) as run:
        report = run.run()
        assert (report.late, "a" in run.state()) == (late, not late)
        assert run.pipeline().late().num_rows == late
        assert "late in" not in str(report), "it has missed no window"


def test_a_record_that_counts_brings_back_a_life_that_has_ended() -> None:
    """A life is a fact of event time: so is what joins it, as long as it is on disk, which is two times the time to
    live. Had the life left at its end, the sum would depend on the steps."""
    rows = [*at(0), *at(19, 19, 19, key="b"), *at(9, 10)]
    for step_rows, fan_in in ((1, 2), (1, 8), (2, 2), (6, 8)):
        with pytest.MonkeyPatch.context() as patch, run_of(rows, task=Devices(11), step_rows=step_rows) as run:
            patch.setattr(compaction, "FAN_IN", fan_in)
            assert run.run().late == 0
            assert run.state()["a"] == run.shown()["a"] == (3, 19, 10)
            if step_rows == 1:
                found = [row["retracted"] for row in run.sink.rows() if row["key"] == "a"]
                assert found == [False, True, False, False]


def test_a_fold_keeps_a_life_of_which_another_run_has_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold of small runs sees a part of a life, and what it drops would be missing when a record brings it back."""
    others = [row for number in range(15) for row in at(0, key=f"k{number}")]
    rows = [*others, *at(0, 14), *at(5), *at(25, 25, 25, 25, key="b"), *at(20)]
    monkeypatch.setattr(compaction, "FAN_IN", 2)
    monkeypatch.setattr(compaction, "_TIER_0_ROWS", 4)
    with run_of(rows, task=Devices(10), step_rows=17) as run:
        run.run(rows[:17])
        run.step_rows = 1
        assert run.run().late == 0
        assert run.state()["a"] == run.shown()["a"] == (4, 39, 20)


def test_the_end_of_the_input_expires_nothing() -> None:
    """The clock alone says what has expired, and the end of the input is not a time."""
    for mode in MODES:
        with run_of(at(5), task=Devices(10, mode)) as run:
            assert run.run().expired == 0
            assert run.shown() == run.state() == {"a": (1, 5, 5)}


def test_expired_keys_leave_the_disk() -> None:
    """A state that keeps each key that ever was grows for ever."""
    rows = [{"ts": time, "key": f"k{time}", "value": 1} for time in range(0, 4000, 5)]
    with run_of(rows, task=Devices(20), step_rows=10) as run:
        run.run()
        runs = Log(run.storage).newest().manifest.state_runs()
        assert sum(one.rows_left for one in runs) < 120
        run.rows = [*rows, *at(4000)]
        run.run()
        compact(run.pipeline())
        runs = Log(run.storage).newest().manifest.state_runs()
        assert sum(one.rows_left for one in runs) == 8, "what ended less than the time to live ago can be joined"


def test_what_is_published_stays_until_it_is_taken_back() -> None:
    """A key that is published at the ends of the input may expire between two, and its deletion must not be lost."""

    class Filtered(Devices):
        def process_batch(self, state: Any, batch: Any) -> None:
            super().process_batch(state, batch.filter(pc.not_equal(batch["key"], "skipped")))

    with run_of(at(0, 1), task=Filtered(10, ("close", "update")), step_rows=1) as run:
        run.run()
        assert run.shown() == {"a": (2, 1, 1)}
        run.rows = [*at(0, 1), *at(100, key="skipped")]
        assert run.run(run.rows).expired == 1
        compact(run.pipeline())
        assert run.shown() == {"a": (2, 1, 1)}, "nothing is published before the end"
        assert run.state() == {}
        run.run()
        assert run.shown() == {}
        assert run.run().outputs == 0


def test_a_sink_that_joins_gets_the_keys_that_live() -> None:
    rows = [*at(0), *at(30, key="b")]
    with run_of(rows, task=Devices(10)) as run:
        run.run()
        other = MemorySink()
        run.rows = [*rows, *at(31, key="b")]
        run.pipeline(sink={"memory": run.sink, "other": other}).run(engine="embedded")
        assert shown_in(other.rows()) == {"b": (2, 61, 31)}


@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("is_told", [False, True])
def test_a_rollback_that_leaves_outputs_takes_back_the_keys_of_them_that_expire(mode: Any, is_told: bool) -> None:
    """They have expired before they are published again: a sink that keeps them would show them for ever."""
    first, second, third = ({"ts": time, "key": key, "value": 1} for time, key in ((4, "z"), (5, "a"), (100, "b")))
    with run_of([first, second, third], task=Devices(30, mode), step_rows=1) as run:
        run.pipeline([first]).run(engine="embedded", end_of_input=is_told)
        before = Log(run.storage).newest().manifest.id
        run.pipeline([first, second]).run(engine="embedded", end_of_input=True)
        assert run.shown().keys() == {"a", "z"}
        rollback(run.storage, before, outputs="again")
        run.run()
        assert shown_in(run.sink.rows(), strict=False) == run.state() == {"b": (1, 1, 1)}
        assert verify(run.storage).ok


@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_what_was_never_published_is_not_taken_back(mode: Any, folds: bool) -> None:
    """Neither does it matter that all that was published has left the disk."""

    class Filtered(Devices):
        def process_batch(self, state: Any, batch: Any) -> None:
            super().process_batch(state, batch.filter(pc.not_equal(batch["key"], "skipped")))

    told = [*at(1, 2, 3), *at(100, 101, 200, 201, key="skipped")]
    unseen = [*told, *at(202, key="b"), *at(300, 301, key="skipped")]
    with run_of([*unseen, *at(400, 401, key="c")], task=Filtered(10, mode), step_rows=1) as run:
        run.pipeline(told[:3]).run(engine="embedded", end_of_input=True)
        run.pipeline(told).run(engine="embedded", end_of_input=True)
        run.pipeline(told).run(engine="embedded")
        if folds:
            compact(run.pipeline(told))
            assert not Log(run.storage).newest().manifest.state_runs()
        sink = run.sink if mode[0] == "close" else None
        run.pipeline(unseen, sink=sink).run(engine="embedded")
        run.run()
        assert shown_in(run.sink.rows()) == run.state() == {"c": (2, 801, 401)}


def test_a_table_of_newest_rows_marks_what_has_expired(tmp_path: Any) -> None:
    """It holds one row of a key, and ``WHERE NOT retracted`` is what lives."""
    sink = SqliteSink(tmp_path / "shown.db", "shown", mode="upsert")
    with run_of([*at(0), *at(30, key="b")], task=Devices(10), step_rows=1, sink=sink) as run:
        run.run()
        assert [(row["key"], row["retracted"]) for row in rows_in(sink)] == [("a", 1), ("b", 0)]


def test_a_job_without_a_sink_counts_what_expires() -> None:
    rows = [*at(0), *at(30, key="b")]
    with run_of(rows, task=Devices(10)) as run:
        report = run.run(sink=None)
        assert report.expired == 1
        assert "1 key expired" in str(report)
        assert run.state() == {"b": (1, 30, 30)}


def test_a_step_that_expires_nothing_looks_no_key_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step costs grows with its delta and with what expires, never with the state."""
    rows = [*({"ts": 0, "key": f"k{number}", "value": 1} for number in range(50)), *at(1, 2, 3)]
    from persistent.worker import merge_runs

    found: list[int] = []
    real = merge_runs.find_in_run
    monkeypatch.setattr(merge_runs, "find_in_run", lambda *given: found.append(len(given[-1])) or real(*given))
    with run_of(rows, task=Devices(10), step_rows=50) as run:
        run.run()
    assert set(found) <= {1}


def test_as_of_is_refused_with_the_way_out() -> None:
    with run_of(at(0, 5)) as run:
        run.run()
        with pytest.raises(UnknownCheckpoint, match=r"keeps the lives of its keys.*--at ID"):
            run.state(as_of=0)


def test_another_time_to_live_is_refused() -> None:
    """What has left the disk under one would be missing under another."""
    with run_of(at(0, 5), task=Devices(10)) as run:
        run.run()
        run.task = Devices(11)
        with pytest.raises(FingerprintChanged, match='ttl: "10 ms" -> "11 ms"'):
            run.run()
        with pytest.raises(InvalidPipeline, match='the state of ttl="11 ms" cannot be migrated'):
            run.run(evolve=Evolution(removed=["most"]))


def test_two_jobs_are_not_merged(tmp_path: Any) -> None:
    """Each goes by its own clock: what has left one could join what the other has counted."""
    with run_of(at(0)) as one, run_of(at(3)) as other:
        for run, name in ((one, "x"), (other, "y")):
            folder = tmp_path / name
            folder.mkdir()
            (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in run.rows), encoding="utf-8")
            source = FileSource(folder, timestamp="ts", timestamp_unit="ms", ordered=True)
            made = Pipeline(source={name: source}, task=run.task, checkpoint=run.storage, sink=run.sink)
            made.run(engine="embedded", end_of_input=True)
        with pytest.raises(Refused, match="keep keys with a time to live"):
            merge(one.storage, other.storage, MemoryStorage("lives-merged"))


def test_the_difference_of_two_checkpoints_shows_what_expired() -> None:
    with run_of([*at(0), *at(3, key="b"), *at(11, key="c")], step_rows=1) as run:
        run.run()
        newest = Log(run.storage).newest().manifest.id
        found = diff(place(run.storage, newest - 2), place(run.storage, newest), pipeline=run.pipeline())
        assert [(row["key"], row["change"]) for row in found.rows.to_pylist()] == [("a", "removed"), ("c", "added")]


def test_an_update_of_a_life_that_has_ended_is_an_error_in_the_task() -> None:
    class Minus(Devices):
        def process_batch(self, state: Any, batch: Any) -> None:
            times = np.asarray(batch.timestamps) - 25
            state.update_batch(times, {"rows": 1}, keys=batch["key"])

    job = run_of(at(50, 60), task=Minus(10), step_rows=1)
    with job as run, pytest.raises(UserCodeError, match='with ttl="10 ms" it has ended by the clock'):
        run.run()


@pytest.mark.parametrize(
    ("made", "error", "said"),
    [
        (lambda: NonWindowState(Sum(), ttl=0), ValueError, "lives for no time"),
        (lambda: NonWindowState(Sum(), ttl=-1), ValueError, "ttl: -1 is negative"),
        (lambda: NonWindowState(Sum(), ttl="7 day", history="1 h"), ValueError, "omit one of them"),
        (lambda: NonWindowState(ListConcat(int), ttl="7 day"), TypeError, "First, Last, MinBy and MaxBy"),
        (lambda: NonWindowState(3, ttl="7 day"), TypeError, "a state is made of a monoid"),
        (lambda: NonWindowState(Sum(), ttl="soon"), ValueError, "ttl: 'soon' is not a duration"),
    ],
)
def test_what_is_not_possible_is_refused_where_it_is_made(made: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        made()


def test_a_state_without_one_is_as_before() -> None:
    """Its fingerprint, and so its checkpoint, must not change."""
    assert NonWindowState(Sum()).fingerprint().keys() == {"state", "monoid", "window", "interval_ms"}
    assert NonWindowState(Sum(), ttl="1 s").fingerprint() == {**NonWindowState(Sum()).fingerprint(), "ttl_ms": 1000}


def test_a_manifest_says_that_its_keys_expire() -> None:
    """Read back without it, they would count for ever."""
    with run_of(at(0, 5)) as run:
        run.run()
        manifest = Log(run.storage).newest().manifest
        assert only(Manifest.decode(manifest.encode(), "there").nodes).has_time_to_live


def test_a_state_on_its_own_has_no_clock() -> None:
    """Its value is that of the last life of all updates, and a checkpoint keeps every one: another that comes later may
    join two lives."""
    state = NonWindowState(record(rows=Count(), total=Sum()), ttl=10, interval_ms=10)
    assert state.get() == {"rows": 0, "total": 0}
    for time in (1, 5, 16, 21):
        state.update(time, {"rows": 1, "total": time})
    assert state.get() == {"rows": 2, "total": 37}
    saved = state.checkpoint(20)
    state.update(12, {"rows": 1, "total": 12})
    assert state.get() == {"rows": 5, "total": 55}
    state.recover(20, saved)
    assert state.get() == {"rows": 1, "total": 16}
    state.update_batch(np.array([21, 12]), {"rows": 1, "total": np.array([21, 12])})
    assert state.get() == {"rows": 5, "total": 55}


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 2)), min_size=1, max_size=30), st.integers(1, 20))
def test_grouping_in_one_pass_equals_the_sum_of_one_value_each(pairs: list[tuple[int, int]], ttl_ms: int) -> None:
    ttl = TimeToLive(ttl_ms)
    monoid = ttl.kept_as(Sum())
    times, names = (np.array(some) for some in zip(*pairs))
    rows = group_sessions(monoid, ttl, [pa.array(names)], times, Sum().lift_rows(1, len(times)))
    found = dict(zip(rows.keys[0].to_pylist(), monoid.unpack(rows.columns)))
    lifted = {name: [monoid.lift((time, 1)) for time, key in pairs if key == name] for name in set(names.tolist())}
    assert found == {name: monoid.fold(some) for name, some in lifted.items()}
    assert set(rows.panes.tolist()) == {OPEN_PANE}


@settings(max_examples=50)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=12), st.integers(1, 9), st.integers(0, 80))
def test_what_lives_at_a_clock_is_the_last_life(times: list[int], ttl_ms: int, clock: int) -> None:
    ttl = TimeToLive(ttl_ms)
    monoid = ttl.kept_as(Sum())
    rows = group_sessions(monoid, ttl, [], np.array(times), Sum().lift_rows(1, len(times)))
    lives = [(first, last) for first, last, _ in monoid.unpack(rows.columns)[0]]
    living = ttl.living(rows, clock)
    shown = [(first, last) for element in monoid.unpack(living.columns) for first, last, _ in element]
    assert shown == [life for life in lives[-1:] if life[1] + ttl_ms > clock]
    assert ttl.ended(rows, 10, clock) == sum(10 < last + ttl_ms <= clock for _, last in lives)


def test_first_keeps_an_order_and_may_expire() -> None:
    """The way out that the error names works."""

    class Firsts(PersistentTask):
        key = "key"

        def persistent_state(self) -> NonWindowState:
            return NonWindowState(First(), ttl=10)

        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, (message.order, message.value["value"]))

    pipeline = Pipeline(
        source=MemorySource(at(0, 5, 30, 31), timestamp="ts", ordered=True),
        task=Firsts(),
        checkpoint=MemoryStorage("lives-first"),
    )
    pipeline.run(engine="embedded")
    assert pipeline.state().to_pylist() == [{"key": "a", "value": 30}]


@pytest.mark.check
@pytest.mark.parametrize("mode", MODES)
def test_no_fault_loses_an_expiry(mode: Any) -> None:
    """Crashes, lost answers, torn files, pauses and second drivers at random places."""
    rows = devices(7, 30, 4, 10)

    def made() -> Pipeline:
        source = MemorySource(rows, timestamp="ts", ordered=True, max_out_of_orderness=4)
        sink, checkpoint = FileSink("memory://lives-shown"), MemoryStorage("lives-simulated")
        options = {"step_rows": 3, "max_future": "40000 days"}
        return Pipeline(source=source, task=Devices(10, mode), sink=sink, checkpoint=checkpoint, **options)

    assert simulate(made, seeds=range(examples(30))).struck


def test_the_test_kit_compares_what_readers_see() -> None:
    """A row that is taken back is not a result, however the job is cut."""
    rows = sorted(devices(5, 6, 0, 10), key=lambda row: row["ts"])
    verify_task(Devices(10, MODES[2]), rows, timestamp="ts")
    with run_of([*at(0, 5), *at(30, 31, key="b")], task=Devices(10), step_rows=1) as run:
        run.run()
        found = outcome_of(run.pipeline(), run.sink.rows())
        assert [place.key for place, _ in found.at("outputs")] == [("b",)]


@pytest.mark.check
@pytest.mark.spark
@pytest.mark.parametrize("step_rows", [5, 60])
def test_on_spark_keys_are_the_plain_ones(step_rows: int, spark: Any, tmp_path: Any) -> None:
    rows = devices(3, 40, 4, 10)
    run = Run(rows, Devices(10), 4, step_rows, tmp_path / "checkpoint", SqliteSink(tmp_path / "shown.db", "shown"))
    run.pipeline().run(spark, end_of_input=True)
    expected = plain(rows, 10, 4, step_rows).state()
    assert run.state() == expected
    assert shown_in(rows_in(run.sink)) == expected
