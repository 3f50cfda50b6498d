"""Sum, Count, Min, Max and Mean: edges that the laws do not reach."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from monoids import Count, CountIf, Max, Mean, Min, Monoid, Sum, encoding
from monoids.column import is_constant

LOW, HIGH = -(2**63), 2**63 - 1


def starts(*rows: int) -> Any:
    return np.array(rows, np.int64)


def total(monoid: Monoid[Any], values: Any, *rows: int) -> list[Any]:
    """The elements of the segments that begin at ``rows``."""
    return monoid.unpack(monoid.reduce_sorted(monoid.lift_columns(values), starts(*rows)))


@pytest.mark.parametrize(
    "width", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, ">i4"]
)
def test_every_integer_width_is_summed(width: Any) -> None:
    """Files have all of them."""
    values = np.array([1, 2, 120], width)
    assert total(Sum(), values, 0) == [123]
    assert total(Max(), values, 0) == [120]
    assert total(Sum(float), values, 0) == [123.0]


def test_integers_above_int64_raise() -> None:
    """uint64 does not fit."""
    for values in (np.array([2**63], np.uint64), pa.array([2**63], pa.uint64()), [2**63], np.array([2**63], object)):
        with pytest.raises(OverflowError):
            Sum().lift_columns(values)
    with pytest.raises(OverflowError):
        Sum().lift(2**63)


@pytest.mark.parametrize("values", [np.array([2.0]), pa.array([2.0, None]), [2.0], np.array([2.0], np.float32)])
def test_floats_in_an_integer_sum_are_refused_with_the_remedy(values: Any) -> None:
    """Truncating them would lose money quietly."""
    for give in (lambda: Sum().lift_columns(values), lambda: Sum().lift(2.0), lambda: Sum().lift(np.float64(2))):
        with pytest.raises(TypeError, match=r"Sum\(\) takes integers.*write Sum\(float\)"):
            give()
    with pytest.raises(TypeError, match=r"write Max\(float\)"):
        Max().lift_columns(values)


@pytest.mark.parametrize(
    ("monoid", "value"),
    [(Sum(), "1"), (Sum(float), "1"), (Mean(), b"1"), (Min(str), 1), (Max(date), datetime(2024, 1, 1))],
)
def test_values_of_another_kind_are_refused(monoid: Monoid[Any], value: Any) -> None:
    """A text that looks like a number is a fault upstream."""
    with pytest.raises(TypeError, match="takes"):
        monoid.lift(value)
    with pytest.raises(TypeError, match="takes"):
        monoid.lift_columns([value])
    with pytest.raises(TypeError, match="takes"):
        monoid.lift_columns(pa.array([value]))


def test_types_that_no_monoid_has_are_refused() -> None:
    """Early, with the choices."""
    with pytest.raises(TypeError, match=r"Sum\(str\): write one of float, int"):
        Sum(str)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="write one of bool, bytes, date"):
        Min(complex)
    with pytest.raises(TypeError, match="write one of"):
        Max(pa.timestamp("ns"))


def test_null_is_no_contribution_and_nan_is_a_value() -> None:
    """The answers on which engines disagree."""
    values = pa.array([None, math.nan, 1.0, -0.0, None])
    assert total(Count(), values, 0) == [3]
    assert total(Max(float), values, 0, 2) == pytest.approx([math.nan, 1.0], nan_ok=True)
    assert total(Min(float), values, 0, 1, 4) == [None, 0.0, None]
    assert math.isnan(total(Sum(float), values, 0)[0])
    assert total(Sum(float), values, 0, 2)[1] == 1.0
    assert total(Mean(), values.slice(2), 0) == [(2, 1.0)]
    assert Min(float).combine(math.nan, 1.0) == Min(float).combine(1.0, math.nan) == 1.0
    assert math.isnan(Max(float).combine(1.0, math.nan)) and math.isnan(Max(float).combine(math.nan, math.inf))
    assert math.isnan(total(Min(float), np.array([math.nan]), 0)[0])
    assert total(Count(), np.array([math.nan, 1.0]), 0) == [2]
    assert total(Count(), np.array(["2024-01-01", "NaT"], "M8[s]"), 0) == [1]
    assert total(Count(), np.ma.array([1, 2, 3], mask=[0, 1, 0]), 0) == [2]
    assert total(Sum(), np.ma.array([1, 2, 3], mask=[0, 1, 0]), 0) == [4]


def test_presented_identity() -> None:
    """A window that got only nulls is published."""
    for monoid, expected in [
        (Sum(), 0),
        (Count(), 0),
        (Sum(float), 0.0),
        (Min(), None),
        (Max(str), None),
        (Mean(), None),
    ]:
        element = monoid.lift(None)
        assert element == monoid.identity
        assert monoid.present(element) == expected
        assert monoid.present_columns(monoid.pack([element])).to_pylist() == [expected]


def test_output_types() -> None:
    """Sinks fix their schema from these."""
    types = {repr(m): str(m.output_type) for m in (Sum(), Sum(float), Count(), Min(), Max(str), Max(date), Mean())}
    assert types == {
        "Sum()": "int64",
        "Sum(float)": "double",
        "Count()": "int64",
        "Min()": "int64",
        "Max(str)": "string",
        "Max(date)": "date32[day]",
        "Mean()": "double",
    }
    assert Max(datetime).output_type == pa.timestamp("us", "UTC")
    assert Max(pa.int16()).output_type == pa.int64()


def test_datetimes_are_instants() -> None:
    """A time without zone is UTC."""
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    assert Max(datetime).lift(datetime(2024, 1, 1, 12)) == noon
    assert total(Max(datetime), pa.array([datetime(2024, 1, 1, 12), None]), 0) == [noon]
    assert total(Min(datetime), np.array(["2024-01-01T12", "NaT"], "M8[ns]"), 0) == [noon]
    with pytest.raises(TypeError, match="takes datetimes, not a column of timestamp"):
        Max(pa.timestamp("us")).lift_columns(pa.array([noon]))
    with pytest.raises(TypeError, match="which has a time zone"):
        Max(pa.timestamp("us")).lift(noon)
    with pytest.raises(ValueError, match="finer than"):
        Max(pa.timestamp("ms", "UTC")).lift(datetime(2024, 1, 1, 0, 0, 0, 7))


def test_strings_compare_by_code_point_and_surrogates_survive() -> None:
    """UTF-16 order would put an emoji below U+FFFF; a lone surrogate must not stop a run."""
    monoid = Max(str)
    assert total(monoid, pa.array(["\U0001f600", "\uffff", "é"]), 0) == ["\U0001f600"]
    columns = monoid.pack(["\ud800"])
    assert monoid.unpack(monoid.from_arrow(monoid.to_arrow(columns))) == ["\ud800"]
    assert monoid.present_columns(columns).to_pylist() == ["\\ud800"]
    assert total(monoid, pa.array(["b", "a", "b"]).dictionary_encode(), 0) == ["b"]


def test_constants_stay_constant() -> None:
    """Counting rows with a 1 costs nothing a row."""
    ones = Count().lift_rows(1, 1_000_000)
    assert is_constant(ones[0])
    assert Count().reduce_sorted(ones, starts(0, 10))[0].tolist() == [10, 999_990]
    assert is_constant(Count().lift_columns(np.zeros(5))[0])
    assert is_constant(Sum().lift_rows(np.broadcast_to(np.int64(3), 9), 9)[0])
    values, valid = Max().reduce_sorted(Max().lift_columns(np.arange(6)), starts(0, 4))
    assert values.tolist() == [3, 5] and is_constant(valid)
    assert all(map(is_constant, Mean().lift_rows(2.5, 7)))


def test_arrow_columns_are_not_copied() -> None:
    """Nanoseconds a row are made of copies."""
    column = pa.array(np.arange(1000))
    for monoid in (Sum(), Max()):
        assert monoid.lift_columns(column)[0].ctypes.data == column.buffers()[1].address
        assert monoid.from_arrow([column])[0].ctypes.data == column.buffers()[1].address
        assert monoid.to_arrow(monoid.lift_columns(column))[0].buffers()[1].address == column.buffers()[1].address


def test_writable_arrays_are_copied() -> None:
    """A user who reuses a buffer must not change what has been contributed."""
    for monoid in (Sum(), Sum(float), Max(), Mean()):
        values = np.ones(4, np.float64 if monoid.schema.types[-1] == pa.float64() else np.int64)
        columns = monoid.lift_columns(values)
        values[:] = 9
        assert monoid.unpack(columns) == [monoid.lift(1)] * 4


def test_nulls_do_not_leak_into_stored_bytes() -> None:
    """Equal elements, equal bytes: also under a null."""
    one = Max().pack([None, 3])
    other = Max().from_arrow([pa.array(np.array([7, 3]), mask=np.array([True, False]))])
    batches = [pa.record_batch(Max().to_arrow(columns), schema=Max().schema) for columns in (one, other)]
    assert batches[0].serialize() == batches[1].serialize()


def test_what_is_counted_is_what_is_not_none() -> None:
    """Arrow and NumPy each have nulls that their own count of nulls leaves out."""
    nulls = pa.array([1, None, 1, 2])
    ways: list[Any] = [
        nulls,
        pc.run_end_encode(nulls),
        pa.chunked_array([pc.run_end_encode(nulls)]),
        nulls.dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 2]), pa.array([1, None, 2])),
        pa.UnionArray.from_sparse(pa.array([0, 0, 0, 0], pa.int8()), [nulls]),
        np.array([1, None, 1, 2], object),
        np.ma.masked_array(np.array([1, None, 1, 2], object), [0, 0, 0, 0]),
        np.ma.masked_array(np.array([1, 5, 1, 2], object), [0, 1, 0, 0]),
        np.ma.masked_array(np.array([1, 5, 1, 2]), [0, 1, 0, 0]),
        np.ma.masked_array(np.array([1, "NaT", 2, 3], "M8[s]"), [0, 0, 0, 0]),
        [1, None, 1, 2],
    ]
    for values in ways:
        assert Count().unpack(Count().lift_columns(values)) == [1, 0, 1, 1], values
    assert Count().unpack(Count().lift_columns(pa.chunked_array([], pa.int64()))) == []
    both = np.ma.masked_array(np.array([1, None, 1], object), [1, 0, 0])
    assert Count().unpack(Count().lift_columns(both)) == [0, 0, 1]


def test_mean_follows_ieee() -> None:
    """What is said of NaN, infinities and overflow, both ways."""
    for values, expected in [
        ([1.0, math.nan], math.nan),
        ([1.0, math.inf], math.inf),
        ([-math.inf, 1.0], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([1.7e308, 1.7e308], math.inf),
    ]:
        columns = Mean().reduce_sorted(Mean().lift_columns(values), starts(0))
        shown = [Mean().present_columns(columns)[0].as_py(), Mean().present(Mean().fold([*map(Mean().lift, values)]))]
        assert shown == pytest.approx([expected] * 2, nan_ok=True)


def test_float_sums_and_means_are_within_their_bounds() -> None:
    """The error that is promised, against exact sums, where much cancels."""
    random = np.random.default_rng(11)
    for rows in (2, 100, 5000):
        values = random.standard_normal(rows) * 10.0 ** random.integers(-8, 8, rows)
        exact, sizes = sum(map(Fraction, values.tolist())), sum(map(Fraction, np.abs(values).tolist()))
        for shown in (total(Sum(float), values, 0)[0], Sum(float).fold(values.tolist())):
            assert abs(Fraction(shown) - exact) <= rows * sizes / 2**53
        mean = Mean().present(total(Mean(), values, 0)[0])
        assert mean is not None and abs(Fraction(mean) - exact / rows) <= (rows + 1) * sizes / rows / 2**53


def test_a_mean_has_a_count_in_int64() -> None:
    """An element that columns cannot hold must not come to be."""
    element = Mean().lift(1.0)
    with pytest.raises(
        OverflowError, match=r"Mean\(\): a total is outside .*; the number of inputs cannot be this large"
    ):
        for _ in range(64):
            element = Mean().combine(element, element)
    assert Mean().unpack(Mean().pack([element])) == [element] == [Mean().decode(Mean().encode(element))]
    for wrong in [(-3, 1.0), (2**70, 1.0), (0, 1.0), (0, math.nan), (1, 1), (1,)]:
        with pytest.raises(ValueError, match="Mean"):
            Mean().decode(encoding.encode(wrong))
    for count, sum_ in [(-3, 1.0), (0, 1.0), (0, math.nan)]:
        with pytest.raises(ValueError, match="a stored element has a count below 0, or a sum without inputs"):
            Mean().from_arrow([pa.array([1, count]), pa.array([1.0, sum_])])


def test_overflow_says_what_can_be_done() -> None:
    """Integers of any size help a sum; nobody counts that far."""
    with pytest.raises(OverflowError, match=r"^Sum\(\): .*use Sum\(int, unbounded=True\)"):
        Sum().present(HIGH + 1)
    for monoid in (Count(), CountIf()):
        with pytest.raises(OverflowError, match=r"^Count(If)?\(\): .*was an element combined with itself"):
            monoid.present_columns(monoid.reduce_sorted(monoid.pack([HIGH, 1]), starts(0)))


def test_integers_beyond_the_floats_are_refused() -> None:
    """By name, as everything that is."""
    for monoid in (Sum(float), Mean()):
        with pytest.raises(OverflowError, match="takes numbers in the range of floats, not an integer of 1329 bits"):
            monoid.lift(10**400)
        with pytest.raises(OverflowError, match="takes numbers in the range of floats"):
            monoid.lift_columns([10**400])


def test_empty_columns() -> None:
    """A step without records reduces nothing."""
    none = np.zeros(0, np.int64)
    for monoid in (Sum(), Sum(float), Count(), Min(), Max(bool), Mean(), Max(str), Min(datetime)):
        columns = monoid.lift_columns([])
        assert monoid.unpack(monoid.reduce_sorted(columns, none)) == []
        assert len(monoid.present_columns(columns)) == 0
        assert monoid.unpack(monoid.from_arrow(monoid.to_arrow(columns))) == []


def test_column_of_all_nulls_without_type() -> None:
    """Arrow infers type null for a field that is never set."""
    for monoid in (Sum(), Sum(float), Count(), Min(), Max(str), Mean(), Min(date)):
        assert monoid.unpack(monoid.lift_columns(pa.nulls(2))) == [monoid.identity] * 2


def test_fingerprints_tell_types_apart() -> None:
    """State of one must not be read as state of the other."""
    made = [Sum(), Sum(float), Count(), Min(), Max(), Max(float), Max(str), Max(bytes), Min(date), Mean()]
    assert len({str(monoid.fingerprint()) for monoid in made}) == len(made)
    assert Sum(pa.int8()).fingerprint() == Sum(int).fingerprint()
