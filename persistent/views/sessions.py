"""The view of sessions: those that end after one clock and up to another, one in each row.

A record can make a session longer, open it again, or join it with others. So a session that was published can end: the
row of its borders is then in the view before the record, and not in the view after it. Which sessions these are follows
from times alone. A published session can have changed only if the delta has a record of its key from before ``closed``;
where open sessions are published too, only if the delta has any record of its key.

A session that is published while it is open can have ended long before it is joined to a later one. So where open
sessions are published, ``since`` is None, and a session is settled only once the session that it was joined to is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from monoids import Monoid
from monoids.groupby.sorting import Integers, Mask
from monoids.groupby.summing import GroupSums
from monoids.text import Words
from persistent.codec.runs import of_hashes
from persistent.session_window import SessionWindow, each_session
from persistent.state_rows import fold
from persistent.views.rows import same_rows

FOR_EVER = 1 << 62
"""No session ends later."""


@dataclass(frozen=True)
class SessionView:
    """``settled``: sessions that end up to it do not change. ``closed``: up to where sessions were published before;
    ``until``: up to where they are now. ``since``: where both views begin; None: with the first session. ``late``: the
    hashes, ascending, of the keys with a published session that may have ended. ``is_whole``: every session is
    published, changed or not. ``step``: a divisor of all cells."""

    window: SessionWindow
    step: int
    since: int | None
    settled: int
    closed: int
    until: int | None
    late: Words
    is_whole: bool = False
    joins: ClassVar[bool] = True

    def rows(self, kept: Monoid[Any], parts: Sequence[GroupSums]) -> Iterator[GroupSums]:
        if parts:
            yield each_session(self.window, fold(kept, parts, self.step), self.since, self.until)

    def changed(self, rows: GroupSums, marks: Mask) -> Mask:
        ends = self._ends(rows)
        return ((marks | self.is_whole) & (ends > self.settled)) | (ends > self.closed)

    def published_parts(self, before: list[GroupSums], delta: list[GroupSums]) -> list[GroupSums]:
        slices = [of_hashes(part, self.late) for part in before]
        return [part for part in slices if len(part)]

    def published(self, kept: Monoid[Any], parts: Sequence[GroupSums], rows: GroupSums) -> Iterator[GroupSums]:
        if parts:
            yield each_session(self.window, fold(kept, parts, self.step), self.since, self.closed)

    def same(self, first: GroupSums, second: GroupSums) -> tuple[Integers, Integers]:
        here, there = same_rows(first, second, 1)
        same = self._ends(first)[here] == self._ends(second)[there]
        return here[same], there[same]

    def _ends(self, rows: GroupSums) -> Integers:
        return self.window.session_ends(*rows.columns[0].flat()[:2])


def late_hashes(parts: Sequence[GroupSums], closed: int) -> Words:
    """The hashes of the keys with a stretch that begins before the clock, ascending: only such a stretch can meet a
    closed session."""
    hashes = [np.zeros(0, np.uint64)]
    for part in parts:
        (table,) = part.columns
        starts, *_ = table.flat()
        hashes.append(table.spread(part.hashes)[starts < closed])
    return np.unique(np.concatenate(hashes))
