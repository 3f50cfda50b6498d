"""A message is in the journal as it came, and is read as columns."""

from __future__ import annotations

import uuid
from typing import Any

import pika
import pyarrow as pa
import pytest

from persistent import LogSource, SegmentedLog
from persistent.connect.rabbitmq.frames import JournaledMessages, Undecodable, columns_of, framed, taken_apart
from persistent.connect.source import NO_TIMESTAMP, Span, Split
from persistent.errors import InvalidPipeline, SourceChanged, SourceError


def message(body: bytes, **properties: Any) -> bytes:
    return framed(pika.BasicProperties(**properties), "views", body)


def test_a_message_comes_back_as_it_was() -> None:
    """What the journal lacks is gone: the broker has forgotten it."""
    headers = {"text": "é", "whole": 7, "bytes": b"ab", "none": None, "yes": True, "half": 0.5, "table": {"a": 1}}
    frame = message(b"\x00body{", message_id="m-1", timestamp=3, headers=headers)
    said, bodies = taken_apart([frame, message(b"")])
    assert bodies == [b"\x00body{", b""]
    kept = {"text": "é", "whole": 7, "bytes": "ab", "none": None, "yes": True, "half": 0.5, "table": None}
    assert said[0] == {"id": "m-1", "key": "views", "sent": 3_000, "headers": kept}
    assert said[1] == {"key": "views", "headers": {}}


def test_what_is_not_utf8_is_not_given() -> None:
    """It would end every run. And two ids of which a part is replaced would be one id: a copy that is none."""
    headers = {"latin": b"caf\xe9", "bytes": b"ab"}
    frame = framed(pika.BasicProperties(message_id=b"caf\xe9", headers=headers), b"caf\xe8", b"body")
    said, bodies = taken_apart([frame, framed(pika.BasicProperties(message_id=b"ab"), b"views", b"")])
    assert said[0] == {"headers": {"latin": None, "bytes": "ab"}}
    assert said[1] == {"id": "ab", "key": "views", "headers": {}}
    assert bodies == [b"body", b""]


@pytest.mark.parametrize("frame", [b"", b"\x01", b'{"n": 1}', b"\x02\x00\x00\x00\x00"])
def test_what_is_no_message_is_refused(frame: bytes) -> None:
    """The bytes of another log would be counted as messages."""
    with pytest.raises(ValueError, match="not a message of version 1"):
        taken_apart([frame])


def test_columns_are_null_where_the_publisher_gave_nothing_or_something_else() -> None:
    """A header of another type would stop the run, or be taken for an id."""
    said = [
        {"id": "m-1", "key": "k", "sent": 5, "headers": {"n": 7, "who": "a"}},
        {"headers": {"n": "seven", "who": 3}},
        {"id": 9, "sent": True, "headers": {"n": True, "who": None}},
        {"sent": 1 << 70, "headers": {"n": 1 << 70}},
        {"headers": {"n": 0.5}},
    ]
    found = columns_of(said, pa.schema([("n", pa.int64()), ("who", pa.string())]))
    ids, keys, sent, numbers, who = (column.to_pylist() for column in found)
    assert ids == ["m-1", None, None, None, None]
    assert keys == ["k", None, None, None, None]
    assert [None if one is None else one.timestamp() for one in sent] == [0.005, None, None, None, None]
    assert numbers == [7, None, None, None, None]
    assert who == ["a", None, None, None, None]


def test_a_time_of_sending_that_is_none_is_null() -> None:
    """Publishers give milliseconds as seconds; the task that looks at the column would end every run."""
    last = 253_402_300_799
    said = taken_apart([message(b"", timestamp=at) for at in (1_700_000_000_000, last, last + 1, (1 << 64) - 1)])[0]
    assert [None if one is None else one.year for one in columns_of(said, pa.schema([]))[2].to_pylist()] == [
        None,
        9999,
        None,
        None,
    ]


def test_a_whole_float_is_an_integer() -> None:
    """A publisher whose client sends every number as a float would have no numbers, or numbers that were cut off."""
    said = [{"headers": {"n": value}} for value in (5.0, 5.5, float("nan"), float("inf"), 2.0**60)]
    whole, half = columns_of(said, pa.schema([("n", pa.int64())]))[3], columns_of(said, pa.schema([("n", "double")]))[3]
    assert whole.to_pylist() == [5, None, None, None, None]
    assert half.to_pylist()[:2] == [5.0, 5.5]


def test_a_truth_value_is_no_number() -> None:
    """A publisher that numbers by True would have one number for all."""
    said = [{"headers": {"flag": True}}, {"headers": {"flag": 1}}]
    assert columns_of(said, pa.schema([("flag", pa.bool_())]))[3].to_pylist() == [True, None]


# -- the journal -------------------------------------------------------------------------------------------------


def journal(*frames: bytes) -> SegmentedLog:
    log = SegmentedLog(f"memory://{uuid.uuid4().hex}")
    with log.writer() as writer:
        for at, frame in enumerate(frames):
            writer.append(frame, time=1_000 + at)
    return log


