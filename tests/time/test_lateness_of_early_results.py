"""Early results: after every step the table is the plain one of the last step that publishes, and in the end that of
all records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count
from persistent import WindowState
from persistent.driver import step
from persistent.engines import Embedded
from persistent.time.lateness import ALLOWS_NONE, EARLY, Lateness
from persistent.time.window import sliding, tumbling
from tests.changes import Row, Table, World, expected
from tests.few import examples
from tests.late import Run, disordered, run_of
from tests.late import expected as final_table
from tests.time.test_lateness import Published

WINDOWS = (tumbling(10), tumbling(50), tumbling(50, offset=3), sliding(60, every=20), sliding(40, every=15))


def early_tables(rows: Sequence[Row], counts: Sequence[int], window: Any, allowed: int, early: int) -> Iterator[Table]:
    """What the table must be after each step: twenty plain lines."""
    clock = read = 0
    passed, shown = None, dict[Any, Any]()
    for number, (count, table) in enumerate(zip(counts, expected(rows, counts, window, allowed), strict=True)):
        due = passed is not None and clock // early != passed // early
        changed = [place for place in table if table[place] != shown.get(place)]
        closed = any(window.ends(start) <= clock for _, start in changed)
        if due or closed or number == len(counts) - 1:
            shown = table
        yield shown
        passed, clock = clock, max([clock, *(row["ts"] for row in rows[read : read + count])])
        read += count


DRAWN = (
    st.integers(0, 10**6),
    st.sampled_from(WINDOWS),
    st.sampled_from((0, 5, 35)),
    st.sampled_from(("accumulate", "retract")),
    st.sampled_from((1, 7, 30)),
    st.sampled_from((1, 2, 5)),
)


@settings(max_examples=examples(15), deadline=None)
@given(*DRAWN, st.integers(1, 24))
def test_the_table_is_that_of_the_last_publication(
    seed: int, window: Any, allowed: int, late: str, early: int, step_rows: int, stops: int
) -> None:
    """Whatever the windows, the lateness, the steps, and where the job restarts."""
    follows_the_plain_table(seed, window, allowed, late, early, step_rows, stops)


@pytest.mark.check
@settings(max_examples=examples(80), deadline=None)
@given(*DRAWN, st.integers(1, 24))
def test_many_tables_are_those_of_the_last_publication(
    seed: int, window: Any, allowed: int, late: str, early: int, step_rows: int, stops: int
) -> None:
    follows_the_plain_table(seed, window, allowed, late, early, step_rows, stops)


def follows_the_plain_table(
    seed: int, window: Any, allowed: int, late: str, early: int, step_rows: int, stops: int
) -> None:
    rows = disordered(seed, 25, (0, 10, 60)[seed % 3])
    options = {"emit": "close", "late": late, "allowed_lateness": allowed, "early": early}
    world = World(window, options, step_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "SHARD_ROWS", 0)
        world.run(rows[:stops], engine=Embedded(threads=1 + seed % 3))
        world.run(rows, engine=Embedded(threads=1), end_of_input=True)
    counts = [count for count, _ in world.steps]
    assert sum(counts) == len(rows)
    assert [table for _, table in world.steps] == list(early_tables(rows, counts, window, allowed, early))
    world.storage.clear()


@settings(max_examples=8, deadline=None)
@given(*DRAWN[:3], st.sampled_from(("accumulate", "retract")), *DRAWN[4:6])
def test_the_table_comes_to_the_plain_one(
    seed: int, window: Any, allowed: int, late: str, early: int, step_rows: int
) -> None:
    """Early rows that are summed, taken back or replaced wrongly would stay."""
    rows = disordered(seed, 30, (0, 10, 60)[seed % 3])
    options = {"late": late, "allowed_lateness": allowed, "early": early}
    with run_of(rows, window=window, options=options, step_rows=step_rows) as run:
        run.run()
        table, late_rows = final_table(run)
        assert run.final() == table and len(run.pipeline().late()) >= late_rows


def test_what_has_changed_since_it_was_published_is_published_once_and_in_order() -> None:
    """Each row is the whole value, and closing repeats nothing."""
    rows = [{"ts": time, "key": "a", "value": 1} for time in (1, 2, 11, 12, 13, 31, 110, 111)]
    options = {"early": 10, "allowed_lateness": 0}
    with run_of(rows, window=tumbling(100), options=options, step_rows=1) as run:
        run.run()
        assert [(row["window"][0], row["rows"], row["revision"]) for row in run.published()] == [
            (0, 4, 5),  # the step after the one that has passed 10
            (0, 6, 8),  # after the one that has passed 30
            (100, 1, 8),
            (100, 2, 9),  # after the one that has passed 110; and the window that closes has no more
        ]


@pytest.mark.check
@pytest.mark.spark
def test_rows_on_spark_are_the_same(spark: Any, tmp_path: Path) -> None:
    """Workers would answer early results in another way."""
    rows, options = disordered(7, 40, 20), {"late": "retract", "allowed_lateness": 20, "early": 7}
    place, sink = str(tmp_path / "checkpoint"), Published(str(tmp_path / "published"))
    other = Run(rows, options=options, step_rows=5, storage=place, sink=sink)
    with run_of(rows, options=options, step_rows=5) as run:
        run.run()
        assert other.run(engine=None, spark=spark).engine == "spark"
        assert shown(other) == shown(run) and other.final() == final_table(run)[0]


def shown(run: Run) -> list[str]:
    """What each checkpoint has published, in any order."""
    return sorted(repr({**row, "window_start": None, "window_end": None}) for row in run.published())


def test_a_record_that_corrects_a_closed_window_does_not_wait() -> None:
    """The clock may not pass another multiple for long."""
    rows = [{"ts": time, "key": "a", "value": 1} for time in (5, 1_000, 1_001, 7, 1_002)]
    with run_of(rows, window=tumbling(10), options={"allowed_lateness": 5_000, "early": 5_000}, step_rows=1) as run:
        run.run(end_of_input=False)
        assert [(row["window"][0], row["rows"], row["revision"]) for row in run.published()] == [
            (0, 1, 4),
            (1_000, 2, 4),
            (0, 2, 5),
        ]


MONOID = Count()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"early": 0}, "at least 1 ms"),
        ({"early": "10 s", "emit": "change"}, "emit='change' publishes each change in its step: omit one of them"),
        ({"early": "10 s", "emit": "final"}, "publishes each window once: omit one of them"),
        ({"early": "ten"}, "early"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: Any, words: str) -> None:
    """One of them would be without effect."""
    with pytest.raises(ValueError, match=words):
        WindowState(MONOID, tumbling(100), **options)


def test_early_results_are_options_of_lateness() -> None:
    """Rows without a revision could not be told from those that replace them."""
    assert WindowState(MONOID, tumbling(10), early="10 s").lateness == Lateness(0, "accumulate", "close", 10_000)
    state = WindowState(MONOID, tumbling(10), early=1, late="retract", allowed_lateness=5)
    assert state.lateness == Lateness(5, "retract", "close", 1)
    assert state.lateness.of_changes == EARLY and ALLOWS_NONE.of_changes is None
    assert WindowState(MONOID, tumbling(10), early=70).bare == {"early": 70}
