"""Where the record lies that has moved a clock: an operator at night sees what to repair, and in which file."""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from persistent import (
    FileSource,
    LogSource,
    MemorySink,
    MemorySource,
    Pipeline,
    Refused,
    Retention,
    SegmentedLog,
    operations,
    then,
)
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.names import manifest_name
from persistent.reading import Furthest, find_record, furthest
from persistent.storage import MemoryStorage
from tests.driver.shop import Visits
from tests.topics import Topic, TopicSource

AT = 500_000
module: Any = import_module("persistent.reading.clocks")


def rows(count: int, poisoned: int) -> list[dict[str, Any]]:
    return [{"ts": AT if n == poisoned else n, "page": f"p{n}"} for n in range(count)]


def job(source: Any, **options: Any) -> Pipeline:
    given = {"task": Visits(), "sink": MemorySink(), "checkpoint": MemoryStorage(uuid.uuid4().hex), "step_rows": 4}
    return Pipeline(source=source, **{**given, "retention": Retention(last=50), **options})


def files(folder: Path, count: int, poisoned: int) -> FileSource:
    (folder / "in").mkdir(exist_ok=True)
    for start in range(0, count, 3):
        lines = "".join(json.dumps(one) + "\n" for one in rows(count, poisoned)[start : start + 3])
        (folder / "in" / f"{start // 3}.jsonl").write_text(lines)
    return FileSource(str(folder / "in" / "*.jsonl"), timestamp="ts", timestamp_unit="ms", ordered=True)


def found_in(pipeline: Pipeline) -> Furthest:
    found = furthest(pipeline.storage, newest_of(Log(pipeline.storage)).manifest)
    assert found is not None
    return found


@pytest.mark.parametrize("poisoned", range(0, 22, 3))
def test_it_lies_in_the_step_that_counted_it(poisoned: int) -> None:
    """Another step would be named, and its records looked at in vain."""
    pipeline = job(MemorySource(rows(22, poisoned), timestamp="ts", ordered=True))
    pipeline.run(engine="embedded")
    found = found_in(pipeline)
    first = poisoned // 4 * 4
    assert str(found).startswith(f"at offsets {first} to {min(first + 3, 21)}, counted by checkpoint {found.by.id}")
    record = find_record(pipeline, found)
    assert record is not None and (record.offset, record.value) == (poisoned, {"ts": AT, "page": f"p{poisoned}"})


def test_of_files_it_names_the_file_and_the_offset(tmp_path: Path) -> None:
    """The bad line would be searched in every file."""
    pipeline = job(files(tmp_path, 24, 13), step_rows=3)
    pipeline.run(engine="embedded")
    found = found_in(pipeline)
    assert str(found).startswith("in 4.jsonl, offsets 0 to ")
    assert str(find_record(pipeline, found)) == f"4.jsonl, offset {len(json.dumps(rows(24, 13)[12])) + 1}"
    wide = job(files(tmp_path, 24, 13), step_rows=10)
    wide.run(engine="embedded")
    assert str(found_in(wide)).startswith("in one of 4 files, from 3.jsonl to 6.jsonl, counted by checkpoint")


def run_with_pin(pipeline: Pipeline, id: int) -> None:
    """Run the job, and keep this checkpoint, of which the plan is collected."""

    def stop(step: Any) -> None:
        if step.id == id:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        pipeline.run(engine="embedded", on_step=stop)
    operations.pin(pipeline.storage, id)
    pipeline.run(engine="embedded")


