"""What a correction publishes: of which keys and windows, and what stands in each row."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Monoid, Sum
from monoids.containers.intervals import Sessions
from monoids.groupby.summing import GroupSums, group_by
from persistent import MemorySink, MemorySource, PersistentTask, Pipeline, UserCodeError, WindowState, sliding
from persistent.state.difference import Comparison, differences
from persistent.state.rows import OPEN_PANE, hashes_of
from persistent.state.time_to_live import TimeToLive
from persistent.state.views import KeyView, LifeView
from persistent.storage import MemoryStorage
from tests.late import Row, run_of


def published(rows: list[tuple[str, int, int]], late: str, step_rows: int = 1, **options: Any) -> list[Row]:
    """The rows after the first window of ``a`` and ``b`` has closed, by (key, time, value)."""
    records = [{"key": key, "ts": time, "value": value} for key, time, value in rows]
    chosen = {"allowed_lateness": 1000, "late": late}
    with run_of(records, options=chosen, step_rows=step_rows, **options) as run:
        run.run(end_of_input=False)
        return run.published()


def values(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


BEFORE = [("a", 1, 5), ("b", 2, 7), ("a", 15, 1), ("a", 16, 1)]


def test_only_the_keys_of_the_delta_are_published_again() -> None:
    """A late record of one key would otherwise publish all keys of its window."""
    rows = published([*BEFORE, ("a", 3, 1)], "accumulate")
    assert values(rows, "key", "total") == [("a", 5), ("b", 7), ("a", 6)]
    assert rows[2]["revision"] > rows[1]["revision"] == rows[0]["revision"]


def test_only_the_windows_of_a_key_that_it_touched_are_published_again() -> None:
    """In one step a is late in one window and b in another: neither is published in the other's."""
    late = [("a", 3, 1), ("b", 18, 1)]
    rows = published(
        [*BEFORE, ("b", 17, 4), ("a", 25, 1), ("a", 26, 1), ("a", 27, 1), *late], "accumulate", step_rows=2
    )
    again = [row for row in rows if row["revision"] == rows[-1]["revision"]]
    assert sorted(values(again, "key", "window", "total")) == [("a", (0, 10), 6), ("b", (10, 20), 5)]


def test_a_retraction_repeats_the_old_row_before_the_new_one() -> None:
    rows = published([*BEFORE, ("a", 3, 1)], "retract")
    assert values(rows, "key", "total", "retracted") == [
        ("a", 5, False),
        ("b", 7, False),
        ("a", 5, True),
        ("a", 6, False),
    ]
    assert rows[2]["revision"] == rows[3]["revision"] > rows[0]["revision"]


def test_nothing_is_taken_back_where_there_was_nothing() -> None:
    rows = published([*BEFORE, ("c", 3, 1)], "retract")
    assert values(rows, "key", "total", "retracted")[2:] == [("c", 1, False)]


@pytest.mark.parametrize("late", ["accumulate", "retract"])
def test_a_window_that_closes_in_a_step_has_what_the_step_reads(late: str) -> None:
    """It is published once in that step, with the records that came with it."""
    rows = published([*BEFORE, ("a", 3, 1), ("b", 4, 1)], late, step_rows=3)
    assert values(rows, "key", "total") == [("a", 6), ("b", 8)]


class Fussy(Monoid[int]):
    """A sum that raises at 13, and cannot present 99."""

    identity = 0
    commutative = True
    output_type = pa.int64()

    def combine(self, a: int, b: int) -> int:
        if a + b == 13:
            raise ValueError("thirteen")
        return a + b

    def present(self, element: int) -> int:
        if element == 99:
            raise ValueError("ninety-nine")
        return element


class Sums(PersistentTask):
    key = "key"

    def __init__(self, late: str) -> None:
        self.late = late

    def persistent_state(self) -> WindowState:
        return WindowState(Fussy(), sliding(10, every=5), allowed_lateness=1000, late=self.late)

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["value"])


