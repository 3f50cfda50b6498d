"""State rows are a dictionary from (key, pane) to the sum of its updates, as columns."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, Max, Monoid, Sum, record
from monoids.encoding import encode
from monoids.groupby import grouping, summing
from monoids.groupby.summing import GroupSums, group_by
from monoids.hashing import hash_keys, key_column
from persistent.errors import InvalidPipeline
from persistent.state.rows import fold
from tests.few import examples

STEP = 10
MONOID = record(count=Count(), total=Sum(), top=Max())


class Listed(Monoid[tuple[int, ...]]):
    """Concatenation: what comes in another order is another element."""

    identity = ()

    def combine(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        return a + b

    def lift(self, value: Any) -> tuple[int, ...]:
        return (value,)


KEYS: dict[str, tuple[list[pa.DataType], st.SearchStrategy[tuple[Any, ...]]]] = {
    "none": ([], st.just(())),
    "dense": ([pa.int64()], st.tuples(st.integers(-3, 3))),
    "sparse": ([pa.int64()], st.tuples(st.sampled_from([-(2**63), -1, 0, 1, 2**40, 2**63 - 1]))),
    "nulls": ([pa.int64()], st.tuples(st.none() | st.integers(0, 2))),
    "text": ([pa.string()], st.tuples(st.none() | st.sampled_from(["", "a", "é", "a\0", "ab" * 300, "日本"]))),
    "bytes": ([pa.binary()], st.tuples(st.sampled_from([b"", b"\0", b"\0\0", b"a" * 8, b"a" * 9]))),
    "float": ([pa.float64()], st.tuples(st.none() | st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, 1.5]))),
    "bool": ([pa.bool_()], st.tuples(st.none() | st.booleans())),
    "date": ([pa.date32()], st.tuples(st.sampled_from([datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]))),
    "decimal": (
        [pa.decimal128(5, 2)],
        st.tuples(st.sampled_from([Decimal("0.00"), Decimal("1.10"), Decimal("-1.10")])),
    ),
    "composite": (
        [pa.string(), pa.int64(), pa.float64()],
        st.tuples(
            st.none() | st.sampled_from(["a", "é"]),
            st.none() | st.integers(0, 2),
            st.sampled_from([0.0, -0.0, math.nan]),
        ),
    ),
}

Update = tuple[tuple[Any, ...], int, int]


def key_columns(types: Sequence[pa.DataType], keys: Sequence[tuple[Any, ...]]) -> list[pa.Array]:
    return [key_column(pa.array([key[i] for key in keys], type_, from_pandas=False)) for i, type_ in enumerate(types)]


def summed(monoid: Monoid[Any], types: Sequence[pa.DataType], updates: Sequence[Update]) -> GroupSums:
    """The rows of some updates (key, pane number, value)."""
    keys = key_columns(types, [key for key, _, _ in updates])
    values = [{"count": 1, "total": value, "top": value} if monoid is MONOID else value for _, _, value in updates]
    panes = np.array([pane * STEP for _, pane, _ in updates], np.int64)
    return group_by(monoid, keys, panes, monoid.lift_list(values), STEP)


def same_key(value: Any) -> Any:
    """What decides whether two keys are one, said in Python."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def model(updates: Sequence[Update]) -> dict[Any, list[int]]:
    """The plain definition: the values of each (key, pane), in order."""
    found: dict[Any, list[int]] = {}
    for key, pane, value in updates:
        found.setdefault((*map(same_key, key), pane * STEP), []).append(value)
    return found


def as_dict(monoid: Monoid[Any], rows: GroupSums) -> dict[Any, Any]:
    lists = [column.to_pylist() for column in rows.keys]
    keys = [(*map(same_key, key), pane) for *key, pane in zip(*lists, rows.panes.tolist())]
    found = dict(zip(keys, monoid.unpack(rows.columns)))
    assert len(found) == len(rows), "a (key, pane) stands twice"
    return found


def check_order(rows: GroupSums) -> None:
    """Sorted by (hash, key, pane), and the hashes are those of the keys."""
    hashes = rows.hashes.tolist()
    assert hashes == grouping.hash_keys(rows.keys, len(rows)).tolist()
    lists = [column.to_pylist() for column in rows.keys]
    tied = len(set(hashes)) != len({tuple(map(same_key, key)) for key in zip(*lists)}) if lists else False
    places = list(zip(hashes, zip(*lists) if lists else [()] * len(rows), rows.panes.tolist()))
    ordered = [(hash_, encode(tuple(key)) if tied else b"", pane) for hash_, key, pane in places]
    assert ordered == sorted(ordered)


