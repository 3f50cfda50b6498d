"""A value type is the Arrow type of a monoid's inputs, with the rule of what it accepts.

Written as a Python type (int, float, bool, str, bytes, date, datetime) or as an Arrow type. Integers are
int64, floats are float64 with one NaN and one zero, aware datetimes are in UTC. None and null are no value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class ValueType:
    """``title``: the monoid as a user writes it. ``choices``: the kinds of type it could be written with."""

    title: str
    kind: str
    arrow: pa.DataType
    choices: frozenset[str]

    def accept(self, value: Any) -> Any:
        """A Python or NumPy scalar, not None, as a value of this type.

        TypeError for a value of another type, OverflowError for an integer outside int64, ValueError for a
        value that this type cannot hold.
        """
        return self._rule.accept(self, value)

    def column(self, values: Any) -> pa.Array:
        """An Arrow array, NumPy array or list of Python values as an Arrow array of this type, with nulls.

        Raises as ``accept`` does.
        """
        if isinstance(values, list):
            return self._from_list(values)
        if isinstance(values, np.ndarray):
            if values.ndim != 1:
                raise ValueError(f"{self.title} was given an array of {values.ndim} dimensions: a column has one")
            if values.dtype.kind in "OSU" and not isinstance(values, np.ma.MaskedArray):
                return self._from_list(values.tolist())
            # What a user may still write to is copied; Arrow would share it.
            values = pa.array(values.astype(values.dtype.newbyteorder("="), copy=values.flags.writeable))
        if isinstance(values, pa.ChunkedArray):
            values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        return self._cast(values)

    def refuse(self, given: str, kind: str | None) -> TypeError:
        """The error for values of another kind, saying how to ask for theirs."""
        kind = "float" if kind == "decimal" and "decimal" not in self.choices else kind
        owner = self.title.partition("(")[0]
        hint = f": write {owner}({_SPELLED[kind]})" if kind in self.choices and kind != self.kind else ""
        return TypeError(f"{self.title} takes {self._rule.plural}, not {given}{hint}")

    @property
    def _rule(self) -> _Rule:
        return _RULES[self.kind]

    def _from_list(self, values: list[Any]) -> pa.Array:
        if set(map(type, values)) <= {self._rule.plain, type(None)}:
            try:
                return pa.array(values, self.arrow)
            except OverflowError:
                pass  # accept says which value, and what to do
        return pa.array([None if value is None else self.accept(value) for value in values], self.arrow)

    def _cast(self, values: pa.Array) -> pa.Array:
        if values.type == self.arrow:
            return values
        kind = kind_of(values.type)
        aware = kind == "datetime" and values.type.tz is not None
        if kind not in {*self._rule.sources, "null"} or (aware and self.arrow.tz is None):
            raise self.refuse(f"a column of {values.type}", kind)
        try:
            return values.cast(self.arrow, safe=self.kind != "float")
        except pa.ArrowInvalid as error:
            fault = OverflowError if self.kind == "int" else ValueError
            raise fault(f"{self.title} cannot hold a value of a column of {values.type}: {error}") from error


def value_type(owner: str, type: Any, choices: frozenset[str], default: str = "int") -> ValueType:
    """The value type that a user wrote as ``type``; TypeError, with the choices, for anything else.

    ``default``: the kind that goes without saying in the title.
    """
    arrow = type if isinstance(type, pa.DataType) else _ARROW.get(type) if _is_class(type) else None
    kind = None if arrow is None else kind_of(arrow)
    if arrow is None or kind not in choices or (kind == "datetime" and arrow.unit == "ns"):
        written = type.__name__ if _is_class(type) else type
        raise TypeError(f"{owner}({written}): write one of {', '.join(sorted(_SPELLED[kind] for kind in choices))}")
    arrow = arrow if kind in ("datetime", "decimal") else _WIDE[kind]
    written = "" if kind == default else kind if arrow == _WIDE.get(kind) else str(arrow)
    return ValueType(f"{owner}({written})", kind, arrow, choices)


def kind_of(type: pa.DataType) -> str:
    """The kind of value in a column: ``int``, ``float``, ..., ``null``, or the Arrow type's own name."""
    return next((kind for test, kind in _KINDS if test(type)), str(type))


def _is_class(type_: Any) -> bool:
    return isinstance(type_, type)


def _kind_of_value(value: Any) -> str | None:
    """The kind that a Python value is of; None if of none."""
    return next((kind for python, kind in _PYTHON_KINDS if isinstance(value, python)), None)


# What is accepted, one function a kind. An unaccepted value ends in ``_refused``.


def _refused(type: ValueType, value: Any) -> TypeError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return type.refuse(f"{shown} ({value.__class__.__name__})", _kind_of_value(value))


def _accept_int(type: ValueType, value: Any) -> int:
    if not isinstance(value, (int, np.integer, np.bool_)):
        raise _refused(type, value)
    if not INT64_MIN <= value <= INT64_MAX:
        raise OverflowError(f"{type.title} takes integers of 64 bits, and {value} is outside them")
    return int(value)


def _accept_float(type: ValueType, value: Any) -> float:
    if not isinstance(value, (float, int, Decimal, np.floating, np.integer, np.bool_)):
        raise _refused(type, value)
    number = float(value)
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
    return value


def _accept_datetime(type: ValueType, value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise _refused(type, value)
    if type.arrow.tz is None:
        if value.tzinfo is not None:
            raise type.refuse(f"{value!r}, which has a time zone", "datetime")
        moment = value
    else:
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if moment.microsecond % _MICROSECONDS[type.arrow.unit]:
        raise ValueError(f"{type.title} cannot hold {value!r}: it is finer than {type.arrow}")
    return moment.replace(fold=0)


def _accept_decimal(type: ValueType, value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (Decimal, int)):
        raise _refused(type, value)
    try:
        held: Decimal = pa.array([Decimal(value)], type.arrow)[0].as_py()
    except (pa.ArrowException, ValueError) as error:
        raise ValueError(f"{type.title} cannot hold {value!r}: {error}") from error
    return held


@dataclass(frozen=True)
class _Rule:
    """``sources``: kinds of column that are cast. ``plain``: the Python type whose lists are taken as is."""

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
_ARROW: Mapping[type, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
    bytes: pa.binary(),
    date: pa.date32(),
    datetime: pa.timestamp("us", "UTC"),
}
_WIDE: Mapping[str, pa.DataType] = {python.__name__: arrow for python, arrow in _ARROW.items()}
_SPELLED: Mapping[str, str] = {**{kind: kind for kind in _WIDE}, "decimal": "pa.decimal128(38, 2)"}
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
