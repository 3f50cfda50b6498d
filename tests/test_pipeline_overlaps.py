"""What a source reads that is hardly meant to be read: its own pipeline's output, and one file twice."""

from __future__ import annotations

import logging
import os

import pytest

from monoids import Count
from persistent import (
    FileSink,
    FileSource,
    InvalidPipeline,
    KafkaSink,
    KafkaSource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
    tumbling,
)


class Total(PersistentTask):
    """Counts all records."""

    def persistent_state(self):
        return NonWindowState(Count())

    def process_message(self, state, message):
        state.update(message.timestamp, 1)


class Windows(Total):
    """Counts by the minute."""

    def persistent_state(self):
        return WindowState(Count(), tumbling("1 min"))


def source_of(path, **options):
    return FileSource(path, timestamp="ts", timestamp_unit="ms", **options)


@pytest.fixture
def events(tmp_path):
    (tmp_path / "data" / "events").mkdir(parents=True)
    (tmp_path / "data" / "events" / "a.jsonl").write_text('{"ts": 1}\n')
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("path", "sink", "checkpoint", "refused"),
    [
        ("data", "out", "checkpoint", ""),
        ("data", "data/out", "checkpoint", "sink"),
        ("data", "out", "data/checkpoint", "checkpoint"),
        ("data/**/*.jsonl", "data/out", "data/checkpoint", "sink"),
        ("data/*/*.jsonl", "data/out", "data/checkpoint", "sink"),
        ("data/events/*.jsonl", "data/events", "data/checkpoint", "sink"),
        ("data/events/*.jsonl", "data/out", "data/checkpoint", ""),
        ("data/*/*.csv", "data/out", "data/checkpoint", ""),
        ("data", "link/out", "checkpoint", "sink"),
        ("file:DATA", "data/out", "checkpoint", "sink"),
        ("data", "data/_out", "data/.checkpoint", ""),
    ],
)
def test_a_sink_or_checkpoint_that_the_source_reads_is_refused(events, path, sink, checkpoint, refused):
    """A job that reads what it has written would never come to its end, count its own results, or stop at its FORMAT
    file as at a bad input."""
    place = events.parent
    (place / "link").symlink_to(events)
    path = f"file://{place}/data" if path == "file:DATA" else place / path
    pipeline = Pipeline(
        source=source_of(path),
        task=Total(),
        sink=FileSink(place / sink, format="jsonl"),
        checkpoint=str(place / checkpoint),
    )
    before = sorted(place.rglob("*"))
    if not refused:
        if str(path).endswith(".csv"):
            (events / "events" / "a.csv").write_text("ts\n1\n")
        assert pipeline.run(engine="embedded").rows == 1
        return
    with pytest.raises(InvalidPipeline, match=f"^the {refused} .* is inside the source .* Narrow .* another folder"):
        pipeline.run(engine="embedded")
    assert sorted(place.rglob("*")) == before, "something was written"


def test_a_job_that_has_read_its_own_files_goes_on_with_a_narrower_path(events, monkeypatch):
    """An earlier release has only warned: the remedy that the refusal names must be one for its checkpoint too."""

    def made(path, sink="data/out"):
        place = events.parent
        sink = FileSink(place / sink, format="jsonl")
        task = Windows()
        return Pipeline(source=source_of(path), task=task, sink=sink, checkpoint=str(place / "checkpoint"))

    (events / "events" / "b.jsonl").write_text('{"ts": 90000}\n')
    with monkeypatch.context() as earlier:
        earlier.setattr("persistent.pipeline.check_not_read_back", lambda *parts: None)
        for _ in range(2):
            made(events).run(engine="embedded")
    own = [row["file"] for row in made(events).dead_letters().to_pylist()]
    assert own and all(name.startswith("out/") for name in own), "it has not read its own files"
    with pytest.raises(InvalidPipeline, match=r"the sink .* is inside the source"):
        made(events).run(engine="embedded")
    (events / "events" / "c.jsonl").write_text('{"ts": 90000}\n')
    assert made(events / "e*" / "*.jsonl").run(engine="embedded").rows == 1
    os.rename(events / "out", events.parent / "out")
    assert made(events, "out").run(engine="embedded").rows == 0


def test_a_file_that_a_link_lists_again_is_warned_of(events, caplog):
    """Its records would count twice without a word."""
    (events / "copy.jsonl").symlink_to(events / "events" / "a.jsonl")
    (events / "again").symlink_to(events / "events")
    (events / "other.jsonl").symlink_to(events.parent / "b.jsonl")
    (events.parent / "b.jsonl").write_text('{"ts": 1}\n')
    pipeline = Pipeline(source=source_of(events), task=Total(), checkpoint=str(events.parent / "checkpoint"))
    with caplog.at_level(logging.WARNING):
        report = pipeline.run(engine="embedded")
    assert report.rows == 4 and set(pipeline.warnings()) <= set(report.notes)
    told = sorted(text.removeprefix(f"{events}/") for text in pipeline.warnings())
    assert [text.split(",")[0] for text in told] == [
        "again/a.jsonl is events/a.jsonl again",
        "copy.jsonl is events/a.jsonl again",
    ]
    assert caplog.text.count("copy.jsonl is events/a.jsonl again") == 1


def test_a_link_to_a_folder_that_it_lies_in_is_not_followed(events):
    """Every file below would be read some forty times, until the system refuses the path."""
    (events / "events" / "loop").symlink_to(events)
    os.symlink(".", events / "self")
    assert [one.path for one in source_of(events)._files.list()] == ["events/a.jsonl"]


def test_links_between_two_folders_end(events):
    """Each leads to the other: neither lies in itself, and the walk would go round."""
    (events / "b").mkdir()
    (events / "b" / "to_events").symlink_to(events / "events")
    (events / "events" / "to_b").symlink_to(events / "b")
    source = source_of(events)
    assert len(source._files.list()) == 3 and len(source.warnings()) == 2


def test_a_topic_that_is_read_and_written_is_refused(tmp_path):
    """Each run would count the results of the one before, and publish those of what it counted."""
    source = KafkaSource("localhost:1", "visits", timestamp="ts", timestamp_unit="ms")
    for topic in ("visits", "sums"):
        sink = KafkaSink("localhost:1", topic)
        job = {"source": source, "task": Windows(), "sink": sink, "checkpoint": str(tmp_path / topic)}
        if topic == "sums":
            assert Pipeline(**job).guarantee()
            continue
        with pytest.raises(InvalidPipeline, match=r"writes where KafkaSource.* reads: the results would be counted"):
            Pipeline(**job).run(engine="embedded")
