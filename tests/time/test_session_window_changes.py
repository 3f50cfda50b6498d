"""Sessions that are published as they change, or early: after every step a reader holds the plain ones of the last step
that publishes, open and closed, and in the end those of all records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persistent import Embedded, FileSink, InvalidPipeline, MemorySink, MemorySource, Pipeline, Retention
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.errors import Refused
from persistent.operations import compact, restart, rollback, savepoint
from persistent.testing import simulate, verify_task
from persistent.testing.faults import FaultyStorage, Killed, Operations
from persistent.verify import verify
from tests.crash.worlds import InTurn
from tests.few import examples, one_in, paired
from tests.sessions import Row, Run, Session, Visits, expected, held, kept_of, run_of, sessions_in, settled, straggling
from tests.single import only
from tests.time.test_session_window_lateness import at, published, small_folds

SIZES = st.sampled_from(((10, 50), (1, 7), (10, 10), (7, 1000), (3, 8)))


@dataclass
class World(Run):
    """Knows the steps of all runs: how many rows of the source each has read, and what the reader held then."""

    steps: list[tuple[int, list[Session]]] = field(default_factory=list)

    def go(self, count: int | None = None, **options: Any) -> Any:
        """A run over so many records; over all of them it ends the input."""
        engine = options.pop("engine", "embedded")

        def on_step(step: Any) -> None:
            self.steps.append((step.rows, held(self.sink.rows())))

        pipeline = self.pipeline(self.rows if count is None else self.rows[:count], **options)
        return pipeline.run(engine=engine, end_of_input=count is None, on_step=on_step)


def tables(made: World) -> Iterator[list[Session]]:
    """What a reader must hold after each step: twenty plain lines."""
    options, early, (gap, cut) = made.task.options, made.task.options.get("early"), (made.task.gap, made.task.cut)
    clock, passed, shown, kept, read = 0, None, list[Session](), list[Row](), 0
    for number, (count, _) in enumerate(made.steps):
        step = made.rows[read : read + count]
        kept += [row for row in step if row["ts"] >= clock - options.get("allowed_lateness", 0)]
        is_due = early is None or (passed is not None and clock // early != passed // early)
        table = expected(kept, gap, cut)
        is_closed = any(one[2] <= clock and one not in shown for one in table)
        if is_due or is_closed or number == len(made.steps) - 1:
            shown = table
        yield shown
        passed, read = clock, read + count
        clock = max(clock, *(row["ts"] - made.behind for row in step), 0)


def follows_the_plain_sessions(
    seed: int, sizes: tuple[int, int], allowed: int, options: dict[str, Any], step_rows: int, stops: Sequence[int]
) -> None:
    behind = (0, 4, 30)[seed % 3]
    rows = straggling(seed, 30, behind, sizes[0], max(allowed, 5))
    made = World(rows, Visits(*sizes, allowed_lateness=allowed, **options), behind, step_rows)
    with small_folds(seed):
        for number, stop in enumerate(sorted(min(stop, len(rows)) for stop in stops)):
            made.go(stop, engine=Embedded(threads=1 + number % 3))
            if number % 2:
                compact(made.pipeline())
        made.go()
        assert sum(count for count, _ in made.steps) == len(rows)
        for number, (table, (_, found)) in enumerate(zip(tables(made), made.steps, strict=True)):
            assert found == table, f"after step {number}"
        assert made.go().outputs == 0, "a second end publishes nothing again"
        assert verify(made.storage).ok
    made.storage.clear()


CHANGES = st.sampled_from(
    (
        {"emit": "change"},
        {"emit": "change", "changes": "retract"},
        {"early": 7},
        {"early": 30},
        {"early": 30, "late": "retract"},
        {"early": 200},
    )
)
DRAWN = (
    st.integers(0, 10**6),
    SIZES,
    st.sampled_from((0, 5, 30, 80, 200)),
    CHANGES,
    st.sampled_from((1, 2, 5)),
    st.lists(st.integers(1, 40), max_size=3),
)


@settings(max_examples=5, deadline=None)
@given(*DRAWN)
def test_a_reader_holds_the_plain_sessions_at_every_step(
    seed: int, sizes: tuple[int, int], allowed: int, options: dict[str, Any], step_rows: int, stops: list[int]
) -> None:
    """Whatever the lateness, the disorder, the steps, the folds, the shards, and where the job restarts."""
    follows_the_plain_sessions(seed, sizes, allowed, options, step_rows, stops)


@pytest.mark.check
@settings(max_examples=examples(80), deadline=None)
@given(*DRAWN)
def test_many_readers_hold_the_plain_sessions_at_every_step(
    seed: int, sizes: tuple[int, int], allowed: int, options: dict[str, Any], step_rows: int, stops: list[int]
) -> None:
    follows_the_plain_sessions(seed, sizes, allowed, options, step_rows, stops)


def made_of(rows: Sequence[Row], step_rows: int = 1, **options: Any) -> Any:
    return run_of(rows, task=Visits(**options), step_rows=step_rows)


def test_an_open_session_that_grows_is_taken_back_with_the_borders_that_it_had() -> None:
    """Each step publishes what it has become, and nothing again when it closes, or at the end of the input."""
    with made_of([*at(0, 5), *at(18, key="b"), *at(60, key="z"), *at(61, key="z")], emit="change") as made:
        report = made.run()
        assert published(made) == [(0, 10, 1, False), (0, 10, 1, True), (0, 15, 2, False)]
        assert [row["key"] for row in made.sink.rows() if row["retracted"]] == ["a", "z"]
        assert report.corrected == 0, "none was closed"


def test_a_record_between_two_open_sessions_takes_both_back() -> None:
    with made_of([*at(18, 0, 9)], 1, emit="change", allowed_lateness=30) as made:
        report = made.run()
        assert published(made) == [
            (18, 28, 1, False),
            (0, 10, 1, False),
            (0, 10, 1, True),
            (18, 28, 1, True),
            (0, 28, 3, False),
        ]
        assert report.corrected == 1, "the first of them had ended at 10"


def test_what_stays_equal_is_not_published_again() -> None:
    """A record of the same time changes no border; one without a part in the values changes nothing at all."""
    rows = [*at(0, 5), *at(70, key="z")]
    with made_of(rows, emit="change") as made:
        made.run(rows)
        count = len(made.sink.rows())
        assert made.run(rows).steps == 0 and made.run(rows, engine=Embedded(threads=3)).outputs == 0
        assert len(made.sink.rows()) == count


def test_what_was_published_early_and_has_ended_is_taken_back_once_it_is_joined() -> None:
    """Its own end is final when that which it has become is published."""
    rows = [*at(0), *at(1, 2, 40, 40, 40, 40, 40, key="z"), *at(9, 18, 27, 36), *at(45, 54), *at(55, 55, key="z")]
    rows += at(62, 62, 62, 62, 80, 80, 80, 80, 81, key="z")
    with made_of(rows, 4, early=40, allowed_lateness=31, cut=1000) as made:
        made.run(rows[:16])
        assert published(made) == [(0, 10, 1, False)]
        made.run(rows)
        assert published(made) == [(0, 10, 1, False), (0, 10, 1, True), (0, 64, 7, False)]


@pytest.mark.parametrize("allowed", [0, 5])
def test_what_is_held_back_has_ended_before_its_session_closes(allowed: int) -> None:
    """The end of the session is that of a record that is published. The clock stops between the two ends."""
    rows = [*at(0, key="y"), *at(30), *at(31, key="z"), *at(25), *at(56, 57, 75, 76, 98, 99, key="z")]
    with run_of(rows, task=Visits(early=1000, cut=1000, allowed_lateness=allowed), behind=20, step_rows=1) as made:
        made.run(rows)
        assert [one[1:4] for one in held(made.sink.rows()) if one[0] == "a"] == [(25, 40, 2)]
        made.run()
        assert held(made.sink.rows()) == expected(rows, 10, 1000)


def test_early_sessions_wait_for_a_multiple_and_those_that_close_do_not() -> None:
    """The step over 30 closes the first; those over 52 and 103 are past a multiple."""
    rows = [*at(0, 5, 8), *at(30, 31, 52, 54, 103, key="z")]
    with made_of(rows, early=50) as made:
        made.run(rows)
        found: dict[int, list[Any]] = {}
        for row in made.sink.rows():
            found.setdefault(row["revision"], []).append(sessions_in([row])[0][:4])
        assert [sorted(found[revision]) for revision in sorted(found)] == [
            [("a", 0, 18, 3), ("z", 30, 41, 2)],
            [("z", 52, 64, 2)],
            [("z", 103, 113, 1)],
        ]


def test_a_fragment_that_has_ended_of_a_session_that_has_not_publishes_nothing_early() -> None:
    """The session is open: to publish at each of its fragments would be emit="change"."""
    rows = [*at(0), *at(8), *at(16), *at(24), *at(25, key="z")]
    with made_of(rows, early=1000, allowed_lateness=50) as made:
        made.run(rows)
        assert not made.sink.rows()
        assert only(newest_of(Log(made.storage)).manifest.nodes).published == 0


# -- options -------------------------------------------------------------------------------------------------------


def test_changes_and_early_results_can_follow_each_other() -> None:
    """What is not published yet is, at the next occasion."""
    rows = straggling(5, 40, 4, 10, 40)
    with run_of(rows, task=Visits(early=30, allowed_lateness=40), behind=4, step_rows=2) as made:
        made.run(rows[:13])
        made.task = Visits(emit="change", allowed_lateness=40)
        made.run(rows[:20])
        made.task = Visits(early=500, allowed_lateness=40)
        made.run(rows[:31])
        made.task = Visits(early=20, allowed_lateness=40)
        made.run()
        assert held(made.sink.rows()) == expected(kept_of(made, (13, 20, 31)), 10, 50)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"emit": "change"}),
        ({"allowed_lateness": 30}, {"emit": "change", "allowed_lateness": 30}),
        ({"allowed_lateness": 30}, {"early": 10}),
        ({"emit": "change"}, {}),
        ({"emit": "change"}, {"allowed_lateness": 30}),
        ({"early": 10}, {"emit": "final"}),
    ],
)
def test_another_emission_is_refused_in_the_words_of_the_options(before: dict[str, Any], after: dict[str, Any]) -> None:
    """What a sink has been given cannot be told from what it has not."""
    rows = [*at(0), *at(40, key="z"), *at(41, key="z"), *at(80, key="z")]
    with made_of(rows, **before) as made:
        made.run(rows[:3])
        ids, made.task = Log(made.storage).ids(), Visits(**after)
        words = [
            "early=" if "early" in one else 'emit="change"' if one.get("emit") == "change" else 'neither emit="change"'
            for one in (before, after)
        ]
        with pytest.raises(InvalidPipeline, match=f"published with {words[0]}.* and now has {words[1]}.*Restore the"):
            made.run(rows)
        assert Log(made.storage).ids() == ids


@pytest.mark.parametrize(
    ("first", "second"),
    paired(
        [{"allowed_lateness": 30}, {}, {"early": 10}, {"emit": "final"}],
        [{"emit": "change", "allowed_lateness": 30}, {"early": 15, "allowed_lateness": 30}],
    ),
)
def test_a_plan_that_is_found_again_with_another_option_loses_nothing(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    """A run that dies before its first checkpoint has published nothing, whatever its plan says."""
    rows = [*at(0, 18), *at(40, key="z"), *at(9), *at(41, key="z"), *at(80, key="z")]
    for death in range(12):
        with made_of(rows, 2, **first) as made:
            inner, made.storage = made.storage, FaultyStorage(made.storage, Operations(death, "before"))
            with suppress(Killed):
                made.run(rows[:2], engine=InTurn(1))
            made.storage = inner
            if Log(inner).ids() and newest_of(Log(inner)).manifest.base:
                break
            made.task = Visits(**second)
            made.run()
            assert held(made.sink.rows()) == expected(rows, 10, 50), death
    assert death > 3


@pytest.mark.parametrize("options", [{"emit": "change"}, {"early": 25}])
def test_a_sink_that_joins_gets_every_session_that_is_not_final(options: dict[str, Any]) -> None:
    rows = straggling(6, 40, 4, 10, 40)
    with run_of(rows, task=Visits(allowed_lateness=40, **options), behind=4, step_rows=2) as made:
        first, second = MemorySink(), MemorySink()
        made.run(rows[:24], sink={"one": first})
        final = only(newest_of(Log(made.storage)).manifest.nodes).final
        made.run(sink={"one": first, "two": second})
        whole = expected(kept_of(made, (24,)), 10, 50)
        assert held(first.rows()) == whole
        late = held(second.rows())
        assert set(late) <= set(whole) and {one for one in whole if one[2] > final} <= set(late)


# -- operations ----------------------------------------------------------------------------------------------------

OPTIONS = ({"emit": "change"}, {"early": 25}, {"early": 90})


@pytest.mark.parametrize(("seed", "options"), one_in(4, [(seed, one) for seed in range(3) for one in OPTIONS]))
def test_a_rollback_takes_changes_back_and_makes_them_again(seed: int, options: dict[str, Any]) -> None:
    rows = straggling(seed, 30, 4, 10, 60)
    kept = {"retention": Retention(last=10_000)}
    with small_folds(seed), run_of(rows, task=Visits(allowed_lateness=60, **options), behind=4) as made:
        made.run(**kept)
        whole, ids = held(made.sink.rows()), sorted(newest_of(Log(made.storage)).manifest.bases)
        for back in (7, 4, 2):
            rollback(made.storage, ids[back], outputs="retract")
            made.run(**kept)
            assert held(made.sink.rows()) == whole == expected(kept_of(made), 10, 50)
            assert made.run(**kept).steps == 0


def current(rows: Sequence[Row]) -> list[Session]:
    """The sessions whose row of the largest revision is not one that takes back."""
    newest: dict[Any, Row] = {}
    for row in sorted(rows, key=lambda row: (row["revision"], not row["retracted"])):
        newest[row["key"], row["window_start"], row["window_end"]] = row
    return sessions_in([row for row in newest.values() if not row["retracted"]])


@pytest.mark.parametrize("options", one_in(2, OPTIONS))
def test_a_rollback_that_leaves_outputs_publishes_all_again(options: dict[str, Any]) -> None:
    """Of equal steps. What stood at the checkpoint, and is joined in the first step after it, is taken back."""
    rows = straggling(7, 30, 4, 10, 60)
    with run_of(rows, task=Visits(allowed_lateness=60, **options), behind=4) as made:
        made.run(retention=Retention(last=10_000))
        for back in (3, 5):
            rollback(made.storage, sorted(newest_of(Log(made.storage)).manifest.bases)[back], outputs="again")
            made.run(retention=Retention(last=10_000))
            assert current(made.sink.rows()) == expected(kept_of(made), 10, 50)


def test_a_rollback_that_leaves_outputs_knows_what_was_held_back_at_its_target() -> None:
    """A session that had grown there, and was not published again yet, stood beside what it has become."""
    rows = [*at(18), *at(21, 22, key="z"), *at(24), *at(25, key="z")]
    with made_of(rows, early=20) as made:
        made.run(rows[:4])
        assert [one[:3] for one in held(made.sink.rows())] == [("a", 18, 28), ("z", 21, 32)]
        back = rollback(made.storage, newest_of(Log(made.storage)).manifest.base, outputs="again").manifest
        assert verify(made.storage).ok
        made.run()
        assert held(made.sink.rows()) == expected(rows, 10, 50)
        rollback(made.storage, back.id, outputs="retract")
        made.run()
        assert current(made.sink.rows()) == expected(rows, 10, 50)


def test_a_rollback_to_one_that_has_left_outputs_still_publishes_all_again() -> None:
    """What the branch that was left had taken back is there again, in the first step after either."""
    rows = [*at(8, 9, key="q"), *at(10), *at(15), *at(50, key="q")]
    with made_of(rows, emit="change") as made:
        made.run(rows[:3])
        kept = newest_of(Log(made.storage)).manifest.base
        made.run(rows[:4])
        back = rollback(made.storage, kept, outputs="again").manifest
        made.run(rows[:4])
        rollback(made.storage, back.id, outputs="retract")
        report = made.run(rows[:4])
        assert report.steps == 1
        assert {one[:3] for one in sessions_in(made.sink.rows()[-3:])} == {("a", 10, 20), ("a", 10, 25), ("q", 8, 19)}


@pytest.mark.parametrize(
    ("stop", "options"), one_in(5, [(stop, one) for stop in (15, 6, 24) for one in (*OPTIONS, {"early": 1})])
)
def test_a_new_sink_of_an_heir_gets_all_that_is_not_final(stop: int, options: dict[str, Any]) -> None:
    """Its new sink gets all that is not final, as it is after the first step: it has nothing to be taken back."""
    rows, task = straggling(3, 30, 0, 10, 60), Visits(allowed_lateness=60, **options)
    with run_of(rows, task=task) as made, run_of(rows, task=task) as heir:
        made.run(rows[:stop])
        origin = newest_of(Log(made.storage)).manifest
        final = only(origin.nodes).final
        heir.run(start_from=savepoint(made.storage, "half"))
        assert min(row["revision"] for row in heir.sink.rows()) > origin.revision
        whole = expected(kept_of(heir, (stop,)), 10, 50)
        assert current([*settled(made.sink.rows(), final), *heir.sink.rows()]) == whole
        own = current(heir.sink.rows())
        assert set(own) <= set(whole) and {one for one in whole if one[2] > final} <= set(own)


def test_a_new_sink_of_an_heir_gets_what_was_published_early_as_it_has_grown_since() -> None:
    """It was taken back a session that it never had."""
    rows = [*at(0, 60), *at(65), *at(70), *at(75, 76)]
    task = Visits(early=50, cut=1000)
    with run_of(rows, task=task, step_rows=1) as made, run_of(rows, task=task, step_rows=1) as heir:
        made.run(rows[:4])
        assert published(made) == [(0, 10, 1, False), (60, 75, 2, False)]
        heir.run(start_from=savepoint(made.storage, "half"))
        assert published(heir)[0] == (60, 85, 4, False)
        assert current([*made.sink.rows()[:1], *heir.sink.rows()]) == expected(rows, 10, 1000)


def test_an_heir_of_an_empty_state_takes_nothing_back_that_was_never_published() -> None:
    """What it holds back itself is not what the origin has published."""
    rows = [*at(0), *at(500, key="z"), *at(1000, 1003, 1005), *at(1200, 1201, key="z")]
    task = Visits(early=10_000, cut=12)
    with run_of(rows, task=task, step_rows=1) as made, run_of(rows, task=task, step_rows=1) as heir:
        made.pipeline(rows[:2]).run(engine="embedded", end_of_input=True)
        assert not only(newest_of(Log(made.storage)).manifest.nodes).runs
        heir.run(start_from=savepoint(made.storage, "half"))
        assert published(heir) == [(1000, 1008, 3, False)]


def test_a_correction_by_hand_joins_sessions_that_are_published() -> None:
    """Open ones too, in its own checkpoint; with early results those that have closed."""
    rows = [*at(0, 18), *at(30, key="z"), *at(31, key="z")]
    with made_of(rows, emit="change", allowed_lateness=25) as made:
        made.run(rows)
        made.pipeline().correct(name="forgotten", add=at(9, 35, key="a"), engine="embedded")
        assert held(made.sink.rows())[:2] == [("a", 0, 28, 3, 27, 18), ("a", 35, 45, 1, 35, 35)]
        made.run()
        assert held(made.sink.rows()) == expected([*rows, *at(9, 35)], 10, 50)
    with made_of(rows, early=500, allowed_lateness=25) as made:
        made.run(rows)
        made.pipeline().correct(name="forgotten", add=at(35, key="a"), engine="embedded")
        assert [one[1:3] for one in held(made.sink.rows()) if one[0] == "a"] == [(0, 10), (18, 28)]
        made.pipeline().correct(name="more", add=at(9, key="a"), engine="embedded")
        assert [one[1:3] for one in held(made.sink.rows()) if one[0] == "a"] == [(0, 28), (35, 45)]
        made.run()
        assert held(made.sink.rows()) == expected([*rows, *at(9, 35)], 10, 50)


@pytest.mark.parametrize("options", OPTIONS[:2])
def test_a_restart_as_of_a_clock_is_refused(options: dict[str, Any]) -> None:
    """A session that began after the clock, and was published, would stand for ever."""
    with made_of([*at(0, 60, 70, 120)], **options) as made:
        made.run()
        ids = Log(made.storage).ids()
        with pytest.raises(Refused, match="nobody would take those back that were published"):
            restart(made.pipeline(), 50, outputs="retract")
        assert Log(made.storage).ids() == ids


@pytest.mark.check
@pytest.mark.spark
@pytest.mark.parametrize("options", OPTIONS)
def test_on_spark_a_reader_holds_the_plain_sessions(options: dict[str, Any], spark: Any, tmp_path: Path) -> None:
    rows = straggling(8, 40, 4, 10, 60)
    made = Run(rows, task=Visits(allowed_lateness=60, **options), behind=4, step_rows=4)
    made.storage, made.sink = str(tmp_path / "checkpoint"), FileSink(str(tmp_path / "sink"))
    made.pipeline().run(spark, end_of_input=True)
    found = [row for file in (tmp_path / "sink").glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert held(found) == expected(kept_of(made), 10, 50)
    assert any(row["retracted"] for row in found)


@pytest.mark.check
@pytest.mark.parametrize("options", OPTIONS)
def test_a_task_with_sessions_that_change_is_verified_and_simulated(options: dict[str, Any]) -> None:
    """What a user calls for a task of their own knows that rows are taken back."""
    rows = straggling(2, 30, 0, 10, 60)
    verify_task(lambda: Visits(allowed_lateness=60, **options), rows[:20], elsewhere=False, shuffles=1)

    def made() -> Pipeline:
        source = MemorySource(rows, timestamp="ts", ordered=True)
        task = Visits(allowed_lateness=60, **options)
        sink = FileSink("memory://unused-sink")
        return Pipeline(source=source, task=task, checkpoint="memory://unused", sink=sink, step_rows=5)

    simulate(made, seeds=range(3))
