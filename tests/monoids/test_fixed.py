"""A fixed-width monoid needs a schema and two methods."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import FixedWidth, encoding
from monoids.column import Columns
from monoids.laws import LawViolation, assert_monoid_laws


class Extent(FixedWidth):
    """Lowest and highest number, and whether there was one."""

    input_type = pa.float64()
    schema = pa.schema(
        [
            pa.field("low", pa.float64(), nullable=False),
            pa.field("high", pa.float64(), nullable=False),
            pa.field("any", pa.bool_(), nullable=False),
        ]
    )
    identity = (math.inf, -math.inf, False)
    commutative = idempotent = True

    def lift(self, value: Any) -> tuple[float, float, bool]:
        return self.identity if value is None or value != value else (value + 0.0, value + 0.0, True)

    def combine(self, a: Any, b: Any) -> tuple[float, float, bool]:
        return (min(a[0], b[0]), max(a[1], b[1]), a[2] or b[2])


class FastExtent(Extent):
    def lift_array(self, array: pa.Array) -> Columns:
        numbers = array.fill_null(math.nan).to_numpy()
        there = numbers == numbers
        return (np.where(there, numbers, math.inf), np.where(there, numbers, -math.inf), there)

    def reduce_sorted(self, columns: Columns, starts: Any) -> Columns:
        kernels = (np.minimum, np.maximum, np.logical_or)
        return tuple(kernel.reduceat(column, starts) for kernel, column in zip(kernels, columns))


@pytest.mark.parametrize("monoid", [Extent(), FastExtent()])
def test_a_schema_is_enough_to_be_lawful(monoid: FixedWidth) -> None:
    """Every columnar method that is derived must agree with combine, or a user cannot build on it."""
    assert_monoid_laws(monoid, examples=100)
    columns = monoid.pack([(1.0, 2.0, True), monoid.identity])
    assert [column.dtype for column in columns] == [np.float64, np.float64, np.bool_]
    assert [array.type for array in monoid.to_arrow(columns)] == monoid.schema.types
    assert [len(column) for column in monoid.pack([])] == [0, 0, 0]


def test_a_wrong_kernel_is_found_by_its_law() -> None:
    """The columns are checked against combine, whichever of the two is overridden."""

    class Slipped(FastExtent):
        def reduce_sorted(self, columns: Columns, starts: Any) -> Columns:
            low, high, there = columns
            return (np.minimum.reduceat(low, starts), np.minimum.reduceat(high, starts), there[starts])

    with pytest.raises(LawViolation) as caught:
        assert_monoid_laws(Slipped())
    assert caught.value.law == "columnar reduce"


def test_columns_of_another_type_are_cast_or_refused() -> None:
    """A text summed as a number would be noticed only in the result."""
    monoid = FastExtent()
    assert monoid.unpack(monoid.lift_columns(pa.array([1, None], pa.int32()))) == [(1.0, 1.0, True), monoid.identity]
    with pytest.raises(TypeError, match=r"FastExtent\(\) takes numbers, not a column of string"):
        monoid.lift_columns(pa.array(["a"]))


def test_no_type_is_advised_that_a_class_cannot_take() -> None:
    """Its input type is fixed: "write Whole(float)" led to a TypeError about arguments."""

    class Whole(Widths):
        input_type = pa.int64()

    with pytest.raises(TypeError, match=r"^Whole\(\) takes integers, not a column of double$"):
        Whole().lift_columns(pa.array([1.5]))


def test_foreign_columns_and_schemas_are_refused() -> None:
    """A null read as zero is a number that nobody gave."""
    with pytest.raises(ValueError, match="an element is null"):
        Extent().from_arrow([pa.array([1.0, None]), pa.array([1.0, 1.0]), pa.array([True, True])])
    with pytest.raises(ValueError, match="has 2 numbers, the schema 3 fields"):
        Extent().pack([(1.0, 2.0)])

    class Named(FixedWidth):
        schema = pa.schema([pa.field("name", pa.string(), nullable=False)])
        identity = ("",)

    with pytest.raises(TypeError, match="field 'name' of the schema is string: numbers and bools are fixed-width"):
        Named().pack([("a",)])


class Widths(FixedWidth):
    """A field of each kind; what counts is what they take."""

    schema = pa.schema(
        [
            pa.field("small", pa.int8(), nullable=False),
            pa.field("size", pa.float64(), nullable=False),
            pa.field("sure", pa.bool_(), nullable=False),
        ]
    )
    identity = (0, 0.0, False)


def test_only_numbers_of_the_schema_are_stored() -> None:
    """A float cut to an integer, or a text read as an element, is a wrong element."""
    monoid = Widths()
    element = (-128, 0.5, True)
    assert monoid.decode(monoid.encode(element)) == element == monoid.unpack(monoid.pack([element]))[0]
    for wrong in [(1.5, 0.5, True), (1, "x", True), (1, 0.5, 1), (None, 0.5, True)]:
        with pytest.raises(
            TypeError, match=r"^Widths\(\): field '(small|size|sure)' is (int8|double|bool), but an element"
        ):
            monoid.pack([element, wrong])
        with pytest.raises(ValueError, match=r"^Widths\(\): the encoded element is"):
            monoid.decode(encoding.encode(wrong))
    for wide in (128, 2**70):
        with pytest.raises(OverflowError, match=r"^Widths\(\): field 'small' is int8: "):
            monoid.pack([(wide, 0.5, True)])
    for foreign in (
        "junk",
        element[:2],
        list(element),
        (True, 0.5, True),
        (1, 1, True),
        (1, -0.0, True),
        (128, 0.5, True),
    ):
        with pytest.raises(ValueError, match=r"^Widths\(\): the encoded element is"):
            monoid.decode(encoding.encode(foreign))


def test_there_is_one_zero_and_integers_become_floats() -> None:
    """Equal elements, equal bytes, by either half."""
    monoid = Widths()
    assert monoid.encode((1, -0.0, False)) == monoid.encode((1, 0, False)) == monoid.encode((1, 0.0, False))
    assert math.copysign(1, monoid.unpack(monoid.pack([(1, -0.0, False)]))[0][1]) == 1


def test_types_that_would_change_what_they_hold_are_refused() -> None:
    """0.1 is another number in 32 bits; and a column said to be of int32 must not come as int64."""

    class Narrow(FixedWidth):
        schema = pa.schema([pa.field("size", pa.float32(), nullable=False)])
        identity = (0.0,)

    with pytest.raises(TypeError, match=r"field 'size' of the schema is float: write float64"):
        Narrow().pack([(0.1,)])

    class Short(FastExtent):
        input_type = pa.int32()

    with pytest.raises(TypeError, match=r"input_type is int32: write int64, to which its other widths are cast"):
        Short().lift_columns([1])
