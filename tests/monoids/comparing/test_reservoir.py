"""Reservoir: a sample that is uniform, and the same on every replay."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Reservoir, encoding
from monoids.column import take
from monoids.hashing import hash_key

Z_MAX = 4.75
"""Of a normal variable, beyond which lies 1 in 10**6."""


def _normal(chi_square: float, freedom: int) -> float:
    """A chi-square statistic as a standard normal one (Wilson and Hilferty, 1931)."""
    spread = 2 / (9 * freedom)
    return ((chi_square / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


def _samples(k: int, ids: Any, trials: int) -> np.ndarray[Any, Any]:
    """A row a trial, a column an id: whether it is in the sample."""
    rows = len(ids)
    found = np.zeros((trials, rows), np.int64)
    for seed in range(trials):
        monoid = Reservoir(k, seed=seed)
        columns = monoid.lift_rows((ids, np.arange(rows)), rows)
        ((_, *values),) = [table.flat() for table in monoid.reduce_sorted(columns, np.array([0]))]
        found[seed, values[0]] = 1
    return found


@pytest.mark.parametrize(
    "ids",
    [np.arange(40), pa.array([f"user-{row}" for row in range(40)]), [(1000, "p0", (0, row)) for row in range(40)]],
    ids=["numbers", "strings", "orders"],
)
def test_every_id_is_as_likely_as_any_other(ids: Any) -> None:
    """The likeness of neighbours must not make them likelier: 1,000 seeded samples, p above 1e-6."""
    rows, k, trials = 40, 10, 1000
    found = _samples(k, ids, trials)
    assert (found.sum(axis=1) == k).all()
    share = k / rows
    deviations = (found.sum(axis=0) - trials * share) ** 2
    statistic = deviations.sum() / (trials * share * (1 - share)) * (rows - 1) / rows
    assert abs(_normal(statistic, rows - 1)) < Z_MAX
    together = (found[:, :-1] * found[:, 1:]).sum()
    expected = trials * (rows - 1) * share * (k - 1) / (rows - 1)
    assert abs(together - expected) < Z_MAX * math.sqrt(expected * 2)


def test_samples_of_many_keys_are_uniform() -> None:
    """The sample of a key is of its own ids; the mean of the sampled positions is that of all."""
    rows, k = 200_000, 5
    monoid = Reservoir(k)
    cells = np.arange(rows) % 4000
    columns = monoid.lift_rows((np.arange(rows), np.arange(rows) // 4000), rows)
    reduced = monoid.reduce_cells(columns, cells, np.bincount(cells), np.arange(4000))
    _, positions, _ = reduced[0].flat()
    counts = np.bincount(positions, minlength=50)
    expected = 4000 * k / 50
    statistic = ((counts - expected) ** 2).sum() / (expected * (1 - k / 50)) * 49 / 50
    assert counts.sum() == 4000 * k and abs(_normal(statistic, 49)) < Z_MAX


def test_any_pieces_in_any_order_give_the_sample_at_once() -> None:
    """A replay, a late record and another number of shards must not draw again."""
    monoid = Reservoir(4, str)
    pairs = [(number, f"v{number}") for number in range(100)]
    whole = monoid.fold([monoid.lift(pair) for pair in pairs])
    assert whole == tuple(sorted((hash_key(0, number), value) for number, value in pairs)[:4])
    halves = [monoid.fold([monoid.lift(pair) for pair in pairs[::-1][at::3]]) for at in range(3)]
    assert monoid.combine(monoid.combine(halves[2], halves[0]), monoid.combine(halves[1], whole)) == whole
    columns = monoid.lift_columns(pairs * 2)
    assert monoid.unpack(monoid.reduce_sorted(columns, np.array([0]))) == [whole]
    cells = np.arange(200) % 2
    even, odd = monoid.unpack(monoid.reduce_cells(columns, cells, np.bincount(cells), np.arange(2)))
    assert monoid.combine(even, odd) == whole
    assert monoid.unpack(monoid.reduce_sorted(take(columns, np.arange(199, -1, -1)), np.array([0]))) == [whole]


def test_a_sample_of_few_is_all_of_them() -> None:
    """In the order of their hashes, which is as good as drawn."""
    monoid = Reservoir(10)
    seen = monoid.fold([monoid.lift((number, number)) for number in range(6)])
    assert sorted(monoid.present(seen)) == list(range(6)) != monoid.present(seen)
    assert monoid.present(monoid.identity) == []


def test_seeds_draw_different_samples() -> None:
    """Two reservoirs of one seed would agree, and tell no more than one."""
    drawn = {
        repr(Reservoir(3, seed=seed).fold([Reservoir(3, seed=seed).lift((i, i)) for i in range(50)]))
        for seed in range(9)
    }
    assert len(drawn) == 9
    assert Reservoir(1, seed=4).unpack(Reservoir(1, seed=4).lift_columns([(1, 2)])) == [
        Reservoir(1, seed=4).lift((1, 2))
    ]


def test_two_values_under_one_id_are_one_occurrence() -> None:
    """The smaller, whichever comes first."""
    monoid = Reservoir(3, str)
    a, b = monoid.lift((1, "a")), monoid.lift((1, "b"))
    assert monoid.combine(a, b) == monoid.combine(b, a) == a
    assert monoid.unpack(monoid.reduce_sorted(monoid.lift_columns([(1, "b"), (1, "a")]), np.array([0]))) == [a]


def test_a_pair_with_a_none_in_it_is_no_contribution() -> None:
    """A null is not drawn."""
    monoid = Reservoir(3)
    pairs = [None, (None, 1), (1, None), ((1, None), 1), (2, 3)]
    assert [len(monoid.lift(pair)) for pair in pairs] == [0, 0, 0, 0, 1]
    assert monoid.unpack(monoid.lift_columns(pairs)) == [monoid.lift(pair) for pair in pairs]
    assert monoid.unpack(monoid.lift_columns(pa.nulls(2))) == [(), ()]
    assert monoid.unpack(monoid.lift_rows(None, 2)) == [(), ()]
    parts = (pa.array([None, 1, 1]), pa.array([1, None, 1]))
    assert [len(element) for element in monoid.unpack(monoid.lift_rows((parts, 5), 3))] == [0, 0, 1]


def test_elements_of_another_hand_are_refused() -> None:
    """More than k, or in another order, is no sample."""
    monoid = Reservoir(2)
    bad = [
        3,
        [(1, 2)],
        ((2, 1), (1, 1)),
        ((1, 1), (1, 2)),
        ((1, 1), (2, 1), (3, 1)),
        ((1, "x"),),
        ((-1, 1),),
        ((1, None),),
    ]
    for element in [*bad, ((2**64, 1),), (("a", 1),), ((1, 1), ("a", 1)), ((True, 1),)]:
        with pytest.raises(ValueError, match=r"Reservoir\(2\)"):
            monoid.decode(encoding.encode(element))
    type = monoid.schema.field(0).type
    for rows in ([[(1, None)]], [[(2, 1), (1, 1)]], [[(1, 1), (2, 1), (3, 1)]]):
        free = pa.list_(pa.struct([("key", pa.uint64()), ("value", pa.int64())]))
        with pytest.raises(ValueError, match=r"Reservoir\(2\)"):
            monoid.from_arrow([pa.array(rows, free)])
    assert monoid.unpack(monoid.from_arrow([pa.array([[(1, 5), (2, 4)]], type)])) == [((1, 5), (2, 4))]


def test_what_is_cut_off_takes_no_memory() -> None:
    """A state of ten values a key must not keep the million that it has seen."""
    monoid = Reservoir(10, str)
    columns = monoid.lift_rows((np.arange(10_000), pa.array([f"{row}" for row in range(10_000)])), 10_000)
    for starts in ([0], [0, 5000]):
        (table,) = monoid.reduce_sorted(columns, np.array(starts))
        assert all(len(column) == 10 * len(starts) for column in table.columns)
        assert table.columns[1].array.get_total_buffer_size() < 1000


def test_each_is_written_and_told_apart_as_it_was_made() -> None:
    """State of one must not be read as state of the other."""
    made = [Reservoir(3), Reservoir(4), Reservoir(3, str), Reservoir(3, seed=1), Reservoir(3, str, seed=-1)]
    assert list(map(repr, made)) == [
        "Reservoir(3)",
        "Reservoir(4)",
        "Reservoir(3, str)",
        "Reservoir(3, seed=1)",
        "Reservoir(3, str, seed=-1)",
    ]
    assert len({str(monoid.fingerprint()) for monoid in made}) == len(made)
