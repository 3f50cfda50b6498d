"""BloomFilter never forgets a value, and is wrong about others no more often than it says."""

from __future__ import annotations

import math
import statistics
import struct
import tracemalloc
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import BloomFilter
from monoids.monoid import check

TRIALS = 1_000
QUANTILE = statistics.NormalDist().inv_cdf(1 - 1e-6)


def filters(bloom: BloomFilter, values: np.ndarray[Any, Any]) -> Any:
    """The columns of one filter for each row of values."""
    starts = np.arange(0, values.size, values.shape[1])
    return bloom.reduce_sorted(bloom.lift_columns(values.ravel()), starts)


@pytest.mark.parametrize(
    ("capacity", "error"), [(1, 0.01), (20, "0.01"), (50, 0.001), (100, 0.01), (120, 0.25), (300, Decimal("0.1"))]
)
def test_the_rate_of_false_yes_is_the_stated_one(capacity: int, error: Any) -> None:
    """Without it "at most ``error``" would be a claim. 1,000 full filters, 500 other values for each: false yes are
    as many as a binomial count of that rate allows with p of 1e-6; and no value that was added is ever missed."""
    bloom = BloomFilter(capacity, error)
    random = np.random.default_rng(capacity)
    added = random.integers(-(2**62), 2**62, (TRIALS, capacity))
    others = random.integers(-(2**62), 2**62, (TRIALS, 500))
    false = 0
    for element, inside, outside in zip(bloom.unpack(filters(bloom, added)), added, others):
        assert all(bloom.contains_column(element, inside).to_pylist())
        false += bloom.contains_column(element, outside).true_count
    rate, tries = float(error), others.size
    assert false < tries * rate + QUANTILE * math.sqrt(tries * rate * (1 - rate))
    if capacity >= 100:
        assert false > tries * rate / 2, "so few bits cannot be so good"


def test_filters_are_as_small_as_their_error_allows() -> None:
    """Without it the error could be kept by wasting memory."""
    for capacity, error in ((10_000, "0.01"), (10_000, "0.001"), (1_000_000, "1e-6"), (1_000, "0.5")):
        bloom = BloomFilter(capacity, error)
        least = -math.log(float(error)) / math.log(2) ** 2
        assert least < bloom.bits / capacity < least * 1.03 + 128 / capacity
        assert bloom.hashes == math.ceil(-math.log2(float(error)))
    assert (BloomFilter(1_000_000, 0.01).bits, BloomFilter(1_000_000, 0.01).hashes) == (9592960, 7)


def test_the_number_of_values_is_estimated() -> None:
    """Without it ``present`` would be a number that means nothing. The mean of 1,000 filters is the truth."""
    bloom = BloomFilter(200, 0.05)
    values = np.random.default_rng(4).integers(0, 2**62, (TRIALS, 150))
    columns = filters(bloom, np.concatenate([values, values[:, :50]], axis=1))
    shown = bloom.present_columns(columns)
    elements = bloom.unpack(columns)
    assert shown.to_pylist()[:100] == [bloom.present(element) for element in elements[:100]]
    assert shown.type == pa.int64()
    assert abs(np.mean(shown.to_numpy()) / 150 - 1) < 0.01
    full = (1 << bloom.bits) - 1
    several = [0, full, bloom.lift(1)]
    assert bloom.present_columns(bloom.pack(several)).to_pylist() == [bloom.present(element) for element in several]
    assert bloom.present(0) == 0 and 200 < bloom.present(full) < 10_000 and bloom.present(bloom.lift(1)) == 1


def test_a_row_sets_the_bits_that_its_value_alone_sets() -> None:
    """Without it a value of a batch would be missed when asked for by itself."""
    bloom = BloomFilter(10, 1e-6)
    values = [1, 1.0, True, "a", None, b"a", Decimal("1.5"), "", 2**40]
    columns = bloom.lift_columns(values)
    elements = bloom.unpack(columns)
    assert elements == [bloom.lift(value) for value in values]
    assert [element.bit_count() for element in elements if element] != [bloom.hashes] * 8, (
        "some bits of a value coincide"
    )
    whole = bloom.fold(elements)
    assert all(bloom.contains(whole, value) == (value is not None) for value in values)
    assert not any(bloom.contains(whole, value) for value in range(100, 130))
    (table,) = columns
    words = table.flat()[0].astype(np.int64)
    row = table.spread(np.arange(len(values)))
    assert ((words[1:] > words[:-1]) | (row[1:] > row[:-1])).all(), "each word of a row once, in order"
    many = bloom.lift_columns(pa.array([*range(9_000), None, *range(9_000)]))
    assert bloom.unpack(bloom.reduce_sorted(many, np.array([0]))) == [bloom.fold([bloom.lift(v) for v in range(9_000)])]


