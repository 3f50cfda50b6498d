"""The types of key columns are written by name."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from persistent.worker.state_rows import agreed_types

_KEY_TYPES = {
    str(type_): type_
    for type_ in (
        pa.null(),
        pa.int64(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us", "UTC"),
    )
}
_DECIMAL = re.compile(r"decimal128\(([1-9][0-9]?), (-?[0-9]{1,2})\)")


def common_key_types(found: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The key types on which all parts agree; TypeError where they do not. By name, as they stand in manifests."""
    known = [types for types in found if types]
    if not known:
        return ()
    return tuple(str(type_) for type_ in agreed_types([[type_of(name) for name in types] for types in known]))


def type_of(name: str) -> pa.DataType:
    """The Arrow type of a key column from its name in a manifest; ValueError for any other name.

    >>> type_of("decimal128(10, 2)")
    Decimal128Type(decimal128(10, 2))
    """
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if name not in _KEY_TYPES:
        raise ValueError(f"{name!r:.60} is not the type of a key: one is {', '.join(_KEY_TYPES)} or decimal128")
    return _KEY_TYPES[name]
