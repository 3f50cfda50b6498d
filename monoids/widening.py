"""A wider type stores the values of a column that outgrow the type in the schema.

    int64                decimal128(38, 0): Arrow has no integers of more than 64 bits
    decimal128(38, s)    decimal256(76, s)

A monoid whose ``widens`` is true may read and write such columns, also inside lists and structs. Few values need it.
"""

from __future__ import annotations

import pyarrow as pa

WIDE_INTEGER = pa.decimal128(38, 0)
"""For sums of 64-bit integers: 2**63 of them have at most 38 digits."""


def wider(type: pa.DataType) -> pa.DataType | None:
    """The type for values that outgrow ``type``; None if there is no wider one.

    >>> print(wider(pa.decimal128(38, 2)))
    decimal256(76, 2)
    """
    if type == pa.int64():
        return WIDE_INTEGER
    if pa.types.is_decimal128(type) and type.precision == WIDE_INTEGER.precision:
        return pa.decimal256(76, type.scale)
    return None


def is_as_wide(found: pa.DataType, type: pa.DataType) -> bool:
    """Whether a column of ``found`` can stand for one of ``type``: equal, or wider in some parts.

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
    """The wider of two types at each part, for two types that widen the same one."""
    if is_as_wide(a, b):
        return a
    if is_as_wide(b, a):
        return b
    pairs = [(a.field(number), b.field(number)) for number in range(a.num_fields)]
    fields = [one.with_type(widest(one.type, other.type)) for one, other in pairs]
    return pa.struct(fields) if pa.types.is_struct(a) else pa.list_(*fields)
