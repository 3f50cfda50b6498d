"""The encoding of a column is that of its values, one by one."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids import encoding
from monoids.encoded import check_encoded, encoded_column, encoded_list

EDGES = [0, -1, 127, 128, -128, -129, 2**31, -(2**31) - 1, 2**55 - 1, 2**55, -(2**55) - 1, 2**63 - 1, -(2**63)]


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from(EDGES)))
def test_integers_of_every_width(values: list[int]) -> None:
    """A key that is a byte too long or too short would be another key."""
    assert encoded_column(pa.array(values, pa.int64())).array.to_pylist() == list(map(encoding.encode, values))
    assert encoded_list(values).array.to_pylist() == list(map(encoding.encode, values))


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["", "a", "é" * 64, "x" * 127, "x" * 128, "y" * 20_000]),
        pa.array([b"", b"\0" * 300]),
        pa.array(["a", None, "a"]),
        pa.array([1, None, 300], pa.int16()),
        pa.array([2**64 - 1, 0], pa.uint64()),
        pa.array([0.0, -0.0, math.nan, 1.5, math.inf, 0.0]),
        pa.array([True, False, None]),
        pa.array([date(1970, 1, 1), date(2024, 2, 29)]),
        pa.array([datetime(2024, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        pa.array([Decimal("1.50"), Decimal("-2.00")]),
        pa.array(["b", "a", "b"]).dictionary_encode(),
        pa.array([[1, 2], None, []]),
        pa.nulls(2),
        pa.array([], pa.string()),
        pa.array(["a", "bb", "ccc"])[1:],
        pa.array([1, 1000, -70000])[1:],
    ],
    ids=lambda array: str(array.type),
)
def test_every_type_is_encoded_as_its_python_values_are(array: pa.Array) -> None:
    """Else a key lifted from a column and the same key lifted from a message would have two entries."""
    assert encoded_column(array).array.to_pylist() == [encoding.encode(value) for value in array.to_pylist()]


@pytest.mark.parametrize("values", [[10**30, 1], ["\ud800", "a"], [1, True, 1.0, "1", None], [(1, "a")], [b"x"], []])
def test_lists_that_arrow_cannot_hold_are_encoded_too(values: list[Any]) -> None:
    """Keys are any plain values."""
    assert encoded_list(values).array.to_pylist() == [encoding.encode(value) for value in values]


def test_many_integers_at_once() -> None:
    """The bytes of one number must not run into those of the next, whatever their sizes."""
    values = np.random.default_rng(7).integers(-(2**62), 2**62, 2_000) >> np.arange(2_000) % 60
    assert encoded_column(pa.array(values)).array.to_pylist() == [encoding.encode(value) for value in values.tolist()]


_KEYS = (
    st.none() | st.integers() | st.text() | st.binary(max_size=9) | st.floats() | st.tuples(st.integers(), st.text())
)


@given(st.lists(_KEYS, max_size=8))
def test_what_is_written_is_accepted(values: list[Any]) -> None:
    """A checkpoint that was written must be read."""
    check_encoded("keys", encoded_list(values).array)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"s",
        b"zz",
        b"s\x01\xff",
        b"s\x02a",
        b"s\x01ab",
        b"s\x81\x00a",
        b"i\x00",
        b"i\x02\x00\x01",
        b"i\x02\xff\x80",
        b"i\x02\x01",
        b"b\x02a",
        b"f" + bytes(7),
        encoding.encode((1, 2)) + b"N",
    ],
)
def test_what_encode_does_not_write_is_refused(data: bytes) -> None:
    """Two keys written differently would be one key, in two entries."""
    fine = [encoding.encode(value) for value in ("a", 300, b"x", None, (1, "\ud800"), "\ud800", -129, "é" * 200)]
    check_encoded("keys", pa.array(fine))
    for array in (
        pa.array([*fine, data]),
        pa.array([data, *fine]),
        pa.array([b"zz", data])[1:],
        pa.array([b"i\x01\x05", data]),
    ):
        with pytest.raises(ValueError, match=r"keys: the key .* is not as this monoid writes it"):
            check_encoded("keys", array)


def test_every_short_text_is_judged_as_by_decode() -> None:
    """What is looked at a column at a time is what decode accepts, byte for byte."""
    for tag in (b"s", b"b", b"i", b"N", b"q"):
        for first in range(256):
            for rest in (b"", b"\x00", b"\x7f", b"\x80", b"\xff"):
                payload = bytes([first]) + rest
                data = tag + bytes([len(payload)]) + payload
                assert _accepted(pa.array([data])) == _decodes(data), data


def _accepted(array: pa.Array) -> bool:
    try:
        check_encoded("keys", array)
    except ValueError:
        return False
    return True


def _decodes(data: bytes) -> bool:
    try:
        encoding.decode(data)
    except ValueError:
        return False
    return True
