"""A topic journal writes the messages of a receiver to a log, each once, and resumes where the log ends.

An entry holds records and the place behind them, and is atomic: a crash at any moment neither repeats nor omits a
message. A new writer of the log fences the previous one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from persistent.clock import Duration, duration_ms
from persistent.errors import InvalidPipeline, PersistentError, SourceError
from persistent.log import LogWriter, SegmentedLog
from persistent.topic.messages import SessionBegan, TopicEvent
from persistent.topic.options import JoinOptions
from persistent.topic.place import TopicPlace
from persistent.topic.receiver import TopicReceiver
from persistent.topic.records import encode_record

_ENTRY_BYTES_MAX = 64 << 20
_TRIES = 2


def stored_place(mark: bytes, topic: str, has_records: bool, where: str) -> TopicPlace:
    """The place at which a journal ends. InvalidPipeline if the log belongs to something else."""
    if not mark and not has_records:
        return TopicPlace()
    try:
        said: Any = json.loads(mark)
        found, place = said["topic"], TopicPlace.decoded(said["place"].encode())
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidPipeline(
            f"{where}: this log is not the journal of a topic: give the journal a folder of its own"
        ) from error
    if found != topic:
        raise InvalidPipeline(f"{where}: this is the journal of the topic {found!r}: give {topic!r} one of its own")
    return place


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
        self.warnings: tuple[str, ...] = ()
        """Warnings for the user."""
        self._asked = self._even = 0

    def start(self) -> None:
        """Take the log over and start. Fences the previous writer; InvalidPipeline for another log."""
        writer = self._log.writer()
        try:
            place = stored_place(writer.mark, self._topic, writer.number > 0, self._where)
        except BaseException:
            writer.close()
            raise
        if not writer.mark:
            # The mark shows another topic, or another writer, which topic owns this log.
            writer.append_many([], mark=self._mark(place))
        self._has_met = bool(place.session)
        self._receiver = TopicReceiver(self._address, self._topic, self._options, place=place, follow=True)
        self._thread = threading.Thread(target=self._run, args=(writer, place), name=self._where, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop journaling. Received messages are in the log."""
        self._stopped.set()
        if self._receiver is not None:
            self._receiver.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def wait_until_even(self, wait: Duration) -> bool:
        """Wait until everything that the sender has published so far is journaled, or the topic is over."""
        if self._receiver is None:
            return True
        with self._changed:
            self._asked = self._receiver.look()
            self._changed.wait_for(lambda: self._even >= self._asked or self.is_over, duration_ms(wait) / 1_000)
            return self._even >= self._asked or self.is_over

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
            self.warnings = tuple(dict.fromkeys([*self.warnings, gone]))
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

    def _run(self, writer: LogWriter, place: TopicPlace) -> None:
        assert self._receiver is not None
        try:
            with writer:
                while not self._stopped.is_set() and not self._receiver.has_ended:
                    events = self._receiver.take("20 ms")
                    for part in _parts(events):
                        place = self._append(writer, part, place)
                    self._look_whether_even(place)
        except BaseException as error:
            with self._changed:
                self._failure = error
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
        self._receiver.close()

    def _append(self, writer: LogWriter, events: Sequence[TopicEvent], place: TopicPlace) -> TopicPlace:
        for event in events:
            if isinstance(event, SessionBegan) and not place.session:
                self._look_at_beginning(event)
            place = place.after(event)
        self._has_met = self._has_met or bool(place.session)
        records = [record for record in map(encode_record, events) if record is not None]
        writer.append_many(records, mark=self._mark(place))
        return place

    def _look_at_beginning(self, began: SessionBegan) -> None:
        """Warn if the job wanted messages that the sender had published before the first one of this journal."""
        if not began.first or not self._options.late or self._options.last:
            return
        hint = "let the sender retain more (TopicSender(retain=)), or start the job before it"
        start = f"{self._where}: begins with message {began.first:,} of session {began.session}: the {began.first:,} "
        self.warnings = (
            f"{start}before it are neither counted nor dead letters: the sender no longer has them; {hint}",
        )

    def _mark(self, place: TopicPlace) -> bytes:
        return json.dumps({"topic": self._topic, "place": place.encoded().decode()}).encode()

    def _look_whether_even(self, place: TopicPlace) -> None:
        assert self._receiver is not None
        token, session, next_ = self._receiver.answered
        is_even = place.session == session and place.next >= next_ and token > self._even
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
