"""A step publishes the difference of two views: of what is published, and of that and the delta.

 replace       each new row; a row is taken back only if it has ended
 both signs    the old row, then the new one; neither where they are equal

Readers hold the rows of the view before the step. A row *ends* if it is no longer in the view. Which rows are folded
follows from keys and times alone: for readers that replace rows, the only old rows folded are those that end.

Isolation finds the rows for which a computation raises, by halves, and computes all others. To isolate a fold, the
numbers of the entries are summed up in place of their values: so each row of the view lists the entries in its sum,
which follow from keys and times alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa

from monoids import Monoid
from monoids.column import Columns, take
from monoids.groupby.sorting import Integers, Mask
from monoids.groupby.summing import GroupSums
from monoids.table import list_entries
from persistent.codec.runs import of_hashes
from persistent.errors import PersistentError
from persistent.state.rows import (
    COUNT,
    NUMBERS,
    concat_rows,
    counted,
    fold,
    hashes_of,
    marked,
    marking,
    numbered,
    over,
    result_columns,
    values_of,
    with_values,
)

Outputs = Callable[[GroupSums, bool], pa.Table]
"""The output table of rows, and whether they are taken back."""


class StateView(Protocol):
    """What a state shows. ``kept``: the monoid of the rows of the parts, which is not always that of the state."""

    @property
    def joins(self) -> bool:
        """Whether a row can end: a record joins it to another, or its key expires."""

    @property
    def step(self) -> int:
        """A divisor of all panes."""

    def rows(self, kept: Monoid[Any], parts: Sequence[GroupSums]) -> Iterator[GroupSums]:
        """The rows of the view after the step, in pieces; in one, if rows can end."""

    def changed(self, rows: GroupSums, marks: Mask) -> Mask:
        """Which of these rows are published. ``marks``: those with an entry of the delta."""

    def published_parts(self, before: list[GroupSums], delta: list[GroupSums]) -> list[GroupSums]:
        """The parts of the view before the step in which it may differ from the view after the step."""

    def published(self, kept: Monoid[Any], parts: Sequence[GroupSums], rows: GroupSums) -> Iterator[GroupSums]:
        """The rows of the view before the step, in pieces, that these rows may replace, or that have ended."""

    def same(self, first: GroupSums, second: GroupSums) -> tuple[Integers, Integers]:
        """The row numbers in both of the rows that replace each other."""


@dataclass(frozen=True)
class Placed:
    """Rows, and the number of the place of each."""

    rows: GroupSums
    at: Integers

    def __len__(self) -> int:
        return len(self.at)

    def slice(self, start: int, stop: int) -> Placed:
        return Placed(self.rows.slice(start, stop), self.at[start:stop])

    def take(self, chosen: Integers) -> Placed:
        return Placed(self.rows.take(chosen), self.at[chosen])

    def within(self, start: int, stop: int) -> Placed:
        """The rows at the places from ``start`` to ``stop``."""
        return self.slice(*np.searchsorted(self.at, (start, stop)).tolist())


@dataclass(frozen=True)
class RowDifference:
    """``old`` rows are taken back, and ``new`` ones published, by place, ascending: at a place stands one key and
    window. Places are numbered from ``start`` to ``stop``. Without ``both_signs`` a new row takes back the old one of
    its place."""

    old: Placed
    new: Placed
    start: int
    stop: int
    both_signs: bool = True

    def __len__(self) -> int:
        return self.stop - self.start

    def slice(self, start: int, stop: int) -> RowDifference:
        """The places from number ``start`` to ``stop``, counted from the first."""
        first, last = self.start + start, self.start + stop
        return RowDifference(self.old.within(first, last), self.new.within(first, last), first, last, self.both_signs)

    def table(self, outputs: Outputs, equal: Callable[[pa.Table, pa.Table], Mask]) -> pa.Table:
        """The rows to publish: an old row precedes the new one of its place, and there is none of either where they are
        ``equal``. There is a place with a row."""
        taken_back = self.old if self.both_signs else self.old.take(np.flatnonzero(~np.isin(self.old.at, self.new.at)))
        if not len(taken_back):
            return outputs(self.new.rows, False)
        old = outputs(taken_back.rows, True)
        if not len(self.new):
            return old
        new = outputs(self.new.rows, False)
        there = np.searchsorted(self.new.at, taken_back.at)
        here = np.flatnonzero(self.new.at[np.minimum(there, len(self.new) - 1)] == taken_back.at)
        there = there[here]
        same = equal(old.take(pa.array(here)), new.take(pa.array(there)))
        is_old, is_new = np.ones(len(taken_back), bool), np.ones(len(self.new), bool)
        is_old[here[same]] = is_new[there[same]] = False
        chosen = np.flatnonzero(np.concatenate((is_old, is_new)))
        places = np.concatenate((2 * taken_back.at, 2 * self.new.at + 1))[chosen]
        return pa.concat_tables([old, new]).take(pa.array(chosen[np.argsort(places)]))


@dataclass(frozen=True)
class Comparison:
    """The parts of both views, oldest first: ``before``, of what is published, and the ``delta``. ``both_signs``:
    readers are given the old row of each new one."""

    view: StateView
    before: list[GroupSums]
    delta: list[GroupSums]
    both_signs: bool = False

    @property
    def folds_no_old(self) -> bool:
        """Whether rows that were published are replaced, and not folded."""
        return not self.both_signs and bool(self.view.published_parts(self.before, self.delta))


def differences(comparison: Comparison, kept: Monoid[Any]) -> Iterator[RowDifference]:
    """What a step publishes, in pieces. ``kept``: the monoid of the rows."""
    view, before, both_signs = comparison.view, comparison.before, comparison.both_signs
    if both_signs and len(before) > 1:
        before = [fold(kept, before, view.step)]
    published = view.published_parts(before, comparison.delta)
    for rows, marks in marked_rows(view, kept, before, comparison.delta):
        changed = rows.filter(view.changed(rows, marks))
        if not (len(changed) or view.joins):
            continue
        old = _published(view, kept, published, rows, changed, both_signs=both_signs) if published else []
        yield between(view, old, rows, changed, both_signs=both_signs)


def marked_rows(
    view: StateView, kept: Monoid[Any], before: Sequence[GroupSums], delta: Sequence[GroupSums]
) -> Iterator[tuple[GroupSums, Mask]]:
    """The rows of the view after the step, in pieces, and which of them hold an entry of the delta."""
    if not before:
        for rows in view.rows(kept, delta):
            yield rows, np.ones(len(rows), bool)
        return
    monoid = marking(kept)
    for rows in view.rows(monoid, [*marked(kept, before, 0), *marked(kept, delta, 1)]):
        *values, marks = result_columns(monoid, rows.columns)
        yield with_values(kept, rows, tuple(values)), np.asarray(marks > 0)


def between(
    view: StateView, old: Sequence[GroupSums], rows: GroupSums, changed: GroupSums, *, both_signs: bool
) -> RowDifference:
    """The difference of two sets of rows: ``old``, in pieces, and ``rows``. The rows that have ``changed`` are
    published."""
    ended, replaced = list[GroupSums](), list[Placed]()
    for piece in old:
        if view.joins:
            is_ended = np.ones(len(piece), bool)
            is_ended[view.same(piece, rows)[0]] = False
            ended.append(piece.filter(is_ended))
        if both_signs:
            here, there = view.same(changed, piece)
            replaced.append(Placed(piece.take(there), here))
    first = sum(map(len, ended))
    parts = [*ended, *(placed.rows for placed in replaced)]
    places = np.concatenate([np.arange(first), *(placed.at + first for placed in replaced)])
    new = Placed(changed, first + np.arange(len(changed)))
    taken_back = Placed(concat_rows(parts), places) if parts else new.slice(0, 0)
    if (places[1:] < places[:-1]).any():
        taken_back = taken_back.take(np.argsort(places))
    return RowDifference(taken_back, new, 0, first + len(changed))


def _published(
    view: StateView,
    kept: Monoid[Any],
    parts: Sequence[GroupSums],
    rows: GroupSums,
    changed: GroupSums,
    *,
    both_signs: bool,
) -> list[GroupSums]:
    """The rows of the view before the step that ``between`` needs."""
    if not both_signs:
        if not view.joins:
            return []
        times = list(view.published(over(kept, COUNT), counted(kept, parts), changed))
        ended = hashes_of([between(view, times, rows, changed, both_signs=False).old.rows])
        if not len(ended):
            return []
        slices = [of_hashes(part, ended) for part in parts]
        parts = [part for part in slices if len(part)]
    return list(view.published(kept, parts, changed))


NOT_OF_A_ROW = (PersistentError, OSError, MemoryError)
"""What is raised for other reasons than a row."""


class Halvable(Protocol):
    """A sequence with a length and slices: ``isolated`` halves it to find the row that fails."""

    def __len__(self) -> int: ...

    def slice(self, start: int, stop: int) -> Self: ...


SomeRows = TypeVar("SomeRows", bound=Halvable)
Made = TypeVar("Made")


def isolated(
    make: Callable[[SomeRows], Made], rows: SomeRows, alone: Callable[[SomeRows, Exception], Iterable[Made]]
) -> Iterator[Made]:
    """What ``make`` makes of the rows, in pieces. If ``make`` raises, the rows are halved; for a single row, ``alone``
    stands in for ``make``."""
    try:
        made = make(rows)
    except NOT_OF_A_ROW:
        raise
    except Exception as error:
        if len(rows) == 1:
            yield from alone(rows, error)
            return
        middle = len(rows) // 2
        for start, stop in ((0, middle), (middle, len(rows))):
            yield from isolated(make, rows.slice(start, stop), alone)
    else:
        yield made


def isolated_differences(
    comparison: Comparison, kept: Monoid[Any], alone: Callable[[Placed, Exception], Iterable[Placed]]
) -> Iterator[RowDifference]:
    """The ``differences`` without the rows whose fold raises: what was published at their places is taken back.
    ``alone`` receives each new row whose fold raises, without a value, and yields nothing."""
    if not (comparison.before or comparison.delta):
        return
    values, parts = numbered(kept, [*comparison.before, *comparison.delta])
    middle = len(comparison.before)
    of_numbers = replace(comparison, before=parts[:middle], delta=parts[middle:], both_signs=True)
    for change in differences(of_numbers, over(kept, NUMBERS)):
        new = _folded(kept, values, change.new, alone)
        # A value that could not be folded was never published.
        old = _folded(kept, values, change.old, lambda row, error: ())
        yield replace(change, old=old, new=new, both_signs=comparison.both_signs)


def _folded(
    kept: Monoid[Any], values: Columns, placed: Placed, alone: Callable[[Placed, Exception], Iterable[Placed]]
) -> Placed:
    """The rows with sums of ``values``, in place of the sets of value numbers in their entries."""

    def fold_each(piece: Placed) -> Placed:
        sets = NUMBERS.present_columns(result_columns(over(kept, NUMBERS), piece.rows.columns))
        lengths, numbers = list_entries(sets, NUMBERS)
        inner = take(values, numbers.to_numpy())
        sums = values_of(kept).reduce_sorted(inner, np.cumsum(lengths) - lengths)
        return replace(piece, rows=with_values(kept, piece.rows, sums))

    if not len(placed):
        return placed
    pieces = list(isolated(fold_each, placed, alone))
    if not pieces:
        return placed.slice(0, 0)
    return Placed(concat_rows([piece.rows for piece in pieces]), np.concatenate([piece.at for piece in pieces]))
