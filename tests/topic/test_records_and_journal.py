"""A journal of a topic: records and the place behind them are one; one journal at a time; and it says what it lacks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from persistent.errors import Fenced, InvalidPipeline, SourceError
from persistent.log import SegmentedLog
from persistent.storage import MemoryStorage
from persistent.topic import (
    JoinOptions,
    MessagesLost,
    Retain,
    SessionBegan,
    SessionEnded,
    TopicMessage,
    TopicPlace,
    TopicSender,
)
from persistent.topic.journal import TopicJournal, _parts, stored_place
from persistent.topic.records import TopicRecord, decode_record, encode_record

S = "0123456789abcdef" * 2
QUICK = JoinOptions(discovery="100 ms", attempts=100_000, retry="50 ms")
ALL = Retain("1 h")


def until(is_so: Callable[[], Any]) -> None:
    while not is_so():
        time.sleep(0.005)


@pytest.fixture
def log() -> SegmentedLog:
    return SegmentedLog(MemoryStorage(uuid.uuid4().hex))


def journaled(log: SegmentedLog) -> list[TopicRecord]:
    return [decode_record(record) for batch in log.read() for record in batch.records.to_pylist()]


@pytest.mark.parametrize(
    ("again", "gap", "delivery"), [(False, False, "live"), (True, False, "late-join"), (True, True, "retransmit")]
)
def test_a_message_comes_back_as_it_was(again: bool, gap: bool, delivery: str) -> None:
    """With its time, also one of before 1970, and how it came."""
    record = encode_record(TopicMessage(S, 2**40, -7, b"\x00payload", again, gap))
    assert record is not None
    assert decode_record(record) == TopicRecord(S, 2**40, -7, delivery, b"\x00payload")


def test_what_is_lost_is_a_record_and_what_tells_of_no_message_is_none() -> None:
    """Whoever reads the journal later knows what it lacks."""
    lost, unclear = encode_record(MessagesLost(S, 3, 5, "they went")), encode_record(SessionEnded(S, 5, False))
    assert lost and unclear
    assert decode_record(lost).why == f"lost: messages 3 to 4 of session {S}: they went"
    assert "messages from 5 on, if any" in decode_record(unclear).why and decode_record(unclear).payload is None
    assert encode_record(SessionBegan(S, 0, 0)) is None and encode_record(SessionEnded(S, 5, True)) is None


@pytest.mark.parametrize("data", [b"", b"\x04" + bytes(60), b"\x01\x03" + bytes(60), b"\x01" + bytes(32)])
def test_another_record_is_none_of_ours(data: bytes) -> None:
    """Its bytes would be taken for a message."""
    with pytest.raises(ValueError, match="not a record of a topic"):
        decode_record(data)


@pytest.mark.parametrize("mark", [b"x", b"{}", b'{"topic":"t","place":"x"}', b'{"topic":"t","place":"{}"}', b"7"])
def test_another_mark_is_none_of_ours(mark: bytes) -> None:
    """The place would be the beginning, and everything come twice."""
    with pytest.raises(InvalidPipeline, match="not the journal"):
        stored_place(mark, "t", False, "here")
    with pytest.raises(InvalidPipeline, match="not the journal"):
        stored_place(b"", "t", True, "here")
    assert stored_place(b"", "t", False, "here") == TopicPlace()


def test_a_journal_goes_on_where_the_log_ends(log: SegmentedLog) -> None:
    """Whatever ended the one before: here it is not even closed."""
    with TopicSender("t", retain=ALL) as sender:
        first = TopicJournal(log, sender.address, "t", QUICK)
        first.start()
        for number in range(3):
            sender.publish(b"%d" % number)
        until(lambda: log.ends().next_number == 3)
        second = TopicJournal(log, sender.address, "t", QUICK)
        second.start()
        sender.publish(b"3")
        until(lambda: log.ends().next_number == 4 and first.is_over)
        assert [record.payload for record in journaled(log)] == [b"0", b"1", b"2", b"3"]
        with pytest.raises(Fenced):
            first.check()
        second.stop()
        second.check()
        first.stop()


def test_it_is_even_once_all_that_was_published_is_there(log: SegmentedLog) -> None:
    """A run that drains would otherwise end with messages on their way."""
    with TopicSender("t", retain=ALL) as sender:
        journal = TopicJournal(log, sender.address, "t", QUICK)
        journal.start()
        for count in range(1, 300):
            sender.publish(b"x")
            while not journal.wait_until_even("1 s"):
                pass
            if log.ends().next_number != count:
                raise AssertionError(f"{log.ends().next_number} of {count} are there")
            if count > 20:
                break
        journal.stop()


def test_a_place_is_kept_though_no_message_came(log: SegmentedLog) -> None:
    """A session that was met, and is over, is not met again."""
    with TopicSender("t", retain=ALL) as sender:
        journal = TopicJournal(log, sender.address, "t", QUICK)
        journal.start()
        until(lambda: stored_place(log.mark(), "t", False, "").session == sender.session)
        journal.stop()
    assert journaled(log) == []


def test_what_has_ended_it_is_said(log: SegmentedLog) -> None:
    """A thread that dies silently would look like a topic without messages."""
    with TopicSender("t") as sender:
        address = sender.address
    journal = TopicJournal(log, address, "t", JoinOptions(discovery="20 ms", attempts=5))
    assert journal.wait_until_even(0)
    journal.start()
    until(lambda: journal.is_over)
    assert journal.wait_until_even("1 h")
    with pytest.raises(SourceError, match="answered in 5 attempts"):
        journal.check()
    journal._failure = RuntimeError("a defect")
    with pytest.raises(SourceError, match="a defect"):
        journal.check()
    journal.stop()


def test_large_messages_are_several_entries() -> None:
    """An entry has at most 1 GB, and what a receiver hands out at once may be more."""
    events: list[Any] = [TopicMessage(S, number, 0, bytes(30 << 20)) for number in range(7)]
    assert [len(part) for part in _parts([*events, SessionEnded(S, 7, True)])] == [3, 3, 2]
    assert list(_parts([])) == []