@pytest.mark.parametrize("kind", ["memory", "files"])
@pytest.mark.parametrize("rows_max", [4, 4_000_000])
def test_without_the_plan_the_positions_tell(
    tmp_path: Path, kind: str, rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its checkpoint was collected, another span would be named, or none; or only its beginning be read."""
    monkeypatch.setattr(module, "_ROWS", rows_max)
    source = MemorySource(rows(40, 13), timestamp="ts", ordered=True) if kind == "memory" else files(tmp_path, 40, 13)
    pipeline = job(source, retention=Retention(last=2))

    run_with_pin(pipeline, 3)
    found = found_in(pipeline)
    assert found.step is None and found.after is not None and found.after.id == 3
    assert f"counted after checkpoint 3, by checkpoint {found.by.id} at the latest" in str(found)
    assert ("from listed file 2, offset " in str(found)) is (kind == "files")
    record = find_record(pipeline, found)
    assert record is not None and record.value["page"] == "p13"


def test_before_the_oldest_that_is_kept() -> None:
    """The oldest kept checkpoint would be said to have counted it."""
    pipeline = job(MemorySource(rows(40, 2), timestamp="ts", ordered=True), retention=Retention(last=2))
    pipeline.run(engine="embedded")
    found = found_in(pipeline)
    assert found.after is None or found.after.id == 0
    record = find_record(pipeline, found)
    assert record is not None and record.offset == 2


def test_a_damaged_or_abandoned_checkpoint_misleads_nobody() -> None:
    """One damaged file would hide where the record lies, or a rollback would name what it has taken back."""
    pipeline = job(MemorySource(rows(40, 13), timestamp="ts", ordered=True))
    pipeline.run(engine="embedded")
    whole = found_in(pipeline)
    operations.rollback(pipeline.storage, whole.by.id - 1, outputs="again")
    assert found_in(pipeline).timestamp < AT
    pipeline.run(engine="embedded")
    assert found_in(pipeline).by.id > whole.by.id
    storage = pipeline.storage
    assert isinstance(storage, MemoryStorage)
    again = found_in(pipeline)
    storage._files[manifest_name(again.by.id)] = storage._files[manifest_name(again.by.id)].slice(0, 50)
    found = found_in(pipeline)
    assert found.by.id > again.by.id and found.step is None
    record = find_record(pipeline, found)
    assert record is not None and record.offset == 13


def test_of_a_history_and_what_follows_it(tmp_path: Path) -> None:
    """The files of the history would be read as if they were the log, or the log from its beginning."""
    made = [{"ts": 1_000 * n if n != 24 else AT, "page": f"p{n}"} for n in range(30)]
    (tmp_path / "in").mkdir()
    for start in (0, 10):
        lines = "".join(json.dumps(one) + "\n" for one in made[start : start + 10])
        (tmp_path / "in" / f"{start}.jsonl").write_text(lines)
    with SegmentedLog(str(tmp_path / "log")).writer() as writer:
        for n, one in enumerate(made[15:], 15):
            writer.append(json.dumps(one).encode(), time=1_000 * n)
    history = FileSource(str(tmp_path / "in" / "*.jsonl"), timestamp="ts", timestamp_unit="ms", ordered=True)
    live = LogSource(str(tmp_path / "log"), timestamp="ts", timestamp_unit="ms")
    pipeline = job({"both": then(history, live, at=20_000, max_skew="1 s")})
    pipeline.run(engine="embedded")
    found = found_in(pipeline)
    assert found.partition == "live/log"
    record = find_record(pipeline, found)
    assert record is not None and (record.partition, record.offset) == ("live/log", 9)
    assert record.value["page"] == "p24"
    assert find_record(pipeline, replace(found, step=None)) == record
    assert find_record(pipeline, replace(found, step=None, after=None)) == record


def test_of_several_partitions() -> None:
    """A record of the same time in another partition would be named."""
    topic = Topic(a=[1, 2, 3, 4, 5, 6], b=[1, 2, 3, AT, 5, 6], c=[1, 2, 3])
    pipeline = job(TopicSource(topic), step_rows=6)
    pipeline.run(engine="embedded")
    found = found_in(pipeline)
    assert found.partition == "b"
    splits = found.splits()
    assert splits is not None and {split.partition for split in splits} == {"b"}
    record = find_record(pipeline, found)
    assert record is not None and (record.partition, record.offset) == ("b", 3)


@pytest.mark.parametrize("planned", [True, False])
def test_what_a_topic_has_forgotten_before_it_is_passed_over(planned: bool) -> None:
    """Records that nobody asks for would hide the one that is there; or the next run would be named as the remedy."""
    topic = Topic(a=[1, 2, 3], b=[*range(9), AT, *range(10, 20)])
    pipeline = job(TopicSource(topic), step_rows=40)
    pipeline.run(engine="embedded")
    found = found_in(pipeline)
    found = found if planned else replace(found, step=None, after=None)
    for first in range(10):
        topic.first["b"] = first
        record = find_record(pipeline, found)
        assert record is not None and (record.partition, record.offset) == ("b", 9)
    for first in (10, 15, 20):
        topic.first["b"] = first
        assert find_record(pipeline, found) is None


def test_a_step_is_one_between_neighbours() -> None:
    """The plan of the last of several steps would be named as that of all."""
    pipeline = job(MemorySource(rows(40, 13), timestamp="ts", ordered=True))
    pipeline.run(engine="embedded")
    log, by = Log(pipeline.storage), found_in(pipeline).by
    read = lambda id: log.read(id).manifest  # noqa: E731
    assert module._step(log, read, by, read(by.id - 1), "memory") is not None
    assert module._step(log, read, by, read(by.id - 2), "memory") is None
    assert module._step(log, read, by, None, "memory") is None


def test_of_several_sources() -> None:
    """A partition of the same name in another source would be read."""
    pair = {"a": MemorySource(rows(20, 99), ordered=True), "b": MemorySource(rows(20, 7), ordered=True)}
    pipeline = job(pair)
    pipeline.run(engine="embedded")
    found = found_in(pipeline)
    assert found.source == "b"
    record = find_record(pipeline, found)
    assert record is not None and (record.partition, record.offset) == ("b/memory", 7)
    with pytest.raises(Refused, match="give that source too"):
        find_record(job({"a": MemorySource(rows(20, 99), ordered=True)}), found)


def test_nothing_was_counted() -> None:
    """A job without a record would be said to have one, at 1970."""
    pipeline = job(MemorySource(rows(4, 99), ordered=True))
    pipeline.run(engine="embedded")
    assert furthest(pipeline.storage, Log(pipeline.storage).read(0).manifest) is None
