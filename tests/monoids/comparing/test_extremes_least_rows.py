"""Choosing rows: against min and max of Python, where words of 64 bits are tied."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids.column import ArrowColumn
from monoids.comparing.extremes import keys_of, least_of_cells, least_of_segments, present_first

PREFIX = b"https://example.com/"


def _values(kind: str, count: int, source: random.Random) -> list[Any]:
    match kind:
        case "short":
            return [bytes(source.choices(b"\0ab\xff", k=source.randrange(5))) for _ in range(count)]
        case "prefixed":
            return [PREFIX + bytes(source.choices(b"\0a", k=source.randrange(20))) for _ in range(count)]
        case "long":
            return [PREFIX * 4 + bytes(source.choices(b"\0a", k=source.randrange(4))) for _ in range(count)]
        case "empty":
            return [b""] * count
        case _:
            return [Decimal(source.randrange(-(2**66), 2**66) >> source.choice((0, 60))) for _ in range(count)]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("kind", ["short", "prefixed", "long", "empty", "decimal"])
def test_the_chosen_row_is_the_first_of_the_best(kind: str, descending: bool) -> None:
    """A string compared by its first eight bytes only, or beyond its end, is a wrong maximum."""
    source = random.Random(f"{kind}{descending}")
    for _ in range(60):
        values = _values(kind, source.randrange(1, 40), source)
        type = pa.decimal128(38) if kind == "decimal" else pa.binary()
        array = pa.array([*values[:2], *values], type).slice(len(values[:2]))
        starts = sorted({0, *(source.randrange(len(values)) for _ in range(source.randrange(6)))})
        stops = [*starts[1:], len(values)]
        best = max if descending else min
        expected = [begin + values[begin:end].index(best(values[begin:end])) for begin, end in zip(starts, stops)]
        begins = np.array(starts, np.int64)
        assert least_of_segments(keys_of(ArrowColumn(array), descending), begins).tolist() == expected
        cells = np.repeat(np.arange(len(starts)) * 2, np.diff([*starts, len(values)]))
        held = np.unique(cells)
        found = least_of_cells(keys_of(ArrowColumn(array), descending), cells, 2 * len(starts), held)
        assert found.tolist() == expected


def test_decimals_of_256_bits_and_numbers_of_every_width() -> None:
    """Each is read by words of its own."""
    wide = pa.array([Decimal(10**60), Decimal(-(10**60)), None], pa.decimal256(70)).fill_null(Decimal(0))
    assert least_of_segments(keys_of(ArrowColumn(wide)), np.array([0])).tolist() == [1]
    for dtype in (np.int32, np.int64, np.float64, np.bool_, np.uint64):
        column = np.array([1, 0, 1], dtype)
        assert least_of_segments(keys_of(column), np.array([0, 2])).tolist() == [1, 2]
        assert least_of_segments(keys_of(column, True), np.array([0])).tolist() == [0]


def test_rows_that_hold_something_come_first() -> None:
    """What stands under a null would win."""
    valid, values = np.array([False, True, False]), np.array([-9, 5, -9])
    keys = [*present_first(valid), *keys_of(values)]
    assert least_of_segments(keys, np.array([0])).tolist() == [1]
    assert least_of_cells(keys, np.array([1, 1, 0]), 2, np.array([0, 1])).tolist() == [2, 1]


def test_without_anything_to_tell_rows_apart_the_first_is_chosen() -> None:
    """Columns that are constant have no words."""
    constant = np.broadcast_to(np.int64(7), 4)
    assert least_of_segments(keys_of(constant), np.array([0, 3])).tolist() == [0, 3]
    assert least_of_cells(keys_of(constant), np.array([1, 0, 1, 0]), 2, np.array([0, 1])).tolist() == [1, 0]