@st.composite
def update_lists(draw: st.DrawFn, parts_max: int = 4) -> tuple[list[pa.DataType], list[list[Update]]]:
    types, keys = KEYS[draw(st.sampled_from(sorted(KEYS)))]
    update = st.tuples(keys, st.integers(0, 5), st.integers(-9, 9))
    return types, draw(st.lists(st.lists(update, min_size=1, max_size=25), min_size=1, max_size=parts_max))


def check(types: Sequence[pa.DataType], parts: Sequence[Sequence[Update]]) -> None:
    """Sums and folds equal the model, for a monoid with columns, and for one where order counts."""
    everything = [update for part in parts for update in part]
    expected = model(everything)
    for rows in (
        summed(Listed(), types, everything),
        fold(Listed(), [summed(Listed(), types, p) for p in parts], STEP),
    ):
        check_order(rows)
        assert as_dict(Listed(), rows) == {key: tuple(values) for key, values in expected.items()}
    for rows in (summed(MONOID, types, everything), fold(MONOID, [summed(MONOID, types, p) for p in parts], STEP)):
        check_order(rows)
        presented = {key: MONOID.present(element) for key, element in as_dict(MONOID, rows).items()}
        assert presented == {
            key: {"count": len(values), "total": sum(values), "top": max(values)} for key, values in expected.items()
        }


@settings(deadline=None, max_examples=examples(200))
@given(update_lists())
def test_sums_and_folds_equal_a_dictionary(drawn: tuple[list[pa.DataType], list[list[Update]]]) -> None:
    """I3: the state is the sum of its updates, whatever the keys are and however it was put together."""
    check(*drawn)


@settings(deadline=None, max_examples=examples(150))
@given(update_lists(), st.sampled_from([0, 1, 2, 60, 63]))
def test_colliding_hashes_change_nothing(drawn: tuple[list[pa.DataType], list[list[Update]]], shift: int) -> None:
    """Two keys of one hash are two keys: on a billion keys it happens, and would add up two customers."""

    def few_bits(keys: Sequence[pa.Array], rows: int) -> Any:
        hashes = hash_keys(keys, rows)
        return hashes & np.uint64(1) << np.uint64(shift) if shift else np.zeros_like(hashes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "hash_keys", few_bits)
        patch.setattr(summing, "hash_keys", few_bits)
        patch.setattr(grouping, "is_injective", lambda keys: not keys)
        check(*drawn)


@settings(deadline=None, max_examples=examples(60))
@given(update_lists(parts_max=5))
def test_any_tree_of_folds_is_the_fold(drawn: tuple[list[pa.DataType], list[list[Update]]]) -> None:
    """Compaction folds neighbours first: by associativity it must not matter."""
    types, parts = drawn
    runs = [summed(Listed(), types, part) for part in parts]
    whole = fold(Listed(), runs, STEP)
    for cut in range(1, len(runs)):
        tree = fold(Listed(), [fold(Listed(), runs[:cut], STEP), fold(Listed(), runs[cut:], STEP)], STEP)
        assert as_dict(Listed(), tree) == as_dict(Listed(), whole)
        assert tree.hashes.tolist() == whole.hashes.tolist() and tree.panes.tolist() == whole.panes.tolist()


def test_only_nulls_first_takes_the_type_that_comes() -> None:
    """A column that was all null so far must not fix its type to null."""
    nulls = summed(Listed(), [pa.null()], [((None,), 0, 1)])
    texts = summed(Listed(), [pa.string()], [(("a",), 0, 2), ((None,), 0, 3)])
    assert as_dict(Listed(), fold(Listed(), [nulls, texts], STEP)) == {(None, 0): (1, 3), ("a", 0): (2,)}


def test_between_is_a_range_of_hashes() -> None:
    """A shard reads by it."""
    rows = summed(Listed(), [pa.int64()], [((key,), 0, key) for key in range(100)])
    middle = int(rows.hashes[50])
    assert len(rows.between(0, middle)) == 50 and len(rows.between(middle, 1 << 64)) == 50
    assert rows.between(0, 1 << 64) is rows


@pytest.mark.parametrize("type_", [pa.string(), pa.binary()])
def test_more_text_than_a_column_holds_is_told(monkeypatch: pytest.MonkeyPatch, type_: pa.DataType) -> None:
    """ "Offset overflow while concatenating arrays" tells nobody that the keys are too long."""
    parts = [summed(MONOID, [type_], [((b"%d" % n * 50,), 0, 1)]) for n in range(3)]
    size = sum(part.keys[0].nbytes for part in parts)
    monkeypatch.setattr("persistent.state.rows._KEY_BYTES_MAX", size)
    assert len(fold(MONOID, parts, STEP)) == 3
    monkeypatch.setattr("persistent.state.rows._KEY_BYTES_MAX", size - 1)
    with pytest.raises(InvalidPipeline, match=f"key column 0 has {size} bytes in 3 rows .* Make the keys shorter"):
        fold(MONOID, parts, STEP)
