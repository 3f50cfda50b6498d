"""The views of keys: one value of each key, whatever the panes it is kept in; or that of its last life.

Which lives there are follows from times alone. A key whose life ends leaves the view, and its row is taken back.
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
from persistent.state_rows import OPEN_PANE, fold, in_panes
from persistent.time_to_live import TimeToLive
from persistent.views.rows import same_rows


def fold_by_key(kept: Monoid[Any], parts: Sequence[GroupSums], step: int) -> GroupSums:
    """The sum of parts, oldest first, by key alone."""
    rows = fold(kept, parts, step)
    if not len(rows) or int(rows.panes.max()) == int(rows.panes.min()) == OPEN_PANE:
        return rows
    return in_panes(kept, rows, np.full(len(rows), OPEN_PANE))


@dataclass(frozen=True)
class KeyView:
    """All keys of the parts. ``step``: a divisor of their panes."""

    step: int
    joins: ClassVar[bool] = False

    def rows(self, kept: Monoid[Any], parts: Sequence[GroupSums]) -> Iterator[GroupSums]:
        if parts:
            yield fold_by_key(kept, parts, self.step)

    def changed(self, rows: GroupSums, marks: Mask) -> Mask:
        return marks

    def published_parts(self, before: list[GroupSums], delta: list[GroupSums]) -> list[GroupSums]:
        return before

    def published(self, kept: Monoid[Any], parts: Sequence[GroupSums], rows: GroupSums) -> Iterator[GroupSums]:
        return self.rows(kept, parts)

    def same(self, first: GroupSums, second: GroupSums) -> tuple[Integers, Integers]:
        return same_rows(first, second, self.step)


@dataclass(frozen=True)
class LifeView:
    """The last life of each key, unless it has ended. ``published_at``: the clock by which readers hold the keys that
    were published; None: readers hold none. ``close_at``: the clock of the view after the step. ``fresh``: the hashes
    of the keys of the delta: their values are published, whichever of their lives has changed. ``is_heir``: readers may
    hold what is in the delta."""

    ttl: TimeToLive
    step: int
    published_at: int | None
    close_at: int
    fresh: Words
    is_heir: bool = False
    joins: ClassVar[bool] = True

    def rows(self, kept: Monoid[Any], parts: Sequence[GroupSums]) -> Iterator[GroupSums]:
        if parts:
            yield self.ttl.living(fold(kept, parts, self.step), self.close_at)

    def changed(self, rows: GroupSums, marks: Mask) -> Mask:
        # Another key with an equal hash is published again as it is.
        return np.isin(rows.hashes, self.fresh)

    def published_parts(self, before: list[GroupSums], delta: list[GroupSums]) -> list[GroupSums]:
        return delta if self.is_heir else before

    def published(self, kept: Monoid[Any], parts: Sequence[GroupSums], rows: GroupSums) -> Iterator[GroupSums]:
        if parts and self.published_at is not None:
            yield self.ttl.living(fold(kept, parts, self.step), self.published_at)

    def same(self, first: GroupSums, second: GroupSums) -> tuple[Integers, Integers]:
        return same_rows(first, second, 1)
