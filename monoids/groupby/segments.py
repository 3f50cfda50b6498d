"""Sums of segments of a column, for numeric monoids. Integers never wrap; floats have one NaN and one zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from monoids.column import Column, Columns, is_constant
from monoids.monoid import Monoid
from monoids.values import INT64_MAX, INT64_MIN

ONE: Columns = (np.ones(1, np.int64),)
TRUE: Columns = (np.ones(1, np.bool_),)


_COUNTED = "the number of inputs cannot be this large: was an element combined with itself, or subtracted too often?"
_REMEDIES = {"Sum": "use Sum(int, unbounded=True), or Sum(float)", "Product": "use Product(float)"}


def overflow(monoid: Monoid[Any], total: int | None = None) -> OverflowError:
    """The error for a total, or a count of inputs, that int64 cannot hold."""
    subject = "a total" if total is None else f"the total {total}"
    return OverflowError(f"{monoid!r}: {subject} is outside 64-bit integers; {_REMEDIES.get(monoid.name, _COUNTED)}")


def sum_int64(monoid: Monoid[Any], values: Column, starts: Column) -> Column:
    """The sum of each segment. Intermediate sums may wrap if the total fits."""
    rows = len(values)
    if len(starts) == rows:
        return values
    if is_constant(values):
        sizes = _sizes(starts, rows)
        if not INT64_MIN <= int(values[0]) * int(sizes.max()) <= INT64_MAX:
            raise overflow(monoid)
        return sizes if values[0] == 1 else sizes * values[0]
    largest = max(int(values.max()), -int(values.min()))
    if largest * rows > INT64_MAX and largest * int(_sizes(starts, rows).max()) > INT64_MAX:
        return _sum_int64_halves(monoid, values, starts)
    return np.asarray(np.add.reduceat(values, starts))


def _sizes(starts: Column, rows: int) -> Column:
    """The number of rows in each segment."""
    sizes = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=sizes[:-1])
    sizes[-1:] = rows - starts[-1:]
    return sizes


def _sum_int64_halves(monoid: Monoid[Any], values: Column, starts: Column) -> Column:
    """The sum of each segment by 32-bit halves, which cannot wrap below 2**31 rows."""
    low = np.add.reduceat(values & 0xFFFFFFFF, starts)
    high = np.add.reduceat(values >> 32, starts) + (low >> 32)
    if high.min() < -(2**31) or high.max() >= 2**31:
        raise overflow(monoid)
    return np.asarray((high << 32) | (low & 0xFFFFFFFF))


def add_int64(values: Column, cells: Column, counts: Column, held: Column) -> Column | None:
    """The sum of each held cell; None if a total might not fit."""
    if not len(values):
        return values[:0]
    distinct = values[:1] if is_constant(values) else values
    if max(int(distinct.max()), -int(distinct.min())) * int(counts.max()) > INT64_MAX:
        return None
    if is_constant(values):
        return counts[held] if values[0] == 1 else counts[held] * values[0]
    totals = np.zeros(len(counts), np.int64)
    np.add.at(totals, cells, values)
    return totals[held]


def add_float64(values: Column, cells: Column, counts: Column, held: Column) -> Column:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.bincount(cells, weights=values, minlength=len(counts))[held]


def sum_float64(values: Column, starts: Column) -> Column:
    if len(starts) == len(values):
        return values
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.add.reduceat(values, starts))


def canonical_floats(values: Column) -> Column:
    """Floats with one zero and one NaN."""
    floats = np.asarray(values + 0.0)
    holes = np.isnan(floats)
    if holes.any():
        floats[holes] = math.nan
    return floats
