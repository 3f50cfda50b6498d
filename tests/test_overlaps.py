"""What a source reads that is hardly meant to be read: its own pipeline's output, and one file twice."""

from __future__ import annotations

import logging
import os

import pytest

from monoids import Count
from persistent import FileSink, FileSource, NonWindowState, PersistentTask, Pipeline


class Total(PersistentTask):
    """Counts all records."""

    def persistent_state(self):
        return NonWindowState(Count())

    def process_message(self, state, message):
        state.update(message.timestamp, 1)


def source_of(path, **options):
    return FileSource(path, timestamp="ts", timestamp_unit="ms", **options)


@pytest.fixture
def events(tmp_path):
    (tmp_path / "data" / "events").mkdir(parents=True)
    (tmp_path / "data" / "events" / "a.jsonl").write_text('{"ts": 1}\n')
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("path", "sink", "checkpoint", "warned"),
    [
        ("data", "out", "checkpoint", []),
        ("data", "data/out", "checkpoint", ["sink"]),
        ("data", "out", "data/checkpoint", ["checkpoint"]),
        ("data/**/*.jsonl", "data/out", "data/checkpoint", ["sink"]),
        ("data/*/*.jsonl", "data/out", "data/checkpoint", ["sink"]),
        ("data/events/*.jsonl", "data/events", "data/checkpoint", ["sink"]),
        ("data/events/*.jsonl", "data/out", "data/checkpoint", []),
        ("data/*/*.csv", "data/out", "data/checkpoint", []),
        ("data", "link/out", "checkpoint", ["sink"]),
        ("file:DATA", "data/out", "checkpoint", ["sink"]),
        ("data", "data/_out", "data/.checkpoint", []),
    ],
)
def test_a_sink_or_checkpoint_that_the_source_reads_is_warned_of(events, caplog, path, sink, checkpoint, warned):
    """A job that reads what it has written would never come to its end, and count its own results."""
    place = events.parent
    (place / "link").symlink_to(events)
    path = f"file://{place}/data" if path == "file:DATA" else place / path
    pipeline = Pipeline(
        source=source_of(path),
        task=Total(),
        sink=FileSink(place / sink, format="jsonl"),
        checkpoint=str(place / checkpoint),
    )
    assert [text.split()[1] for text in pipeline.warnings()] == warned
    if path == place / "data" and warned == ["sink"]:
        with caplog.at_level(logging.WARNING):
            pipeline.run(engine="embedded")
        assert "is inside the source" in caplog.text


def test_a_file_that_a_link_lists_again_is_warned_of(events, caplog):
    """Its records would count twice without a word."""
    (events / "copy.jsonl").symlink_to(events / "events" / "a.jsonl")
    (events / "again").symlink_to(events / "events")
    (events / "other.jsonl").symlink_to(events.parent / "b.jsonl")
    (events.parent / "b.jsonl").write_text('{"ts": 1}\n')
    pipeline = Pipeline(source=source_of(events), task=Total(), checkpoint=str(events.parent / "checkpoint"))
    with caplog.at_level(logging.WARNING):
        assert pipeline.run(engine="embedded").rows == 4
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
