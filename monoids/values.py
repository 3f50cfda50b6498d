"""A value type is the Arrow type of a monoid's inputs, with the rule for what it accepts.

A user writes it as a Python type (int, float, bool, str, bytes, date, datetime) or an Arrow type. Integers are int64,
floats are float64 with one NaN and one zero, aware datetimes are in UTC. None and null are missing values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids import encoding
from monoids.arrays import check_text, exact_decimals, from_numpy, nearest_floats, no_column, plain_array
from monoids.scalars import PLAIN, is_missing, nanosecond, plain_datetime, scalar, shown

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class ValueType:
    """``title``: the monoid as a user writes it. ``choices``: the kinds of type that the user may choose from.

    ``leading``: the arguments that a user writes before the type.
    """

    title: str
    kind: str
    arrow: pa.DataType
    choices: frozenset[str]
    leading: str = ""

    def accept(self, value: Any) -> Any:
        """A Python, NumPy or Arrow scalar, not None, as a plain value of this type; None for NaT and NA.

        TypeError for a value of another type, OverflowError for an integer outside int64, ValueError for a value that
        this type cannot hold.
        """
        plain = value if value.__class__ in PLAIN else scalar(value)
        return None if plain is None and value is not None else self._rule.accept(self, plain)

    def check_decoded(self, values: Iterable[Any]) -> None:
        """ValueError unless each decoded value is in the form that ``accept`` returns."""
        for value in values:
            try:
                is_canonical = encoding.encode(self.accept(value)) == encoding.encode(value)
            except (TypeError, ValueError, OverflowError) as error:
                raise ValueError(f"{self.title}: the encoded element holds {shown(value)}: {error}") from error
            if not is_canonical:
                raise ValueError(f"{self.title}: the encoded element holds {shown(value)}, not in canonical form")

    def check_stored(self, array: pa.Array) -> None:
        """ValueError unless a stored Arrow array holds values as ``accept`` returns them; strings as bytes."""
        if self.kind == "str":
            check_text(self.title, array)
        elif self.kind in ("date", "datetime"):
            self._check_years(array)
        elif self.kind == "decimal" and len(array) > array.null_count:
            extremes = pc.min_max(array.view(_WHOLE.get(array.type.bit_width, array.type)))
            limit = 10**array.type.precision
            # Not abs, which rounds to the precision of the caller's decimal context.
            if any(value.as_py().copy_abs() >= limit for value in extremes.values()):
                raise ValueError(f"{self.title}: a stored value has more digits than {array.type} holds")

    def moments(self, array: pa.Array) -> list[datetime | None]:
        """Datetimes as ``accept`` returns them; those with a zone are in UTC, where none leaves the years 1 to 9999."""
        moments: list[datetime | None] = array.view(pa.timestamp(self.arrow.unit)).to_pylist()
        if self.arrow.tz is None:
            return moments
        return [moment and moment.replace(tzinfo=UTC) for moment in moments]

    def column(self, values: Any) -> pa.Array:
        """An Arrow array, NumPy array or list of Python values as an Arrow array of this type, with nulls.

        Raises as ``accept`` does; TypeError for a column from another library. An Arrow array is used without a copy
        and must not change (over NumPy memory it changes with that memory). NumPy memory that can change is copied.
        """
        if isinstance(values, list):
            return self._from_list(values)
        if isinstance(values, np.ndarray):
            if values.ndim != 1:
                raise ValueError(f"{self.title} was given an array of {values.ndim} dimensions: a column has one")
            if values.dtype.kind in "OSU":
                return self._from_list(values.tolist())
            values = from_numpy(values)
            if values.null_count == len(values):  # of no particular type, like an empty list
                return pa.nulls(len(values), self.arrow)
        if not isinstance(values, (pa.Array, pa.ChunkedArray)):
            raise no_column(self.title, values)
        column = self._cast(plain_array(values))
        if self.kind in ("date", "datetime"):
            self._check_years(column)
        if self.kind == "str":
            check_text(self.title, column)
        return column

    def refuse(self, description: str, kind: str | None) -> TypeError:
        """The error for values of another kind. It says how to ask for that kind."""
        kind = "float" if kind == "decimal" and "decimal" not in self.choices else kind
        owner = self.title.partition("(")[0]
        hint = (
            f": write {owner}({_argument_list(self.leading, _SPELLED[kind])})"
            if kind in self.choices and kind != self.kind
            else ""
        )
        return TypeError(f"{self.title} takes {self._rule.plural}, not {description}{hint}")

    @property
    def written(self) -> str:
        """The type as a user writes it; empty for the default."""
        return self.title.partition("(")[2][:-1].removeprefix(self.leading).removeprefix(", ")

    @property
    def _rule(self) -> _Rule:
        return _RULES[self.kind]

    def _from_list(self, values: list[Any]) -> pa.Array:
        if set(map(type, values)) <= {self._rule.plain, type(None)}:
            try:
                return pa.array(values, self.arrow)
            except OverflowError:
                pass  # accept names the value and says what to do
        return pa.array([None if is_missing(value) else self.accept(value) for value in values], self.arrow)

    def _cast(self, values: pa.Array) -> pa.Array:
        if values.type == self.arrow:
            return values
        kind = kind_of(values.type)
        aware = kind == "datetime" and values.type.tz is not None
        if kind not in {*self._rule.sources, "null"} or (aware and self.arrow.tz is None):
            raise self.refuse(f"a column of {values.type}", kind)
        try:
            if kind == "int" and self.kind == "decimal":
                values = self._widened(values)
            if kind == "decimal" and self.kind == "float":
                return nearest_floats(values)
            if kind == "decimal":
                return exact_decimals(values, self.arrow)
            return values.cast(self.arrow, safe=self.kind != "float")
        except pa.ArrowInvalid as error:
            fault = OverflowError if self.kind == "int" else ValueError
            raise fault(f"{self.title} cannot hold a value of a column of {values.type}: {error}") from error

    def _check_years(self, array: pa.Array) -> None:
        """ValueError for dates and times that Python cannot hold."""
        stored, unit = (pa.int32(), _DAY) if self.kind == "date" else (pa.int64(), _MICROSECONDS[self.arrow.unit])
        extremes = pc.min_max(array.view(stored))
        if extremes["min"].is_valid:
            least, greatest = extremes["min"].as_py(), extremes["max"].as_py()
            if least < _YEAR_1 // unit or greatest > _YEAR_9999 // unit:
                raise ValueError(f"{self.title}: a column of {array.type} holds a value outside the years 1 to 9999")

    def _widened(self, values: pa.Array) -> pa.Array:
        """Integers as decimals wide enough for Arrow to check the values instead of their type."""
        if self.arrow.scale > 18:
            return pa.array([None if value is None else self.accept(value) for value in values.to_pylist()], self.arrow)
        return values.cast(pa.decimal128(38, self.arrow.scale))


def value_type(owner: str, type: Any, choices: frozenset[str], default: str = "int", leading: str = "") -> ValueType:
    """The value type that a user wrote as ``type``. TypeError, with the choices, for anything else.

    ``default``: the kind that the title leaves out. ``leading``: the arguments written before the type.
    """
    arrow = type if isinstance(type, pa.DataType) else ARROW_TYPES.get(type) if _is_class(type) else None
    kind = None if arrow is None else kind_of(arrow)
    if arrow is None or kind not in choices or (kind == "datetime" and arrow.unit == "ns"):
        too_fine = " (datetimes of Python hold microseconds)" if kind == "datetime" and kind in choices else ""
        known = ", ".join(sorted(_SPELLED[kind] for kind in choices))
        raise TypeError(f"{owner}({_argument_list(leading, spelled(type))}){too_fine}: write one of {known}")
    if kind == "decimal" and arrow.scale < 0:  # Arrow rescales them as soon as one is null
        written = f"pa.decimal128({min(arrow.precision - arrow.scale, 38)}, 0)"
        raise TypeError(f"{owner}({_argument_list(leading, spelled(arrow))}): no scale below 0: write {written}")
    if kind == "datetime" and arrow.tz is not None:
        _check_zone(f"{owner}({_argument_list(leading, spelled(arrow))})", arrow)
    if pa.types.is_decimal32(arrow) or pa.types.is_decimal64(arrow):
        arrow = pa.decimal128(arrow.precision, arrow.scale)
    arrow = arrow if kind in ("datetime", "decimal") else _WIDE[kind]
    written = "" if kind == default else kind if arrow == _WIDE.get(kind) else spelled(arrow)
    return ValueType(f"{owner}({_argument_list(leading, written)})", kind, arrow, choices, leading)


def _check_zone(title: str, type: pa.DataType) -> None:
    try:
        pa.scalar(0, type).as_py()
    except LookupError as error:  # from zoneinfo or pytz, whichever is installed
        raise TypeError(f"{title}: unknown time zone {type.tz!r}: use one such as 'UTC' or 'Europe/Paris'") from error


def _argument_list(*arguments: str) -> str:
    return ", ".join(filter(None, arguments))


def spelled(type: Any) -> str:
    """A type as a user writes it.

    >>> spelled(str), spelled(pa.timestamp("ms", "UTC")), spelled(pa.decimal128(5, 2))
    ('str', "pa.timestamp('ms', 'UTC')", 'pa.decimal128(5, 2)')
    """
    if not isinstance(type, pa.DataType):
        return str(type.__name__ if _is_class(type) else type)
    if pa.types.is_timestamp(type):
        return f"pa.timestamp({type.unit!r})" if type.tz is None else f"pa.timestamp({type.unit!r}, {type.tz!r})"
    return f"pa.{type}" if pa.types.is_decimal(type) else str(type)


def kind_of(type: pa.DataType) -> str:
    """The kind of value in a column: ``int``, ``float``, ..., ``null``, otherwise the Arrow type's own name."""
    return next((kind for test, kind in _KINDS if test(type)), str(type))


