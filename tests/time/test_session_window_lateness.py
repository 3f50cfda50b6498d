"""Sessions with lateness: after every step a reader holds the closed sessions of all records that counted by then."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, Sum
from persistent import (
    Embedded,
    FileSink,
    FingerprintChanged,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    PersistentTask,
    Pipeline,
    Retention,
    SqliteSink,
    WindowState,
    session,
)
from persistent.checkpoint import compaction
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.driver import step as steps
from persistent.operations import compact, rollback, savepoint
from persistent.reading import diff, place
from persistent.testing import simulate, verify_task
from persistent.verify import verify
from tests.few import examples, one_in
from tests.sessions import Row, Run, Visits, expected, held, kept_of, run_of, sessions_in, settled, straggling
from tests.single import only

GAPS_AND_CUTS = st.sampled_from(((10, 50), (1, 7), (10, 10), (7, 1000), (3, 8)))
ALLOWED = st.sampled_from((5, 30, 80, 200))


def at(*times: int, key: str = "a") -> list[Row]:
    return [{"ts": time, "key": key, "value": time} for time in times]


def manifests(run: Run) -> list[Manifest]:
    """The kept checkpoints, oldest first."""
    log = Log(run.storage)
    return [log.read(id).manifest for id in sorted(newest_of(log).manifest.bases)]


def check(run: Run, stops: Sequence[int] = ()) -> None:
    """At every checkpoint, the reader holds what the plain computation has closed."""
    gap, cut, rows = run.task.gap, run.task.cut, run.sink.rows()
    for manifest in manifests(run):
        read = sum(account.read for account in manifest.accounts.values())
        plain = expected(kept_of(run, stops, read), gap, cut)
        closed = manifest.clock.closed
        assert held(rows, manifest.revision) == [one for one in plain if one[2] <= closed], f"at {manifest.id}"
        assert only(manifest.nodes).final <= closed


def run(run: Run, rows: Sequence[Row] | None = None, **options: Any) -> Any:
    return run.run(rows, retention=Retention(last=10_000), **options)


@contextmanager
def small_folds(seed: int) -> Iterator[None]:
    """Steps fold at once, and small pieces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "FAN_IN", 2 + seed % 3)
        patch.setattr(compaction, "_TIER_0_ROWS", 2 + seed % 5)
        patch.setattr(compaction, "_ROWS_MIN", 1 + seed % 7)
        patch.setattr(compaction, "_DELTAS_AT_ONCE", 1)
        patch.setattr(steps, "SHARD_ROWS", 1 + seed % 4)
        yield


def comes_to_the_plain_ones(
    seed: int, sizes: tuple[int, int], allowed: int, step_rows: int, stops: Sequence[int]
) -> None:
    behind = (0, 4, 30)[seed % 3]
    rows = straggling(seed, 30, behind, sizes[0], allowed)
    task = Visits(*sizes, allowed_lateness=allowed)
    stops = sorted(min(stop, len(rows)) for stop in stops)
    with small_folds(seed), run_of(rows, task=task, behind=behind, step_rows=step_rows) as made:
        for number, stop in enumerate(stops):
            run(made, rows[:stop], engine=Embedded(threads=1 + number % 3))
            if number % 2:
                compact(made.pipeline())
        report = run(made)
        kept = kept_of(made, stops)
        assert report.late + len(kept) == len(rows) or stops
        assert made.pipeline().late().num_rows == len(rows) - len(kept)
        assert held(made.sink.rows()) == expected(kept, *sizes)
        check(made, stops)
        assert run(made).outputs == 0, "a second end publishes nothing again"
        assert verify(made.storage).ok


@settings(max_examples=3, deadline=None)
@given(
    st.integers(0, 10**6), GAPS_AND_CUTS, ALLOWED, st.sampled_from((1, 2, 5)), st.lists(st.integers(1, 40), max_size=2)
)
def test_a_reader_holds_the_plain_sessions_at_every_step(
    seed: int, sizes: tuple[int, int], allowed: int, step_rows: int, stops: list[int]
) -> None:
    comes_to_the_plain_ones(seed, sizes, allowed, step_rows, stops)


