"""Sessions of a job equal the plain ones, whatever the disorder, the steps and the restarts."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, First, ListConcat, Sum, record
from monoids.containers.intervals import Sessions
from persistent import (
    Evolution,
    FileSink,
    FingerprintChanged,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    UserCodeError,
    WindowState,
    session,
    tumbling,
)
from persistent.operations import compact, restart, rollback, savepoint
from persistent.reading import state_table
from persistent.state.rows import fold
from persistent.storage import MemoryStorage
from persistent.time.session_window import SessionWindow, group_sessions
from persistent.verify import verify
from tests.few import examples
from tests.sessions import Run, Visits, disordered, expected, kept_of, run_of, sessions_in

GAPS_AND_CUTS = st.sampled_from(((10, 50), (1, 7), (10, 10), (7, 1000), (3, 8)))


def at(*times: int, key: str = "a") -> list[dict[str, Any]]:
    return [{"ts": time, "key": key, "value": time} for time in times]


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), GAPS_AND_CUTS, st.sampled_from((1, 3, 7, 60)), st.lists(st.integers(1, 40), max_size=2))
def test_sessions_come_to_the_plain_ones(seed: int, sizes: tuple[int, int], step_rows: int, stops: list[int]) -> None:
    """With nothing late, steps and restarts change nothing."""
    comes_to_the_plain_ones(seed, sizes, step_rows, stops)


@pytest.mark.check
@settings(max_examples=examples(100), deadline=None)
@given(
    st.integers(0, 10**6), GAPS_AND_CUTS, st.sampled_from((1, 2, 3, 7, 60)), st.lists(st.integers(1, 40), max_size=3)
)
def test_many_come_to_the_plain_ones(seed: int, sizes: tuple[int, int], step_rows: int, stops: list[int]) -> None:
    comes_to_the_plain_ones(seed, sizes, step_rows, stops)


def comes_to_the_plain_ones(seed: int, sizes: tuple[int, int], step_rows: int, stops: list[int]) -> None:
    behind = (0, 4, 30)[seed % 3]
    rows = disordered(seed, 20, behind, sizes[0])
    with run_of(rows, task=Visits(*sizes), behind=behind, step_rows=step_rows) as run:
        for stop in sorted(stops):
            run.run(rows[:stop])
        assert run.run().late == 0
        assert run.published() == expected(rows, *sizes)
        assert run.run().outputs == 0, "a second end publishes nothing again"


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), GAPS_AND_CUTS, st.sampled_from((1, 2, 3, 7)))
def test_what_is_late_is_counted_and_changes_nothing(seed: int, sizes: tuple[int, int], step_rows: int) -> None:
    """A record before the clock of the step before could join sessions that are published."""
    rows = disordered(seed, 20, 30, sizes[0])
    with run_of(rows, task=Visits(*sizes), behind=5, step_rows=step_rows) as run:
        report = run.run()
        kept = kept_of(run)
        assert report.late == len(rows) - len(kept) == run.pipeline().late().num_rows
        assert run.published() == expected(kept, *sizes)


def test_a_session_that_loses_its_bridge() -> None:
    """The record between two open sessions comes last: they are one, whatever was folded before."""
    for step_rows in (1, 2, 3):
        with run_of([*at(0, 18), *at(9)], behind=20, step_rows=step_rows) as run:
            run.run(run.rows[:2])
            compact(run.pipeline())
            assert sessions_in(run.pipeline().state().to_pylist()) == [("a", 0, 10, 1, 0, 0), ("a", 18, 28, 1, 18, 18)]
            run.run()
            assert run.published() == [("a", 0, 28, 3, 27, 18)]


def test_a_record_at_the_gap_begins_a_session_and_one_before_it_does_not() -> None:
    with run_of([*at(0, 9, 19), *at(0, 10, key="b")], step_rows=9) as run:
        run.run()
        assert [found[:3] for found in run.published()] == [("a", 0, 19), ("a", 19, 29), ("b", 0, 10), ("b", 10, 20)]


def test_a_session_ends_at_the_cut() -> None:
    """Without it, a key that is never silent would have a session for ever."""
    with run_of(at(*range(41, 60, 3))) as run:
        run.run()
        assert [found[1:3] for found in run.published()] == [(41, 50), (50, 69)]
    with run_of(at(45, 49, 50)) as run:
        run.run(run.rows)
        assert [found[1:3] for found in run.published()] == [(45, 50)], "closed by the clock at the cut itself"


def test_a_record_at_the_clock_counts_and_one_before_it_is_late() -> None:
    """At the clock it is the gap behind a session that has closed there; before it, it would join that session."""
    for late in (0, 1):
        with run_of([*at(0), *at(10, key="b"), *at(10 - late)], step_rows=1) as run:
            report = run.run()
            assert report.late == late
            assert run.published()[0] == ("a", 0, 10, 1, 0, 0)


def test_a_session_closes_in_a_step_without_its_key() -> None:
    with run_of([*at(0, 1), *at(11, key="b"), *at(12, key="b")], step_rows=2) as run:
        run.run(run.rows[:3])
        assert run.published() == [("a", 0, 11, 2, 1, 1)]
        run.run()
        assert run.published() == [("a", 0, 11, 2, 1, 1), ("b", 11, 22, 2, 23, 12)]


def test_after_the_end_of_the_input_a_key_begins_again() -> None:
    """The end closes up to the last session, not up to the cut: what comes after it counts."""
    with run_of(at(0, 5)) as run:
        run.run()
        run.rows = [*run.rows, *at(14, 15, 60)]
        assert run.run().late == 1
        assert [found[:4] for found in run.published()] == [("a", 0, 15, 2), ("a", 15, 25, 1), ("a", 60, 70, 1)]


def test_open_sessions_are_counted_by_their_cells_and_shown() -> None:
    with run_of([*at(5, 8), *at(30, key="b"), *at(62)], behind=60) as run:
        report = run.run(run.rows)
        assert report.open_windows == 2 and "open windows: 2" in str(report)
        shown = [("a", 5, 18, 2, 13, 8), ("a", 62, 72, 1, 62, 62), ("b", 30, 40, 1, 30, 30)]
        assert sessions_in(run.pipeline().state().to_pylist()) == shown
        assert sessions_in(state_table(run.pipeline(), key="b").to_pylist()) == shown[2:]
        with pytest.raises(InvalidPipeline, match=r'session\("10 ms", cut="50 ms"\) has no windows .* omit window='):
            state_table(run.pipeline(), window=0)
        assert verify(run.storage).ok


def test_a_run_that_publishes_nothing_says_until_when_at_least() -> None:
    """A message makes a session longer than it is."""
    with run_of(at(8)) as run:
        said = "sessions are open, and none closes before the clock reaches 1970-01-01 00:00:00.018Z; it is at"
        assert said in str(run.run(run.rows))


def test_a_savepoint_starts_a_job_that_publishes_the_rest() -> None:
    rows = disordered(3, 30, 0, 10)
    with run_of(rows, step_rows=5) as run, run_of(rows, step_rows=5) as other:
        run.run(rows[:15])
        before = run.published()
        other.pipeline(start_from=savepoint(run.storage, "half")).run(engine="embedded", end_of_input=True)
        assert before and sorted([*before, *other.published()]) == expected(kept_of(run), 10, 50)


@pytest.mark.parametrize("outputs", ["retract", "again"])
def test_a_rollback_publishes_what_it_has_taken_back(outputs: str) -> None:
    rows = disordered(5, 30, 0, 10)
    with run_of(rows, step_rows=5) as run:
        run.run()
        rollback(run.storage, 4, outputs=outputs)
        run.run()
        again = run.published()
        assert sorted(set(again)) == expected(kept_of(run), 10, 50)
        assert (len(again) == len(set(again))) == (outputs == "retract")


def test_a_restart_is_possible_only_where_no_session_is_published() -> None:
    """One that began after the clock would be published twice; sessions of a clock on a cut begin after it."""
    with run_of([*at(45), *at(50, key="b"), *at(70, key="c")], step_rows=1) as run:
        run.run(run.rows[:2])
        run.run(run.rows)
        published = [("a", 45, 50, 1, 45, 45), ("b", 50, 60, 1, 50, 50)]
        assert run.published() == published and run.pipeline().state(as_of=50).num_rows == 0
        restart(run.pipeline(), 50, outputs="retract")
        run.run()
        assert run.published() == [*published, ("c", 70, 80, 1, 70, 70)]


def test_another_gap_or_cut_is_refused() -> None:
    """What is published cannot be divided otherwise."""
    with run_of(at(0, 5, 30)) as run:
        run.run(run.rows)
        for task in (Visits(11, 50), Visits(10, 60)):
            run.task = task
            with pytest.raises(FingerprintChanged, match=r'window: session\("10 ms", cut="50 ms"\) -> session'):
                run.run()


def test_a_migration_is_refused() -> None:
    with run_of(at(0)) as run, pytest.raises(InvalidPipeline, match="cannot be migrated: omit evolve="):
        run.pipeline(evolve=Evolution(removed=["most"]))


@pytest.mark.parametrize("step_rows", [1, 2, 9])
def test_sessions_that_are_dropped_are_counted(step_rows: int) -> None:
    """Each once, however many of one key lie in a cell, and in however many parts."""
    with run_of([*at(0, 6, 20, 55), *at(80, key="b")], step_rows=step_rows) as run:
        steps: list[int] = []
        pipeline = run.pipeline(sink=None, discard_closed=True)
        report = pipeline.run(engine="embedded", on_step=lambda step: steps.append(step.discarded))
        assert report.discarded == sum(steps) == 3 and "3 windows closed and discarded" in str(report)
        assert run.run(sink=None, discard_closed=True).discarded == 1


@pytest.mark.parametrize("seed", range(3))
def test_as_many_are_dropped_as_would_be_published(seed: int) -> None:
    rows = disordered(seed, 30, 9, 10)
    with run_of(rows, behind=9) as run:
        report = run.run(sink=None, discard_closed=True)
        assert report.outputs == 0 and report.discarded == len(expected(kept_of(run), 10, 50)) > 9


class Hasty(PersistentTask):
    """Updates at another time than its message's."""

    name = "sessions"
    key = "key"

    def persistent_state(self) -> WindowState:
        return WindowState(Sum(), session(10, cut=50))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp - 6, 1, key="b")
        state.update(message.timestamp, message.value["value"])


