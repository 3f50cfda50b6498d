"""The offsets that a broker keeps of a partition."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kept:
    """The kept offsets of a partition that can be read: ``first <= offset < stop``. ``end``: the offset of the next
    record, if an open transaction holds some back; None: ``stop``."""

    first: int
    stop: int
    end: int | None = None

    def behind(self, offset: int) -> int:
        """The number of offsets that follow this one, readable or not."""
        return (self.stop if self.end is None else self.end) - offset
