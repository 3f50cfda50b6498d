"""A fold leaves out sessions that are closed, and never a part of one that is open: whatever it sees of the runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids.containers.intervals import Sessions
from persistent import session
from persistent.checkpoint import compaction
from persistent.checkpoint.compaction import Merge, replaced
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.runs import read_table
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.driver.run_cache import SessionCache
from persistent.names import Attempt
from persistent.operations import compact, rollback
from persistent.state.rows import agenda_of_table
from persistent.time.session_window import SessionWindow, each_session, group_sessions
from persistent.verify import verify
from persistent.worker.job import Folded, FoldRuns, Node
from persistent.worker.merge_runs import compact_runs, fold_runs, write_run
from persistent.worker.output_tables import window_outputs
from tests.sessions import Row, Session, Visits, expected, kept_of, run_of, sessions_in
from tests.single import only

GAP, CUT = 5, 20


def rows_of(*pairs: tuple[int, str]) -> list[Row]:
    return [{"ts": time, "key": key, "value": time} for time, key in pairs]


def sessions_node(storage: Any) -> Node:
    with run_of([], task=Visits(GAP, CUT), storage=storage) as made:
        return only(made.pipeline().job().nodes)


class Runs:
    """The runs of a state, each written from its own records."""

    def __init__(self, node: Node, inputs: Sequence[Sequence[Row]]) -> None:
        assert isinstance(node.state.window, SessionWindow)
        self.node, self.window = node, node.state.window
        self.cache = SessionCache(node.storage, self.window)
        self.runs: tuple[Run, ...] = ()
        for some in inputs:
            self.add(some)

    def add(self, some: Sequence[Row]) -> None:
        monoid, number = self.node.state.monoid, len(self.runs)
        assert isinstance(monoid, Sessions)
        values = pa.array([row["value"] for row in some])
        lifted = monoid.inner.lift_rows({"rows": 1, "total": values, "most": values}, len(some))
        times, keys = np.array([row["ts"] for row in some]), pa.array([row["key"] for row in some])
        rows = group_sessions(monoid, self.window, [keys], times, lifted)
        run, panes, agenda = write_run(self.node, Attempt(1, number), rows, number, number)
        self.cache.learn(run, panes, agenda)
        self.runs = (*self.runs, run)

    def fold(self, inputs: slice, closed: int, low: int = 0, high: int = KEY_GROUPS) -> Folded:
        """Fold these runs as the step after a checkpoint that has closed up to there."""
        merge = Merge(self.runs[inputs], low, high)
        (item,) = self.cache.with_over([FoldRuns(Attempt(2, len(self.runs)), merge, closed)], self.runs)
        folded = compact_runs(self.node, item)
        assert not folded.failure
        self.runs = replaced(self.runs, merge, folded.run)
        return folded

    def sessions(self, closed: int = 0) -> list[Session]:
        rows = fold_runs(self.node, self.runs)
        if rows is None:
            return []
        one_each = each_session(self.window, rows, closed)
        table = window_outputs(self.node.state.monoid, ["key"], [pa.string()], self.window, one_each)
        return sessions_in(table.to_pylist())


def test_a_fold_of_some_runs_drops_no_fragment(storage: Any) -> None:
    """A part that ends before the clock can be the begin, the middle or the end of a session that is open."""
    parts = [rows_of((0, "a")), rows_of((4, "a")), rows_of((8, "a"))]
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        made = Runs(sessions_node(storage), [parts[number] for number in order])
        for inputs in (slice(0, 1), slice(1, 2), slice(0, 2)):
            made.fold(inputs, closed=12)
            assert made.sessions(12) == [("a", 0, 13, 3, 12, 8)]


def test_a_fold_of_all_runs_drops_what_is_published(storage: Any) -> None:
    made = Runs(sessions_node(storage), [rows_of((0, "a"), (3, "b")), rows_of((4, "a"), (17, "a"), (1, "c"))])
    folded = made.fold(slice(0, 2), closed=9)
    assert made.sessions() == [("a", 17, 20, 1, 17, 17)], "one that ends at the clock is closed"
    assert folded.run is not None and folded.run.rows == 1, "keys without an open session are no rows"
    assert folded.agenda is not None and folded.agenda.ends.tolist() == [20]
    assert made.fold(slice(0, 1), closed=20).run is None and made.runs == ()


def test_a_fold_of_the_first_runs_drops_what_ends_before_the_rest_begins(storage: Any) -> None:
    """Small runs come after a large fold at any time. A message at the end of a session begins another one."""
    for begins, left in ((9, []), (8, [("a", 4, 9, 1, 4, 4)])):
        made = Runs(sessions_node(storage), [rows_of((0, "b")), rows_of((4, "a")), rows_of((begins, "c"))])
        made.fold(slice(0, 2), closed=11)
        assert made.sessions() == [*left, ("c", begins, begins + 5, 1, begins, begins)]


def test_a_fold_of_some_key_groups_sees_whole_keys(storage: Any) -> None:
    made = Runs(sessions_node(storage), [rows_of(*((time, f"k{time}") for time in range(8)))] * 2)
    made.fold(slice(0, 2), 30, high=300)
    assert made.fold(slice(0, 2), 30, low=300).run is None and made.runs == ()


RECORDS = st.lists(st.tuples(st.integers(0, 60), st.sampled_from("abcd")), min_size=1, max_size=8)
FOLDS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from((KEY_GROUPS, 500))), max_size=4)


@settings(deadline=None, max_examples=80)
@given(st.lists(RECORDS, min_size=1, max_size=4), FOLDS, st.integers(0, 70), RECORDS)
def test_what_is_open_stays_whatever_is_folded(
    inputs: list[list[tuple[int, str]]],
    folds: list[tuple[int, int, int]],
    closed: int,
    more: list[tuple[int, str]],
) -> None:
    """Also with the records that come next, none of which is before the clock."""
    later = rows_of(*((closed + time, key) for time, key in more))
    with run_of([], task=Visits(GAP, CUT)) as job:
        made = Runs(only(job.pipeline().job().nodes), [rows_of(*some) for some in inputs])
        for first, count, high in folds:
            some = made.runs[first : first + count]
            low = min((run.low for run in some), default=high)
            if low < high:
                made.fold(slice(first, first + count), closed, low, high)
        made.add(later)
        plain = expected([*(row for some in inputs for row in rows_of(*some)), *later], GAP, CUT)
        assert made.sessions(closed) == [one for one in plain if one[2] > closed]


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 10**6), st.sampled_from((1, 3, 7)))
def test_a_job_that_folds_at_every_step_publishes_the_plain_sessions(seed: int, step_rows: int) -> None:
    folds_at_every_step(seed, step_rows)


@pytest.mark.check
@settings(deadline=None, max_examples=80)
@given(st.integers(0, 10**6), st.sampled_from((1, 2, 3, 7)))
def test_many_jobs_that_fold_at_every_step_publish_the_plain_sessions(seed: int, step_rows: int) -> None:
    folds_at_every_step(seed, step_rows)


def folds_at_every_step(seed: int, step_rows: int) -> None:
    """Closed sessions leave at once, and none is published in two parts, twice or not at all."""
    rng, behind = random.Random(seed), (0, 3, 9)[seed % 3]
    times = accumulate(rng.choices((0, 1, 2), k=40))
    rows = rows_of(*((max(0, time - rng.randint(0, behind)), rng.choice("abcd")) for time in times))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "FAN_IN", 2 + seed % 3)
        patch.setattr(compaction, "_TIER_0_ROWS", 2 + seed % 5)
        patch.setattr(compaction, "_ROWS_MIN", 1 + seed % 7)
        patch.setattr(compaction, "_DELTAS_AT_ONCE", 1)
        with run_of(rows, task=Visits(8, 50), behind=behind, step_rows=step_rows) as run:
            run.run(rows[: step_rows * (1 + seed % 4)])
            compact(run.pipeline())
            run.run()
            assert run.published() == expected(kept_of(run), 8, 50)
            assert verify(run.storage).ok
            rollback(run.storage, min(newest_of(Log(run.storage)).manifest.bases), outputs="retract")
            run.run()
            assert run.published() == expected(kept_of(run), 8, 50)


def test_what_a_state_keeps_does_not_grow_with_the_day() -> None:
    """A hundred sessions of one key have closed, and the runs hold a few of them."""
    rows = rows_of(*((number * 10, "a") for number in range(100)))
    with run_of(rows, task=Visits(8, 5000), step_rows=1) as run:
        run.run(rows)
        runs = only(newest_of(Log(run.storage)).manifest.nodes).runs
        agendas = [agenda_of_table(session(GAP, cut=5000), read_table(run.storage, one)) for one in runs]
        assert len(run.published()) == 99 and sum(len(one.ends) for one in agendas) <= 10
