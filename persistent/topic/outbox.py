"""What waits at a sender for one receiver.

Live messages and standings wait in their order, up to a limit of bytes; what exceeds it is dropped, and the receiver
notices and requests it. Requested messages are remembered by number alone, so they take no room, are never dropped, and
a repeated request changes nothing. They are sent oldest first. Both take turns, by bytes: however much there is of one,
the other gets half of the connection.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import replace

from persistent.topic.messages import ASK_MAX, Gone, HangUp, Refusal, Sent, Spoken, Standing
from persistent.topic.retention import MESSAGE_BYTES, Retained

ASKED_MAX = 4 * ASK_MAX
"""How many requested messages are remembered. A receiver has at most ``ASK_MAX`` pending, and repeats the others."""


class Outbox:
    """What waits for one receiver of ``session``. ``bytes_max``: of live messages, except for one alone."""

    def __init__(self, session: str, retained: Retained, bytes_max: int) -> None:
        self._session, self._retained, self._bytes_max = session, retained, bytes_max
        self._queue: deque[Spoken | HangUp] = deque()
        self._bytes = 0
        self._asked: list[int] = []
        """A heap of the numbers in ``_is_asked``."""
        self._is_asked: set[int] = set()
        self._is_gone = self._is_over = False
        self._lead = 0
        """By how many bytes the requested messages are ahead of the others, while both wait."""

    @property
    def bytes(self) -> int:
        """How many bytes of live messages wait."""
        return self._bytes

    def put(self, message: Sent) -> bool:
        """Whether a live message has room. Otherwise it is dropped."""
        if self._is_over or (self._bytes and self._bytes + _size(message) > self._bytes_max):
            return False
        self._queue.append(message)
        self._bytes += _size(message)
        return True

    def report(self, standing: Standing) -> None:
        """Send the standing, after the messages before it. The last one in the queue is replaced."""
        if self._is_over:
            return
        last = self._queue[-1] if self._queue else None
        if isinstance(last, Standing):
            self._queue.pop()
            standing = replace(standing, token=max(standing.token, last.token))
        self._queue.append(standing)

    def ask(self, first: int, stop: int) -> None:
        """Send these messages again as room comes, or that they are gone."""
        low = self._retained.low
        self._is_gone = self._is_gone or first < low
        for number in range(max(first, low), min(stop, self._retained.next)):
            if number not in self._is_asked and len(self._asked) < ASKED_MAX:
                self._is_asked.add(number)
                heapq.heappush(self._asked, number)

    def refuse(self, link: int, reason: str = "") -> None:
        """Say why, if there is a reason, and hang up. Nothing else is sent."""
        self._queue.clear()
        self._bytes = 0
        self._queue.extend([*([Refusal(reason)] if reason else []), HangUp(link)])
        self._asked, self._is_over = [], True

    def next(self) -> Spoken | HangUp | None:
        """The next thing to send, or None."""
        while self._asked and self._asked[0] < self._retained.low:
            self._pop_asked()
            self._is_gone = True
        if self._is_gone and not self._is_over:
            self._is_gone = False
            return Gone(self._session, self._retained.low)
        if not self._asked or not self._queue:
            self._lead = 0
        if self._asked and (self._lead <= 0 or not self._queue):
            (found,) = self._retained.of(self._asked[0], self._asked[0] + 1)
            self._pop_asked()
            self._lead += _size(found)
            return replace(found, again=True)
        return self._next_live() if self._queue else None

    def _next_live(self) -> Spoken | HangUp:
        said = self._queue.popleft()
        if isinstance(said, Sent):
            self._bytes -= _size(said)
            self._lead -= _size(said)
        return said

    def _pop_asked(self) -> None:
        self._is_asked.discard(heapq.heappop(self._asked))


def _size(message: Sent) -> int:
    return len(message.payload) + MESSAGE_BYTES
