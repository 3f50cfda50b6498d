"""exact_until counts exactly while few values came, and is a function of the set of values alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids import BitOr, Count, Max, Min, SetUnion, Sum, encoding
from monoids.hashing import hash_key
from monoids.monoid import Monoid, check
from monoids.sketches.bloom import BloomFilter
from monoids.sketches.count_min import CountMin
from monoids.sketches.exact_until import Promoted, exact_until
from monoids.sketches.hyperloglog import HyperLogLog
from monoids.sketches.quantiles import Quantiles
from monoids.sketches.theta import Theta

SMALL = exact_until(3, HyperLogLog(6))


def claiming(monoid: Any) -> Any:
    """The same monoid, that says it counts distinct values."""
    monoid.counts_distinct = True
    return monoid


def total_of(monoid: Monoid[Any], values: Any) -> Any:
    columns = monoid.lift_columns(values)
    return monoid.unpack(monoid.reduce_sorted(columns, np.zeros(1, np.int64)))[0]


@pytest.mark.parametrize("sketch", [HyperLogLog(10), Theta(1024), BloomFilter(1000)], ids=repr)
def test_exact_up_to_n_and_the_sketch_beyond(sketch: Monoid[Any]) -> None:
    """Lost: exactness of the small, the border between both, and any sketch but one."""
    monoid = exact_until(50, sketch)
    values = [f"value {i}" for i in range(51)]
    few, more = total_of(monoid, values[:50] * 2), total_of(monoid, values)
    assert monoid.present(few) == 50
    assert monoid.is_exact(few)
    assert not monoid.is_exact(more)
    hashes = [hash_key(value) for value in values]
    signed = [word - (word >> 63 << 64) for word in hashes]
    assert more == Promoted(sketch.fold([sketch.lift(word) for word in signed]))
    assert monoid.present(more) == sketch.present(more.sketch)
    assert abs(monoid.present(more) - 51) < 10
    assert monoid.present(monoid.identity) == 0
    assert monoid.present_columns(monoid.pack([few, more, monoid.identity])).to_pylist() == [
        50,
        monoid.present(more),
        0,
    ]


@given(st.lists(st.lists(st.integers(0, 6) | st.none() | st.text(max_size=1), max_size=5), min_size=1, max_size=6))
def test_any_order_of_merges_gives_the_same(parts: list[list[Any]]) -> None:
    """Lost: promotion that depends on which parts met first."""
    once = SMALL.fold([SMALL.identity, *(SMALL.lift(value) for part in parts for value in part)])
    elements = [SMALL.fold([SMALL.identity, *map(SMALL.lift, part)]) for part in parts]
    assert SMALL.fold(elements) == SMALL.fold(elements[::-1]) == once
    columns = SMALL.pack(elements)
    assert SMALL.unpack(SMALL.reduce_sorted(columns, np.zeros(1, np.int64))) == [once]
    distinct = {encoding.encode(value) for part in parts for value in part if value is not None}
    assert isinstance(once, Promoted) == (len(distinct) > 3)
    assert SMALL.present(once) == len(distinct) or len(distinct) > 3


def test_error_is_within_the_bound_in_a_thousand_trials() -> None:
    """Lost: the sketch's error after promotion by columns. A trial is off by two standard errors with p = 0.05."""
    trials, distinct = 1_000, 400
    sketch = HyperLogLog(10)
    monoid = exact_until(100, sketch)
    values = np.random.default_rng(4).integers(0, 2**62, (trials, distinct))
    values[: trials // 10, 100:] = values[: trials // 10, :1]
    columns = monoid.lift_columns(np.concatenate([values, values], axis=1).ravel())
    shown = monoid.present_columns(
        monoid.reduce_sorted(columns, np.arange(0, 2 * values.size, 2 * distinct))
    ).to_numpy()
    assert (shown[: trials // 10] == 100).all()
    off = int((np.abs(shown[trials // 10 :] - distinct) > 2 * 1.04 / 32 * distinct).sum())
    left = trials - trials // 10
    assert sum(math.comb(left, i) * 0.05**i * 0.95 ** (left - i) for i in range(off, left + 1)) > 1e-6
    assert off > 0


def test_exact_and_promoted_rows_side_by_side() -> None:
    """Lost: keys whose sketch lands in the row of another."""
    rows = [[1, 2], [], [1, 2, 3, 4], [None], [5, 5, 5], [1, 2, 3, 4, 5], [9]]
    values = [value for row in rows for value in [*row, None]]
    starts = np.cumsum([0, *(len(row) + 1 for row in rows[:-1])])
    reduced = SMALL.reduce_sorted(SMALL.lift_columns(values), starts)
    expected = [SMALL.fold([SMALL.identity, *map(SMALL.lift, row)]) for row in rows]
    assert SMALL.unpack(reduced) == expected
    assert [SMALL.is_exact(element) for element in expected] == [True, True, False, True, True, False, True]
    assert SMALL.unpack(SMALL.from_arrow([array.slice(2) for array in SMALL.to_arrow(reduced)])) == expected[2:]
    assert SMALL.unpack(SMALL.reduce_sorted(reduced, np.array([0, 1, 4]))) == [
        expected[0],
        SMALL.fold(expected[1:4]),
        SMALL.fold(expected[4:]),
    ]


@pytest.mark.parametrize(
    ("n", "sketch", "error", "remedy"),
    [
        (5, HyperLogLog, TypeError, r"write HyperLogLog\(\)"),
        (5, CountMin(), TypeError, r"write exact_until\(n, HyperLogLog\(\)\)"),
        (5, Quantiles(), TypeError, r"write exact_until\(n, HyperLogLog\(\)\)"),
        (5, Sum(), TypeError, r"write exact_until\(n, HyperLogLog\(\)\)"),
        (5, Count(), TypeError, "does not declare that it counts distinct values"),
        (5, Max(), TypeError, "counts_distinct = True"),
        (5, Min(float), TypeError, "counts_distinct = True"),
        (5, BitOr(), TypeError, "counts_distinct = True"),
        (5, claiming(Count()), TypeError, "counts inputs"),
        (5, claiming(SetUnion(int)), TypeError, "not as a number"),
        (-1, HyperLogLog(), ValueError, "integer from 0"),
        (True, HyperLogLog(), TypeError, "write an integer"),
        (2**24 + 1, HyperLogLog(), ValueError, "integer from 0"),
    ],
)
def test_wrong_arguments_are_refused(n: Any, sketch: Any, error: type[Exception], remedy: str) -> None:
    """Lost: a sketch that counts each value once after promotion, or not at all."""
    with pytest.raises(error, match=remedy):
        exact_until(n, sketch)


def test_it_is_named_as_it_is_written() -> None:
    """Lost: one's own line in an error message, and a checkpoint of another n or sketch refused."""
    assert repr(exact_until(5, HyperLogLog(6))) == "exact_until(5, HyperLogLog(6))"
    monoids = [exact_until(5, HyperLogLog(6)), exact_until(6, HyperLogLog(6)), exact_until(5, HyperLogLog(7))]
    assert len({str(monoid.fingerprint()) for monoid in monoids}) == 3
    check(monoids[0])


SKETCHED = SMALL.sketch.encode(SMALL.sketch.lift(1))


@pytest.mark.parametrize(
    "element",
    [
        5,
        (),
        (3, 0, b""),
        (4, False, b""),
        (3, False, "x"),
        (3, False, b"1234567"),
        (3, False, bytes(range(32))),
        (3, False, bytes(16)),
        (3, False, (2).to_bytes(8, "little") + (1).to_bytes(8, "little")),
        (3, True, SKETCHED + b"\0"),
        (3, True, HyperLogLog(7).encode(HyperLogLog(7).lift(1))),
    ],
)
def test_bytes_of_no_element_are_refused(element: Any) -> None:
    """Lost: state of another n or sketch, or damaged, that goes on."""
    with pytest.raises(ValueError, match=r"exact_until|HyperLogLog"):
        SMALL.decode(encoding.encode(element))


@pytest.mark.parametrize(
    ("hashes", "promoted"), [([1, 2, 3, 4], False), ([1], True), ([2, 1], False), ([1, 1], False), ([1], None)]
)
def test_columns_of_no_element_are_refused(hashes: list[int], promoted: bool | None) -> None:
    """Lost: a file of another n, or damaged, that goes on."""
    _, _, *sketch = SMALL.to_arrow(SMALL.pack([SMALL.identity]))
    given = [pa.array([hashes], SMALL.schema.field(0).type), pa.array([promoted], pa.bool_()), *sketch]
    with pytest.raises(ValueError, match=r"exact_until|Hashes"):
        SMALL.from_arrow(given)
