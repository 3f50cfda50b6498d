"""Each record is judged once, by the first rule that it breaks, and the account balances whatever rules there are."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids import Count
from persistent import (
    MemorySink,
    MemorySource,
    PersistentTask,
    Pipeline,
    WindowState,
    assigned,
    calendar,
)
from persistent.connect.formats.timestamps import TimeLimit
from persistent.connect.source import DeadRecord, Records, Split
from persistent.names import Attempt
from persistent.state.time_to_live import TimeToLive
from persistent.storage import MemoryStorage
from persistent.time.window import sliding, tumbling
from persistent.worker.duplicates import Fate
from persistent.worker.job import MapSplit
from persistent.worker.judge_records import Clocks, SplitTally, judge
from persistent.worker.stage_aside import RowsAside


class Seen:
    """Judges each record by the number in its column."""

    def judge(self, batch: pa.RecordBatch, times: Any) -> Any:
        return batch.column("fate").to_numpy()

    def reasons(self, batch: Any, rows: Any, fates: Any) -> list[str]:
        return [f"nameless at {batch.column('ts')[row]}" for row in rows.tolist()]


def plain(time: int, fate: int, elsewhere: bool, since: int, clocks: Clocks) -> str:
    """What becomes of a record, alone."""
    if not 0 <= time <= 90:
        return "dead"
    if elsewhere or time < since:
        return "duplicate"
    if fate:
        return {Fate.COPY: "duplicate", Fate.TOO_OLD: "late"}.get(Fate(fate), "dead")
    one = np.array([time])
    if all(judge is not None and judge.late(one, final)[0][0] for judge, final in clocks.values()):
        return "late"
    return "processed"


CLOCKS: list[Clocks] = [
    {"task": (None, 0)},
    {"task": (tumbling(10), 40)},
    {"task": (sliding(20, every=10), 40)},
    {"task": (TimeToLive(30), 60)},
    {"task/a": (tumbling(10), 40), "task/b": (TimeToLive(30), 60)},
    {"task/a": (tumbling(10), 40), "task/b": (None, 0)},
]
TIMES = st.integers(-3, 95)


@given(st.data(), st.lists(TIMES, min_size=1, max_size=8), st.sampled_from(CLOCKS), st.sampled_from([0, 35]))
def test_all_rules_together_judge_as_each_record_alone(data: Any, times: list[int], clocks: Clocks, since: int) -> None:
    """A record that two rules count, or none, would be lost, or be there twice."""
    fates = data.draw(st.lists(st.sampled_from(list(Fate)), min_size=len(times), max_size=len(times)))
    elsewhere = data.draw(st.lists(st.booleans(), min_size=len(times), max_size=len(times)))
    batch = pa.record_batch({"ts": times, "fate": pa.array([int(one) for one in fates])})
    marks = np.array(elsewhere) if any(elsewhere) else None
    dead = (DeadRecord(0, 99, "no record", b"x"),)
    records = Records(0, batch, np.array(times), np.arange(len(times)), dead, elsewhere=marks)
    item = MapSplit(Attempt(1, 2), "m", "m", Split("m", ()), {}, {}, TimeLimit(90), since or None)
    tally = SplitTally()
    kept = judge(item, clocks, RowsAside("m", "", records, 2), tally, Seen())  # type: ignore[arg-type]
    expected = [plain(*one, since, clocks) for one in zip(times, fates, elsewhere)]
    left = range(len(times)) if kept is None else kept.tolist()
    assert list(left) == [row for row, fate in enumerate(expected) if fate == "processed"]
    account = tally.account
    counted = (account.processed, account.late, account.dead - 1, account.duplicate)
    assert counted == tuple(expected.count(one) for one in ("processed", "late", "dead", "duplicate"))
    assert account.balances and account.read == len(times) + 1
    assert tally.dead[0].column("reason").to_pylist() == ["no record"], "what does not decode comes first"
    rows = [row for batch in tally.late for row in batch.to_pylist() if not row["reason"].startswith("partly-late")]
    assert sorted(row["offset"] for row in rows) == [row for row, fate in enumerate(expected) if fate == "late"]


def test_a_record_beside_a_duplicate_is_late_all_the_same() -> None:
    """What is left of a batch can be as old as what has left it."""
    times, elsewhere = [5, 6], np.array([True, False])
    records = Records(0, pa.record_batch({"ts": times}), np.array(times), np.arange(2), elsewhere=elsewhere)
    item = MapSplit(Attempt(1, 2), "m", "m", Split("m", ()), {}, {}, TimeLimit(90))
    kept = judge(item, {"task": (tumbling(10), 40)}, RowsAside("m", "", records, 2), tally := SplitTally(), None)
    assert (kept is not None and len(kept), tally.account.late, tally.account.duplicate) == (0, 1, 1)


def test_what_a_state_refuses_is_named_with_it() -> None:
    """The records that lack in one state would be looked for in all."""
    times = [5, 45]
    records = Records(0, pa.record_batch({"ts": times}), np.array(times), np.arange(2))
    item = MapSplit(Attempt(1, 2), "m", "m", Split("m", ()), {}, {}, TimeLimit(90))
    clocks: Clocks = {"task/a": (tumbling(10), 40), "task/b": (sliding(20, every=10), 50), "task/c": (None, 0)}
    tally = SplitTally()
    assert judge(item, clocks, RowsAside("m", "", records, 2), tally, None) is None
    assert [row["reason"] for one in tally.late for row in one.to_pylist()] == [
        "partly-late in a, b",
        "partly-late in b",
    ]
    assert tally.late_windows == {"task/a": {0: 1}, "task/b": {0: 1}} and tally.account.late == 0


@pytest.mark.parametrize("times", [[], [5]])
def test_a_batch_in_which_nothing_is_to_be_judged_is_taken_whole(times: list[int]) -> None:
    """Each batch would be copied."""
    records = Records(
        0, pa.record_batch({"ts": pa.array(times, pa.int64())}), np.array(times, np.int64), np.arange(len(times))
    )
    item = MapSplit(Attempt(1, 2), "m", "m", Split("m", ()), {}, {}, TimeLimit(90))
    tally = SplitTally()
    assert judge(item, {"task": (tumbling(10), 0)}, RowsAside("m", "", records, 2), tally, None) is None
    assert (tally.account.read, tally.account.processed, tally.late, tally.dead) == (len(times), len(times), [], [])


class Visits(PersistentTask):
    def __init__(self, window: Any) -> None:
        self.window = window

    def persistent_state(self) -> Any:
        return WindowState(Count(), self.window)

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class _Hours:
    """Windows of one's own."""

    def windows(self, timestamps: Any) -> Any:
        starts = timestamps // 3_600_000 * 3_600_000
        return starts, starts + 3_600_000

    def fingerprint(self) -> dict[str, Any]:
        return {"hours": 1}


