"""Reservoir: a sample that is uniform, and the same on every replay."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Reservoir, encoding
from monoids.column import take
from monoids.comparing.ids import hash_id, hash_ids
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


IDS = {
    "int": [3, -1, None],
    "bool": [True, False, None],
    "float": [1.5, -0.0, math.nan, None],
    "str": ["a", "", None],
    "bytes": [b"a", b"x" * 600],
    "date": [date(2024, 2, 29), None],
    "datetime": [datetime(2024, 2, 29, 1, 2, 3, 4), datetime(1960, 1, 1, tzinfo=UTC)],
    "decimal": [Decimal("1.50"), Decimal("-3"), None],
    "tuple": [(1, "a"), (2, "b")],
    "nested": [(1, "a", (2, 3)), (1, "a", (2, 4))],
    "tuples with none": [(1, None), (2, "b"), None],
    "mixed": [1, "a", 1.0, True, (1, 2), None],
}


@pytest.mark.parametrize("kind", IDS)
def test_a_column_of_ids_has_the_hashes_of_its_values(kind: str) -> None:
    """A job written message by message and its batch form must draw the same sample."""
    ids = IDS[kind]
    expected = [hash_id(7, one) for one in ids]
    ways = [ids, np.array([*ids, None], object)[:-1]]
    if kind not in ("tuple", "nested", "tuples with none", "mixed"):
        ways += [
            pa.array(ids),
            pa.chunked_array([pa.array(ids[:1], pa.array(ids).type), pa.array(ids[1:], pa.array(ids).type)]),
        ]
    for way in ways:
        hashes, valid = hash_ids(7, way, len(ids))
        present = [True] * len(ids) if valid is None else valid.tolist()
        assert [int(one) if held else None for one, held in zip(hashes, present)] == expected
    for one, hashed in zip(ids, expected):
        hashes, valid = hash_ids(7, one, 2)
        assert ([None] * 2 if valid is not None and not valid.any() else hashes.tolist()) == [hashed] * 2


def test_ids_of_different_kinds_are_different() -> None:
    """As keys are."""
    assert len({hash_id(0, one) for one in (1, 1.0, True, "1", b"1", date(1970, 1, 2), (1, 1))}) == 7
    assert hash_id(0, -0.0) == hash_id(0, 0.0) and hash_id(0, (1, (2,))) == hash_id(0, (1, 2))
    assert hash_id(0, {"a": 1, "b": 2}) == hash_id(0, (1, 2)) != hash_id(1, (1, 2))


def test_orders_of_messages_are_ids() -> None:
    """``message.order`` is a tuple, ``batch.order`` a struct array."""
    position = {"ordinal": 3, "offset": 9}
    column = pa.array([{"timestamp": 5, "partition": "p", "position": position}] * 2)
    monoid = Reservoir(2, str)
    expected = [monoid.lift(((5, "p", (3, 9)), "x"))] * 2
    for ids in (column, [(5, "p", (3, 9))] * 2, (np.array([5, 5]), "p", (3, np.array([9, 9]))), (5, "p", (3, 9))):
        assert monoid.unpack(monoid.lift_rows((ids, "x"), 2)) == expected
        assert monoid.unpack(monoid.lift_rows({"id": ids, "value": pa.array(["x", "x"])}, 2)) == expected
    assert monoid.unpack(monoid.lift_rows(pa.array([{"id": 1, "value": "x"}] * 2), 2)) == [monoid.lift((1, "x"))] * 2


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


@pytest.mark.parametrize(
    ("give", "error", "match"),
    [
        (lambda: Reservoir(0), TypeError, "1 or more"),
        (lambda: Reservoir(True), TypeError, "1 or more"),
        (lambda: Reservoir(3, complex), TypeError, "write one of"),
        (lambda: Reservoir(3, seed=2**63), TypeError, "64 bits"),
        (lambda: Reservoir(3, seed=1.5), TypeError, "64 bits"),
        (lambda: Reservoir(3).lift(5), TypeError, r"a pair is a tuple \(id, value\)"),
        (lambda: Reservoir(3).lift((object(), 1)), TypeError, "cannot be a key"),
        (lambda: Reservoir(3).lift((1, "x")), TypeError, "takes integers"),
        (lambda: Reservoir(3).lift((2**64, 1)), OverflowError, "64-bit"),
        (lambda: Reservoir(3).lift_columns([(2**64, 1)]), OverflowError, "give it as a string"),
        (lambda: Reservoir(3).lift_rows((np.arange(3), 1), 2), ValueError, "column of 3 ids was given for 2 rows"),
        (lambda: Reservoir(3).lift_rows((1, np.arange(3)), 2), ValueError, "column of 3 values for 2 rows"),
        (lambda: Reservoir(3).lift_rows((([1, "a"], "p"), 1), 2), TypeError, "a list of several types"),
        (lambda: Reservoir(3).lift_rows((object(), 1), 2), TypeError, "cannot be a key"),
        (lambda: Reservoir(3).lift_rows(5, 2), TypeError, "a pair is a tuple"),
    ],
)
def test_what_is_no_id_is_refused(give: Any, error: type[Exception], match: str) -> None:
    """With what to write."""
    with pytest.raises(error, match=match):
        give()


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


@pytest.mark.parametrize(
    "ids",
    [
        ["\ud800", "a", None],
        [Decimal("1.5"), Decimal("1E+3"), None, Decimal("-0.00")],
        [Decimal(1) / 3, Decimal("1" * 50)],
        [Decimal("NaN"), Decimal(1)],
        [datetime(2020, 1, 1), datetime(2020, 1, 1, 5, tzinfo=UTC), None],
        [datetime.max, datetime.min],
        [b"a", None],
    ],
)
def test_ids_of_one_type_are_hashed_at_once_as_one_by_one(ids: list[Any]) -> None:
    """A replay on the other path would draw another sample."""
    hashes, valid = hash_ids(7, ids, len(ids))
    held = [True] * len(ids) if valid is None else valid.tolist()
    assert [int(one) if there else None for one, there in zip(hashes, held)] == [hash_id(7, key) for key in ids]
    array = np.array(ids, object)
    assert (hash_ids(7, array, len(ids))[0] == hashes)[np.array(held)].all()


@pytest.mark.parametrize("ids", [np.array([2**63], np.uint64), pa.array([1, 2**63], pa.uint64()), [2**63]])
def test_ids_beyond_64_bits_are_refused(ids: Any) -> None:
    """The error says what to do."""
    with pytest.raises(OverflowError, match=r"as.* string"):
        Reservoir(2).lift_rows((ids, np.arange(len(ids))), len(ids))
