"""The vectorised MurmurHash3 is that of the definition, and that of DataSketches."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids.hashing import hash_keys, key_column
from monoids.sketches.datasketches import SEED, hash_values, murmur3, murmur3_bytes, murmur3_words

RANDOM = np.random.default_rng(5)
TEXTS = [RANDOM.bytes(size) for size in [*range(70), 16, 0, 200, 15, 32, 1000]] * 2


@pytest.mark.parametrize(
    ("data", "seed", "words"),
    [
        (b"", 0, ("0x0", "0x0")),
        (b"hello", 0, ("0xcbd8a7b341bd9b02", "0x5b1e906a48ae1d19")),
        (b"The quick brown fox jumps over the lazy dog", 0, ("0xe34bbc7bbc071b6c", "0x7a433ca9c49a9347")),
    ],
)
def test_published_vectors(data: bytes, seed: int, words: tuple[str, str]) -> None:
    """Without it, all else here could agree with itself and with no other MurmurHash3."""
    assert tuple(hex(word) for word in murmur3(data, seed)) == words


@pytest.mark.parametrize("seed", [0, 9001, 2**64 - 1])
def test_bytes_of_every_length(seed: int) -> None:
    """Lost: strings of some length, or of a sliced column, in the wrong cell."""
    array = pa.array([b"before", *TEXTS], pa.binary()).slice(1)
    assert murmur3_bytes(array, seed).tolist() == [murmur3(data, seed)[0] for data in TEXTS]
    assert murmur3_bytes(array[:0], seed).tolist() == []


def test_words_are_left_alone() -> None:
    """Lost: the column of a caller, hashed in place."""
    words = RANDOM.integers(0, 2**64, 50, np.uint64)
    before = words.copy()
    assert murmur3_words(words, 7).tolist() == [murmur3(word.tobytes(), 7)[0] for word in words]
    assert hash_values(pa.array(words.view(np.int64))).tolist() == [
        murmur3(word.tobytes(), 9001)[0] >> 1 for word in words
    ]
    assert np.array_equal(words, before)


def test_several_seeds_at_once() -> None:
    """Lost: rows of a Count-Min sketch that share a seed."""
    seeds = np.array([[1], [2**63]], np.uint64)
    hashes = murmur3_bytes(pa.array(TEXTS, pa.binary()), seeds)
    assert hashes.shape == (2, len(TEXTS))
    for row, seed in zip(hashes.tolist(), (1, 2**63)):
        assert row == [murmur3(data, seed)[0] for data in TEXTS]


@pytest.mark.parametrize(
    "values",
    [[0, 1, -1, 2**63 - 1, -(2**63)], [0.0, 1.5, -3.25, 1e300, math.inf], ["a", "é", "x" * 15, "x" * 16, "x" * 100]],
)
def test_values_hash_as_those_of_theirs(values: list[Any]) -> None:
    """Lost: theta sketches that say that no value is in both ours and theirs."""
    datasketches = pytest.importorskip("datasketches")
    sketch = datasketches.update_theta_sketch()
    for value in values:
        sketch.update(value)
    column = key_column(pa.array([None, *values]).slice(1))
    assert sorted(hash_values(column).tolist()) == sorted(sketch)


def test_values_that_are_not_hashed_by_theirs() -> None:
    """Lost: dates, bools and decimals in theta sketches, or one and the same hash for all of them."""
    columns = [
        pa.array([False, True]),
        pa.array([date(2020, 1, 1), date(1950, 1, 1)]),
        pa.array([datetime(2020, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        pa.array([Decimal("1.5")]),
    ]
    hashes = [word for column in columns for word in hash_values(column).tolist()]
    keys = [word for column in columns for word in hash_keys([column], len(column)).tolist()]
    assert hashes == [murmur3(word.to_bytes(8, "little"), SEED)[0] >> 1 for word in keys]
    assert len(set(hashes)) == 6
    assert hash_values(pa.array([b"ab"])).tolist() == hash_values(pa.array(["ab"])).tolist()
