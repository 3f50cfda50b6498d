"""What a broker keeps of a partition: its newest offsets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kept:
    """The offsets of a partition that a broker keeps and may be read: ``first <= offset < stop``. ``end``: the offset
    that the next record will have, if an open transaction holds back some; None: ``stop``."""

    first: int
    stop: int
    end: int | None = None

    def behind(self, offset: int) -> int:
        """How many offsets there are from this one on, readable or not."""
        return (self.stop if self.end is None else self.end) - offset
