"""Isolation finds the rows for which a computation raises, by halves, and computes all others.

A fold is isolated by the rows of a view: which entries are in the sum of each row follows from keys and times alone,
and their numbers are summed up in place of the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from monoids import Monoid
from monoids.column import Columns, take
from monoids.table import list_entries
from persistent.errors import PersistentError
from persistent.session_window import result_columns, values_of
from persistent.views.difference import Comparison, Placed, RowDifference, differences
from persistent.views.rows import NUMBERS, concat_rows, numbered, over, with_values

NOT_OF_A_ROW = (PersistentError, OSError, MemoryError)
"""What is raised for other reasons than a row."""


class Halvable(Protocol):
    """What can be halved."""

    def __len__(self) -> int: ...

    def slice(self, start: int, stop: int) -> Self: ...


SomeRows = TypeVar("SomeRows", bound=Halvable)
Made = TypeVar("Made")


def isolated(
    make: Callable[[SomeRows], Made], rows: SomeRows, alone: Callable[[SomeRows, Exception], Iterable[Made]]
) -> Iterator[Made]:
    """What is made of the rows, in pieces. If that raises, they are halved; ``alone``: what is made of a single row for
    which it raises."""
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
    """The ``differences`` if a fold raises, without the rows whose fold raises: what was published at their places is
    taken back. ``alone`` is told of each new one, without a value: it yields nothing."""
    if not (comparison.before or comparison.delta):
        return
    values, parts = numbered(kept, [*comparison.before, *comparison.delta])
    middle = len(comparison.before)
    of_numbers = replace(comparison, before=parts[:middle], delta=parts[middle:], both_signs=True)
    for found in differences(of_numbers, over(kept, NUMBERS)):
        new = _folded(kept, values, found.new, alone)
        # A value that could not be folded was never published.
        old = _folded(kept, values, found.old, lambda row, error: ())
        yield replace(found, old=old, new=new, both_signs=comparison.both_signs)


def _folded(
    kept: Monoid[Any], values: Columns, placed: Placed, alone: Callable[[Placed, Exception], Iterable[Placed]]
) -> Placed:
    """The rows, whose entries are numbers of values, with the sums of these."""

    def fold_each(some: Placed) -> Placed:
        sets = NUMBERS.present_columns(result_columns(over(kept, NUMBERS), some.rows.columns))
        lengths, numbers = list_entries(sets, NUMBERS)
        inner = take(values, numbers.to_numpy())
        sums = values_of(kept).reduce_sorted(inner, np.cumsum(lengths) - lengths)
        return replace(some, rows=with_values(kept, some.rows, sums))

    if not len(placed):
        return placed
    pieces = list(isolated(fold_each, placed, alone))
    if not pieces:
        return placed.slice(0, 0)
    return Placed(concat_rows([one.rows for one in pieces]), np.concatenate([one.at for one in pieces]))