def test_an_update_before_the_clock_is_an_error_in_the_task() -> None:
    """It could join a session that is published."""
    sink, storage = MemorySink(), MemoryStorage(uuid.uuid4().hex)
    source = MemorySource(at(20, 26, 31), timestamp="ts", ordered=True)
    pipeline = Pipeline(source=source, task=Hasty(), sink=sink, checkpoint=storage, step_rows=1)
    with pytest.raises(UserCodeError, match=r"an update at 25 .* a session that has closed, .* the clock of the step"):
        pipeline.run(engine="embedded")
    assert state_table(pipeline, key="b").to_pylist()[0]["value"] == 2, "14 and 20, and not 25"
    storage.clear()


@pytest.mark.parametrize(
    ("made", "error", "said"),
    [
        (lambda: session(0), ValueError, "at least 1 ms, not 0 and 86400000"),
        (lambda: session(10, cut=0), ValueError, "at least 1 ms, not 10 and 0"),
        (lambda: session("2 days"), ValueError, r'"2 d", cut="1 d"\): the gap is longer .* longer cut'),
        (lambda: session("1 hour?"), ValueError, "gap: '1 hour\\?' is not a duration"),
        (lambda: WindowState(ListConcat(int), session(10)), TypeError, "not declared commutative.* keep an order"),
        (lambda: WindowState(Count, session(10)), TypeError, "is a class"),
        (
            lambda: WindowState(Sum(), session(10), late="accumulate"),
            ValueError,
            'taken back: omit late=, or use late="r',
        ),
        (
            lambda: WindowState(Sum(), session(10), emit="change", changes="update"),
            ValueError,
            'other borders, or join it to another.* changes="retract"',
        ),
        (lambda: WindowState(Sum(), session(10), interval_ms=10), ValueError, "omit interval_ms="),
    ],
)
def test_what_is_not_possible_is_refused_where_it_is_made(made: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        made()


def test_a_gap_without_a_unit_is_asked_about() -> None:
    assert session(60).bare == "session(60)" and not session("1 min").bare and not session(60_000).bare


def test_a_state_on_its_own_has_sessions() -> None:
    """And keeps its contract at the multiples of the cut."""
    state, other = (WindowState(record(n=Count()), session(10, cut=50)) for _ in range(2))
    for time in (12, 3, 49, 52):
        state.update(time, {"n": 1})
    other.update_batch(np.array([52, 49, 12, 3]), {"n": 1})
    assert state.get() == other.get() == {(3, 22): {"n": 2}, (49, 50): {"n": 1}, (52, 62): {"n": 1}}
    assert state.checkpoint(50) == other.checkpoint(50)
    other.recover(50, state.checkpoint(50))
    assert other.get() == {(3, 22): {"n": 2}, (49, 50): {"n": 1}}
    with pytest.raises(ValueError, match="not on the grid of this state, the borders of session"):
        state.checkpoint(60)


@given(st.lists(st.tuples(st.integers(0, 99), st.sampled_from("ab"), st.integers(-3, 3)), max_size=12), GAPS_AND_CUTS)
def test_grouping_in_one_pass_equals_the_sum_of_one_value_each(
    rows: list[tuple[int, str, int]], sizes: tuple[int, int]
) -> None:
    window, inner = session(sizes[0], cut=sizes[1]), record(n=Count(), total=Sum())
    monoid = Sessions(sizes[0], inner)

    def grouped(some: list[tuple[int, str, int]]) -> Any:
        times = np.array([time for time, _, _ in some], np.int64)
        values = inner.lift_rows({"n": 1, "total": pa.array([value for *_, value in some], pa.int64())}, len(some))
        return group_sessions(monoid, window, [pa.array([key for _, key, _ in some], pa.string())], times, values)

    whole, apart = grouped(rows), fold(monoid, [grouped([row]) for row in rows] or [grouped([])], window.size_ms)
    assert monoid.unpack(whole.columns) == monoid.unpack(apart.columns)
    assert (whole.panes.tolist(), whole.hashes.tolist()) == (apart.panes.tolist(), apart.hashes.tolist())
    assert len(rows) == 0 or whole.keys[0].equals(apart.keys[0])


def test_windows_are_as_they_read() -> None:
    assert str(session("90 s", cut="1 h")) == 'session("90 s", cut="1 h")'
    assert isinstance(session(1), SessionWindow) and session(5, cut=50) != tumbling(50)
    assert session(5, cut=50).ends(np.array([0, 47])).tolist() == [5, 50]
    assert NonWindowState(First(int)).window is None


@settings(max_examples=examples(100))
@given(st.integers(0, 99), st.integers(0, 99))
def test_what_is_late_is_before_the_clock(time: int, clock: int) -> None:
    """Looked at one by one, or all at once."""
    window = session(5, cut=20)
    late, partly = window.late(np.array([time]), clock)
    assert late.tolist() == [window.may_be_late(time, clock)] == [time < clock] and not partly.any()
    assert window.is_untouched(time, clock) == (clock <= time)


@pytest.mark.check
@pytest.mark.spark
@pytest.mark.parametrize("step_rows", [4, 50])
def test_on_spark_sessions_are_the_plain_ones(step_rows: int, spark: Any, tmp_path: Any) -> None:
    """Runs and agendas travel between processes, and keys are looked up where the files are."""
    rows = disordered(8, 40, 10, 10)
    run = Run(rows, behind=10, step_rows=step_rows, storage=str(tmp_path / "checkpoint"))
    run.sink = FileSink(str(tmp_path / "sink"))
    source = MemorySource(rows, timestamp="ts", ordered=True, max_out_of_orderness=10)
    made = Pipeline(source=source, task=run.task, sink=run.sink, checkpoint=run.storage, step_rows=step_rows)
    assert made.run(spark, end_of_input=True).late == 0
    files = sorted((tmp_path / "sink").glob("*.parquet"))
    assert sessions_in([row for file in files for row in pq.read_table(file).to_pylist()]) == expected(rows, 10, 50)
