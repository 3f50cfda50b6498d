"""A journal of a topic: records and the place behind them are one; one journal at a time; and it says what it lacks."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from persistent.connect.topic.journal import (
    JournalMark,
    TopicJournal,
    TopicRecord,
    _parts,
    decode_record,
    encode_record,
    stored_mark,
)
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
    TopicReceiver,
    TopicSender,
)

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
        stored_mark(mark, "t", False, "here")
    with pytest.raises(InvalidPipeline, match="not the journal"):
        stored_mark(b"", "t", True, "here")
    assert stored_mark(b"", "t", False, "here") == JournalMark("t", TopicPlace())


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


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", [TopicPlace("new", 0, False, {"s": 5}), TopicPlace("s", 5, True), TopicPlace("s", 9)])
def test_the_goal_of_a_wait_does_not_move(log: SegmentedLog, place: TopicPlace) -> None:
    """A sender that publishes on would move it away for ever. A session that has ended, or was replaced, reaches it."""
    with TopicSender("t") as sender:
        journal = TopicJournal(log, sender.address, "t", QUICK)
        journal._receiver = Answering((1, "s", 5))  # type: ignore[assignment]
        journal._mark = JournalMark("t", TopicPlace("s", 4))
        assert not journal.wait_until_even(0)
        journal._look_whether_even()
        journal._receiver.answered = (1, "s", 50)  # type: ignore[union-attr, misc]
        journal._look_whether_even()
        assert not journal.wait_until_even(0)
        journal._mark = JournalMark("t", place)
        journal._look_whether_even()
        assert journal._even == journal._asked == 1


class Answering:
    """A receiver that has answered, and asks once."""

    tries = 0

    def __init__(self, answered: tuple[int, str, int]) -> None:
        self.answered = answered

    def look(self) -> int:
        return 1


def test_what_was_received_when_it_stops_is_journaled(log: SegmentedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender was told that it is received, and may end: the next run would find it nowhere."""
    with TopicSender("t", retain=ALL) as sender:
        journal = TopicJournal(log, sender.address, "t", QUICK)
        real, held = TopicReceiver.take, threading.Event()

        def nothing_until_stopped(receiver: TopicReceiver, *more: Any) -> Any:
            held.wait()
            monkeypatch.setattr(TopicReceiver, "take", real)
            return []

        monkeypatch.setattr(TopicReceiver, "take", nothing_until_stopped)
        journal.start()
        for number in range(3):
            sender.publish(b"%d" % number)
        until(lambda: journal._receiver is not None and len(journal._receiver._events) == 4)
        threading.Timer(0, lambda: (until(journal._stopped.is_set), held.set())).start()
        journal.stop()
        assert [record.payload for record in journaled(log)] == [b"0", b"1", b"2"]


def test_a_place_is_kept_though_no_message_came(log: SegmentedLog) -> None:
    """A session that was met, and is over, is not met again."""
    with TopicSender("t", retain=ALL) as sender:
        journal = TopicJournal(log, sender.address, "t", QUICK)
        journal.start()
        until(lambda: stored_mark(log.mark(), "t", False, "").place.session == sender.session)
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


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_refusal_between_two_looks_is_an_error(
    log: SegmentedLog, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run over a topic that the sender does not have ended well, with no records, if the refusal came at the wrong
    moment: after nothing was taken, and before it was looked whether anything may follow."""
    real = TopicReceiver.take

    def take(receiver: TopicReceiver, *more: Any) -> Any:
        found = [] if moment == "after" else real(receiver, *more)
        until(lambda: receiver._end is not None)
        monkeypatch.setattr(TopicReceiver, "take", real)
        return found

    monkeypatch.setattr(TopicReceiver, "take", take)
    with TopicSender("other") as sender:
        journal = TopicJournal(log, sender.address, "t", QUICK)
        journal.start()
        until(lambda: journal.is_over)
        with pytest.raises(SourceError, match="publishes the topic 'other'"):
            journal.check()
        journal.stop()


def test_that_the_beginning_is_missing_is_kept_whatever_ends_the_run(
    log: SegmentedLog, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that is killed has no report, and the next one would not know it. A run that follows has none for long."""
    with TopicSender("t", retain=Retain()) as sender:
        for number in range(4):
            sender.publish(b"%d" % number)
        first = TopicJournal(log, sender.address, "t", QUICK)
        first.start()
        until(lambda: log.ends().next_number == 1)
        second = TopicJournal(log, sender.address, "t", QUICK)
        second.start()
        for journal in (first, second):
            (warning,) = journal.warnings
            assert f"begins with message 3 of session {sender.session}: the 3 before it" in warning
        assert [record.message for record in caplog.records] == [warning, warning]
        second.stop()
        first.stop()


def test_a_sender_that_does_not_answer_is_logged_once(
    log: SegmentedLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A run would stand still for a minute without a line."""
    monkeypatch.setattr("persistent.connect.topic.journal._PATIENCE_S", 0)
    with TopicSender("t") as sender:
        address = sender.address
    journal = TopicJournal(log, address, "t", JoinOptions(discovery="20 ms", attempts=25))
    journal.start()
    until(lambda: journal.is_over)
    journal.stop()
    (record,) = caplog.records
    assert f"no sender answers at {address}. It is looked for 25 times, each 0.02 s: up to 0.5 s" in record.message


def test_large_messages_are_several_entries() -> None:
    """An entry has at most 1 GB, and what a receiver hands out at once may be more."""
    events: list[Any] = [TopicMessage(S, number, 0, bytes(30 << 20)) for number in range(7)]
    assert [len(part) for part in _parts([*events, SessionEnded(S, 7, True)])] == [3, 3, 2]
    assert list(_parts([])) == []
