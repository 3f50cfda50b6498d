"""Early results: after every step the table is the plain one of the last step that publishes, and in the end that of
all records."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, Max
from persistent import WindowState, everything
from persistent.checkpoint.log import Log
from persistent.driver import next_step, step
from persistent.engines import Embedded
from persistent.lateness import ALLOWS_NONE, EARLY, Lateness
from persistent.window import sliding, tumbling
from tests.changes import Row, Table, World, expected
from tests.few import examples
from tests.late import Run, disordered, run_of
from tests.late import expected as final_table
from tests.test_lateness import Published

WINDOWS = (tumbling(10), tumbling(50), tumbling(50, offset=3), sliding(60, every=20), sliding(40, every=15))


def early_tables(
    rows: Sequence[Row], counts: Sequence[int], window: Any, allowed: int, early: int, times: Sequence[int] | None
) -> Iterator[Table]:
    """What the table must be after each step: twenty plain lines. ``times``: of day, of each plan; None: by events."""
    clock = read = 0
    passed, shown = None, dict[Any, Any]()
    for number, (count, table) in enumerate(zip(counts, expected(rows, counts, window, allowed), strict=True)):
        now = clock if times is None else max(times[number], passed or 0)
        due = passed is not None and now // early != passed // early
        changed = [place for place in table if table[place] != shown.get(place)]
        closed = any(window.ends(start) <= clock for _, start in changed)
        if due or closed or number == len(counts) - 1:
            shown = table
        yield shown
        passed, clock = now, max([clock, *(row["ts"] for row in rows[read : read + count])])
        read += count


DRAWN = (
    st.integers(0, 10**6),
    st.sampled_from(WINDOWS),
    st.sampled_from((0, 5, 35)),
    st.sampled_from(("accumulate", "retract")),
    st.sampled_from((1, 7, 30)),
    st.sampled_from((1, 2, 5)),
    st.sampled_from(("event", "processing")),
)


@settings(max_examples=examples(15), deadline=None)
@given(*DRAWN, st.integers(1, 24))
def test_the_table_is_that_of_the_last_publication(
    seed: int, window: Any, allowed: int, late: str, early: int, step_rows: int, by: str, stops: int
) -> None:
    """Whatever the windows, the lateness, the steps, the clock that says when, and where the job restarts."""
    follows_the_plain_table(seed, window, allowed, late, early, step_rows, by, stops)


@pytest.mark.check
@settings(max_examples=examples(80), deadline=None)
@given(*DRAWN, st.integers(1, 24))
def test_many_tables_are_those_of_the_last_publication(
    seed: int, window: Any, allowed: int, late: str, early: int, step_rows: int, by: str, stops: int
) -> None:
    follows_the_plain_table(seed, window, allowed, late, early, step_rows, by, stops)


def follows_the_plain_table(
    seed: int, window: Any, allowed: int, late: str, early: int, step_rows: int, by: str, stops: int
) -> None:
    rows = disordered(seed, 25, (0, 10, 60)[seed % 3])
    options = {"emit": "close", "late": late, "allowed_lateness": allowed, "early": early, "early_by": by}
    world, rng = Timed(window, options, step_rows), random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "SHARD_ROWS", 0)
        patch.setattr(next_step, "wall_ms", lambda: 1_000 + rng.randrange(40) + 5 * len(world.times))
        world.run(rows[:stops], engine=Embedded(threads=1 + seed % 3))
        world.run(rows, engine=Embedded(threads=1), end_of_input=True)
    counts, times = [count for count, _ in world.steps], None if by == "event" else world.times
    assert sum(counts) == len(rows)
    assert [table for _, table in world.steps] == list(early_tables(rows, counts, window, allowed, early, times))
    world.storage.clear()


@dataclass
class Timed(World):
    """Knows the time of day of the plan of each step."""

    times: list[int] = field(default_factory=list)

    def table(self, sink: str = "one") -> Table:
        newest = Log(self.storage).newest()
        assert newest is not None
        self.times.append(newest.manifest.committed_ms)
        return super().table(sink)


@settings(max_examples=8, deadline=None)
@given(*DRAWN[:3], st.sampled_from(("accumulate", "retract", "delta")), *DRAWN[4:6])
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
    """Deltas are what was added since, and closing repeats nothing."""
    rows = [{"ts": time, "key": "a", "value": 1} for time in (1, 2, 11, 12, 13, 31, 110, 111)]
    options = {"late": "delta", "early": 10, "allowed_lateness": 0}
    with run_of(rows, window=tumbling(100), options=options, step_rows=1) as run:
        run.run()
        assert [(row["window"][0], row["rows"], row["revision"]) for row in run.published()] == [
            (0, 4, 5),  # the step after the one that has passed 10
            (0, 2, 8),  # after the one that has passed 30
            (100, 1, 8),
            (100, 1, 9),  # after the one that has passed 110; and the window that closes has no more
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
        ({"early": "10 s", "early_by": "wall"}, "early_by='wall': choose one of event, processing"),
        ({"early_by": "processing"}, 'add early=, such as early="10 s"'),
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
    state = WindowState(MONOID, tumbling(10), early=1, early_by="processing", late="retract", allowed_lateness=5)
    assert state.lateness == Lateness(5, "retract", "close", 1, "processing")
    assert state.lateness.of_changes == EARLY and ALLOWS_NONE.of_changes is None
    assert WindowState(MONOID, tumbling(10), early=70).bare == {"early": 70}
    with pytest.raises(ValueError, match="everything"):
        WindowState(MONOID, everything(), early="10 s")
    with pytest.raises(TypeError, match="cannot be added"):
        WindowState(Max(), tumbling(10), early="10 s", late="delta")
