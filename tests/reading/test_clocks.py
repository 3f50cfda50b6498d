"""Where a clock stands, and who holds it back: an operator asks when windows do not close."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from persistent import (
    FileSource,
    MemorySink,
    MemorySource,
    NoCheckpoint,
    Pipeline,
)
from persistent.checkpoint.log import Log
from persistent.names import plan_name
from persistent.operations import compact, rollback
from persistent.reading import ClockReading, PartitionReading, clock_reading
from persistent.storage import MemoryStorage
from persistent.testing import ManualClock
from tests.driver.shop import Visits
from tests.topics import Topic, TopicSource


def job(source: Any, **options: Any) -> Pipeline:
    given = {"task": Visits(), "sink": MemorySink(), "checkpoint": MemoryStorage(uuid.uuid4().hex), "step_rows": 4}
    return Pipeline(source=source, **{**given, **options})


def rows(*times: int) -> list[dict[str, Any]]:
    return [{"ts": time, "page": "a"} for time in times]


def test_the_partition_that_is_furthest_behind_holds_the_clock() -> None:
    """By its largest timestamp and the disorder of its own source, not by the smallest timestamp."""
    near = MemorySource(rows(1, 42), ordered=True, max_out_of_orderness=20)
    far = MemorySource(rows(5, 30), ordered=True)
    pipeline = job({"near": near, "far": far})
    pipeline.run(engine="embedded")
    found = clock_reading(pipeline.storage)
    assert found == ClockReading(
        checkpoint=Log(pipeline.storage).newest().manifest.base,  # type: ignore[union-attr]
        watermark=22,
        closed=22,
        ended=False,
        quiet_ms=0,
        not_after=None,
        partitions=(PartitionReading("far/memory", 30, 30, 0), PartitionReading("near/memory", 42, 22, 20)),
    )
    assert found.held_by == PartitionReading("near/memory", 42, 22, 20)


def test_an_idle_partition_holds_nothing_and_an_empty_one_everything() -> None:
    """Which of the two it is decides what to do: idle_timeout=, or a look at its producer."""
    topic = Topic(a=[5, 25], b=[7], c=[])
    with ManualClock() as time:
        source = TopicSource(topic, idle_timeout_ms=1_000)
        pipeline = job(source)
        pipeline.run(engine="embedded")
        found = clock_reading(pipeline.storage)
        assert found.held_by == PartitionReading("c", None, 0, 0)
        assert not any(one.is_idle for one in found.partitions)
        time.advance("2 s")
        pipeline.run(engine="embedded")
    found = clock_reading(pipeline.storage)
    assert [(one.name, one.is_idle) for one in found.partitions] == [("a", False), ("b", True), ("c", True)]
    assert found.held_by is not None and found.held_by.name == "a" and found.watermark == 25


def test_files_that_are_listed_and_not_read_hold_the_clock(tmp_path: Path) -> None:
    """Its largest timestamp would be blamed, and allowing less disorder would not help."""
    for number, times in enumerate(([30, 31, 32, 33], [40, 41])):
        (tmp_path / f"{number}.csv").write_text("ts,page\n" + "".join(f"{time},a\n" for time in times))
    source = FileSource(str(tmp_path / "*.csv"), timestamp="ts", timestamp_unit="ms")
    pipeline = job(source)

    def look(step: Any) -> None:
        seen.append(clock_reading(pipeline.storage))

    seen: list[ClockReading] = []
    pipeline.run(engine="embedded", on_step=look)
    first, last = seen[0].held_by, seen[-1].held_by
    assert first == PartitionReading("files", 33, -1, 0, lists=True)
    assert last == PartitionReading("files", 41, 41, 0, lists=False)


def test_a_fence_a_compaction_and_a_second_look_say_the_same() -> None:
    """They copy the clock; what holds it back is the step before them."""
    pipeline = job(MemorySource(rows(1, 42), ordered=True, max_out_of_orderness=20))
    pipeline.run(engine="embedded")
    before = clock_reading(pipeline.storage)
    compact(pipeline)
    assert clock_reading(pipeline.storage) == before and before.held_by is not None and before.held_by.lag_ms == 20


def test_without_the_plan_of_the_last_step_the_timestamps_say_it() -> None:
    """After a rollback, or when it is collected: which disorder was allowed is not known then."""
    pipeline = job(MemorySource(rows(1, 12, 42, 43, 44), ordered=True, max_out_of_orderness=20))
    pipeline.run(engine="embedded")
    log, newest = Log(pipeline.storage), Log(pipeline.storage).newest()
    assert newest is not None
    base = log.read(newest.manifest.base - 1).manifest.base
    pipeline.storage.delete(plan_name(base, 0))
    assert clock_reading(pipeline.storage).held_by == PartitionReading("memory", 44, 44, None)
    back = rollback(pipeline.storage, newest.manifest.base, outputs="retract").manifest
    found = clock_reading(pipeline.storage)
    assert (found.checkpoint, found.watermark) == (back.id, newest.manifest.clock.watermark)
    assert found.held_by == PartitionReading("memory", 44, 44, None)


def test_where_there_is_no_checkpoint_there_is_no_clock() -> None:
    """A mistyped URL would show one that has not begun."""
    with pytest.raises(NoCheckpoint):
        clock_reading(job(MemorySource(rows(1))).storage)
