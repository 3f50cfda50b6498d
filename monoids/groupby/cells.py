"""A cell is a (code, pane) as one small integer, by which rows are addressed, counted or sorted into groups.

    cell = code * panes + pane

Groups follow the order of their cells, and rows of one cell keep their order of arrival, so grouping also serves
monoids that do not commute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from monoids.groupby.sorting import Integers, stable_order

__all__ = [
    "Integers",
    "PaneCodes",
    "cell_counts",
    "cell_ranks",
    "code_panes",
    "distinct_panes",
    "fits_cells",
    "group_cells",
    "group_codes",
    "pane_codes",
    "run_starts",
    "segment_starts",
]

CHUNK_ROWS = 1 << 15
"""This many rows of a few columns stay in the second-level cache between two passes."""

_CELLS_PER_ROW = 8
_DENSE_RANGE_MIN = 1 << 16
_BITS_MAX = 62
_PANE_BITS_MAX = 24
_NO_STARTS = np.zeros(0, np.int64)


def segment_starts(changed: np.ndarray[Any, np.dtype[np.bool_]]) -> Integers:
    """The starts of segments. ``changed``: for each row but the first, whether it differs from the previous row."""
    inner = np.flatnonzero(changed)
    starts = np.empty(len(inner) + 1, np.int64)
    starts[0] = 0
    np.add(inner, 1, out=starts[1:])
    return starts


def run_starts(ordered: Any) -> Integers:
    """The starts of runs of equal numbers.

    >>> run_starts(np.array([3, 3, 5])).tolist()
    [0, 2]
    """
    is_first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return np.flatnonzero(is_first)


@dataclass(frozen=True)
class PaneCodes:
    """Panes as codes from 0 to ``size`` - 1, in pane order: ``pane = low + code * step``, or for sparse panes
    ``values[code]``."""

    size: int
    low: int
    step: int
    values: Integers | None = None

    @property
    def bits(self) -> int:
        return (self.size - 1).bit_length()

    def codes(self, panes: Integers) -> Integers:
        """The codes of some of the panes."""
        if self.values is not None:
            return np.searchsorted(self.values, panes)
        codes = panes - self.low
        if self.step > 1:
            codes //= self.step
        return codes

    def panes(self, codes: Integers) -> Integers:
        """The inverse of ``codes``."""
        if self.values is not None:
            return self.values[codes]
        if self.size == 1:
            return np.full(len(codes), self.low)
        panes = codes * self.step
        panes += self.low
        return panes


def code_panes(panes: Integers, step: int) -> PaneCodes:
    """The codes for these panes: at least one, all multiples of ``step`` apart."""
    low, high = int(panes.min()), int(panes.max())
    size = (high - low) // step + 1
    if (size - 1).bit_length() <= _PANE_BITS_MAX:
        return PaneCodes(size, low, step)
    values = np.unique(panes)
    return PaneCodes(len(values), low, step, values)


def pane_codes(panes: Integers, step: int) -> tuple[Integers, int]:
    """Small codes, zero or more, in pane order, and a bound on their number. All panes are multiples of ``step`` apart.

    >>> codes, size = pane_codes(np.array([60_000, 180_000, 60_000]), 60_000)
    >>> codes.tolist(), size
    ([0, 2, 0], 3)
    """
    low, high = int(panes.min()), int(panes.max())
    if low == high:
        return np.broadcast_to(np.int64(0), len(panes)), 1
    codes = panes - low
    if step > 1:
        codes //= step
    return codes, (high - low) // step + 1


def distinct_panes(panes: Integers, step: int) -> Integers:
    """The panes that occur, ascending."""
    codes, size = pane_codes(panes, step)
    if not fits_cells(size, len(panes)):
        return np.unique(panes)
    return int(panes.min()) + cell_counts(codes, size)[1] * step


def cell_counts(cells: Integers, size: int) -> tuple[Integers, Integers]:
    """The number of rows in each cell, and the non-empty cells in ascending order."""
    counts = np.bincount(cells, minlength=size)
    return counts, (counts != 0).nonzero()[0]


def cell_ranks(cells: Integers, size: int, held: Integers) -> Integers:
    """The rank among the non-empty cells, ``held``, of each row's cell, which is below ``size``."""
    ranks = np.zeros(size, np.int64)
    ranks[held] = np.arange(len(held))
    return ranks[cells]


def fits_cells(size: int, rows: int) -> bool:
    """Whether ``size`` cells are few enough to address directly instead of sorting the rows."""
    return size <= max(_DENSE_RANGE_MIN, _CELLS_PER_ROW * rows)


def group_cells(cells: Any, size: int) -> tuple[Integers, Integers, Any]:
    """Order rows by (cell, arrival): the permutation, the starts of its groups, and the cell of each group, in the type
    of ``cells``.

    ``cells``: integers from 0 to ``size`` - 1.

    >>> order, starts, held = group_cells(np.array([5, 2, 5]), 8)
    >>> order.tolist(), starts.tolist(), held.tolist()
    ([1, 0, 2], [0, 1], [2, 5])
    """
    if not len(cells):
        return _NO_STARTS, _NO_STARTS, _NO_STARTS
    order, ordered = stable_order(cells, (size - 1).bit_length())
    starts = run_starts(ordered)
    return order, starts, ordered[starts]


def group_codes(codes: Integers, panes: Integers, step: int = 1) -> tuple[Integers, Integers]:
    """Order rows by (code, pane, arrival): the permutation, and the starts of its groups.

    ``codes``: int64, one per row, zero or more and dense; groups follow their order. ``panes``: int64.
    """
    if not len(codes):
        return _NO_STARTS, _NO_STARTS
    pane_numbers, pane_count = pane_codes(panes, step)
    size = (int(codes.max()) + 1) * pane_count
    if size.bit_length() > _BITS_MAX:
        order = np.lexsort((panes, codes))
        changed = (np.diff(codes[order]) != 0) | (np.diff(panes[order]) != 0)
        return order, segment_starts(changed)
    cells = codes * pane_count + pane_numbers if pane_count > 1 else codes
    return group_cells(cells, size)[:2]
