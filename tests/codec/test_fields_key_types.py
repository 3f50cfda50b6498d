"""The types of keys have names, and other names none."""

from __future__ import annotations

import pyarrow as pa
import pytest

from persistent.codec.fields import agreed_types, common_key_types, type_of


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us", "UTC"), pa.decimal128(38, 2), pa.decimal128(3, -2)])
def test_a_type_is_found_by_its_name(kind: pa.DataType) -> None:
    """The outputs would be columns of another type."""
    assert type_of(str(kind)) == kind


@pytest.mark.parametrize(
    "name", ["", "int32", "decimal128(a, b)", "decimal128(99, 2)", "decimal128(9999999999, 2)", "x"]
)
def test_other_names_are_refused(name: str) -> None:
    """A name in a manifest is anything until it is looked at."""
    with pytest.raises(ValueError):
        type_of(name)


def test_types_agree_or_not() -> None:
    """Keys of two types in one state are two states."""
    assert common_key_types([(), ()]) == ()
    assert common_key_types([("null", "int64"), (), ("string", "int64")]) == ("string", "int64")
    with pytest.raises(TypeError):
        common_key_types([("string",), ("int64",)])


def test_keys_of_another_type_are_refused() -> None:
    """1 and "1" under one key column would be one column that cannot be written."""
    with pytest.raises(TypeError, match="key column 0 holds both int64 and string"):
        agreed_types([[pa.int64()], [pa.string()]])
    assert agreed_types([[pa.null()], [pa.string()], [pa.null()]]) == (pa.string(),)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [((5, 2), (7, 1), (8, 2)), ((7, 1), (5, 2), (8, 2)), ((38, 2), (10, 1), (38, 2)), ((4, 4), (4, 0), (8, 4))],
)
def test_decimals_agree_on_what_holds_both(one: tuple[int, int], other: tuple[int, int], both: tuple[int, int]) -> None:
    """Prices that get a digit more would be refused in the middle of a job, or be cut."""
    assert agreed_types([[pa.decimal128(*one)], [pa.decimal128(*other)]]) == (pa.decimal128(*both),)


def test_decimals_that_no_type_holds_are_refused() -> None:
    """A key that is cut to its first 38 digits is another key."""
    with pytest.raises(TypeError, match="more than 38 digits together"):
        agreed_types([[pa.decimal128(38, 0)], [pa.decimal128(2, 1)]])
    for pair in ([pa.decimal128(3, 1), pa.string()], [pa.string(), pa.decimal128(3, 1)]):
        with pytest.raises(TypeError, match="key column 0 holds both"):
            agreed_types([[one] for one in pair])