def _is_class(type_: Any) -> bool:
    return isinstance(type_, type)


def _kind_of_value(value: Any) -> str | None:
    """The kind of a Python value; None if it has none."""
    return next((kind for python, kind in _PYTHON_KINDS if isinstance(value, python)), None)


# What each kind accepts, one function per kind. A value that is not accepted ends in ``_refused``.


def _refused(type: ValueType, value: Any) -> TypeError:
    return type.refuse(f"{shown(value)} ({value.__class__.__name__})", _kind_of_value(value))


def _accept_int(type: ValueType, value: Any) -> int:
    if not isinstance(value, (int, np.integer, np.bool_)):
        raise _refused(type, value)
    if not INT64_MIN <= value <= INT64_MAX:
        raise OverflowError(f"{type.title} takes integers of 64 bits, but {shown(value)} is outside them")
    return int(value)


def _accept_float(type: ValueType, value: Any) -> float:
    if not isinstance(value, (float, int, Decimal, np.floating, np.integer, np.bool_)):
        raise _refused(type, value)
    try:
        number = float(value)
    except OverflowError:
        fault = f"{type.title} takes numbers in the range of floats, not an integer of {int(value).bit_length()} bits"
        raise OverflowError(fault) from None
    return number + 0.0 if number == number else math.nan


