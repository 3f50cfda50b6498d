"""The messages of one session in order, as a receiver hands them out: each once, or reported lost.

``next``      messages below it were handed out or reported lost
``seam``      messages below it were published before this receiver took part: a late join
``_join``     messages below it are always requested: those of the late join, and live ones that could not wait
``stop``      the known end of the session
``ripe``      missing messages below it are requested or lost

Missing messages below ``ripe`` are requested, the oldest first. A message is lost if the sender no longer retains it,
if its request has timed out, or if this receiver does not recover it. Losses are reported in their turn.

A live message waits for earlier ones if it is at most ``cache`` numbers ahead, and has room. Otherwise it is requested
in its turn. If the earlier ones will not be requested, they are lost at once.

At most ``window`` messages are requested at a time. A sender answers the oldest first, and over an ordered connection.
So a request waits in line as long as answers come. After a delay without an answer it is repeated, and the delay
doubles. The message is lost after a timeout in which only standings came, by which the sender shows that it is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from persistent.messaging.topic.messages import (
    ASK_MAX,
    BEAT_MS,
    Ask,
    MessagesLost,
    Sent,
    SessionEnded,
    Standing,
    TopicEvent,
    TopicMessage,
)
from persistent.messaging.topic.options import JoinOptions

GONE = "the sender no longer retained them"
TIMEOUT = "they were requested, but did not arrive in time"
NOT_RECOVERED = "they did not arrive, and this receiver does not request them again"
NOT_RETAINED = "they did not arrive, and this sender retains nothing"
OVER = "another session answered before they arrived"
WAITING_BYTES_MAX = 64 << 20
"""The number of bytes of live messages that can wait for earlier ones."""


class Ordering:
    """The messages received of ``session``, from number ``first`` on. ``seam``: see above. Times are milliseconds of a
    clock that never goes back. ``duplicates``: how many unneeded messages arrived; ``passed``: how many live messages
    could not wait."""

    def __init__(self, session: str, first: int, seam: int, options: JoinOptions) -> None:
        self.session = session
        self.next = first
        self.seam = max(seam, first)
        self.stop = self._join = self.seam
        self.ended = False
        self.duplicates = 0
        self.passed = 0
        self.asks = Asks(options)
        self._options = options
        self._delay = options.ms("gap_delay")
        self._low = first
        self._retains = True
        self._waiting: dict[int, Sent | str] = {}
        """Beyond ``next``, by number: a message, or why it is lost."""
        self._waiting_bytes = 0
        self._noticed: deque[tuple[int, int]] = deque()
        """Earlier values of ``stop``, each with the time at which it was noticed."""
        self._ripe = self.seam
        self._look_from = first
        self._has_reported_end = False

    @property
    def behind(self) -> int:
        """The number of known messages that are not handed out yet."""
        return self.stop - self.next

    def stands(self, standing: Standing, now: int) -> list[TopicEvent]:
        """The sender has reported its standing."""
        self.asks.heard(now)
        self._low = max(self._low, standing.low)
        self._retains = standing.retains
        self.ended = self.ended or standing.ended
        self._reaches(standing.next, now)
        return self._hand_out()

    def gone(self, stop: int, now: int) -> list[TopicEvent]:
        """The sender retains nothing before ``stop``."""
        self.asks.heard(now, moves=True, answers=True)
        self._low = max(self._low, stop)
        return self._hand_out()

    def comes(self, message: Sent, now: int) -> list[TopicEvent]:
        """A message has arrived."""
        number = message.number
        self.asks.heard(now, moves=True, answers=message.again or number in self.asks)
        if number < self.next or isinstance(self._waiting.get(number), Sent):
            self.duplicates += 1
            return []
        self._reaches(number + 1, now)
        if self._is_far(message):
            if not self._is_unrecovered(self.next):
                self._pass(message)
                return []
            # The missing messages before it will not arrive, so it need not wait.
            self._ripe = max(self._ripe, number)
        self.asks.drop(number)
        self._waiting[number] = message
        self._waiting_bytes += len(message.payload)
        return self._hand_out()

    def moves(self, now: int) -> None:
        """A part of a message has arrived."""
        self.asks.heard(now, moves=True, answers=True)

    def _is_far(self, message: Sent) -> bool:
        """Whether a message that was not requested is too far ahead to wait for its turn, or too large."""
        ahead = message.number - self.next
        if not ahead or message.number in self.asks or message.number in self._waiting:
            return False
        return ahead > self._options.cache or self._waiting_bytes + len(message.payload) > WAITING_BYTES_MAX

    def _pass(self, message: Sent) -> None:
        """Request a message in its turn: until then this receiver is still catching up."""
        self.passed += 1
        if not message.again:
            self._join = max(self._join, message.number + 1)
            self._ripe = max(self._ripe, self._join)

    def tick(self, now: int) -> list[TopicEvent]:
        """Time has passed."""
        while self._noticed and self._noticed[0][1] <= now - self._delay:
            self._ripe = max(self._ripe, self._noticed.popleft()[0])
        for number in self.asks.over():
            self._waiting.setdefault(number, TIMEOUT)
        return self._hand_out()

    def wanted(self, now: int, *, again: bool) -> list[Ask]:
        """Requests to send now: first requests, and with ``again`` repeated ones."""
        numbers = self.asks.due(now) if again else []
        self._look_from = max(self._look_from, self.next)
        # Messages wait for all earlier ones, so do not request them from too far ahead.
        end = min(self._ripe, self.next + self._options.window + self._options.cache)
        while self._look_from < end and self.asks.has_room and not self._is_unrecovered(self._look_from):
            if self._look_from not in self._waiting:
                self.asks.add(self._look_from, now)
                numbers.append(self._look_from)
            self._look_from += 1
        return [Ask(self.session, first, stop) for first, stop in ranges(numbers)]

    def unlinked(self) -> None:
        """The connection is gone, and with it the pending requests."""
        self.asks = Asks(self._options)
        self._look_from = self.next

    def close(self) -> list[TopicEvent]:
        """The session is over: hand out what waits, and report the rest lost."""
        self._low = self._ripe = self.stop
        return [*self._hand_out(OVER), *([] if self.ended else [SessionEnded(self.session, self.stop, False)])]

    def _reaches(self, stop: int, now: int) -> None:
        if stop > self.stop:
            self.stop = stop
            if self._delay:
                self._noticed.append((stop, now))
            else:
                self._ripe = stop

    def _is_unrecovered(self, number: int) -> bool:
        return not self._retains or (number >= self._join and not self._options.recover)

    def _hand_out(self, reason: str = "") -> list[TopicEvent]:
        """The events that have their turn. ``reason``: why all missing messages are lost."""
        events: list[TopicEvent] = []
        while self.next < self.stop:
            entry = self._waiting.pop(self.next, None)
            if isinstance(entry, Sent):
                self._waiting_bytes -= len(entry.payload)
                gap = entry.again and entry.number >= self.seam
                events.append(TopicMessage(self.session, entry.number, entry.time, entry.payload, entry.again, gap))
                self.next += 1
            elif entry is not None:
                self._lose(events, self.next + 1, entry)
            elif (lost := self._lost(reason)) is not None:
                self._lose(events, *lost)
            else:
                break
        if self.ended and self.next == self.stop and not self._has_reported_end:
            self._has_reported_end = True
            events.append(SessionEnded(self.session, self.stop, True))
        return events

    def _lost(self, reason: str) -> tuple[int, str] | None:
        """Up to which number nothing will arrive, and why."""
        stop, why = min(self._low, self._ripe), reason or (GONE if self._retains else NOT_RETAINED)
        if self.next >= stop and self._is_unrecovered(self.next):
            stop = self._ripe if not self._retains or self.next >= self._join else min(self._join, self._ripe)
            why = NOT_RECOVERED if self._retains else NOT_RETAINED
        if self.next >= stop:
            return None
        return min([stop, *(number for number in self._waiting if number < stop)]), why

    def _lose(self, events: list[TopicEvent], stop: int, reason: str) -> None:
        last = events[-1] if events else None
        if isinstance(last, MessagesLost) and last.stop == self.next and last.reason == reason:
            events[-1] = MessagesLost(self.session, last.first, stop, reason)
        else:
            events.append(MessagesLost(self.session, self.next, stop, reason))
        self.next = stop
        self.asks.drop_below(stop)


@dataclass
class _Asked:
    at: int
    """When it was requested last."""
    wait: int
    since: int
    """When it was requested first, on the clock of the timeout."""


class Asks:
    """The pending requests by message number, in order. Times are milliseconds of a clock that never goes back.

    The clock of the timeout advances only while the sender is heard: whatever arrives vouches for at most one beat
    before it. So the time in which the sender could not be reached, or either of the two was stopped, does not count.
    """

    def __init__(self, options: JoinOptions) -> None:
        self._window = options.window
        self._retry = options.ms("retry")
        self._retry_max = max(options.ms("retry_max"), self._retry)
        self._timeout = options.ms("timeout")
        self._vouched_most = max(1, min(BEAT_MS, self._timeout // 2))
        self._asked: dict[int, _Asked] = {}
        self._heard_at = 0
        self._answered_at = 0
        self._vouched = self._moved = 0
        self.repeated = 0

    def __contains__(self, number: int) -> bool:
        return number in self._asked

    @property
    def has_room(self) -> bool:
        return len(self._asked) < self._window

    def add(self, number: int, now: int) -> None:
        self._heard_at = max(self._heard_at, now)
        self._asked[number] = _Asked(now, self._retry, self._vouched)

    def drop(self, number: int) -> None:
        self._asked.pop(number, None)

    def drop_below(self, number: int) -> None:
        for earlier in [earlier for earlier in self._asked if earlier < number]:
            del self._asked[earlier]

    def heard(self, now: int, *, moves: bool = False, answers: bool = False) -> None:
        """The sender was heard. ``moves``: by a message, or a part of one; ``answers``: it may be a requested one."""
        self._vouched += min(max(now - self._heard_at, 0), self._vouched_most)
        self._heard_at = max(self._heard_at, now)
        if moves:
            self._moved = self._vouched
        if answers:
            self._answered_at = now

    def due(self, now: int) -> list[int]:
        """The requests to repeat now. The delay of each doubles."""
        numbers = [
            number for number, asked in self._asked.items() if now - max(asked.at, self._answered_at) >= asked.wait
        ]
        for number in numbers:
            asked = self._asked[number]
            asked.at, asked.wait = now, min(2 * asked.wait, self._retry_max)
        self.repeated += len(numbers)
        return numbers

    def over(self) -> list[int]:
        """The requests that have timed out. They are removed."""
        numbers = [
            number
            for number, asked in self._asked.items()
            if self._vouched - max(asked.since, self._moved) >= self._timeout
        ]
        for number in numbers:
            del self._asked[number]
        return numbers


def ranges(numbers: Iterable[int], count_max: int = ASK_MAX) -> Iterator[tuple[int, int]]:
    """Numbers as ranges of at most ``count_max`` numbers.

    >>> list(ranges([5, 3, 4, 9])), list(ranges(range(5), 2))
    ([(3, 6), (9, 10)], [(0, 2), (2, 4), (4, 5)])
    """
    first = stop = -1
    for number in sorted(numbers):
        if number == stop and stop - first < count_max:
            stop += 1
            continue
        if stop > first:
            yield first, stop
        first, stop = number, number + 1
    if stop > first:
        yield first, stop
