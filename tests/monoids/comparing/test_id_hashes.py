"""Ids are hashed alike one by one and in columns, so that a sample does not depend on how its messages came."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Reservoir
from monoids.comparing.id_hashes import hash_id, hash_ids

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
        (lambda: Reservoir(3).lift_rows((np.arange(3), 1), 2), ValueError, "column of 3 ids for 2 rows"),
        (lambda: Reservoir(3).lift_rows((1, np.arange(3)), 2), ValueError, "column of 3 values for 2 rows"),
        (lambda: Reservoir(3).lift_rows((([1, "a"], "p"), 1), 2), TypeError, "a list of mixed types"),
        (lambda: Reservoir(3).lift_rows((object(), 1), 2), TypeError, "cannot be a key"),
        (lambda: Reservoir(3).lift_rows(5, 2), TypeError, "a pair is a tuple"),
    ],
)
def test_what_is_no_id_is_refused(give: Any, error: type[Exception], match: str) -> None:
    """With what to write."""
    with pytest.raises(error, match=match):
        give()


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