def _accept_bool(type: ValueType, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise _refused(type, value)
    return bool(value)


def _accept_str(type: ValueType, value: Any) -> str:
    if not isinstance(value, str):
        raise _refused(type, value)
    return str.__str__(value)


def _accept_bytes(type: ValueType, value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _refused(type, value)
    return bytes(value)


def _accept_date(type: ValueType, value: Any) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise _refused(type, value)
    return date(value.year, value.month, value.day)


def _accept_datetime(type: ValueType, value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise _refused(type, value)
    moment = plain_datetime(value)
    if type.arrow.tz is None:
        if value.tzinfo is not None:
            raise type.refuse(f"{value!r}, which has a time zone", "datetime")
    elif value.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    else:
        try:
            moment = moment.astimezone(UTC)
        except OverflowError:
            raise ValueError(f"{type.title} cannot hold {value!r}: in UTC it is outside the years 1 to 9999") from None
    if moment.microsecond % _MICROSECONDS[type.arrow.unit] or nanosecond(value):
        raise ValueError(f"{type.title} cannot hold {value!r}: it is finer than {type.arrow}")
    return moment.replace(fold=0)


def _accept_decimal(type: ValueType, value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (Decimal, int)):
        raise _refused(type, value)
    try:
        decimal: Decimal = pa.array([Decimal(value)], type.arrow)[0].as_py()
    except (pa.ArrowException, ValueError) as error:
        raise ValueError(f"{type.title} cannot hold {shown(value)}: {error}") from error
    return decimal


@dataclass(frozen=True)
class _Rule:
    """``sources``: kinds of column cast to this one. ``plain``: the Python type whose lists need no conversion."""

    plural: str
    sources: frozenset[str]
    accept: Callable[[ValueType, Any], Any]
    plain: type | None = None


_RULES: Mapping[str, _Rule] = {
    "int": _Rule("integers", frozenset({"int", "bool"}), _accept_int, int),
    "float": _Rule("numbers", frozenset({"float", "int", "bool", "decimal"}), _accept_float, float),
    "bool": _Rule("booleans", frozenset({"bool"}), _accept_bool, bool),
    "str": _Rule("strings", frozenset({"str"}), _accept_str),
    "bytes": _Rule("bytes", frozenset({"bytes"}), _accept_bytes, bytes),
    "date": _Rule("dates", frozenset({"date"}), _accept_date, date),
    "datetime": _Rule("datetimes", frozenset({"datetime"}), _accept_datetime),
    "decimal": _Rule("decimals", frozenset({"decimal", "int"}), _accept_decimal),
}
ALL_KINDS = frozenset(_RULES)

_PYTHON_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((bool, np.bool_), "bool"),
    ((int, np.integer), "int"),
    ((float, np.floating), "float"),
    (Decimal, "decimal"),
    (str, "str"),
    ((bytes, bytearray, memoryview), "bytes"),
    (datetime, "datetime"),
    (date, "date"),
)
ARROW_TYPES: Mapping[type, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
    bytes: pa.binary(),
    date: pa.date32(),
    datetime: pa.timestamp("us", "UTC"),
}
_WIDE: Mapping[str, pa.DataType] = {python.__name__: arrow for python, arrow in ARROW_TYPES.items()}
_SPELLED: Mapping[str, str] = {**{kind: kind for kind in _WIDE}, "decimal": "pa.decimal128(38, 2)"}
_WHOLE: Mapping[int, pa.DataType] = {128: pa.decimal128(38, 0), 256: pa.decimal256(76, 0)}
_YEAR_1, _YEAR_9999 = (
    (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1) for moment in (datetime.min, datetime.max)
)
_DAY = 86_400_000_000
_MICROSECONDS: Mapping[str, int] = {"s": 1_000_000, "ms": 1_000, "us": 1}
_KINDS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_null, "null"),
    (pa.types.is_integer, "int"),
    (pa.types.is_floating, "float"),
    (pa.types.is_boolean, "bool"),
    (pa.types.is_string, "str"),
    (pa.types.is_large_string, "str"),
    (pa.types.is_string_view, "str"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
    (pa.types.is_binary_view, "bytes"),
    (pa.types.is_fixed_size_binary, "bytes"),
    (pa.types.is_date, "date"),
    (pa.types.is_timestamp, "datetime"),
    (pa.types.is_decimal, "decimal"),
)