@pytest.mark.check
@settings(max_examples=examples(75), deadline=None)
@given(
    st.integers(0, 10**6),
    GAPS_AND_CUTS,
    ALLOWED,
    st.sampled_from((1, 2, 3, 7, 60)),
    st.lists(st.integers(1, 40), max_size=3),
)
def test_many_readers_hold_the_plain_sessions_at_every_step(
    seed: int, sizes: tuple[int, int], allowed: int, step_rows: int, stops: list[int]
) -> None:
    comes_to_the_plain_ones(seed, sizes, allowed, step_rows, stops)


def late(rows: Sequence[Row], allowed: int = 100, **options: Any) -> Any:
    """A job of steps of one record, that allows lateness."""
    return run_of(rows, task=Visits(allowed_lateness=allowed, **options), step_rows=1)


def published(made: Run) -> list[tuple[Any, ...]]:
    """Each row of "a" in the order in which it was published: borders, count, and whether it takes back."""
    return [(*sessions_in([row])[0][1:4], row["retracted"]) for row in made.sink.rows() if row["key"] == "a"]


CLOCK = at(40, key="z")
"""Moves the clock on: sessions that end up to there close with the next step."""
END = at(41, key="z")


def test_a_late_record_joins_two_published_sessions() -> None:
    """Both are taken back, each with its own borders, and the one that they have become is published."""
    with late([*at(0, 18), *CLOCK, *END, *at(9)]) as made:
        report = run(made)
        assert published(made)[:5] == [
            (0, 10, 1, False),
            (18, 28, 1, False),
            (0, 10, 1, True),
            (18, 28, 1, True),
            (0, 28, 3, False),
        ]
        assert report.corrected == 2 and report.late == 0
        check(made)


def test_a_late_record_opens_a_published_session_again() -> None:
    """It is taken back at once, and published when it closes again: never is what is open public."""
    with late([*at(25), *CLOCK, *END, *at(34), *at(60, key="z"), *at(61, key="z")]) as made:
        report = run(made)
        assert published(made)[:3] == [(25, 35, 1, False), (25, 35, 1, True), (25, 44, 2, False)]
        assert report.corrected == 1
        check(made)


def test_a_late_record_begins_a_session_that_is_published_at_once() -> None:
    with late([*at(0), *CLOCK, *END, *at(20)]) as made:
        report = run(made)
        assert published(made)[:2] == [(0, 10, 1, False), (20, 30, 1, False)]
        assert report.corrected == 0, "nothing was taken back"
        check(made)


def test_a_late_record_within_a_session_changes_its_values_alone() -> None:
    """The borders stay, so the old row is followed by the new one."""
    with late([*at(0, 5), *CLOCK, *END, *at(3)]) as made:
        run(made)
        assert published(made)[:3] == [(0, 15, 2, False), (0, 15, 2, True), (0, 15, 3, False)]
        check(made)


def test_a_late_record_before_the_cut_changes_no_border() -> None:
    """Sessions end at the cut, whenever the last record was."""
    with late([*at(45), *at(70, 71, key="z"), *at(49, 50)]) as made:
        run(made)
        assert published(made)[:4] == [(45, 50, 1, False), (45, 50, 1, True), (45, 50, 2, False), (50, 60, 1, False)]
        check(made)


def test_what_stays_equal_is_not_published_again() -> None:
    """A maximum that a late record does not raise is no correction."""

    class Peak(Visits):
        def persistent_state(self) -> WindowState:
            return WindowState(Sum(), session(10, cut=50), allowed_lateness=100)

        def process_batch(self, state: Any, batch: Any) -> None:
            state.update_batch(batch.timestamps, batch["value"])

    rows = [*at(0, 5), *CLOCK, *END, {"ts": 3, "key": "a", "value": 0}]
    with run_of(rows, task=Peak(allowed_lateness=100), step_rows=1) as made:
        report = run(made)
        assert report.corrected == 0 and [row["retracted"] for row in made.sink.rows()].count(True) == 0


