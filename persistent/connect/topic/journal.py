"""A topic journal writes the messages of a receiver to a log, each once, and resumes where the log ends.

An entry holds records and the place behind them, and is atomic: a crash at any moment neither repeats nor omits a
message. A new writer of the log fences the previous one.

Every entry has a mark: which topic the journal holds, how far, and what it lacks.

A message and a loss have a record each, so that the journal states its gaps:

kind 1 | delivery 1 | session 16 | first 8 | time or stop 8 | payload or reason
"""

from __future__ import annotations

import json
import logging
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from persistent.errors import InvalidPipeline, PersistentError, SourceError
from persistent.messaging.log.segmented import SegmentedLog
from persistent.messaging.log.writer import LogWriter
from persistent.messaging.topic.messages import (
    MessagesLost,
    SessionBegan,
    SessionEnded,
    TopicEvent,
    TopicMessage,
    TopicPlace,
)
from persistent.messaging.topic.options import JoinOptions
from persistent.messaging.topic.receiver import TopicReceiver
from persistent.time.clock import Duration, duration_ms, monotonic_s

_ENTRY_BYTES_MAX = 64 << 20
_TRIES = 2
_PATIENCE_S = 3.0
"""How long no sender answers until that is logged."""

logger = logging.getLogger("persistent.topic")


