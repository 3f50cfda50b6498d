"""The received but unacknowledged messages of a consumer: the tag of each, by the record of the journal.

A tag is valid only on the channel that delivered it. Tags of a closed channel are forgotten, because the broker
delivers their messages again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass
class Unacknowledged:
    """``generation``: how many channels have been opened.

    >>> held = Unacknowledged()
    >>> held.begin(); held.add([7, 8], [1, 2]); held.up_to(7), len(held)
    (1, 1)
    >>> held.begin(); held.up_to(100), len(held)
    (None, 0)
    """

    generation: int = 0
    _held: deque[tuple[int, int, int]] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self._held)

    def begin(self) -> None:
        """A new channel was opened."""
        self.generation += 1
        self._held.clear()

    def add(self, numbers: list[int], tags: list[int], time: int = 0) -> None:
        """Records of these numbers are journaled, at this time (ms). Both lists ascend."""
        self._held.extend((number, tag, time) for number, tag in zip(numbers, tags, strict=True))

    def first(self, number: int, time: int) -> tuple[int, int]:
        """The number and time of the first of them; these if there is none."""
        return self._held[0][::2] if self._held else (number, time)

    def up_to(self, number: int) -> int | None:
        """Remove the records up to this number; returns their last tag, None if there is none. Acknowledge it together
        with all before."""
        found = None
        while self._held and self._held[0][0] <= number:
            found = self._held.popleft()[1]
        return found
