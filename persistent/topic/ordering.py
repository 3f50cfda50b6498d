"""The messages of one session in order, as a receiver hands them out: each once, or told to be lost.

``next``      what is handed out, or told to be lost, up to here
``seam``      what is below was published before this receiver took part: it is recovered as late join
``stop``      how far the session is known to go
``ripe``      what is missing below is asked for, or lost

What is missing below ``ripe`` is asked for, the oldest first. What the sender says is gone, what was asked for too long
and what this receiver does not recover are lost, and told when their turn comes.
"""

from __future__ import annotations

from collections import deque

from persistent.topic.asks import Asks, ranges
from persistent.topic.messages import Ask, MessagesLost, Sent, SessionEnded, Standing, TopicEvent, TopicMessage
from persistent.topic.options import JoinOptions

GONE = "the sender no longer retained them"
TIMEOUT = "they were asked for, and did not come in time"
NOT_RECOVERED = "they did not come, and this receiver does not ask again"
NOT_RETAINED = "they did not come, and this sender retains nothing"
OVER = "the session of the sender is over"


class Ordering:
    """What is received of ``session``, from number ``first`` on. ``seam``: see above. Times are milliseconds of a clock
    that never goes back. ``duplicates``: how many messages came that were not needed; ``passed``: how many live ones
    were too far ahead to wait."""

    def __init__(self, session: str, first: int, seam: int, options: JoinOptions) -> None:
        self.session = session
        self.next = first
        self.seam = max(seam, first)
        self.stop = self.seam
        self.ended = False
        self.duplicates = 0
        self.passed = 0
        self.asks = Asks(options)
        self._options = options
        self._delay = options.ms("gap_delay")
        self._low = first
        self._retains = True
        self._waiting: dict[int, Sent | str] = {}
        """By number, beyond ``next``: a message, or why it is lost."""
        self._noticed: deque[tuple[int, int]] = deque()
        """``stop`` as it was, and when it was noticed."""
        self._ripe = self.seam
        self._look_from = first
        self._has_told_end = False

    @property
    def behind(self) -> int:
        """How many messages are known of, and not handed out."""
        return self.stop - self.next

    # -- what comes ----------------------------------------------------------------------------------------------

    def stands(self, standing: Standing, now: int) -> list[TopicEvent]:
        """The sender has said where it stands."""
        self._low = max(self._low, standing.low)
        self._retains = standing.retains
        self.ended = self.ended or standing.ended
        self._reaches(standing.next, now)
        return self._hand_out()

    def gone(self, stop: int) -> list[TopicEvent]:
        """The sender has said that nothing before is there."""
        self._low = max(self._low, stop)
        return self._hand_out()

    def comes(self, message: Sent, now: int) -> list[TopicEvent]:
        """A message has come."""
        number = message.number
        if number < self.next or isinstance(self._waiting.get(number), Sent):
            self.duplicates += 1
            return []
        self._reaches(number + 1, now)
        if number - self.next > self._options.cache and number not in self.asks and number not in self._waiting:
            if self._retains:
                self._pass(message)
                return []
            # What is missing before it will not come: it need not wait.
            self._ripe = max(self._ripe, number)
        self.asks.drop(number)
        self._waiting[number] = message
        return self._hand_out()

    def _pass(self, message: Sent) -> None:
        """Ask for a message when its turn comes: until then this receiver is still catching up."""
        self.passed += 1
        if not message.again:
            self.seam = max(self.seam, message.number + 1)
            self._ripe = max(self._ripe, self.seam)

    def tick(self, now: int) -> list[TopicEvent]:
        """Time has passed."""
        while self._noticed and self._noticed[0][1] <= now - self._delay:
            self._ripe = max(self._ripe, self._noticed.popleft()[0])
        for number in self.asks.over(now):
            self._waiting.setdefault(number, TIMEOUT)
        return self._hand_out()

    def wanted(self, now: int, *, again: bool) -> list[Ask]:
        """What to ask for now for the first time, or ``again`` too."""
        found = self.asks.due(now) if again else []
        self._look_from = max(self._look_from, self.next)
        # What comes waits for what is before it, so it is not asked for from too far ahead.
        end = min(self._ripe, self.next + self._options.window + self._options.cache)
        while self._look_from < end and self.asks.has_room and not self._is_unrecovered(self._look_from):
            if self._look_from not in self._waiting:
                self.asks.add(self._look_from, now)
                found.append(self._look_from)
            self._look_from += 1
        return [Ask(self.session, first, stop) for first, stop in ranges(found)]

    def unlinked(self) -> None:
        """The connection is gone, and with it what was asked for."""
        self.asks = Asks(self._options)
        self._look_from = self.next

    def close(self) -> list[TopicEvent]:
        """Nothing more comes of this session: hand out what waits, tell what is lost."""
        self._low = self._ripe = self.stop
        return [*self._hand_out(OVER), *([] if self.ended else [SessionEnded(self.session, self.stop, False)])]

    # -- what goes -----------------------------------------------------------------------------------------------

    def _reaches(self, stop: int, now: int) -> None:
        if stop > self.stop:
            self.stop = stop
            if self._delay:
                self._noticed.append((stop, now))
            else:
                self._ripe = stop

    def _is_unrecovered(self, number: int) -> bool:
        return not self._retains or (number >= self.seam and not self._options.recover)

    def _hand_out(self, reason: str = "") -> list[TopicEvent]:
        """What has its turn now. ``reason``: why all that is missing is lost."""
        found: list[TopicEvent] = []
        while self.next < self.stop:
            held = self._waiting.pop(self.next, None)
            if isinstance(held, Sent):
                gap = held.again and held.number >= self.seam
                found.append(TopicMessage(self.session, held.number, held.time, held.payload, held.again, gap))
                self.next += 1
            elif held is not None:
                self._lose(found, self.next + 1, held)
            elif (lost := self._lost(reason)) is not None:
                self._lose(found, *lost)
            else:
                break
        if self.ended and self.next == self.stop and not self._has_told_end:
            self._has_told_end = True
            found.append(SessionEnded(self.session, self.stop, True))
        return found

    def _lost(self, reason: str) -> tuple[int, str] | None:
        """Up to where nothing comes any more, and why."""
        stop, why = min(self._low, self._ripe), reason or (GONE if self._retains else NOT_RETAINED)
        if self.next >= stop and self._is_unrecovered(self.next):
            stop = self._ripe if not self._retains or self.next >= self.seam else min(self.seam, self._ripe)
            why = NOT_RECOVERED if self._retains else NOT_RETAINED
        if self.next >= stop:
            return None
        return min([stop, *(number for number in self._waiting if number < stop)]), why

    def _lose(self, found: list[TopicEvent], stop: int, reason: str) -> None:
        last = found[-1] if found else None
        if isinstance(last, MessagesLost) and last.stop == self.next and last.reason == reason:
            found[-1] = MessagesLost(self.session, last.first, stop, reason)
        else:
            found.append(MessagesLost(self.session, self.next, stop, reason))
        self.next = stop
        self.asks.drop_below(stop)