def stored_mark(data: bytes, topic: str, has_records: bool, where: str) -> JournalMark:
    """The last mark of a journal. InvalidPipeline if the log belongs to something else."""
    if not data and not has_records:
        return JournalMark(topic)
    try:
        mark = JournalMark.decoded(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidPipeline(
            f"{where}: this log is not the journal of a topic: give the journal a folder of its own"
        ) from error
    if mark.topic != topic:
        raise InvalidPipeline(
            f"{where}: this is the journal of the topic {mark.topic!r}: give {topic!r} one of its own"
        )
    return mark


class TopicJournal:
    """Journals ``topic`` from the sender at ``address`` into ``log``, in a thread, until ``stop``."""

    def __init__(self, log: SegmentedLog, address: str, topic: str, options: JoinOptions) -> None:
        self._log, self._address, self._topic, self._options = log, address, topic, options
        self._where = f"the topic {topic!r} of {address}, journaled in {log.storage.url}"
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._receiver: TopicReceiver | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._has_ended = self._has_met = False
        self._mark = JournalMark(topic)
        self._gone: tuple[str, ...] = ()
        """The warning that a missing sender was taken for the end of the topic; empty without one."""
        self._answered_s = monotonic_s()
        self._has_told_search = False
        self._asked = self._even = 0
        self._goal = (0, "", 0)
        """The first answer to the last question: its token, a session, and the number of the next message then."""

    def start(self) -> None:
        """Take the log over and start. Fences the previous writer; InvalidPipeline for another log."""
        writer = self._log.writer()
        try:
            self._mark = stored_mark(writer.mark, self._topic, writer.number > 0, self._where)
        except BaseException:
            writer.close()
            raise
        if not writer.mark:
            # The mark shows another topic, or another writer, which topic owns this log.
            writer.append_many([], mark=self._mark.encoded())
        self._tell_beginning()
        place = self._mark.place
        self._has_met = bool(place.session)
        self._answered_s = monotonic_s()
        self._receiver = TopicReceiver(self._address, self._topic, self._options, place=place, follow=True)
        self._thread = threading.Thread(target=self._run, args=(writer,), name=self._where, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop journaling. Received messages are in the log."""
        self._stopped.set()
        if self._receiver is not None:
            self._receiver.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def wait_until_even(self, wait: Duration) -> bool:
        """Wait until everything that the sender has published so far is journaled, or the topic is over.

        A call after a call that has timed out continues with the same goal.
        """
        if self._receiver is None:
            return True
        with self._changed:
            if self._even >= self._asked:
                self._asked = self._receiver.look()
            self._changed.wait_for(lambda: self._even >= self._asked or self.is_over, duration_ms(wait) / 1_000)
            return self._even >= self._asked or self.is_over

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the journal lacks, for this run and all later ones, and whether a missing sender was its end."""
        return (*(f"{self._where}: {text}" for text in self._mark.warnings()), *self._gone)

    @property
    def is_searching(self) -> bool:
        """Whether no sender answers, and the topic has not ended: what a sender may have published is unknown."""
        receiver = self._receiver
        return receiver is not None and receiver.tries > 0 and not self._mark.place.ended

    @property
    def is_over(self) -> bool:
        """Whether the topic has ended or the journal has failed."""
        return self._has_ended or self._failure is not None

    def check(self, *, ends: bool = False) -> None:
        """Raise what stopped the journal, unless it was the end of the topic.

        ``ends``: the journaled input is declared complete. Then a missing sender is a warning, if one was found before.
        """
        if ends and isinstance(self._failure, SourceError) and self._is_alone:
            gone = f"{self._failure} The input was declared complete: the windows close over the journaled messages"
            self._gone = (gone,)
            return
        if isinstance(self._failure, PersistentError):
            raise self._failure
        if self._failure is not None:
            raise SourceError(f"{self._where}: {self._failure!r}") from self._failure

    @property
    def _is_alone(self) -> bool:
        """Whether it has found a sender before, but now all its attempts have failed."""
        receiver = self._receiver
        return receiver is not None and self._has_met and receiver.tries >= self._options.attempts

    # -- in the thread ---------------------------------------------------------------------------------------------

    def _run(self, writer: LogWriter) -> None:
        assert self._receiver is not None
        try:
            with writer:
                # A failure is no end until it was taken, and so raised.
                # The sender was told that what the receiver has is received, so it is journaled after a stop too.
                while not self._receiver.has_ended:
                    for part in _parts(self._receiver.take("20 ms")):
                        self._append(writer, part)
                    self._look_whether_even()
                    self._look_whether_alone()
        except BaseException as error:
            with self._changed:
                self._failure = error
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
        self._receiver.close()

    def _append(self, writer: LogWriter, events: Sequence[TopicEvent]) -> None:
        had, mark = self._mark.begun, self._mark
        for event in events:
            mark = mark.after(event, self._options)
        records = [record for record in map(encode_record, events) if record is not None]
        writer.append_many(records, mark=mark.encoded())
        self._mark, self._has_met = mark, self._has_met or bool(mark.place.session)
        if mark.begun != had:
            self._tell_beginning()

    def _tell_beginning(self) -> None:
        """Log that the beginning is missing: a run that follows has no report for long."""
        if self._mark.begun[1]:
            logger.warning("%s: %s", self._where, next(self._mark.warnings()))

    def _look_whether_alone(self) -> None:
        """Log once that no sender answers: the run seems to stand still."""
        assert self._receiver is not None
        if not self._receiver.tries or self._mark.place.ended:
            self._answered_s, self._has_told_search = monotonic_s(), False
        elif not self._has_told_search and monotonic_s() - self._answered_s >= _PATIENCE_S:
            self._has_told_search = True
            attempts, every_ms = self._options.attempts, self._options.ms("discovery")
            logger.warning(
                "%s: no sender answers at %s. It is looked for %s times, each %s s: up to %s s (join=JoinOptions("
                "attempts=, discovery=))",
                self._where,
                self._address,
                f"{attempts:,}",
                f"{every_ms / 1_000:g}",
                f"{attempts * every_ms / 1_000:,.10g}",
            )

    def _look_whether_even(self) -> None:
        assert self._receiver is not None
        place = self._mark.place
        if (answered := self._receiver.answered)[0] > self._goal[0]:
            self._goal = answered
        token, session, next_ = self._goal
        # A session that another one has replaced was handed out, or reported lost, up to its known end.
        is_even = token > self._even and (place.known(session) or 0) >= next_
        # An ended session is complete, and no other sender was found.
        if is_even or (place.ended and self._receiver.tries >= _TRIES):
            with self._changed:
                self._even = token if is_even else self._asked
                self._changed.notify_all()


def _parts(events: Iterable[TopicEvent]) -> Iterable[list[TopicEvent]]:
    """Events in parts that fit an entry."""
    part: list[TopicEvent] = []
    size = 0
    for event in events:
        part.append(event)
        size += len(getattr(event, "payload", b""))
        if size > _ENTRY_BYTES_MAX:
            yield part
            part, size = [], 0
    if part:
        yield part


@dataclass(frozen=True)
class JournalMark:
    """``place``: after the last event. ``begun``: the session and the number with which the journal begins, if earlier
    messages were wanted and were no longer retained. ``lost``: how many messages were lost since; ``open_ends``: how
    many sessions have ended without a word of their sender."""

    topic: str
    place: TopicPlace = field(default_factory=TopicPlace)
    begun: tuple[str, int] = ("", 0)
    lost: int = 0
    open_ends: int = 0

    def after(self, event: TopicEvent, options: JoinOptions) -> JournalMark:
        """The mark after one more event.

        >>> JournalMark("t").after(MessagesLost("s", 4, 7, ""), JoinOptions()).lost
        3
        """
        mark = replace(self, place=self.place.after(event))
        match event:
            case SessionBegan(session, first) if not self.place.session and options.late and not options.last:
                return replace(mark, begun=(session, first))
            case MessagesLost():
                return replace(mark, lost=self.lost + len(event))
            case SessionEnded(clean=False):
                return replace(mark, open_ends=self.open_ends + 1)
        return mark

    def warnings(self) -> Iterator[str]:
        """What the journal lacks, a sentence each."""
        if self.begun[1]:
            session, first = self.begun
            yield (
                f"begins with message {first:,} of session {session}: the {first:,} before it are neither counted nor "
                "dead letters: the sender no longer had them; let the sender retain more (TopicSender(retain=)), or "
                "start the job before it"
            )
        if self.lost or self.open_ends:
            ends = f", and of {self.open_ends:,} sessions the end is unknown" if self.open_ends else ""
            yield f"lacks {self.lost:,} messages that were lost since it began{ends}: see persistent dead-letters"

    def encoded(self) -> bytes:
        fields = {
            "topic": self.topic,
            "place": self.place.encoded().decode(),
            "begun": list(self.begun),
            "lost": self.lost,
            "open_ends": self.open_ends,
        }
        return json.dumps(fields).encode()

    @staticmethod
    def decoded(mark: bytes) -> JournalMark:
        """The mark of such bytes. ValueError, KeyError, TypeError, AttributeError for other bytes."""
        fields: Any = json.loads(mark)
        topic, place = str(fields["topic"]), TopicPlace.decoded(fields["place"].encode())
        session, first = fields["begun"]
        return JournalMark(topic, place, (str(session), int(first)), int(fields["lost"]), int(fields["open_ends"]))


_HEAD = struct.Struct("<BB16sQq")
_MESSAGE, _LOST, _OPEN = 1, 2, 3
_DELIVERIES = ("live", "late-join", "retransmit")
_OPEN_REASON = "the sender is gone, and it is unknown whether it had published more"


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A message with its ``payload``, or a loss without one, and ``why`` in a sentence."""

    session: str
    number: int
    time: int
    delivery: str
    payload: bytes | None
    why: str = ""


def encode_record(event: TopicEvent) -> bytes | None:
    """The record of an event; None for an event without a message or a loss."""
    match event:
        case TopicMessage(session, number, time, payload):
            delivery = _DELIVERIES.index(event.delivery)
            return _HEAD.pack(_MESSAGE, delivery, bytes.fromhex(session), number, time) + payload
        case MessagesLost(session, first, stop, reason):
            return _HEAD.pack(_LOST, 0, bytes.fromhex(session), first, stop) + reason.encode()
        case SessionEnded(session, next_, False):
            return _HEAD.pack(_OPEN, 0, bytes.fromhex(session), next_, next_) + _OPEN_REASON.encode()
    return None


def decode_record(data: bytes) -> TopicRecord:
    """The record of these bytes. ValueError if they are not a record.

    >>> lost = MessagesLost("00" * 16, 4, 7, "the sender no longer retained them")
    >>> decode_record(encode_record(lost)).why
    'lost: messages 4 to 6 of session 00000000000000000000000000000000: the sender no longer retained them'
    """
    if len(data) < _HEAD.size or data[0] not in (_MESSAGE, _LOST, _OPEN) or data[1] >= len(_DELIVERIES):
        raise ValueError("not a record of a topic journal")
    kind, delivery, session, number, time = _HEAD.unpack_from(data)
    rest, name = data[_HEAD.size :], session.hex()
    if kind == _MESSAGE:
        return TopicRecord(name, number, time, _DELIVERIES[delivery], rest)
    place = f"messages {number} to {time - 1} of" if kind == _LOST else f"messages from {number} on, if any, of"
    return TopicRecord(name, number, 0, "", None, f"lost: {place} session {name}: {rest.decode()}")
