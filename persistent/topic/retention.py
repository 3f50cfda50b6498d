"""The retained messages of a sender: the newest of its session, without a hole.

A message is dropped when both minimums allow it, or when the hard limit is exceeded. The newest is kept.
"""

from __future__ import annotations

from persistent.topic.messages import Sent
from persistent.topic.options import Retain

MESSAGE_BYTES = 64
"""The bytes that a message counts in addition to its payload."""
_COMPACT_MIN = 1_024


class RetainedRow:
    """The retained messages with their times, oldest first. Each is as near as any other: in a deque, one in the middle
    of millions is reached step by step."""

    def __init__(self) -> None:
        self._items: list[tuple[int, Sent] | None] = []
        self._gone = 0
        """How many places at the beginning are empty."""

    def __len__(self) -> int:
        return len(self._items) - self._gone

    def __getitem__(self, index: int) -> tuple[int, Sent]:
        found = self._items[self._gone + index]
        assert found is not None
        return found

    def append(self, item: tuple[int, Sent]) -> None:
        self._items.append(item)

    def popleft(self) -> None:
        """Drop the oldest."""
        self._items[self._gone] = None
        self._gone += 1
        if self._gone >= _COMPACT_MIN and 2 * self._gone > len(self._items):
            del self._items[: self._gone]
            self._gone = 0


class Retained:
    """The messages ``low <= number < next``. ``forced``: how many were dropped by the hard limit alone, before their
    time. Without ``retain`` no message is kept."""

    def __init__(self, retain: Retain | None) -> None:
        self._retain = retain
        self._messages = RetainedRow()
        self.bytes = 0
        self.next = 0
        self.forced = 0

    @property
    def low(self) -> int:
        return self.next - len(self._messages)

    def add(self, message: Sent, now: int) -> None:
        """Retain one more message, and drop the expired ones. ``now``: ms, never back."""
        assert message.number == self.next
        self.next += 1
        if self._retain is not None:
            self._messages.append((now, message))
            self.bytes += _size(message)
            self.let_go(now)

    def let_go(self, now: int) -> None:
        """Drop the messages that have expired or exceed the limit."""
        while self._retain is not None and len(self._messages) > 1:
            added, oldest = self._messages[0]
            is_old = not self._retain.age_ms or now - added > self._retain.age_ms
            may = is_old and self.bytes - _size(oldest) >= self._retain.bytes
            if not may and self.bytes <= self._retain.bytes_max:
                return
            self.forced += not may
            self.bytes -= _size(oldest)
            self._messages.popleft()

    def of(self, first: int, stop: int) -> list[Sent]:
        """The retained messages of a range."""
        low = self.low
        return [self._messages[number - low][1] for number in range(max(first, low), min(stop, self.next))]


def _size(message: Sent) -> int:
    return len(message.payload) + MESSAGE_BYTES
