"""A wider type is what a column is stored in where its values outgrow the type that the schema says.

    int64                decimal128(38, 0): integers, as Arrow has none of more than 64 bits
    decimal128(38, s)    decimal256(76, s)

A monoid whose ``widens`` is true may give and take such columns, also within lists and structs; most never do.
"""

from __future__ import annotations

import pyarrow as pa

WIDE_INTEGER = pa.decimal128(38, 0)
"""Of sums of 64-bit integers: 2**63 of them have no more than 38 digits."""


def wider(type: pa.DataType) -> pa.DataType | None:
    """What values that outgrow a type are stored in; None where there is nothing.

    >>> print(wider(pa.decimal128(38, 2)))
    decimal256(76, 2)
    """
    if type == pa.int64():
        return WIDE_INTEGER
    if pa.types.is_decimal128(type) and type.precision == WIDE_INTEGER.precision:
        return pa.decimal256(76, type.scale)
    return None


def is_as_wide(found: pa.DataType, type: pa.DataType) -> bool:
    """Whether a column of ``found`` may stand for one of ``type``: it is that, or parts of it are wider.

    >>> is_as_wide(pa.list_(pa.decimal128(38, 0)), pa.list_(pa.int64())), is_as_wide(pa.int64(), pa.decimal128(38, 0))
    (True, False)
    """
    if found == type or found == wider(type):
        return True
    if not pa.types.is_nested(type) or found.id != type.id or found.num_fields != type.num_fields:
        return False
    pairs = [(found.field(number), type.field(number)) for number in range(type.num_fields)]
    return all(one.with_type(other.type) == other and is_as_wide(one.type, other.type) for one, other in pairs)


def widest(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The type of which both, as wide as the same one, are narrower forms."""
    if is_as_wide(a, b):
        return a
    if is_as_wide(b, a):
        return b
    pairs = [(a.field(number), b.field(number)) for number in range(a.num_fields)]
    fields = [one.with_type(widest(one.type, other.type)) for one, other in pairs]
    return pa.struct(fields) if pa.types.is_struct(a) else pa.list_(*fields)