def test_a_column_of_questions_is_answered_as_each_is() -> None:
    """Without it a join against a filter would drop rows, or let nulls through."""
    bloom = BloomFilter(100, 0.1)
    element = bloom.fold([bloom.lift(value) for value in range(100)])
    asked = [*range(80, 200), None]
    assert bloom.contains_column(element, asked).to_pylist() == [bloom.contains(element, value) for value in asked]
    assert bloom.contains_column(0, asked).to_pylist() == [False] * len(asked)
    full = (1 << bloom.bits) - 1
    assert bloom.contains_column(full, [1, None]).to_pylist() == [True, False] and not bloom.contains(full, None)


def test_one_value_in_a_large_filter_is_no_pass_for_each_bit_of_it() -> None:
    """Without it a question to a filter of 100 MB would make a number of that size for each of its bits, twice."""
    bloom = BloomFilter(1_000_000, 0.001)
    element = bloom.combine(bloom.lift("ann"), bloom.lift("bob"))
    assert element.bit_count() == bloom.lift("ann").bit_count() + bloom.lift("bob").bit_count()
    assert bloom.lift("ann") == bloom.unpack(bloom.lift_columns(["ann"]))[0]
    other = 1 << bloom.bits - 1
    tracemalloc.start()
    try:
        assert not bloom.contains(other, "eve")
        assert bloom.contains(element, "ann") and not bloom.contains(element, None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * bloom.bits / 8


def test_another_shape_is_refused_with_what_to_do() -> None:
    """Without it the bits of another filter would say no to values that were added."""
    one, other = BloomFilter(100, 0.01), BloomFilter(100, 0.02)
    with pytest.raises(ValueError, match=r"BloomFilter\(100, 0.02\) has 832 bits and 6 hashes, .* 1024 and 7: read it"):
        other.decode(one.encode(one.lift(1)))
    assert one.fingerprint() != other.fingerprint() and BloomFilter(100, "0.010").fingerprint() == one.fingerprint()
    assert all(not isinstance(value, float) for value in one.parameters().values())
    large = BloomFilter(10_000, 0.01)
    with pytest.raises(ValueError, match=r"BloomFilter\(100, 0.01\): word \d+ of 16"):
        one.from_arrow(large.to_arrow(large.lift_columns([1, 2, 3])))


@pytest.mark.parametrize(
    "entries",
    [[(16, 1)], [(2**32 - 1, 1)], [(0, 0)], [(1, 1), (0, 1)], [(1, 1), (1, 2)]],
    ids=["word", "last word", "no bit", "order", "twice"],
)
def test_damage_is_refused(entries: list[tuple[int, int]]) -> None:
    """Without it a damaged file would answer for values that nobody added, or ask for 32 GB."""
    bloom = BloomFilter(100, 0.01)
    head = bloom.encode(0)
    with pytest.raises(ValueError, match=r"BloomFilter\(100, 0.01\)"):
        bloom.decode(head + b"".join(struct.pack("<IQ", *entry) for entry in entries))
    stored = pa.array([[{"key": key, "value": value} for key, value in entries]], bloom.schema.field(0).type)
    with pytest.raises(ValueError, match=r"BloomFilter\(100, 0.01\)"):
        bloom.from_arrow([stored])
    for data in (b"", head[:-1], head + b"\0" * 11):
        with pytest.raises(ValueError, match=r"BloomFilter\(100, 0.01\)"):
            bloom.decode(data)


def test_bits_of_an_element_stay_what_they_are() -> None:
    """Without it a release would say no to what the one before has seen."""
    bloom = BloomFilter(4, 0.3)
    assert [bloom.lift(value) for value in (1, "a", None, 2.5)] == [134217744, 289356276058554368, 0, 18014398509481992]
    assert bloom.encode(bloom.lift(1)).hex() == "400000000000000002000000001000000800000000"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((0,), ValueError, "capacity of 1 or more"),
        ((10**9,), ValueError, "512 MB"),
        ((10, 0.0), ValueError, "1e-9 to 0.5"),
        ((10, 0.6), ValueError, "1e-9 to 0.5"),
        ((10, math.nan), ValueError, "1e-9 to 0.5"),
        ((10, "few"), ValueError, "not an error rate"),
        ((10, 1), TypeError, "such as 0.01"),
        ((10, None), TypeError, "such as 0.01"),
        ((1e6,), TypeError, "such as 1_000_000"),
        ((True,), TypeError, "such as 1_000_000"),
    ],
)
def test_arguments_are_checked_at_once(arguments: tuple[Any, ...], error: type[Exception], words: str) -> None:
    """Without it a filter that cannot be would fail in the first batch, on a worker."""
    with pytest.raises(error, match=words):
        BloomFilter(*arguments)


def test_it_is_written_as_it_was_made() -> None:
    """Without it a message could not be turned back into code."""
    assert repr(BloomFilter(1_000)) == "BloomFilter(1000, 0.01)"
    assert eval(repr(BloomFilter(7, 1e-9))).fingerprint() == BloomFilter(7, "0.000000001").fingerprint()
    check(BloomFilter(10))
