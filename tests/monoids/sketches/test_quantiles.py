"""Quantiles are within the relative error of the number that a sort would give."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids import encoding
from monoids.column import concat
from monoids.monoid import check
from monoids.sketches.quantiles import Quantiles


def total_of(sketch: Quantiles, values: Any) -> dict[int, int]:
    columns = sketch.lift_columns(values)
    return sketch.unpack(sketch.reduce_sorted(columns, np.zeros(1, np.int64)))[0]


@given(
    st.lists(st.floats() | st.integers(-3, 3), min_size=1, max_size=30),
    st.sampled_from(["0", "0.3", "0.5", "0.999", "1"]),
)
def test_quantiles_are_near_those_of_a_sort(values: list[float], q: str) -> None:
    """Lost: the guarantee; ranks that are off by one, NaN or infinities out of order."""
    sketch = Quantiles("0.01")
    element = sketch.fold([sketch.lift(value) for value in [*values, None]])
    ordered = sorted(map(float, values), key=lambda x: (math.isnan(x), x))
    true = ordered[math.floor(Fraction(q) * (len(values) - 1))]
    read = sketch.quantile(element, q)
    assert read is not None
    if math.isfinite(true):
        assert abs(Fraction(read) - Fraction(true)) <= Fraction("0.01") * abs(Fraction(true)) + Fraction(1, 2**1075)
    else:
        assert read == true or (math.isnan(read) and math.isnan(true))


def test_a_thousand_keys_of_different_distributions() -> None:
    """Lost: the guarantee where quantiles of many keys are read at once. No trial may fail: the bound is certain."""
    keys, rows = 1_000, 101
    random = np.random.default_rng(2019)
    scales = random.lognormal(0, 30, keys)[:, None]
    numbers = random.lognormal(0, 3, (keys, rows)) * scales * random.choice([-1.0, 1.0, 1.0], (keys, rows))
    sketch = Quantiles("0.02", quantiles=("0", "0.25", "0.5", "0.9", "0.99", "1"))
    columns = sketch.reduce_sorted(sketch.lift_columns(numbers.ravel()), np.arange(0, keys * rows, rows))
    shown = sketch.present_columns(columns)
    ordered = np.sort(numbers, axis=1)
    worst = 0.0
    for name, place in (("p00", 0), ("p25", 25), ("p50", 50), ("p90", 90), ("p99", 99), ("p100", 100)):
        read = shown.field(name).to_numpy()
        worst = max(worst, float(np.max(np.abs(read - ordered[:, place]) / np.abs(ordered[:, place]))))
    assert 0.015 < worst <= 0.02 * (1 + 1e-12)


def test_empty_and_taken_back() -> None:
    """Lost: None for no number, and a group that gives back what it took."""
    sketch = Quantiles("0.01", quantiles=("0.5",))
    element = total_of(sketch, [1.0, 2.0, 3.0])
    assert sketch.combine(element, sketch.inverse(element)) == sketch.identity == {}
    assert sketch.present({}) is None is sketch.quantile({}, "0.5")
    fewer = sketch.combine(element, sketch.inverse(sketch.lift(1.0)))
    assert sketch.present(fewer) == {"p50": sketch.buckets.number(sketch.buckets.bucket(2.0))}
    columns = sketch.pack([{}, sketch.inverse(element), sketch.combine(fewer, sketch.inverse(sketch.lift(9)))])
    shown = sketch.present_columns(columns)
    assert shown.to_pylist() == [None, None, sketch.present(fewer)]
    assert sketch.present_columns(sketch.pack([])).to_pylist() == []


def test_places_of_huge_counts_are_exact() -> None:
    """Lost: the last digits of a place among 2**62 numbers, where a float has 53 bits."""
    sketch = Quantiles("0.01", quantiles=("0.999999999",))
    count = 2**62 + 11
    place = (count + 5 - 1) * 999_999_999 // 10**9
    for below in (place, place + 1):
        element = {40_000: below, 40_001: count + 5 - below}
        bucket = 40_000 if below > place else 40_001
        assert sketch.present(element) == {"p999999999": sketch.buckets.number(bucket)}
        assert sketch.present_columns(sketch.pack([element])).to_pylist() == [sketch.present(element)]


def test_counts_never_wrap() -> None:
    """Lost: a count beyond int64 that turns negative without a word."""
    sketch = Quantiles()
    full = {5: 2**63 - 1}
    with pytest.raises(OverflowError, match="64-bit"):
        sketch.combine(full, {5: 1})
    with pytest.raises(OverflowError, match="64-bit"):
        sketch.reduce_sorted(concat([sketch.pack([full]), sketch.pack([{5: 1}])]), np.zeros(1, np.int64))
    with pytest.raises(OverflowError, match="64-bit"):
        sketch.present({**full, 6: 1})
    with pytest.raises(OverflowError, match="64-bit"):
        sketch.present_columns(sketch.pack([{**full, 6: 1}]))


def test_an_overflow_names_the_sketch() -> None:
    """Lost: whose counts are too large, with advice for another monoid."""
    sketch = Quantiles()
    half = {1: 2**62, 2: 2**62}
    for overflowing in (
        lambda: sketch.combine(half, half),
        lambda: sketch.reduce_sorted(sketch.pack([half, half]), np.array([0])),
        lambda: sketch.present(half),
        lambda: sketch.present_columns(sketch.pack([half])),
    ):
        with pytest.raises(OverflowError, match=r"^Quantiles\('0.01', .*: a count is outside 64-bit integers"):
            overflowing()


def test_names_of_quantiles() -> None:
    """Lost: two quantiles in one column, or a name that changes with the way a number is written."""
    sketch = Quantiles(quantiles=("0", "0.001", "0.05", "0.50", "0.999", "1"))
    assert sketch.names == ("p00", "p001", "p05", "p50", "p999", "p100")
    assert sketch.output_type == pa.struct([(name, pa.float64()) for name in sketch.names])
    assert repr(Quantiles("0.05", quantiles=("0.50", "1"))) == "Quantiles('0.05', quantiles=('0.5', '1'))"
    assert Quantiles("1e-2").fingerprint() == Quantiles("0.010").fingerprint() != Quantiles("0.02").fingerprint()
    assert Quantiles().fingerprint() != Quantiles(quantiles=("0.5",)).fingerprint()
    check(sketch)


@pytest.mark.parametrize(
    ("arguments", "error", "remedy"),
    [
        ({"relative_error": 0.01}, TypeError, "write relative_error='0.01'"),
        ({"relative_error": "0.000001"}, ValueError, "not between 0.00001 and 0.5"),
        ({"relative_error": "0.6"}, ValueError, "not between 0.00001 and 0.5"),
        ({"relative_error": "x"}, ValueError, "is not a number"),
        ({"quantiles": "0.5"}, TypeError, r"write a tuple"),
        ({"quantiles": ()}, TypeError, r"write a tuple"),
        ({"quantiles": 5}, TypeError, r"Quantiles\(quantiles=5\): write a tuple"),
        ({"quantiles": (0.5,)}, TypeError, "write quantile="),
        ({"quantiles": ("0.5", "0.50")}, ValueError, "given twice"),
        ({"quantiles": ("1.1",)}, ValueError, "not between 0 and 1"),
        ({"quantiles": ("0.1234567891",)}, ValueError, "nine decimals"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], remedy: str) -> None:
    """Lost: what to write instead."""
    with pytest.raises(error, match=remedy):
        Quantiles(**arguments)


def test_texts_are_refused() -> None:
    """Lost: the number that a text stands for, guessed."""
    with pytest.raises(TypeError, match="takes numbers"):
        Quantiles().lift("1")
    with pytest.raises(TypeError, match="takes numbers"):
        Quantiles().lift_columns(pa.array(["1"]))


@pytest.mark.parametrize(
    "element", [{200_000: 1}, {-100_000: 1}, {1: 0}, {1: 2**63}, {1: 1.0}, {"1": 1}, {True: 1}, []]
)
def test_bytes_of_no_sketch_are_refused(element: Any) -> None:
    """Lost: state of another error, or damaged, that is read on."""
    with pytest.raises(ValueError, match="Quantiles"):
        Quantiles().decode(encoding.encode(("0.01", element)))
    with pytest.raises(ValueError, match="Quantiles"):
        Quantiles().decode(encoding.encode(element))


def test_sketches_of_another_error_are_refused() -> None:
    """Lost: how to read them."""
    with pytest.raises(ValueError, match=r"read it with Quantiles\('0.02'\)"):
        Quantiles().decode(Quantiles("0.02").encode({1: 1}))
    assert Quantiles().decode(Quantiles("0.010").encode({1: 1})) == {1: 1}


@pytest.mark.parametrize("entries", [[(200_000, 1)], [(-100_000, 1)], [(1, 0)], [(2, 1), (1, 1)]])
def test_columns_of_no_sketch_are_refused(entries: list[tuple[int, int]]) -> None:
    """Lost: a file of another error, or damaged, that is read on."""
    rows = [[{"key": key, "value": value} for key, value in entries]]
    with pytest.raises(ValueError, match="Quantiles"):
        Quantiles().from_arrow([pa.array(rows, Quantiles().schema.field(0).type)])