def test_a_record_before_the_allowed_lateness_is_late_and_one_at_it_counts() -> None:
    """At the border it begins a session behind one that is final, and joins none."""
    for before in (0, 1):
        with late([*at(0), *at(15, key="z"), *at(16, key="z"), *at(11 - before)], allowed=5) as made:
            report = run(made)
            assert report.late == before
            assert report.late_windows == ({"sessions": {0: 1}} if before else {})
            assert published(made)[0] == (0, 10, 1, False) and not any(row["retracted"] for row in made.sink.rows())
            check(made)


# -- options -------------------------------------------------------------------------------------------------------


def test_once_when_nothing_can_change_it() -> None:
    """With emit="final" nothing is taken back, and the rows have no such column."""
    rows = straggling(4, 40, 5, 10, 20)
    with run_of(rows, task=Visits(allowed_lateness=20, emit="final"), behind=5) as made:
        run(made)
        assert made.published() == expected(kept_of(made), 10, 50)
        assert "retracted" not in made.sink.rows()[0]
        assert [row["revision"] for row in made.sink.rows()] == sorted(row["revision"] for row in made.sink.rows())


def test_lateness_can_change_between_runs() -> None:
    """Less makes sessions final earlier, and more opens none again that is final."""
    rows = [*at(0), *at(30, key="z"), *at(31, key="z"), *at(5), *at(90, key="z"), *at(91, key="z"), *at(9, 85)]
    with run_of(rows, task=Visits(allowed_lateness=40), step_rows=1) as made:
        run(made, rows[:4])
        made.task = Visits(allowed_lateness=10)
        run(made, rows[:6])
        made.task = Visits(allowed_lateness=80)
        report = run(made)
        assert report.late == 1, "what was final at 81 takes nothing, although 91 - 80 is 11"
        kept = [row for row in rows if row["ts"] != 9]
        assert held(made.sink.rows()) == expected(kept, 10, 50)


