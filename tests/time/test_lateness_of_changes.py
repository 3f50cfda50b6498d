"""Results as they change: after every step the table of a sink is the plain one of the records so far."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, Max, Sum
from persistent import NonWindowState, PersistentTask, WindowState, calendar
from persistent.codec import sealed
from persistent.driver import step
from persistent.engines import Embedded
from persistent.sinks import SqliteSink
from persistent.time.lateness import Lateness
from persistent.time.window import sliding, tumbling
from tests.changes import World, expected, published, table_of
from tests.few import examples
from tests.late import disordered

WINDOWS = (None, None, tumbling(10), tumbling(10, offset=3), sliding(20, every=5), sliding(10, every=4))


@settings(max_examples=examples(15), deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(WINDOWS),
    st.sampled_from((0, 5, 35)),
    st.sampled_from(("update", "retract")),
    st.sampled_from((1, 3, 8)),
    st.integers(1, 30),
    st.sampled_from((1, 3)),
)
def test_the_table_is_the_plain_one_after_every_step(
    seed: int, window: Any, allowed: int, changes: str, step_rows: int, stops: int, shards: int
) -> None:
    """Whatever the disorder, the windows, the steps, the shards, the batches of a run, and where the job restarts."""
    rows = disordered(seed, 25, (0, 10, 60)[seed % 3])
    options = {"changes": changes, **({"allowed_lateness": allowed} if window else {})}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "SHARD_ROWS", 0)
        patch.setattr(sealed, "BATCH_ROWS_MAX", 2)
        world = World(window, options, step_rows)
        world.run(rows[:stops], engine=Embedded(threads=shards))
        world.run(rows, engine=Embedded(threads=shards), end_of_input=True)
    counts = [count for count, _ in world.steps]
    assert sum(counts) == len(rows)
    assert [table for _, table in world.steps] == list(expected(rows, counts, window, allowed if window else 0))
    world.storage.clear()


@pytest.mark.parametrize("changes", ["update", "retract"])
def test_calendar_windows_are_published_as_they_change(changes: str) -> None:
    """They have no window after their last border, and a change may be in any that is not final."""
    begins, window = 1_698_530_400_000, calendar("day", tz="Europe/Berlin")
    rows = [{**row, "ts": begins + row["ts"] * 1_200_000} for row in disordered(4, 30, 60)]
    hours = 3 * 3_600_000
    world = World(window, {"changes": changes, "allowed_lateness": hours}, 2)
    world.run(rows, end_of_input=True)
    counts = [count for count, _ in world.steps]
    assert [table for _, table in world.steps] == list(expected(rows, counts, window, hours))
    world.storage.clear()


ROWS = [
    {"ts": time, "key": key, "value": value}
    for time, key, value in [(1, "a", 5), (2, "b", 2), (12, "a", 1), (13, "a", -1), (3, "a", 1), (31, "c", 0)]
]


class Peaks(PersistentTask):
    key = "key"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Max(), emit="change", changes="retract")

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["value"])


def values(world: World, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in world.rows()]


def test_a_step_publishes_the_keys_of_its_records_and_nothing_more() -> None:
    """A key that has not changed is not published again, nor is any at the end of the input."""
    world = World(step_rows=2)
    world.run(ROWS, end_of_input=True)
    assert values(world, "key", "total", "revision") == [
        ("a", 5, 2),
        ("b", 2, 2),
        ("a", 5, 3),
        ("a", 6, 4),
        ("c", 0, 4),
    ]


def test_a_window_is_published_when_it_changes_and_not_when_it_closes() -> None:
    """Open or closed: a late record is a change like any other, until the window is final."""
    world = World(tumbling(10), {"allowed_lateness": 2}, step_rows=1)
    report = world.run([*ROWS, {"ts": 11, "key": "a", "value": 9}], end_of_input=True)
    assert values(world, "place", "total") == [
        (("a", 0), 5),
        (("b", 0), 2),
        (("a", 10), 1),
        (("a", 10), 0),
        (("c", 30), 0),
    ]
    assert report.late == 2, "the clock was at 13 and at 31, and two more were allowed"


def test_what_is_equal_is_not_taken_back() -> None:
    """A taken back row and the same row again are two changes for nothing."""
    world = World(step_rows=2)
    given = [("a", 5), ("b", 1), ("a", 3), ("b", 4), ("a", 7), ("c", 0)]
    world.run([{"ts": 1, "key": key, "value": value} for key, value in given], task=Peaks())
    rows = world.sinks["one"].rows()
    assert sorted((row["revision"], row["key"], not row["retracted"], row["value"]) for row in rows) == [
        (2, "a", True, 5),
        (2, "b", True, 1),
        (3, "b", False, 1),
        (3, "b", True, 4),
        (4, "a", False, 5),
        (4, "a", True, 7),
        (4, "c", True, 0),
    ]


def test_an_update_is_published_even_where_it_is_equal() -> None:
    """What a sink holds may be of a later checkpoint, which a rollback has left there: only the row itself is sure."""
    world = World(None, {}, step_rows=1)
    world.run([{"ts": 1, "key": "a", "value": 5}, {"ts": 2, "key": "a", "value": 0}])
    assert [row["total"] for row in world.rows()] == [5, 5]


def test_a_key_whose_value_is_the_identity_is_a_row() -> None:
    """Only expiry deletes: a sum of 0 is the sum."""
    world = World(None, {}, step_rows=2)
    world.run([{"ts": 1, "key": "a", "value": 5}, {"ts": 2, "key": "a", "value": -5}])
    assert world.table()["a", None] == (2, 0, 5)


@pytest.mark.parametrize("window", [None, tumbling(10)])
def test_a_table_of_a_database_is_kept(window: Any, tmp_path: Path) -> None:
    """Upserts replace by key, and by window: after every run the table is the plain one."""
    rows = disordered(5, 40, 10)
    world = World(window, {"allowed_lateness": 1000} if window else {}, step_rows=4)
    for count in (10, 23, len(rows)):
        sink = SqliteSink(tmp_path / "results.db", "results", mode="upsert")
        world.pipeline(rows[:count], sink=sink).run(engine="embedded")
        with closing(sqlite3.connect(tmp_path / "results.db")) as database:
            database.row_factory = sqlite3.Row
            found = [dict(row) for row in database.execute("SELECT * FROM results")]
        for row in found if window else ():
            row["window_start"] = _utc(row["window_start"])
        assert len({(row["key"], row.get("window_start")) for row in found}) == len(found)
        assert [table_of(published(found), retracts=False)] == list(expected(rows[:count], [count], window))


def _utc(text: str) -> Any:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).replace(tzinfo=UTC)


@pytest.mark.check
@pytest.mark.parametrize("window", [None, sliding(20, every=5)])
@pytest.mark.parametrize("changes", ["update", "retract"])
def test_on_spark_the_table_is_the_plain_one(window: Any, changes: str, spark: Any, tmp_path: Path) -> None:
    rows = disordered(7, 40, 10)
    sink = SqliteSink(tmp_path / "results.db", "results", mode="append")
    world = World(window, {"changes": changes}, step_rows=20)
    world.pipeline(rows, sink=sink, checkpoint=str(tmp_path / "checkpoint")).run(spark)
    with closing(sqlite3.connect(tmp_path / "results.db")) as database:
        database.row_factory = sqlite3.Row
        found = [dict(row) for row in database.execute("SELECT * FROM results")]
    for row in found if window else ():
        row["window_start"] = _utc(row["window_start"])
    steps = [20] * (len(rows) // 20) + [len(rows) % 20]
    assert table_of(published(found), retracts=changes == "retract") == list(expected(rows, steps, window))[-1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"emit": "early"}, "choose one of close, final, change"),
        ({"emit": "change", "late": "retract"}, 'omit late, and choose changes="update" or "retract"'),
        ({"emit": "change", "changes": "all"}, "choose one of update, retract"),
        ({"changes": "retract"}, 'add emit="change", or omit changes'),
        ({"emit": "final", "changes": "retract"}, "emit='final' publishes none: add emit=\"change\""),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        WindowState(Count(), tumbling(10), **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [({"emit": "final"}, "choose one of close, change"), ({"changes": "retract"}, 'add emit="change"')],
)
def test_totals_are_never_final(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        NonWindowState(Sum(), **options)


def test_totals_are_published_at_the_end_unless_told_otherwise() -> None:
    assert NonWindowState(Sum()).lateness == Lateness()
    assert NonWindowState(Sum(), emit="change").lateness == Lateness(0, "accumulate", "change")
    assert NonWindowState(Sum(), emit="change", changes="retract").lateness == Lateness(0, "retract", "change")
