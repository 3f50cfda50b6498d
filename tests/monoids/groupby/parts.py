"""Rows of a few keys and panes, and what a dictionary makes of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from monoids import Count, Max, Min, Monoid, Sum, record
from monoids.encoding import encode
from monoids.groupby import grouping, merging, summing
from monoids.groupby.summing import GroupSums, group_by
from monoids.hashing import key_column

STEP = 10


STATS = record(count=Count(), sum=Sum(), min=Min(), max=Max())


class Listed(Monoid[tuple[int, ...]]):
    """Concatenation: rows in another order are another element."""

    identity = ()

    def combine(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        return a + b

    def lift(self, value: Any) -> tuple[int, ...]:
        return (value,)


TEXTS = ("", "a", "b", "é", "a\0", "12345678", "123456789", "123456780", "1234567890123456", "x" * 17, "x" * 16 + "y")


KEYS: dict[str, tuple[list[pa.DataType], st.SearchStrategy[tuple[Any, ...]]]] = {
    "none": ([], st.just(())),
    "dense": ([pa.int64()], st.tuples(st.integers(-3, 3))),
    "sparse": ([pa.int64()], st.tuples(st.sampled_from([-(2**63), -1, 0, 1, 2**40, 2**63 - 1]))),
    "nulls": ([pa.int64()], st.tuples(st.none() | st.integers(0, 2))),
    "short text": ([pa.string()], st.tuples(st.sampled_from(TEXTS[:-2]))),
    "words": ([pa.string()], st.tuples(st.sampled_from(["key-0001", "key-0002"]))),
    "text": ([pa.string()], st.tuples(st.sampled_from(TEXTS))),
    "text or null": ([pa.string()], st.tuples(st.none() | st.sampled_from(TEXTS))),
    "bytes": ([pa.binary()], st.tuples(st.sampled_from([b"", b"\0", b"\0\0", b"a" * 8, b"a" * 9]))),
    "float": ([pa.float64()], st.tuples(st.none() | st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5]))),
    "decimal": ([pa.decimal128(5, 2)], st.tuples(st.sampled_from([Decimal("0.00"), Decimal("1.10")]))),
    "composite": (
        [pa.string(), pa.int64(), pa.float64()],
        st.tuples(
            st.none() | st.sampled_from(["a", "é"]), st.none() | st.integers(0, 2), st.sampled_from([0.0, math.nan])
        ),
    ),
}


PANES = st.sampled_from([0, 10, 20, 600, 10 * 2**40])
"""Near each other, and so far apart that they do not fit beside a hash."""


LIMITS: dict[str, dict[tuple[Any, str], Any]] = {
    "as they are": {},
    "by cells": {(summing, "_CELLS_MIN"): 1 << 40},
    "by sorted cells": {(summing, "_CELLS_MIN"): 0, (summing, "_CELLS_MAX"): 0},
    "by hash": {
        (summing, "_FEW_ROWS"): -1,
        (summing, "_FEW_IN_SAMPLE"): -1,
        (summing, "dense_range"): lambda _: None,
    },
    "in small chunks": {(module, "CHUNK_ROWS"): 3 for module in (grouping, summing)}
    | {(summing, "_FEW_ROWS"): 9, (summing, "_FEW_IN_SAMPLE"): 1, (merging, "_TIMES_LONGER"): 1},
    "always set in": {(merging, "_TIMES_LONGER"): 0},
}


@contextmanager
def limits(name: str) -> Iterator[None]:
    """The way of grouping that these limits lead to."""
    with pytest.MonkeyPatch.context() as patch:
        for (module, attribute), value in LIMITS[name].items():
            patch.setattr(module, attribute, value)
        yield


Update = tuple[tuple[Any, ...], int, int]


def columns_of(types: Sequence[pa.DataType], keys: Sequence[tuple[Any, ...]]) -> tuple[pa.Array, ...]:
    """Key columns; sliced ones, as those of a batch often are."""
    padded = [*keys[:1], *keys]
    whole = (
        key_column(pa.array([key[i] for key in padded], type_, from_pandas=False)) for i, type_ in enumerate(types)
    )
    return tuple(column[len(padded) - len(keys) :] for column in whole)


def summed(monoid: Monoid[Any], types: Sequence[pa.DataType], updates: Sequence[Update]) -> GroupSums:
    values = [dict.fromkeys(("count", "sum", "min", "max"), value) for _, _, value in updates]
    lifted = monoid.lift_list(values if monoid is STATS else [value for _, _, value in updates])
    panes = np.array([pane for _, pane, _ in updates], np.int64)
    return group_by(monoid, columns_of(types, [key for key, _, _ in updates]), panes, lifted, STEP)


def same(value: Any) -> Any:
    """What decides whether two keys are one, said in Python."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def listed(monoid: Monoid[Any], sums: GroupSums) -> dict[Any, bytes]:
    """The sums, after a look at their order: (hash, key where hashes are the same, pane)."""
    rows = len(sums.panes)
    assert sums.hashes.tolist() == grouping.hash_keys(sums.keys, rows).tolist()
    lists = [column.to_pylist() for column in sums.keys]
    keys = list(zip(*lists)) if lists else [()] * rows
    tied = len(set(sums.hashes.tolist())) < len({tuple(map(same, key)) for key in keys})
    places = list(zip(sums.hashes.tolist(), [encode(key) if tied else b"" for key in keys], sums.panes.tolist()))
    assert places == sorted(places)
    elements = [monoid.encode(element) for element in monoid.unpack(sums.columns)]
    found = {(*map(same, key), pane): element for key, pane, element in zip(keys, sums.panes.tolist(), elements)}
    assert len(found) == rows, "a (key, pane) stands twice"
    return found


@st.composite
def parts(draw: st.DrawFn) -> tuple[list[pa.DataType], list[list[Update]]]:
    types, keys = KEYS[draw(st.sampled_from(sorted(KEYS)))]
    update = st.tuples(keys, PANES, st.integers(-9, 9))
    return types, draw(st.lists(st.lists(update, min_size=1, max_size=20), min_size=1, max_size=4))
