"""An entry sum is one count of a table: a sum in int64 whose overflow error names the table."""

from __future__ import annotations

from typing import Any

from monoids.column import Column, Columns
from monoids.groupby.segments import add_int64, sum_int64
from monoids.monoid import Group, Monoid
from monoids.numbers.integers import IntegerMonoid
from monoids.values import INT64_MAX, INT64_MIN


class EntrySum(IntegerMonoid, Group[int]):
    """A sum of the entries of ``owner``. A count outside int64 raises an OverflowError that names ``owner``."""

    identity = 0
    name = "Sum"

    def __init__(self, owner: Monoid[Any]) -> None:
        self.owner = owner

    def parameters(self) -> dict[str, Any]:
        return {"type": "int64"}

    def combine(self, a: int, b: int) -> int:
        total = a + b
        if not INT64_MIN <= total <= INT64_MAX:
            raise self._overflow()
        return total

    def inverse(self, a: int) -> int:
        """OverflowError for -2**63, whose negative int64 cannot hold."""
        return self.combine(0, -a)

    def reduce_sorted(self, columns: Columns, starts: Column) -> Columns:
        try:
            return (sum_int64(self, columns[0], starts),)
        except OverflowError:
            raise self._overflow() from None

    def reduce_cells(self, columns: Columns, cells: Column, counts: Column, held: Column) -> Columns | None:
        totals = add_int64(columns[0], cells, counts, held)
        return None if totals is None else (totals,)

    def _overflow(self) -> OverflowError:
        return OverflowError(
            f"{self.owner!r}: a count is outside 64-bit integers; use smaller weights, or a shorter window"
        )