def messages(log: SegmentedLog, **options: Any) -> JournaledMessages:
    given = {
        "format": "json",
        "schema": None,
        "headers": None,
        "time": (options.pop("timestamp", "_timestamp"), None),
    }
    return JournaledMessages("the queue", log, **{**given, **options})


def columns(one: JournaledMessages, recorded: Any, splits: list[Split]) -> Any:
    return one.described(recorded, bool(splits), lambda: [one.sample(splits[0].spans[0].start)])


def read(one: JournaledMessages, start: int, stop: int) -> Any:
    split = Split("journal", (Span(0, start, stop),))
    recorded = columns(one, {}, [split])
    (found,) = one.read(split, recorded)
    return found


def test_bodies_are_columns_beside_those_of_the_message() -> None:
    """A job would see other fields than the publisher sent."""
    log = journal(message(b'{"n": 1}', message_id="a", headers={"seq": 4}), message(b"oops"), message(b'{"n": 2}'))
    found = read(messages(log, headers={"seq": "int64"}), 0, 3)
    assert found.batch.schema.names == ["n", "_message_id", "_routing_key", "_sent", "seq", "_timestamp"]
    assert found.batch.column("n").to_pylist() == [1, 2]
    assert found.batch.column("_message_id").to_pylist() == ["a", None]
    assert found.batch.column("seq").to_pylist() == [4, None]
    assert found.timestamps.tolist() == [1_000, 1_002]
    assert found.offsets.tolist() == [0, 2]
    (dead,) = found.dead
    assert (dead.offset, dead.data) == (1, b"oops") and "not" in dead.reason


@pytest.mark.parametrize("format", ["json", "bytes"])
def test_a_message_with_undecodable_headers_is_a_dead_letter(format: str) -> None:
    """It would count without the headers that its publisher gave, or end every run."""
    poison = message(b'{"n": 9}', message_id="p", headers=Undecodable("its headers cannot be decoded: why"))
    log = journal(message(b'{"n": 1}', message_id="a"), poison, message(b'{"n": 2}', message_id="b"))
    found = read(messages(log, format=format), 0, 3)
    assert found.batch.column("_message_id").to_pylist() == ["a", "b"]
    assert found.offsets.tolist() == [0, 2]
    (dead,) = found.dead
    assert (dead.offset, dead.reason, dead.data) == (1, "its headers cannot be decoded: why", b'{"n": 9}')


def test_a_part_of_the_journal_is_read_as_planned() -> None:
    """A step that is repeated must not read what came later."""
    log = journal(*(message(b'{"n": %d}' % n) for n in range(5)))
    found = read(messages(log, schema={"n": "int64"}), 1, 3)
    assert found.batch.column("n").to_pylist() == [1, 2]
    with pytest.raises(SourceChanged, match="planned up to record 9, but the journal ends at 5"):
        read(messages(log), 1, 9)


def test_bytes_and_times_of_the_publisher() -> None:
    """Event time is the publisher's where the option says so; a message without one is dead by name."""
    log = journal(message(b"x", timestamp=7), message(b"y"))
    found = read(messages(log, format="bytes", timestamp="_sent"), 0, 2)
    assert found.batch.column("value").to_pylist() == [b"x", b"y"]
    assert found.timestamps.tolist() == [7_000, NO_TIMESTAMP]
    assert "_sent" in found.unreadable(1)


def test_what_was_recorded_stays() -> None:
    """The columns of a job would depend on what lies first in its journal."""
    log = journal(message(b'{"n": 1}'))
    one = messages(log)
    split = Split("journal", (Span(0, 0, 1),))
    recorded = columns(one, {}, [split])
    assert columns(one, {**recorded}, [])["format"] == "json"
    assert "schema" not in columns(one, {}, [])
    assert columns(messages(journal(message(b'{"other": 1}'))), recorded, [split])["schema"] == recorded["schema"]
    with pytest.raises(InvalidPipeline, match="format="):
        messages(log, format="bytes").require_recorded(recorded)
    with pytest.raises(InvalidPipeline, match="_routing_key is a field of the messages, and a column"):
        columns(messages(log, schema={"_routing_key": "string"}), {}, [])


def test_another_log_is_no_journal() -> None:
    """A path that was mistyped would be read as messages, or cut off."""
    log = journal(b'{"n": 1}')
    assert LogSource(log.storage)
    with pytest.raises(SourceChanged, match="is another log: a record is not a message of version 1"):
        columns(messages(log), {}, [Split("journal", (Span(0, 0, 1),))])


def test_bodies_that_say_no_columns() -> None:
    """The remedy is an option."""
    split = Split("journal", (Span(0, 0, 1),))
    for body in (b"", b"oops"):
        with pytest.raises(SourceError, match="Give schema="):
            columns(messages(journal(message(body))), {}, [split])
