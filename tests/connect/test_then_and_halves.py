"""A history, then a live source: each record counts once, whatever both hold, and whenever the job is killed."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Sum
from persistent import (
    Dedupe,
    Embedded,
    FileSource,
    KafkaSource,
    LogSource,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    RabbitStreamSource,
    SegmentedLog,
    TopicSource,
    WindowState,
    then,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.connect.offsets import begun, place_id
from persistent.connect.promises import AT_LEAST_ONCE, Promise
from persistent.connect.source import Budget, Reached, Source, SourcePlan, SourceState, Span, Split
from persistent.errors import InvalidPipeline, OtherJob, Refused, RetentionGap, SourceError
from persistent.operations import merge, restart, rollback, savepoint
from persistent.storage import MemoryStorage
from persistent.testing import SourceSuite
from persistent.testing.faults import FaultyStorage, Killed, Operations
from persistent.verify import verify_source
from tests.few import examples
from tests.single import only

AT = 1_000


class ByPage(PersistentTask):
    """The sum of n by page; raises on a negative one."""

    key = "page"

    def __init__(self, state: Any = None) -> None:
        self.state = state or NonWindowState(Sum())

    def persistent_state(self) -> Any:
        return self.state

    def process_message(self, state: Any, message: Any) -> None:
        if message.value["n"] < 0:
            raise ValueError("negative")
        state.update(message.timestamp, message.value["n"])


def row(ts: int | None, n: int = 1, page: str = "a") -> dict[str, Any]:
    return {"ts": ts, "page": page, "n": n}


def job(source: Any, storage: Any = None, **options: Any) -> Pipeline:
    storage = storage or MemoryStorage(uuid.uuid4().hex)
    return Pipeline(source=source, checkpoint=storage, **{"task": ByPage(), "step_rows": 3, **options})


def memory(history: list[Any], live: list[Any], **options: Any) -> Any:
    return then(MemorySource(history), MemorySource(live), **{"at": AT, "max_skew": "10 ms", **options})


def counted(pipeline: Pipeline) -> dict[str, int]:
    return {one["page"]: one["value"] for one in pipeline.state().to_pylist()}


def newest(pipeline: Pipeline) -> Manifest:
    entry = Log(pipeline.storage).newest()
    assert entry is not None
    return entry.manifest


def accounts(pipeline: Pipeline) -> dict[str, tuple[int, int, int, int, int]]:
    """By partition: read, processed, late, dead, duplicate."""
    return {
        name: (one.read, one.processed, one.late, one.dead, one.duplicate)
        for name, one in newest(pipeline).accounts.items()
    }


def check_source(pipeline: Pipeline) -> None:
    """The account balances with both halves, read again."""
    entry = Log(pipeline.storage).newest()
    assert entry is not None
    found = verify_source(pipeline, entry)
    assert not found.findings
    assert found.parts["source"].rows == sum(one.read for one in entry.manifest.accounts.values())


HISTORY = [row(ts, ts) for ts in (400, 800, 600, 999, 1_000, 1_005)]
LIVE = [row(ts, ts) for ts in (600, 980, 999, 1_000, 995, 1_005, 1_002, 1_200)]
TOTAL = {"a": 400 + 800 + 600 + 999 + 1_000 + 1_005 + 1_002 + 1_200}


def log_of(rows: list[Any]) -> SegmentedLog:
    """A log of these records; their times in it never go back, and are at or after those of the events."""
    log = SegmentedLog(MemoryStorage(uuid.uuid4().hex))
    with log.writer() as writer:
        for one, time in zip(rows, accumulate((one["ts"] for one in rows), max)):
            writer.append(json.dumps(one).encode(), time)
    return log


def logged(log: SegmentedLog, **options: Any) -> LogSource:
    return LogSource(log, timestamp="ts", timestamp_unit="ms", max_skew=0, **options)


def lines(folder: Path, name: str, rows: list[Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(one) + "\n" for one in rows))


# -- each record counts once -----------------------------------------------------------------------------------------


@st.composite
def splits_of_a_stream(draw: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """A stream in disorder, a history with all of it before the border and some behind, and a live source with all of
    it from the border on and some before."""
    times = draw(st.lists(st.integers(AT - 25, AT + 25), min_size=1, max_size=20))
    stream = [
        row(time, number + 1, draw(st.sampled_from("ab"))) for number, time in enumerate([AT - 30, *times, AT + 30])
    ]
    history = [one for one in stream if one["ts"] < AT or draw(st.booleans())]
    live = [one for one in stream if one["ts"] >= AT or draw(st.booleans())]
    return stream, draw(st.permutations(history)), live


def windows_of(stream: list[Any], size: int) -> Counter[tuple[str, int]]:
    """The plain reference: each record once, whatever half it came from."""
    sums: Counter[tuple[str, int]] = Counter()
    for one in stream:
        sums[one["page"], one["ts"] // size * size] += one["n"]
    return sums


@given(
    splits_of_a_stream(),
    st.sampled_from([1, 2, 5, 50, None]),
    st.integers(0, 40),
    st.lists(st.integers(0, 150), max_size=3),
)
@settings(max_examples=examples(20), deadline=None)
def test_any_split_into_history_and_live_gives_the_plain_sums(
    split: tuple[list[Any], list[Any], list[Any]], step_rows: int | None, skew: int, deaths: list[int]
) -> None:
    """Without it a record near the border would count twice, or not at all, or be late in the other half."""
    stream, history, live = split
    storage, sink = MemoryStorage(uuid.uuid4().hex), MemorySink()
    state = WindowState(Sum(), tumbling("7 ms"))

    def run(checkpoint: Any) -> Pipeline:
        source = memory(history, live, max_skew=f"{skew} ms")
        pipeline = job(source, checkpoint, task=ByPage(state), sink=sink, step_rows=step_rows)
        pipeline.run(engine="embedded", end_of_input=True)
        return pipeline

    for death in deaths:
        with suppress(Killed):
            run(FaultyStorage(storage, Operations(at=death)))
    pipeline = run(storage)
    published = Counter[tuple[str, int]]()
    for one in sink.rows():
        published[one["page"], round(one["window_start"].timestamp() * 1_000)] += one["value"]
    assert published == windows_of(stream, 7)
    assert len(sink.rows()) == len(published), "a window was published twice"
    begins = next((place for place, one in enumerate(live) if one["ts"] >= AT - skew), len(live))
    past, read = sum(one["ts"] >= AT for one in history), live[begins:]
    before = sum(one["ts"] < AT for one in read)
    found = accounts(pipeline)
    assert found["history/memory"] == (len(history), len(history) - past, 0, 0, past)
    assert found["live/memory"] == (len(read), len(read) - before, 0, 0, before)
    check_source(pipeline)


def test_files_then_a_log_count_each_record_once(tmp_path: Path) -> None:
    """The whole way, with the sources that it is for: a folder is left once it is read, and the log goes on."""
    lines(tmp_path / "in", "1.jsonl", HISTORY[:3])
    lines(tmp_path / "in", "2.jsonl", HISTORY[3:])
    log = log_of(LIVE)
    source = then(
        FileSource(tmp_path / "in", timestamp="ts", timestamp_unit="ms"),
        logged(log),
        at=datetime.fromtimestamp(AT / 1_000, UTC),
        max_skew="10 ms",
    )
    pipeline = job(source, step_rows=2)
    report = pipeline.run(engine="embedded")
    assert counted(pipeline) == TOTAL
    assert accounts(pipeline) == {"history/files": (6, 4, 0, 0, 2), "live/log": (6, 4, 0, 0, 2)}
    assert (
        "note: history: 6 records, 2 duplicates (counted in the live source if they are from 1970-01-01 00:00:01Z on); "
        "live: 6 records, 2 duplicates (counted in the history if they are before 1970-01-01 00:00:01Z)"
    ) in str(report)
    lines(tmp_path / "in", "3.jsonl", [row(500, 7)])
    with log.writer() as writer:
        writer.append(json.dumps(row(1_300, 5)).encode(), 1_300)
    assert pipeline.run(engine="embedded").rows == 1, "the history is complete, and is not listed again"
    assert counted(pipeline) == {"a": TOTAL["a"] + 5}
    check_source(pipeline)


def test_a_record_at_the_border_is_live_and_one_before_is_history() -> None:
    """``at`` itself belongs to one half only."""
    pipeline = job(memory([row(999, 1), row(1_000, 10)], [row(999, 100), row(1_000, 1_000)]))
    pipeline.run(engine="embedded")
    assert counted(pipeline) == {"a": 1_001}


def test_the_history_is_read_before_the_live_source_and_the_switch_is_in_the_plan() -> None:
    """With both at once the clock would run to today, and the history would be late."""
    pipeline = job(memory(HISTORY, LIVE))
    seen: list[tuple[str, ...]] = []
    pipeline.run(engine="embedded", on_step=lambda step: seen.append(only(newest(pipeline).sources).partitions))
    assert seen == [("history/memory",)] * 2 + [("history/memory", "live/memory")] * 2
    assert only(newest(pipeline).sources).idle == ("history/memory",)
    recorded = only(newest(pipeline).sources).recorded
    assert recorded["seam"] == {
        "at": AT,
        "kinds": ["MemorySource", "MemorySource"],
        "begins": {"live/memory": [0, 2]},
        "end": {"history/memory": [0, 6]},
        "reached": 999,
    }


def test_the_live_source_begins_where_the_first_plan_found_it() -> None:
    """Looked up at the switch, hours later, the records that a retention has cut off meanwhile would be missed."""
    source = memory(HISTORY, LIVE)
    first = source.plan(SourceState({}), Budget(2))
    assert first.recorded["seam"]["begins"] == {"live/memory": [0, 2]}
    assert memory(HISTORY, LIVE, max_skew=AT + 5).plan(SourceState({}), Budget(2)).recorded["seam"]["begins"] == {
        "live/memory": [0, 0]
    }


# -- the clock -------------------------------------------------------------------------------------------------------


def clocks(source: Any, **options: Any) -> list[int]:
    pipeline = job(source, task=ByPage(WindowState(Sum(), tumbling("5 ms"))), discard_closed=True, **options)
    found: list[int] = []
    pipeline.run(engine="embedded", on_step=lambda step: found.append(step.clock_ms))
    return found


def test_the_clock_follows_the_history_and_then_the_live_source_alone() -> None:
    """A finished history must not hold the clock, nor a record of the other half move it."""
    history = [row(ts) for ts in (100, 200, 300, 5_000, 400, 500)]
    live = [row(ts) for ts in (400, 500, 1_000, 2_000, 3_000, 4_000)]
    assert clocks(memory(history, live, max_skew="1 s"))[:4] == [300, 500, 1_000, 4_000]


def test_each_half_has_its_own_disorder() -> None:
    """A history a day out of order must not hold the live clock back for ever."""
    history = MemorySource([row(ts) for ts in (100, 900)], max_out_of_orderness="300 ms")
    live = MemorySource([row(ts) for ts in (1_000, 2_000)], max_out_of_orderness="50 ms")
    source = then(history, live, at=AT)
    assert clocks(source) == [600, 1_950, 1_950]
    assert source.max_out_of_orderness == 300


def test_another_source_waits_for_the_history() -> None:
    """The clock of a job is that of the source that is furthest behind, also of one that is at its history."""
    both = memory([row(ts) for ts in (100, 200, 300, 400)], [row(1_000), row(3_000)])
    other = MemorySource([row(ts) for ts in (2_500, 2_600, 2_700, 2_800)])
    pipeline = job({"both": both, "other": other}, step_rows=2)
    found: list[int] = []
    pipeline.run(engine="embedded", on_step=lambda step: found.append(step.clock_ms))
    assert found == [200, 400, 2_800]
    assert {"both/history/memory", "both/live/memory", "other/memory"} == newest(pipeline).accounts.keys()


# -- what belongs to neither half ------------------------------------------------------------------------------------


def test_a_history_that_waits_for_a_slower_source_is_not_read_yet() -> None:
    """What nothing is read of for a while would be taken for what has been read: the rest would count nowhere."""
    ahead = [row(ts) for ts in range(500, 900, 10)]
    both = memory(ahead, [row(AT), row(AT + 5)])
    slow = MemorySource([row(ts) for ts in range(0, 400, 10)])
    pipeline = job({"both": both, "slow": slow}, max_drift=20)
    pipeline.run(engine="embedded")
    assert pipeline.state()["value"].to_pylist() == [82]


def test_a_live_record_that_the_history_cannot_hold_is_a_dead_letter() -> None:
    """If the history ends before ``at``, the records between would be lost without a word."""
    pipeline = job(
        memory([row(500, 1), row(700, 2)], [row(ts, 10) for ts in (690, 700, 701, 999, 1_000)], max_skew=400)
    )
    pipeline.run(engine="embedded")
    assert counted(pipeline) == {"a": 13}
    assert accounts(pipeline)["live/memory"] == (5, 1, 0, 2, 2)
    letters = pipeline.dead_letters().to_pylist()
    assert [one["timestamp"] for one in letters] == [701, 999]
    assert [one["value"]["n"] for one in letters] == [10, 10]
    assert all("the history ends at 1970-01-01 00:00:00.700Z and cannot hold it" in one["reason"] for one in letters)
    check_source(pipeline)


def test_a_history_without_a_record_before_the_border_can_hold_none() -> None:
    """Its end is nowhere, and not at zero."""
    pipeline = job(memory([row(1_500, 1)], [row(0, 10), row(990, 10), row(1_500, 5)], max_skew=AT))
    pipeline.run(engine="embedded")
    assert counted(pipeline) == {"a": 5}
    assert accounts(pipeline) == {"history/memory": (1, 0, 0, 0, 1), "live/memory": (3, 1, 0, 2, 0)}
    assert "has none before at=" in pipeline.dead_letters().to_pylist()[0]["reason"]


def test_the_copy_of_the_last_record_that_failed_says_what_it_may_be() -> None:
    """A dead letter moves no clock, so the history seems to end before it: nobody must look for another border."""

    source = memory([row(500, 1), row(700, -1)], [row(700, -1), row(1_000, 1)], max_skew=400)
    pipeline = job(source, on_error="dead-letter")
    pipeline.run(engine="embedded")
    first, second = (one["reason"] for one in pipeline.dead_letters().to_pylist())
    assert "negative" in first and "this is a copy of it, and at= is right" in second


def test_records_without_a_time_are_dead_letters_of_their_half() -> None:
    """No side of the border is theirs, so neither half may count them."""
    pipeline = job(memory([row(None), row(-5), row(700, 2)], [row(1_000, 3), row(None), row(-5)]))
    pipeline.run(engine="embedded")
    assert counted(pipeline) == {"a": 5}
    assert accounts(pipeline) == {"history/memory": (3, 1, 0, 2, 0), "live/memory": (3, 1, 0, 2, 0)}
    reasons = sorted(one["reason"] for one in pipeline.dead_letters().to_pylist())
    assert [reason[:22] for reason in reasons] == ["timestamp before 1970"] * 2 + [reasons[2][:22]] * 2
    assert "'ts'" in reasons[2] and "history" not in reasons[2]


@pytest.mark.parametrize("follow", [False, True])
def test_an_empty_history_is_refused_even_if_the_run_follows(follow: bool) -> None:
    """A mistyped path would begin with the live source, and lose the history without a word."""
    with pytest.raises(SourceError, match="the history holds no record: check its path"):
        job(memory([], LIVE)).run(engine="embedded", follow=follow)


def test_a_history_of_which_one_partition_is_empty_is_a_history() -> None:
    """It has been read, and its empty partition is no mistake."""

    class Lanes(MemorySource):
        def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
            return SourcePlan((), {"a": (0, 2), "b": (0, 0)}, {"a": None, "b": None}, state.recorded)

    plan = then(Lanes(HISTORY), MemorySource(LIVE), at=AT).plan(SourceState({}), Budget(5))
    assert plan.recorded["seam"]["end"] == {"history/a": [0, 2], "history/b": [0, 0]}
    assert plan.idle == ("history/a", "history/b") and plan.splits
    assert plan.joins == ("history/a", "history/b", "live/memory") and plan.end["history/a"] == (0, 2)


@pytest.mark.parametrize(("live", "is_told"), [(LIVE, False), (LIVE[1:], False), (LIVE[2:], True)])
def test_a_live_source_that_begins_at_the_border_is_told(live: list[Any], is_told: bool) -> None:
    """What the files have from the border on counts there; if the live source began later, it counts nowhere."""
    pipeline = job(memory(HISTORY, live))
    told = [note for note in pipeline.run(engine="embedded").notes if "holds nothing from before 1970" in note]
    assert len(told) == is_told
    again = job(memory(HISTORY, live), pipeline.storage).run(engine="embedded")
    assert not any("holds nothing" in note for note in again.notes)


# -- copies ----------------------------------------------------------------------------------------------------------


def test_a_copy_in_the_other_half_counts_once() -> None:
    """A sender repeats a record with a new time: its original is in the history, the copy in the live source."""

    def named(ts: int, id: str, n: int) -> dict[str, Any]:
        return {**row(ts, n), "id": id}

    history = [named(900, "x", 1), named(950, "y", 2), named(960, "x", 4), named(1_001, "z", 8)]
    live = [
        named(950, "y", 2),
        named(1_000, "y", 16),
        named(1_001, "z", 8),
        named(1_002, "w", 32),
        named(1_003, "z", 64),
    ]
    pipeline = job(memory(history, live, max_skew=100), dedupe=Dedupe.by_id("id", within="1 h"))
    pipeline.run(engine="embedded")
    assert counted(pipeline) == {"a": 1 + 2 + 8 + 32}
    assert accounts(pipeline) == {"history/memory": (4, 2, 0, 0, 2), "live/memory": (5, 2, 0, 0, 3)}
    check_source(pipeline)


# -- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 6])
def test_a_rollback_across_the_switch_reads_each_record_once_again(step: int) -> None:
    """The switch is part of the checkpoint: from before it, the history goes on, from behind it, the live source."""
    storage, sink = MemoryStorage(uuid.uuid4().hex), MemorySink()
    pipeline = job(memory(HISTORY, LIVE), storage, sink=sink, task=ByPage(WindowState(Sum(), tumbling("100 ms"))))
    pipeline.run(engine="embedded", end_of_input=True)
    before, rows = newest(pipeline).accounts, sorted(map(str, sink.rows()))
    rollback(storage, step, outputs="retract")
    if step > 1:
        check_source(pipeline)
    pipeline.run(engine="embedded", end_of_input=True)
    assert newest(pipeline).accounts == before
    assert sorted(map(str, sink.rows())) == rows
    check_source(pipeline)


@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_a_savepoint_of_either_half_starts_another_job(step: int) -> None:
    """A copy must know the switch as its original does."""
    storage, copy = MemoryStorage(uuid.uuid4().hex), MemoryStorage(uuid.uuid4().hex)
    job(memory(HISTORY, LIVE), storage).run(engine="embedded")
    rollback(storage, step, outputs="again")
    savepoint(storage, "mid")
    pipeline = job(memory(HISTORY, LIVE), copy, start_from=f"{storage.url}/s/mid")
    pipeline.run(engine="embedded")
    assert counted(pipeline) == TOTAL
    check_source(pipeline)


def test_the_state_as_of_a_clock_on_either_side() -> None:
    """Time travel does not see the seam."""
    state = NonWindowState(Sum(), interval_ms=100, history="1 h")
    pipeline = job(memory(HISTORY, LIVE), task=ByPage(state))
    pipeline.run(engine="embedded")
    for clock, expected in ((700, 1_000), (1_000, 2_799), (1_100, 2_799 + 3_007)):
        assert pipeline.state(as_of=clock).to_pylist() == [{"page": "a", "value": expected}]


@pytest.mark.parametrize("clock", [700, 1_000, 1_100])
def test_a_restart_from_a_clock_reads_both_halves_again(clock: int) -> None:
    """What the state has is not counted again, what it lacks comes from the half that holds it."""
    state = NonWindowState(Sum(), interval_ms=100, history="1 h")
    pipeline = job(memory(HISTORY, LIVE), task=ByPage(state))
    pipeline.run(engine="embedded")
    restart(pipeline, clock, outputs="again")
    pipeline.run(engine="embedded")
    assert counted(pipeline) == TOTAL
    assert all(one.dead == 0 for one in newest(pipeline).accounts.values())
    check_source(pipeline)


@pytest.mark.parametrize("kept_from", [30, 36])
def test_a_restart_after_the_border_needs_the_live_records_of_its_clock_alone(kept_from: int) -> None:
    """A topic that no longer holds the border would end the job for good, once the state was set back."""
    rows = [row(100 * number) for number in range(40)]
    log = SegmentedLog(MemoryStorage(uuid.uuid4().hex))
    for one in rows:
        # A writer each, so that each record has a segment of its own, which can be cut off.
        with log.writer() as writer:
            writer.append(json.dumps(one).encode(), one["ts"])
    sink, storage = MemorySink(), MemoryStorage(uuid.uuid4().hex)
    source = then(MemorySource(rows[:12]), logged(log), at=AT, max_skew=0)
    pipeline = job(source, storage, task=ByPage(WindowState(Sum(), tumbling(100))), sink=sink)
    pipeline.run(engine="embedded")
    log.truncate(log.position_of(kept_from))
    if kept_from > 35:
        with pytest.raises(RetentionGap):
            restart(pipeline, 3_500, outputs="retract")
        return
    restart(pipeline, 3_500, outputs="retract")
    pipeline.run(engine="embedded", end_of_input=True)
    assert sum(one["value"] for one in sink.rows()) == len(rows)


def test_a_live_source_with_more_to_read_does_not_forbid_a_restart(tmp_path: Path) -> None:
    """Only files that are listed and not read may hold something older; the history has none left."""
    lines(tmp_path / "in", "1.jsonl", HISTORY)
    log, state = log_of(LIVE), NonWindowState(Sum(), interval_ms=100, history="1 h")
    files = FileSource(tmp_path / "in", timestamp="ts", timestamp_unit="ms")
    other = MemorySource([row(ts, 1) for ts in (100, 1_500)])
    source = {"both": then(files, logged(log), at=AT, max_skew="10 ms"), "other": other}
    pipeline = job(source, task=ByPage(state))
    pipeline.run(engine="embedded")
    with log.writer() as writer:
        writer.append(json.dumps(row(1_300, 5)).encode(), 1_300)
    restart(pipeline, 1_100, outputs="again")
    pipeline.run(engine="embedded")
    assert counted(pipeline) == {"a": TOTAL["a"] + 2 + 5}


def test_jobs_with_a_half_in_common_are_not_merged(tmp_path: Path) -> None:
    """The records of that half would count twice in the sum."""
    for name in ("one", "other"):
        lines(tmp_path / name, "1.jsonl", HISTORY)
    logs = [log_of(LIVE), log_of(LIVE)]

    def ran(where: str, log: SegmentedLog) -> MemoryStorage:
        storage = MemoryStorage(uuid.uuid4().hex)
        files = FileSource(tmp_path / where, timestamp="ts", timestamp_unit="ms")
        source = then(files, logged(log), at=AT)
        job(source, storage).run(engine="embedded")
        return storage

    alone = MemoryStorage(uuid.uuid4().hex)
    job(logged(logs[0]), alone).run(engine="embedded")
    first = ran("one", logs[0])
    for other, shared in ((ran("one", logs[1]), "files"), (ran("other", logs[0]), "log"), (alone, "log")):
        with pytest.raises(Refused, match=f"have read partition {shared}"):
            merge(first, other, MemoryStorage(uuid.uuid4().hex))
    merge(first, ran("other", logs[1]), MemoryStorage(uuid.uuid4().hex))


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("death", [40, 70, 1_000])
def test_another_border_is_refused_with_the_remedy(death: int) -> None:
    """The records between the two borders have been counted in the other half, or in none."""
    storage = MemoryStorage(uuid.uuid4().hex)
    operations = Operations(at=death)
    with suppress(Killed):
        job(memory(HISTORY, LIVE), FaultyStorage(storage, operations)).run(engine="embedded")
    with pytest.raises(InvalidPipeline, match=r"at=1001: the checkpoint was made with at=1000.*Give at=1000 again"):
        job(memory(HISTORY, LIVE, at=AT + 1), storage).run(engine="embedded")
    pipeline = job(memory(HISTORY, LIVE, max_skew="1 ms"), storage)
    pipeline.run(engine="embedded")
    assert counted(pipeline) == TOTAL


def test_another_kind_of_half_is_refused(tmp_path: Path) -> None:
    """Its positions mean other records."""
    storage = MemoryStorage(uuid.uuid4().hex)
    job(memory(HISTORY, LIVE), storage).run(engine="embedded")
    lines(tmp_path / "in", "1.jsonl", HISTORY)
    files = FileSource(tmp_path / "in", timestamp="ts", timestamp_unit="ms")
    with pytest.raises(InvalidPipeline, match="has read MemorySource then MemorySource: give both halves again"):
        job(then(files, MemorySource(LIVE), at=AT), storage).run(engine="embedded")
    with pytest.raises(OtherJob):
        job(MemorySource(HISTORY), storage).run(engine="embedded")


@pytest.mark.parametrize("which", ["history", "live"])
def test_an_option_of_a_half_is_recorded(which: str) -> None:
    """Another time column would put records on the other side of the border."""
    storage = MemoryStorage(uuid.uuid4().hex)
    job(memory(HISTORY, LIVE), storage).run(engine="embedded")
    halves = {
        name: MemorySource(rows, timestamp_unit="s" if name == which else "ms")
        for name, rows in (("history", HISTORY), ("live", [*LIVE, row(1_500)]))
    }
    with pytest.raises(InvalidPipeline, match="timestamp_unit='s': the checkpoint was made with timestamp_unit='ms'"):
        job(then(halves["history"], halves["live"], at=AT), storage).run(engine="embedded")


def test_a_live_source_that_has_lost_records_is_refused_before_anything_is_read() -> None:
    """Found at the switch, it would cost the hours of the history."""
    log = log_of(LIVE)
    log.truncate(log.position_of(2))
    pipeline = job(then(MemorySource(HISTORY), logged(log), at=AT, max_skew="10 ms"))
    with pytest.raises(RetentionGap, match="the first kept record of partition log is not before"):
        pipeline.run(engine="embedded")
    assert Log(pipeline.storage).newest() is None


def test_a_live_source_whose_clock_is_further_behind_than_it_says_is_refused() -> None:
    """Records from the border on are before the position of the border: they would count nowhere, without a word."""
    live = [row(ts) for ts in range(0, 4_000, 100)]
    log = SegmentedLog(MemoryStorage(uuid.uuid4().hex))
    with log.writer() as writer:
        for one in live:
            writer.append(json.dumps(one).encode(), max(one["ts"] - 800, 0))
    history = [one for one in live if one["ts"] < 3_000]
    for skew, is_refused in ((500, True), (900, False)):
        source = LogSource(log, timestamp="ts", timestamp_unit="ms", max_skew=f"{skew} ms")
        pipeline = job(then(MemorySource(history), source, at=3_000, max_skew="10 ms"))
        if is_refused:
            with pytest.raises(SourceError, match="give a larger max_skew="):
                pipeline.run(engine="embedded")
        else:
            pipeline.run(engine="embedded")
            assert pipeline.state()["value"].to_pylist() == [len(live)]


def test_a_live_source_that_loses_records_while_the_history_is_read_is_refused() -> None:
    """The first plan has fixed where it begins, so the gap has a size."""
    log, storage = log_of(LIVE), MemoryStorage(uuid.uuid4().hex)

    def run(on_gap: str, checkpoint: Any) -> Pipeline:
        live = logged(log, on_gap=on_gap)
        pipeline = job(then(MemorySource(HISTORY), live, at=AT, max_skew="10 ms"), checkpoint)
        pipeline.run(engine="embedded")
        return pipeline

    with suppress(Killed):
        run("fail", FaultyStorage(storage, Operations(at=40)))
    log.truncate(log.position_of(5))
    with pytest.raises(RetentionGap, match=r"next offset to read is 2, .* 3 offsets were deleted before"):
        run("fail", storage)
    pipeline = run("earliest", storage)
    assert newest(pipeline).accounts["live/log"].skipped == 3
    assert counted(pipeline) == {"a": TOTAL["a"] - 1_000}


def test_what_cannot_be_two_halves_is_refused_where_it_is_made(tmp_path: Path) -> None:
    """Each of these would count wrong, or fail hours later."""
    files, live = MemorySource(HISTORY), MemorySource(LIVE)
    log = LogSource(MemoryStorage(uuid.uuid4().hex), timestamp="ts")
    wrong: list[tuple[Any, Any, Any, str]] = [
        (files, FileSource(tmp_path, timestamp="ts"), AT, "cannot be read from a time on"),
        (files, TopicSource("h:1", "t", journal=MemoryStorage("j")), AT, "cannot be read from a time on"),
        (log, live, AT, "has no end that a plan could reach"),
        (files, files, AT, "are the same"),
        (log, log, AT, "has no end"),
        ("in/*.jsonl", live, AT, "files='in/.*' is not one source"),
        (files, None, AT, "live=None is not one source"),
        (memory(HISTORY, LIVE), live, AT, "is not one source"),
        (files, memory(HISTORY, LIVE), AT, "is not one source"),
        (files, live, "yesterday", "at: 'yesterday' is not a time"),
        (files, live, 0, "at=0 is not after 1970"),
        (files, live, -5, "at=-5 is not after 1970"),
        (files, live, None, "at: None is neither"),
    ]
    for history, follows, at, said in wrong:
        with pytest.raises(InvalidPipeline, match=said):
            then(history, follows, at=at)
    with pytest.raises(InvalidPipeline, match="max_skew: -1 is negative"):
        then(files, live, at=AT, max_skew=-1)
    assert repr(then(files, live, at="1970-01-01T00:00:01Z")).endswith("at=1000)")
    then(files, live, at=1, max_skew=0)


def test_a_half_timed_by_arrival_is_refused(tmp_path: Path) -> None:
    """A record would have two times, and be on both sides of the border, or on none."""
    files = FileSource(tmp_path, timestamp="ts")
    for live in (
        KafkaSource("h:1", "clicks"),
        LogSource(MemoryStorage("arrival")),
        RabbitStreamSource("h:1", "clicks"),
    ):
        with pytest.raises(InvalidPipeline, match="timestamp of files is 'ts', that of live is '_timestamp'"):
            then(files, live, at=AT)
        then(FileSource(tmp_path, timestamp="_timestamp"), live, at=AT)
    then(files, KafkaSource("h:1", "clicks", timestamp="event_time"), at=AT)


def test_a_sink_that_writes_into_a_half_is_refused(tmp_path: Path) -> None:
    """The results would be counted as input."""
    lines(tmp_path / "in", "1.jsonl", HISTORY)
    source = then(FileSource(tmp_path / "in", timestamp="ts", timestamp_unit="ms"), MemorySource(LIVE), at=AT)
    with pytest.raises(InvalidPipeline, match="is inside the source"):
        job(source, tmp_path / "in" / "checkpoint").run(engine="embedded")
    with pytest.raises(InvalidPipeline, match="are the same"):
        job({"a": source, "b": FileSource(tmp_path / "in", timestamp="ts")})
    with pytest.raises(InvalidPipeline, match="are the same"):
        job({"a": source, "b": source.halves[1]})


def test_an_engine_is_asked_whether_its_workers_reach_both_halves(tmp_path: Path) -> None:
    """A half in the memory of the driver would be found out of reach in the middle of a run."""

    class Elsewhere(Embedded):
        in_process = False

        def check(self, storages: Any, *sources: Any) -> None:
            raise InvalidPipeline(f"reaches {len(sources)} sources")

    halves = MemorySource(HISTORY), MemorySource(LIVE)
    pipeline = job({"both": then(*halves, at=AT), "other": MemorySource(LIVE)}, str(tmp_path / "checkpoint"))
    with pytest.raises(InvalidPipeline, match="reaches 3 sources"):
        pipeline.run(engine=Elsewhere(threads=1))


# -- one half, as the whole calls it -----------------------------------------------------------------------------------


class Scripted(Source):
    """A live source with offsets, whose plan is given, and which notes what it is asked."""

    kind = "ScriptedSource"
    codec = "offset/1"
    max_out_of_orderness = 7
    infers = True
    finds_times = True
    forgets = True

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def partitions(self) -> tuple[str, ...]:
        return ()

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        own = dict(state.positions), dict(state.largest), dict(state.recorded)
        self.asked.append((*own, state.index, state.job, follow))
        split = Split("0", (Span(0, 4, 9),))
        given = {"0": 9, "1": 3}, {"0": 5, "1": None}, {"topic_id": "t", "schema": [["ts", "int64"]]}
        return SourcePlan((split,), *given, idle=("1",), skipped={"0": 2}, held=True, rests="1")

    def schema(self, recorded: Any) -> Any:
        self.asked.append(("schema", recorded))
        return pa.schema([("ts", pa.int64())])

    def read(self, split: Split, recorded: Any) -> Any:
        self.asked.append(("read", split, recorded))
        return iter(())

    def acknowledge(self, positions: Any) -> None:
        self.asked.append(("acknowledge", positions))

    def position_at(self, partition: str, clock: int) -> int:
        raise AssertionError("from_clock knows the partitions")

    def from_clock(self, recorded: Any, clock: int) -> SourceState:
        self.asked.append(("from_clock", recorded, clock))
        return SourceState({"0": 4, "1": 3}, {"topic_id": "t"})

    def has_forgotten(self, splits: Any, recorded: Any) -> bool:
        self.asked.append(("has_forgotten", splits, recorded))
        return True

    def confirm(self, recorded: Any) -> None:
        self.asked.append(("confirm", recorded))

    def guarantee(self) -> Promise:
        return Promise(AT_LEAST_ONCE, "it is asked again", "it lives")

    def warnings(self) -> tuple[str, ...]:
        return ("mind the gap",)

    def close(self) -> None:
        self.asked.append("closed")


def test_a_half_is_asked_in_its_own_words_and_answers_in_those_of_the_whole() -> None:
    """A partition, a position or a record under the name of the other half would read its records, or lose them."""
    live = Scripted()
    source = then(MemorySource([row(700)], max_out_of_orderness=3), live, at=AT, max_skew=10)
    first = source.plan(SourceState({}), Budget(10))
    assert (first.end, first.joins, first.max_out_of_orderness) == ({"history/memory": (0, 1)}, ("history/memory",), 3)
    assert not source.has_forgotten(first.splits, first.recorded)
    source.confirm(first.recorded)
    columns = {"topic_id": "t", "schema": [["ts", "int64"]]}
    assert live.asked == [({}, {}, {}, None, "", True), ("from_clock", columns, 990)]
    largest = {"history/memory": 700, "live/1": 8}
    index = pa.table({"path": ["of the history"]})
    state = SourceState({**first.end, "live/1": (0, 5)}, first.recorded, index, largest, "me")
    plan = source.plan(state, Budget(10))
    assert live.asked[2:] == [({"0": 4, "1": 5}, {"1": 8}, {"topic_id": "t"}, None, "me", False)]
    assert plan.end == {"history/memory": (0, 1), "live/0": (0, 9), "live/1": (0, 3)}
    assert plan.splits == (Split("live/0", (Span(0, 4, 9),)),)
    assert (plan.cap, plan.idle) == ({"live/0": 5, "live/1": None}, ("history/memory", "live/1"))
    assert (plan.skipped, plan.held, plan.rests, plan.joins) == ({"live/0": 2}, True, "live/1", ("live/0",))
    assert plan.max_out_of_orderness == 7
    assert place_id(plan.recorded) == "t" and begun(plan.recorded) == {}
    own = {"topic_id": "t", "schema": [["ts", "int64"]]}
    for recorded in (first.recorded, plan.recorded):
        with pytest.raises(InvalidPipeline, match="Give at=1000 again"):
            then(MemorySource([row(700)]), live, at=AT - 1).schema(recorded)
    live.asked.clear()
    assert source.has_forgotten(plan.splits, plan.recorded)
    source.confirm(plan.recorded)
    assert list(source.read(plan.splits[0], plan.recorded)) == []
    assert source.schema(plan.recorded).names == ["ts"]
    source.acknowledge(plan.end)
    source.close()
    split = Split("0", (Span(0, 4, 9),))
    assert live.asked == [
        ("has_forgotten", [split], own),
        ("confirm", own),
        ("read", split, own),
        ("schema", own),
        ("acknowledge", {"0": 9, "1": 3}),
        "closed",
    ]
    assert source.infers and source.warnings() == ("mind the gap",)
    said = "rows are read from the same place again, then it is asked again"
    assert source.guarantee() == Promise(AT_LEAST_ONCE, said, "it lives")
    then(MemorySource([row(700)]), live, at=AT, max_skew=AT + 5).plan(SourceState({}), Budget(10))
    assert live.asked[-1] == ("from_clock", columns, 0)
    assert source.reached(SourceState(plan.end, plan.recorded)) is None, "the live source does not know"
    assert source.reached(SourceState(first.end, first.recorded)) == Reached(1, 1, "rows")


def test_the_columns_of_each_half_are_read_as_they_were_counted(tmp_path: Path) -> None:
    """``schema=`` may differ between the halves, and change: ``verify`` reads each record as it was read."""
    lines(tmp_path / "in", "1.jsonl", [{**row(700, 1), "more": "x"}, {**row(900, 2), "more": 5}])
    log = log_of([{**row(1_000, 4), "more": 7}, {**row(1_001, 8), "more": "y"}])
    columns = {"ts": "int64", "page": "string", "n": "int64"}

    def run(storage: Any, more: str, live_more: str) -> Pipeline:
        files = FileSource(tmp_path / "in", timestamp="ts", timestamp_unit="ms", schema={**columns, "more": more})
        live = logged(log, schema={**columns, "more": live_more})
        pipeline = job(then(files, live, at=AT, max_skew=10), storage)
        pipeline.run(engine="embedded")
        return pipeline

    storage = MemoryStorage(uuid.uuid4().hex)
    first = run(storage, "int64", "string")
    assert accounts(first) == {"history/files": (2, 1, 0, 1, 0), "live/log": (2, 1, 0, 1, 0)}
    check_source(first)
    with log.writer() as writer:
        writer.append(json.dumps({**row(1_002, 16), "more": "z"}).encode(), 1_002)
    second = run(storage, "string", "int64")
    assert accounts(second) == {"history/files": (2, 1, 0, 1, 0), "live/log": (3, 1, 0, 2, 0)}
    check_source(second)


# -- the promises of every source ------------------------------------------------------------------------------------


class TestThen(SourceSuite):
    """The contract of a source, over both halves, with a death at operations all through the run."""

    def source(self) -> Any:
        self.live = getattr(self, "live", list(LIVE))
        return memory([row(ts) for ts in range(900, 1_010, 10)], self.live)

    def append(self) -> None:
        self.live += [row(2_000 + n) for n in range(4)]


def test_a_file_that_is_gone_is_one_dead_letter_of_the_history(tmp_path: Path) -> None:
    """``on_bad_file`` of the history holds in the whole."""
    for number, one in enumerate(HISTORY):
        lines(tmp_path / "in", f"{number}.jsonl", [one])

    def source(on_bad_file: str) -> Any:
        files = FileSource(tmp_path / "in", timestamp="ts", timestamp_unit="ms", on_bad_file=on_bad_file)
        return then(files, MemorySource(LIVE), at=AT, max_skew=10)

    storage = MemoryStorage(uuid.uuid4().hex)
    with suppress(Killed):
        job(source("raise"), FaultyStorage(storage, Operations(at=40))).run(engine="embedded")
    read = only(newest(job(source("raise"), storage)).sources).positions["history/files"][0]
    assert 0 < read < 6
    (tmp_path / "in" / "5.jsonl").unlink()
    with pytest.raises(SourceError, match=r"5\.jsonl"):
        job(source("raise"), storage).run(engine="embedded")
    pipeline = job(source("dead-letter"), storage)
    pipeline.run(engine="embedded")
    assert counted(pipeline) == TOTAL
    assert accounts(pipeline)["history/files"] == (6, 4, 0, 1, 1)
    check_source(pipeline)


@pytest.mark.spark
def test_spark_reads_both_halves_as_the_embedded_engine_does(spark: Any, tmp_path: Path) -> None:
    """The border is drawn where the records are read: on workers."""
    rows = [row(AT - 300 + number, number, "abc"[number % 3]) for number in range(600)]
    for part in range(3):
        lines(tmp_path / "in", f"{part}.jsonl", rows[:400][part::3])
    log = SegmentedLog(tmp_path / "log")
    with log.writer() as writer:
        times = [one["ts"] for one in rows[200:]]
        writer.append_many([json.dumps(one).encode() for one in rows[200:]], times)

    def ran(place: str, engine: Any) -> Pipeline:
        files = FileSource(tmp_path / "in", timestamp="ts", timestamp_unit="ms")
        source = then(files, logged(log), at=AT, max_skew="50 ms")
        pipeline = job(source, str(tmp_path / place), step_rows=150)
        pipeline.run(engine, engine=None if engine else "embedded")
        return pipeline

    here, there = ran("here", None), ran("there", spark)
    assert counted(here) == counted(there) == {page: sum(range("abc".index(page), 600, 3)) for page in "abc"}
    assert newest(here).accounts == newest(there).accounts
    assert accounts(there) == {"history/files": (400, 300, 0, 0, 100), "live/log": (350, 300, 0, 0, 50)}
    check_source(there)


def test_a_half_without_an_account_counts_nothing() -> None:
    """A run that is stopped before its first commit would end with an error of its report."""
    source = then(MemorySource([row(700)]), MemorySource([row(1_500)]), at=AT)
    assert source.account_text({}, {}).startswith("history: 0 records, 0 duplicates")
