"""Options of a source are checked when it is made, and kept to what the checkpoint was made with."""

from __future__ import annotations

from pathlib import Path

import pytest

from persistent import RabbitQueueSource, SegmentedLog, TopicSource
from persistent.connect import options
from persistent.errors import InvalidPipeline
from persistent.sources import FileSource, MemorySource
from tests.connect.draining import drain, read, thawed
from tests.connect.test_recorded import source


@pytest.mark.parametrize(
    "options",
    [
        {"timestamp": None},
        {"timestamp_unit": "minutes"},
        {"format": "xml"},
        {"on_bad_file": "skip"},
        {"ordered": "yes"},
        {"multiline": 1},
        {"max_out_of_orderness": "5 parsecs"},
        {"max_out_of_orderness": -1},
        {"schema": {"ts": "no such type"}},
        {"schema": {}},
        {"schema": ["ts"]},
        {"path": ""},
        {"path": 3},
    ],
)
def test_bad_options_are_refused_when_the_source_is_made(options):
    """Without it they would fail on a worker, hours later."""
    with pytest.raises(InvalidPipeline, match=r"=|write|max_out_of_orderness"):
        FileSource(**{"path": "events", "timestamp": "ts", **options})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"sync": "never"}, r"does not sync each entry.*Omit its sync="),
        ({"sync": "1 s"}, "does not sync each entry"),
        ({"sync": 2}, "does not sync each entry"),
        ({"keep_age": "1 day"}, r"by its retention.*Omit its keep_age= and keep_bytes="),
        ({"keep_bytes": 10_000}, "by its retention"),
    ],
)
@pytest.mark.parametrize(
    "journaled",
    [
        lambda journal: RabbitQueueSource("amqp://localhost", "q", journal=journal),
        lambda journal: TopicSource("127.0.0.1:7000", "t", journal=journal),
    ],
    ids=["queue", "topic"],
)
def test_a_journal_that_may_lose_messages_is_refused(tmp_path, journaled, given, why):
    """Its messages were acknowledged, and nobody else has them: they would be missing in silence, exactly once."""
    with pytest.raises(InvalidPipeline, match=why):
        journaled(SegmentedLog(tmp_path / "journal", **given))
    assert journaled(SegmentedLog(tmp_path / "journal", segment_bytes=5_000))
    assert journaled(tmp_path / "journal")


def csv(path):
    path.write_text('ts,at,v\n1,1,\n2,2,""\n3,3,x\n')
    return path


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"timestamp": "at"}, "timestamp='at': .* timestamp='ts' again"),
        ({"timestamp_unit": "s"}, "timestamp_unit='s': .* timestamp_unit='ms' again"),
        ({"format": "json"}, "format='json': .* format='csv' again"),
        ({"multiline": True}, "multiline=True: .* multiline=False again"),
    ],
)
def test_an_option_that_records_depend_on_may_not_change(tmp_path, changed, says):
    """What was counted by one rule would be added to what is counted by another, without a word."""
    path = csv(tmp_path / "a.csv")
    first = drain(source(path))
    with pytest.raises(InvalidPipeline, match=says):
        drain(source(path, **changed), state=first.state)
    with pytest.raises(InvalidPipeline, match=says):
        read(source(path, **changed), thawed(first.plans[0].splits[0]), first.plans[0].recorded)


def test_a_memory_source_records_its_time_too(tmp_path):
    """The same task tried in memory would accept what it refuses on files."""
    rows = [{"ts": 1, "at": 2}]
    state = drain(MemorySource(rows)).state
    rows.append({"ts": 3, "at": 4})
    with pytest.raises(InvalidPipeline, match=r"timestamp='at': .* timestamp='ts' again"):
        drain(MemorySource(rows, timestamp="at"), state=state)


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:hidden@bucket/views/*.csv",
        "s3://key:hid/hidden@bucket/views/*.csv",
        "ftp://me:hidden@host:21/views",
        "https://host/views.csv?token=hidden",
    ],
)
def test_a_url_with_a_password_is_refused_and_not_shown(url: str) -> None:
    """It would be in the log, the page, what `explain` says, and each error: a store refuses it too."""
    with pytest.raises(InvalidPipeline, match="with a password or parameters") as caught:
        FileSource(url, timestamp="ts")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["hdfs://me@name:8020/a@b/*.csv", "s3://bucket/day-?/hour=1.csv", "s3://bucket/a@b.csv", "views/a:b@c.csv"]
)
def test_a_url_without_a_password_is_not_refused(url: str) -> None:
    """A source that ran yesterday runs today."""
    assert options.without_secret(url) == url


def test_the_address_of_a_topic_has_no_password(tmp_path: Path) -> None:
    """Topics know none, and it would be in the log."""
    with pytest.raises(InvalidPipeline, match="address= has a user or a password") as caught:
        TopicSource("tcp://me:hidden@127.0.0.1:7000", "clicks", journal=tmp_path)
    assert "hidden" not in str(caught.value)
