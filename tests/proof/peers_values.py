"""A plain value is a cell as every reader must show it, whatever its Arrow type: equal cells are equal values.

Whole numbers of any width are ``int``, floats ``float``, decimals ``Decimal``: 1, 1.0 and 1.00 are equal. NaN, negative
zero, booleans and times have forms of their own. A time is an instant in nanoseconds, UTC, whatever its unit and zone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

Plain = Any
UNSURE = ...
"""The cell of a reader that cannot tell: it agrees with every other."""
_EXACT = 2**53
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_REAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY_NS = 86_400 * 10**9


def plain_column(column: pa.Array | pa.ChunkedArray) -> list[Plain]:
    return [_plain(cell) for cell in column]


def _plain(cell: Any) -> Plain:
    kind, types = cell.type, pa.types
    if isinstance(cell, pa.DictionaryScalar | pa.ExtensionScalar | pa.RunEndEncodedScalar):
        return _plain(cell.value) if cell.is_valid else None
    if not cell.is_valid:
        return None
    if types.is_timestamp(kind):
        return ("time", cell.value * _NS[kind.unit])
    if types.is_date(kind):
        return ("time", cell.value * (_DAY_NS if types.is_date32(kind) else _NS["ms"]))
    if types.is_time(kind) or types.is_duration(kind):
        return ("span", cell.value * _NS[kind.unit])
    if types.is_struct(kind):
        fields = {name: _plain(value) for name, value in cell.items()}
        return ("struct", *sorted((name, value) for name, value in fields.items() if value is not None))
    if types.is_nested(kind):
        return ("list", *(_plain(value) for value in cell.values))
    return of_python(cell.as_py())


def of_python(value: Any) -> Plain:
    """A value without time.

    >>> of_python(-0.0), of_python(True), of_python([1, float("nan")])
    (('-0.0',), ('bool', True), ('list', 1, ('NaN',)))
    """
    match value:
        case bool():
            return ("bool", value)
        case float() if math.isnan(value):
            return ("NaN",)
        case float() if value == 0 and math.copysign(1, value) < 0:
            return ("-0.0",)
        case list():
            return ("list", *map(of_python, value))
        case dict():
            fields = {name: of_python(one) for name, one in value.items()}
            return ("struct", *sorted((name, one) for name, one in fields.items() if one is not None))
    return value


def agreed(cells: Sequence[Plain]) -> Plain:
    """What at least two readers say and none denies; ``UNSURE`` where there is no such value.

    >>> agreed([1, UNSURE, 1.0]), agreed([1, 2, 1]), agreed([1, UNSURE])
    (1, Ellipsis, Ellipsis)
    """
    sure = [cell for cell in cells if cell is not UNSURE]
    return sure[0] if len(sure) > 1 and all(cell == sure[0] for cell in sure) else UNSURE


def is_scalar(cell: Plain) -> bool:
    """Whether a cell is a number or a truth value."""
    return isinstance(cell, int | float | Decimal) or (isinstance(cell, tuple) and cell[0] in ("NaN", "-0.0", "bool"))


def is_time(cell: Plain) -> bool:
    return isinstance(cell, tuple) and cell[0] in ("time", "span")


def exact(cell: Plain) -> Plain:
    """A cell, unless a whole number in it may have been rounded to a float.

    >>> exact(1.5), exact(2.0**53), exact(("list", 2.0**53))
    (1.5, Ellipsis, Ellipsis)
    """
    parts = cell if isinstance(cell, tuple) else (cell,)
    rounded = isinstance(cell, float) and abs(cell) >= _EXACT
    nested = isinstance(cell, tuple) and any(exact(part) is UNSURE for part in parts)
    return UNSURE if rounded or nested else cell


def within(cell: Plain, kind: pa.DataType) -> Plain:
    """A cell without the fields of structs that a type has not.

    >>> within(("struct", ("x", 1), ("y", 2)), pa.struct([("y", pa.int64())]))
    ('struct', ('y', 2))
    """
    if not isinstance(cell, tuple) or not pa.types.is_nested(kind) or pa.types.is_map(kind):
        return cell
    if cell[0] == "struct" and pa.types.is_struct(kind):
        kinds = {field.name: field.type for field in kind}
        return ("struct", *((name, within(part, kinds[name])) for name, part in cell[1:] if name in kinds))
    return ("list", *(within(part, kind.value_type) for part in cell[1:])) if cell[0] == "list" else cell


def fits(text: str | None, kind: pa.DataType, *, declared: bool) -> bool:
    """Whether a field of text is certainly a value of a type. ``declared``: floats may round a whole number.

    >>> [fits(text, pa.int8(), declared=True) for text in ("128", "127", "0x7")]
    [False, True, False]
    """
    types = pa.types
    if text is None or types.is_string(kind):
        return True
    if types.is_integer(kind) and _WHOLE.fullmatch(text):
        bits = kind.bit_width - types.is_signed_integer(kind)
        return bool(-(2**bits) * types.is_signed_integer(kind) <= int(text) < 2**bits)
    if types.is_float64(kind) and _REAL.fullmatch(text):
        return math.isfinite(float(text)) and (declared or not _WHOLE.fullmatch(text) or int(float(text)) == int(text))
    if types.is_boolean(kind):
        return text in ("true", "false")
    return bool(types.is_decimal(kind) and _WHOLE.fullmatch(text) and len(text) <= kind.precision - kind.scale)


def means(text: str, value: Plain) -> bool:
    """Whether a number or truth value is what a text says, without rounding a whole number.

    >>> means("0.1", 0.1), means("9007199254740993", 9007199254740992.0), means("true", ("bool", True))
    (True, False, True)
    """
    text = text.strip()
    if isinstance(value, tuple) and value[0] == "bool":
        return text.lower() in (("true", "1") if value[1] else ("false", "0"))
    if isinstance(value, float) and not text.lstrip("+-").isdigit():
        try:
            return float(text) == value
        except ValueError:
            return False
    if value in (("NaN",), ("-0.0",)):
        return text.lower().lstrip("+-") == "nan" if value == ("NaN",) else text.startswith("-")
    try:
        return isinstance(value, int | float | Decimal) and Decimal(text) == Decimal(value)
    except InvalidOperation:
        return text.lower().startswith("0x") and int(text, 16) == value