@pytest.mark.parametrize("late", ["accumulate", "retract"])
def test_a_correction_that_has_no_result_is_a_dead_letter_and_all_others_are_published(late: str) -> None:
    """One key whose fold raises would keep the corrections of all others back."""
    rows = [("a", 6, 12), ("b", 6, 90), ("c", 6, 1), ("z", 30, 0), ("z", 31, 0)]
    again = [("a", 7, 1), ("b", 7, 9), ("c", 7, 1), ("d", 7, 2)]
    records = [{"key": key, "ts": time, "value": value} for key, time, value in [*rows, *[("z", 32, 0)] * 5, *again]]
    sink, storage = MemorySink(), MemoryStorage(f"fussy-{uuid.uuid4().hex}")
    pipeline = Pipeline(
        source=MemorySource(records, timestamp="ts", ordered=True),
        task=Sums(late),
        sink=sink,
        checkpoint=storage,
        step_rows=5,
        on_error="dead-letter",
    )
    pipeline.run(engine="embedded")
    found = sorted((row["key"], row["window_start"].microsecond // 1000, row["value"]) for row in sink.rows())
    old = [(key, start, value) for key, value in (("a", 12), ("b", 90)) for start in (0, 5)]
    old += [("c", 0, 1), ("c", 5, 1)] if late == "retract" else []
    new = [("c", 0, 2), ("c", 5, 2), ("d", 0, 2), ("d", 5, 2)]
    first = [(key, start, value) for key, value in (("a", 12), ("b", 90), ("c", 1)) for start in (0, 5)]
    assert found == sorted([*first, *old, *new])
    reasons = pipeline.dead_letters()["reason"].to_pylist()
    assert sorted("thirteen" in reason for reason in reasons) == [False, False, True, True]
    assert all("no result for key" in reason and "window 1970" in reason for reason in reasons)
    storage.clear()


def test_a_correction_that_has_no_result_stops_a_job_without_dead_letters() -> None:
    records = [{"key": "a", "ts": time, "value": value} for time, value in ((6, 12), (30, 0), (31, 0), (7, 1))]
    storage = MemoryStorage(f"fussy-{uuid.uuid4().hex}")
    source = MemorySource(records, timestamp="ts", ordered=True)
    pipeline = Pipeline(source=source, task=Sums("accumulate"), sink=MemorySink(), checkpoint=storage, step_rows=1)
    with pytest.raises(UserCodeError, match=r"no result for key \(key='a'\), window .*thirteen"):
        pipeline.run(engine="embedded")
    storage.clear()


def test_equal_rows_are_neither_taken_back_nor_published() -> None:
    """An update that adds nothing would double the traffic of every reader."""
    rows = [("a", 6, 1), ("z", 30, 0), ("z", 31, 0), ("a", 7, 0)]
    records = [{"key": key, "ts": time, "value": value} for key, time, value in rows]
    sink, storage = MemorySink(), MemoryStorage(f"fussy-{uuid.uuid4().hex}")
    source = MemorySource(records, timestamp="ts", ordered=True)
    pipeline = Pipeline(source=source, task=Sums("retract"), sink=sink, checkpoint=storage, step_rows=1)
    assert pipeline.run(engine="embedded").corrected == 0
    assert [row["value"] for row in sink.rows()] == [1, 1]
    storage.clear()


class Asked(KeyView):
    """It must not be asked what was published."""

    def published(self, *_: Any) -> Any:
        raise AssertionError("an old row is folded")


def part_of(kept: Any, *rows: tuple[str, int, int]) -> GroupSums:
    """Key, time and value of each row."""
    keys, times, values = zip(*rows)
    elements = [kept.lift((time, value) if isinstance(kept, Sessions) else value) for time, value in zip(times, values)]
    return group_by(kept, [pa.array(keys)], np.full(len(keys), OPEN_PANE), kept.pack(elements), 1)


def test_no_old_row_is_folded_for_readers_that_replace() -> None:
    """It would cost each step as much again, to be thrown away."""
    before, delta = [part_of(Sum(), ("a", 0, 1), ("b", 0, 2))], [part_of(Sum(), ("a", 0, 3))]
    (found,) = differences(Comparison(Asked(1), before, delta), Sum())
    assert len(found.old) == 0 and found.new.rows.columns[0].tolist() == [4]
    with pytest.raises(AssertionError, match="an old row is folded"):
        list(differences(Comparison(Asked(1), before, delta, both_signs=True), Sum()))
    (found,) = differences(Comparison(KeyView(1), before, delta, both_signs=True), Sum())
    assert (found.old.rows.columns[0].tolist(), found.old.at.tolist(), found.new.at.tolist()) == ([1], [0], [0])


def test_for_readers_that_replace_only_rows_that_end_are_folded() -> None:
    """Which these are, their times tell."""
    kept, folded = Sessions(10, Sum()), list[tuple[bool, int]]()

    class Lives(LifeView):
        def published(self, monoid: Any, parts: Any, rows: Any) -> Any:
            folded.append((monoid is kept, sum(map(len, parts))))
            return super().published(monoid, parts, rows)

    before = [part_of(kept, ("a", 0, 1), ("b", 5, 2), ("c", 5, 4))]
    delta = [part_of(kept, ("c", 8, 3))]
    for close_at, expected in ((10, [(False, 3), (True, 1)]), (9, [(False, 3)])):
        folded.clear()
        view = Lives(TimeToLive(10), 1, 0, close_at, hashes_of(delta))
        (found,) = differences(Comparison(view, before, delta), kept)
        assert found.old.rows.keys[0].to_pylist() == (["a"] if close_at == 10 else [])
        assert found.new.rows.keys[0].to_pylist() == ["c"]
        assert folded == expected