@pytest.mark.parametrize("window", [calendar("day"), calendar("month", tz="Europe/Zurich"), assigned(_Hours())])
@pytest.mark.parametrize("far", [4_500_000_000_000, 1_704_067_200_000_000, 2**62 - 1, 2**63 - 1])
@pytest.mark.parametrize("alone", [True, False])
def test_a_record_in_no_window_is_a_dead_letter(window: Any, far: int, alone: bool) -> None:
    """The least timestamp of its batch was its own: the window of no time ended every run, and good records after it
    did not help."""
    rows = [{"ts": 1_704_067_200_000, "n": 1}, {"ts": far, "n": 1}, {"ts": 1_704_067_200_001, "n": 1}]
    source = MemorySource([rows[0], *[rows[1]] * (3 if alone else 1), rows[2]], timestamp="ts")
    sink = MemorySink()
    pipeline = Pipeline(
        source=source,
        task=Visits(window),
        checkpoint=MemoryStorage(uuid.uuid4().hex),
        sink=sink,
        step_rows=1 if alone else None,
        on_error="dead-letter",
    )
    pipeline.run(engine="embedded", end_of_input=True)
    assert sum(row["value"] for row in sink.rows()) == 2
    letters = pipeline.dead_letters().to_pylist()
    assert len(letters) == (3 if alone else 1) and "too far ahead" in letters[0]["reason"]
