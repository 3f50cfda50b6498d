"""Min and Max of strings, bytes and decimals as columns."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Max, Min, encoding
from monoids.column import ArrowColumn, take


def _total(monoid: Any, values: Any, *starts: int) -> list[Any]:
    return monoid.unpack(monoid.reduce_sorted(monoid.lift_columns(values), np.array(starts, np.int64)))


def test_wide_values_are_no_python_objects() -> None:
    """A million strings would be a million objects."""
    for monoid, values in (
        (Max(str), pa.array(["a", None])),
        (Min(bytes), pa.array([b"a", None])),
        (Min(pa.decimal128(9, 2)), pa.array([Decimal(1), None], pa.decimal128(9, 2))),
    ):
        values_column, valid = monoid.lift_columns(values)
        assert isinstance(values_column, ArrowColumn) and valid.tolist() == [True, False]


def test_files_hold_the_values_themselves() -> None:
    """Other tools read them."""
    assert Max(str).schema.types == [pa.binary()] and Min(bytes).schema.types == [pa.binary()]
    assert Max(pa.decimal128(9, 2)).schema.types == [pa.decimal128(9, 2)]
    (stored,) = Max(str).to_arrow(Max(str).pack(["é", None]))
    assert stored.to_pylist() == ["é".encode(), None]


def test_groups_of_strings_against_arrow() -> None:
    """The kernel on as many rows as take every path: shared prefixes, ties, single rows, nulls."""
    random = np.random.default_rng(3)
    names = [f"/page/{number:09d}"[: number % 17] for number in random.integers(0, 5000, 20_000).tolist()]
    values = pa.array(names, mask=random.random(20_000) < 0.3)
    cells = random.integers(0, 4000, 20_000)
    table = pa.table({"cell": cells, "value": values})
    order = np.argsort(cells, kind="stable")
    held, starts, counts = np.unique(cells[order], return_index=True, return_counts=True)
    sizes = np.zeros(4000, np.int64)
    sizes[held] = counts
    for monoid, name in ((Max(str), "max"), (Min(str), "min")):
        expected = table.group_by("cell").aggregate([("value", name)]).sort_by("cell")[f"value_{name}"].to_pylist()
        columns = monoid.lift_columns(values)
        assert monoid.unpack(monoid.reduce_sorted(take(columns, order), starts)) == expected
        assert monoid.unpack(monoid.reduce_cells(columns, cells, sizes, held)) == expected


def test_strings_differ_by_what_follows_zeros_and_long_prefixes() -> None:
    """Words of eight bytes are padded with zeros; beyond 64 bytes values are compared whole."""
    assert _total(Max(bytes), [b"a", b"a\0", b"a\0\0", b"a"], 0) == [b"a\0\0"]
    assert _total(Min(bytes), [b"a\0", b"a"], 0) == [b"a"]
    long = "x" * 100
    assert _total(Max(str), [long + "a", long + "b", long], 0) == [long + "b"]
    assert _total(Min(str), [long + "a", long], 0) == [long]


def test_negative_decimals() -> None:
    """Their two words have one sign."""
    type = pa.decimal128(38, 0)
    values = [Decimal(v) for v in (-(2**64), -1, 0, 1, 2**64, -(2**64) - 1)]
    assert _total(Min(type), values, 0) == [Decimal(-(2**64) - 1)]
    assert _total(Max(type), values, 0) == [Decimal(2**64)]
    assert _total(Max(type), values[:2], 0) == [Decimal(-1)]


def test_what_stands_under_a_null_is_stored_in_one_form() -> None:
    """Equal elements, equal bytes: whatever a file of another hand has there."""
    for monoid, odd in (
        (Max(bytes), pa.Array.from_buffers(pa.binary(), 2, pa.array([b"x", b"yz"]).buffers(), 0)),
        (Max(pa.decimal128(9, 2)), pa.array([Decimal(7), Decimal(3)], pa.decimal128(9, 2))),
    ):
        buffers = [pa.py_buffer(b"\x02"), *odd.buffers()[1:]]
        hidden = pa.Array.from_buffers(odd.type, 2, buffers)
        assert hidden[0].as_py() is None
        plain = monoid.pack([None, odd[1].as_py()])
        ways = [pa.record_batch(monoid.to_arrow(c), schema=monoid.schema) for c in (monoid.from_arrow([hidden]), plain)]
        assert ways[0].serialize() == ways[1].serialize()


@pytest.mark.parametrize(
    ("monoid", "element"),
    [
        (Max(), "x"),
        (Min(), 2**63),
        (Max(str), b"x"),
        (Max(date), 3),
        (Min(pa.decimal128(9, 2)), Decimal("1.5")),
        (Max(), True),
    ],
)
def test_bytes_of_another_element_are_refused(monoid: Any, element: Any) -> None:
    """A maximum that is no value of its type would be compared with those that are."""
    with pytest.raises(ValueError, match="the encoded element"):
        monoid.decode(encoding.encode(element))
    assert monoid.decode(monoid.encode(None)) is None
