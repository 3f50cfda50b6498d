"""A sync policy: when a writer makes acknowledged entries durable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from persistent.clock import duration_ms
from persistent.errors import InvalidPipeline


@dataclass(frozen=True)
class SyncPolicy:
    """``entries``: after at most this many; ``ms``: at most this long after the first unsynced one. None: no bound."""

    entries: int | None = None
    ms: int | None = None

    @property
    def each(self) -> bool:
        """Whether an entry is durable when it is acknowledged."""
        return self.entries == 1

    def is_due(self, entries: int, ms: float) -> bool:
        """Whether a sync is due with this many unsynced entries, the first of them this old."""
        return (self.entries is not None and entries >= self.entries) or (self.ms is not None and ms >= self.ms)


def sync_policy(value: Any) -> SyncPolicy:
    """The policy of an option: "always", "never", a number of entries, or a duration.

    >>> sync_policy("always").each, sync_policy(100).is_due(99, 0), sync_policy("1 s").is_due(1, 1_000)
    (True, False, True)
    """
    if value == "always":
        return SyncPolicy(entries=1)
    if value == "never":
        return SyncPolicy()
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return SyncPolicy(entries=value)
    if isinstance(value, str):
        try:
            return SyncPolicy(ms=duration_ms(value, "sync"))
        except ValueError as error:
            raise InvalidPipeline(f'{error}; or give "always", "never", or a number of entries') from error
    raise InvalidPipeline(f'sync={value!r}: give "always", "never", a number of entries such as 100, or a time: "1 s"')