def test_lateness_can_be_added_to_a_job_and_taken_away() -> None:
    """What was published without it is final; and it ends when nothing published can change."""
    rows = [*at(0), *at(40, key="z"), *at(41, key="z"), *at(5, 31), *at(60, 61, key="z"), *at(45), *at(99, key="z")]
    with run_of(rows, task=Visits(), step_rows=1) as made:
        assert run(made, rows[:3]).outputs == 1
        made.task = Visits(allowed_lateness=30)
        assert run(made, rows[:8]).late == 2, "5 and 31: before the clock at which lateness began"
        said = r'still be taken back.*or with emit="final", none.*allowed_lateness=0, late="retract" and no emit='
        for options in ({}, {"allowed_lateness": 30, "emit": "final"}):
            made.task = Visits(**options)
            with pytest.raises(FingerprintChanged, match=said):
                run(made)
        made.task = Visits(allowed_lateness=0, late="retract")
        run(made)
        kept = [row for row in rows if row["ts"] not in (5, 31)]
        # What was published without lateness has no revision.
        shown = [{**row, "revision": row.get("revision") or 0} for row in made.sink.rows()]
        assert held(shown) == expected(kept, 10, 50)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"allowed_lateness": 5, "late": "accumulate"}, "late='accumulate': .* other borders, .* late=\"retract\""),
        ({"emit": "change", "changes": "update"}, "changes='update': .* omit changes=, or use changes=\"retract\""),
        ({"allowed_lateness": 5, "changes": "update"}, "a row of other borders replaces nothing"),
        ({"emit": "change", "late": "retract"}, "omit late, and choose changes="),
        ({"allowed_lateness": 5, "interval_ms": 5}, "omit interval_ms="),
    ],
)
def test_what_sessions_cannot_do_is_refused_where_it_is_made(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        WindowState(Count(), session(10), **options)


def test_sessions_that_are_published_once_take_every_answer_to_changes() -> None:
    """Nothing of them changes, so none is needed."""
    for options in ({"emit": "final", "allowed_lateness": 5}, {"emit": "close"}):
        assert WindowState(Count(), session(10), changes="update", **options).lateness.answer != "retract"


def test_a_table_takes_sessions_back_whenever_they_are_published(tmp_path: Path) -> None:
    """It is no sink of late records, which are added."""
    table = SqliteSink(str(tmp_path / "t.db"), "t", mode="upsert")
    for options in ({}, {"emit": "change"}, {"early": 5}, {"emit": "final"}):
        with run_of([], task=Visits(allowed_lateness=5, **options)) as made:
            assert made.pipeline(sink=table)
    with late([]) as made, pytest.raises(InvalidPipeline, match=r'late records are added, .* mode="append"'):
        made.pipeline(late_sink=table)


def test_windows_that_take_late_records_are_closed_and_not_final() -> None:
    """Their sessions must stay in the state, to be taken back when a late record changes them."""
    with late([*at(0), *CLOCK]) as made:
        run(made, made.rows)
        manifest = newest_of(Log(made.storage)).manifest
        assert (only(manifest.nodes).final, manifest.clock.closed) == (0, 40)


# -- operations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", one_in(3, [1, 0, 2]))
def test_a_rollback_takes_corrections_back_and_makes_them_again(seed: int) -> None:
    rows = straggling(seed, 30, 4, 10, 60)
    with small_folds(seed), run_of(rows, task=Visits(allowed_lateness=60), behind=4, step_rows=3) as made:
        run(made)
        whole = held(made.sink.rows())
        ids = [one.id for one in manifests(made)]
        for back in (7, 4, 2):
            rollback(made.storage, ids[back], outputs="retract")
            run(made)
            assert held(made.sink.rows()) == whole == expected(kept_of(made), 10, 50)
            assert run(made).steps == 0


def test_a_rollback_that_leaves_outputs_publishes_all_again() -> None:
    """Of equal steps: the largest revision of each window says what it is."""
    rows = straggling(7, 30, 4, 10, 60)
    with run_of(rows, task=Visits(allowed_lateness=60), behind=4, step_rows=3) as made:
        run(made)
        rollback(made.storage, manifests(made)[3].id, outputs="again")
        run(made)
        newest: dict[Any, Row] = {}
        for row in sorted(made.sink.rows(), key=lambda row: (row["revision"], not row["retracted"])):
            newest[row["key"], row["window_start"], row["window_end"]] = row
        left = [row for row in newest.values() if not row["retracted"]]
        assert sessions_in(left) == expected(kept_of(made), 10, 50)


@pytest.mark.parametrize("stop", one_in(3, [15, 6, 24]))
def test_a_new_sink_of_an_heir_gets_all_that_is_not_final(stop: int) -> None:
    """Corrections took back sessions that it never had. Revisions go on from those of the origin."""
    rows = straggling(3, 30, 0, 10, 60)
    task = Visits(allowed_lateness=60)
    with run_of(rows, task=task, step_rows=3) as made, run_of(rows, task=task, step_rows=3) as heir:
        run(made, rows[:stop])
        origin = newest_of(Log(made.storage)).manifest
        run(heir, start_from=savepoint(made.storage, "half"))
        assert min(row["revision"] for row in heir.sink.rows()) > origin.revision
        final = only(origin.nodes).final
        assert held([*settled(made.sink.rows(), final), *heir.sink.rows()]) == expected(kept_of(heir, (stop,)), 10, 50)


def test_a_correction_by_hand_joins_published_sessions() -> None:
    """Those that are closed and not final take what is added."""
    with late([*at(0, 18), *CLOCK, *END], allowed=25) as made:
        run(made, made.rows)
        made.pipeline().correct(name="forgotten", add=at(17), engine="embedded")
        assert held(made.sink.rows()) == [("a", 0, 10, 1, 0, 0), ("a", 17, 28, 2, 35, 18)]
        made.pipeline().correct(name="forgotten", add=at(17), engine="embedded")
        with pytest.raises(Exception, match="in a window that is final"):
            made.pipeline().correct(name="older", add=at(9), engine="embedded")
        with pytest.raises(Exception, match="a session keeps the times of its records"):
            made.pipeline().correct(name="out", remove=at(18), engine="embedded")
        run(made)
        kept = [*made.rows, *at(17)]
        assert held(made.sink.rows()) == expected(kept, 10, 50)


def test_a_session_that_is_open_again_is_shown_and_compared() -> None:
    rows = [*at(25), *CLOCK, *END, *at(34), *at(60, key="z")]
    with late(rows) as made:
        run(made, rows[:3])
        assert sessions_in(made.pipeline().state().to_pylist()) == [("z", 40, 50, 2, 81, 41)]
        before = newest_of(Log(made.storage)).manifest.id
        run(made, rows[:4])
        shown = sessions_in(made.pipeline().state().to_pylist())
        assert shown[0] == ("a", 25, 44, 2, 59, 34)
        found = diff(place(made.storage, before), place(made.storage), pipeline=made.pipeline()).rows
        assert found is not None and found.to_pylist()[0]["change"] == "added"


class Two(PersistentTask):
    """The same sessions with lateness and without."""

    key = "key"

    def persistent_state(self) -> Any:
        return {
            "patient": WindowState(Count(), session(10, cut=50), allowed_lateness=100),
            "strict": WindowState(Count(), session(10, cut=50)),
        }

    def process_message(self, state: Any, message: Any) -> None:
        for one in state.values():
            one.update(message.timestamp, 1)


def test_of_several_states_each_answers_by_its_own_lateness() -> None:
    rows = [*at(0, 18), *CLOCK, *END, *at(9)]
    sinks = {"patient": MemorySink(), "strict": MemorySink()}
    source = MemorySource(rows, timestamp="ts", ordered=True)
    pipeline = Pipeline(source=source, task=Two(), sink=sinks, checkpoint=f"memory://{uuid.uuid4().hex}", step_rows=1)
    report = pipeline.run(engine="embedded", end_of_input=True)
    counts = {name: sorted(row["value"] for row in sink.rows() if row["key"] == "a") for name, sink in sinks.items()}
    assert counts == {"patient": [1, 1, 1, 1, 3], "strict": [1, 1]}
    assert report.corrected == 2 and report.late == 0 and pipeline.late().to_pylist()[0]["reason"].startswith("partly")


@pytest.mark.check
def test_a_task_with_late_sessions_is_verified_and_simulated() -> None:
    """What a user calls for a task of their own knows that rows are taken back."""
    rows = straggling(2, 30, 0, 10, 60)
    verify_task(lambda: Visits(allowed_lateness=60), rows[:20], elsewhere=False, shuffles=1)

    def made() -> Pipeline:
        source = MemorySource(rows, timestamp="ts", ordered=True)
        sink = FileSink("memory://unused-sink")
        return Pipeline(
            source=source, task=Visits(allowed_lateness=60), checkpoint="memory://unused", sink=sink, step_rows=5
        )

    simulate(made, seeds=range(3))


@pytest.mark.check
@pytest.mark.spark
@pytest.mark.parametrize("step_rows", [4, 50])
def test_on_spark_a_reader_holds_the_plain_sessions(step_rows: int, spark: Any, tmp_path: Path) -> None:
    """The job that publishes comes after the one that maps, and reads what that has written elsewhere."""
    rows = straggling(8, 40, 4, 10, 60)
    made = Run(rows, task=Visits(allowed_lateness=60), behind=4, step_rows=step_rows)
    made.storage, made.sink = str(tmp_path / "checkpoint"), FileSink(str(tmp_path / "sink"))
    report = made.pipeline().run(spark, end_of_input=True)
    files = sorted((tmp_path / "sink").glob("*.parquet"))
    assert report.corrected > 0 or step_rows == 50
    assert held([row for file in files for row in pq.read_table(file).to_pylist()]) == expected(kept_of(made), 10, 50)
