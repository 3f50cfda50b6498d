"""An entry of a table of counts is a sum in int64, which names the table where it overflows."""

from __future__ import annotations

from typing import Any

from monoids.column import Column, Columns
from monoids.monoid import Monoid
from monoids.numbers.sums import IntegerSum
from monoids.values import INT64_MAX, INT64_MIN


class EntrySum(IntegerSum):
    """``Sum()`` of the entries of ``owner``: a count outside int64 raises OverflowError that says whose it is."""

    def __init__(self, owner: Monoid[Any]) -> None:
        self.owner = owner

    def combine(self, a: int, b: int) -> int:
        total = a + b
        if not INT64_MIN <= total <= INT64_MAX:
            raise self._overflow()
        return total

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        try:
            return super().reduce_sorted(columns, starts)
        except OverflowError:
            raise self._overflow() from None

    def _overflow(self) -> OverflowError:
        return OverflowError(
            f"{self.owner!r}: a count is outside 64-bit integers; give it smaller weights, or a shorter window"
        )
