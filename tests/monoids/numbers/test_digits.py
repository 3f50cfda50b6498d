"""Tables of digits: integers of any size in columns, against Python's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monoids.column import Ragged, concat
from monoids.numbers.digits import Addend, ints_of_table, lane, no_digits, signs, sum_sorted, table_of_ints

LANES = (0, 100, 2000)
EDGES = [0, 1, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63, -(2**63), 2**95, 2**95 - 2**65, -(2**96) + 1]


def rows_of(random: np.random.Generator, count: int) -> list[list[int]]:
    """Integers of all sizes, many with long runs of equal bits, in which carries go far."""
    rows = []
    for _ in range(count):
        sizes = [int(random.integers(0, 2000)) for _ in LANES]
        rows.append([int(random.integers(-1, 2)) * (2**size - int(random.integers(0, 3))) for size in sizes])
    return rows


def test_integers_come_back() -> None:
    """Whatever their sign, length and carries."""
    random = np.random.default_rng(1)
    rows = rows_of(random, 100) + [[edge, 0, edge] for edge in EDGES]
    table = table_of_ints(rows, LANES)
    assert ints_of_table(table, LANES) == rows
    assert ints_of_table(table[np.array([7, 3, 7])], LANES) == [rows[7], rows[3], rows[7]]
    slots, digits = table.flat()
    assert digits.all() and digits.dtype == slots.dtype == np.int32


def test_few_digits_are_few_entries() -> None:
    """Balanced, a power of two less one is two digits; unbalanced it would be all that it has."""
    assert table_of_ints([[2**1600 - 1, -(2**1600) + 1]], (0, 100)).entries == 4


@pytest.mark.parametrize("rows", [1, 7, 40_000])
def test_sums_are_those_of_python(rows: int) -> None:
    """Carries of all lengths, and segments longer and shorter than a block."""
    random = np.random.default_rng(rows)
    pool = rows_of(random, 40)
    chosen = random.integers(0, 40, rows)
    starts = np.unique([0, *random.integers(0, rows, 5)])
    table = table_of_ints(pool, LANES)[chosen]
    sums = sum_sorted((), table, starts, list)
    expected = [
        [sum(pool[row][number] for row in part) for number in range(len(LANES))]
        for part in np.split(chosen, starts[1:])
    ]
    assert ints_of_table(sums, LANES) == expected
    packed = table_of_ints(expected, LANES)
    assert [column.tolist() for column in sums.flat()] == [column.tolist() for column in packed.flat()]
    assert sums.lengths.tolist() == packed.lengths.tolist()


@pytest.mark.parametrize("sizes", [[1, 2, 1, 1, 3, 1], [2, 1], [1, 2], [1, 1, 1]])
def test_rows_alone_in_their_segment_are_left_as_they_are(sizes: list[int]) -> None:
    """A delta of few keys, merged into a state of many: the others' digits are not even read."""
    pool = rows_of(np.random.default_rng(9), sum(sizes))
    starts = np.cumsum(sizes) - sizes
    sums = sum_sorted((), table_of_ints(pool, LANES), starts, list)
    parts = [pool[start : start + size] for start, size in zip(starts, sizes)]
    assert ints_of_table(sums, LANES) == [[sum(column) for column in zip(*part)] for part in parts]


def test_largest_pieces_do_not_wrap() -> None:
    """A block of pieces that all have their 32 bits set."""

    def explode(values: Any) -> list[Addend]:
        full = np.full(len(values), 0xFFFFFFFF)
        return [Addend(None, np.zeros(len(values), np.int64), [sign * full, sign * full]) for sign in (1, 1, -1)]

    values = np.zeros(100_000)
    sums = sum_sorted((values,), no_digits(len(values)), np.array([0, 1]), explode)
    assert ints_of_table(sums, (0,)) == [[2**64 - 1], [99_999 * (2**64 - 1)]]


def test_lanes_and_their_signs() -> None:
    """What a presented value is read from."""
    table = table_of_ints([[5, -(2**70), 0], [0, 0, 1], [-1, 2**31, 3]], LANES)
    assert [signs(lane(table, *ends)).tolist() for ends in ((0, 100), (100, 2000), (2000, 9999))] == [
        [1, 0, -1],
        [-1, 0, 1],
        [0, 1, 1],
    ]
    assert ints_of_table(lane(table, 100, 2000), (0,)) == [[-(2**70)], [0], [2**31]]


def test_no_rows() -> None:
    """A step without records."""
    nothing = no_digits(0)
    assert ints_of_table(sum_sorted((), nothing, np.zeros(0, np.int64), list), LANES) == []
    (both,) = concat([(no_digits(2),), (table_of_ints([[7, 0, 0]], LANES),)])
    assert isinstance(both, Ragged) and ints_of_table(both, LANES) == [[0, 0, 0], [0, 0, 0], [7, 0, 0]]
