"""The schema of a source is fixed by its first plan. This converts it to JSON, and fits other schemas to it."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from persistent.codec.messages import read_schema
from persistent.errors import InvalidPipeline

logger = logging.getLogger("persistent.sources")

_BASE64 = "base64:"
_FINENESS = ("s", "ms", "us", "ns")
_NAMES = ("string", "int64", "double", "bool", "timestamp[ms]", "timestamp[us]", "date32", "int32", "float", "binary")
"""Common names of types; there are more."""


def plain(schema: pa.Schema) -> pa.Schema:
    """The schema without metadata, dictionaries and null columns: nullable fields of types that every step accepts."""
    return pa.schema([pa.field(field.name, _plain_type(field.type)) for field in schema])


def settled(inferred: pa.Schema, where: str) -> pa.Schema:
    """The plain schema of inferred columns. Those that held nothing but null are text from now on, which a warning
    says: a later number there is a dead letter."""
    empty = [repr(field.name) for field in inferred if _holds_null(field.type)]
    if empty:
        logger.warning(
            "%s: %s is null in every record that the columns are inferred from, and so is text: another value there "
            "will be a dead letter. If it is not text, give all columns their types with schema=",
            where,
            ", ".join(empty),
        )
    return plain(inferred)


def _holds_null(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_null(field.type) for field in kind)
    return bool(_holds_null(kind.value_type) if pa.types.is_list(kind) else pa.types.is_null(kind))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    return kind


def from_option(schema: Any) -> pa.Schema:
    """The option ``schema=``: an Arrow schema, or a mapping of names to Arrow types or their names.

    >>> from_option({"ts": "int64", "page": pa.string()}).names
    ['ts', 'page']
    """
    if isinstance(schema, Mapping):
        schema = pa.schema([_field(name, kind) for name, kind in schema.items()])
    if not isinstance(schema, pa.Schema) or not len(schema):
        raise InvalidPipeline(
            f"schema={schema!r} is not a schema; give for example schema={{'ts': 'timestamp[ms]', 'page': 'string'}}"
        )
    if len(set(schema.names)) != len(schema.names):
        raise InvalidPipeline(f"schema= gives a name twice: {', '.join(schema.names)}")
    return plain(schema)


def _field(name: Any, kind: Any) -> pa.Field:
    try:
        return pa.field(name, pa.type_for_alias(kind) if isinstance(kind, str) else kind)
    except (ValueError, TypeError) as error:
        raise InvalidPipeline(
            f"schema= gives column {name!r} the type {kind!r}, which is unknown. Give "
            f"{', '.join(map(repr, _NAMES[:-1]))} or {_NAMES[-1]!r}; or a type of pyarrow, such as "
            "pa.decimal128(10, 2) or pa.list_(pa.string())"
        ) from error


def to_json(schema: pa.Schema) -> list[list[str]]:
    """The schema as pairs of name and type; a type without a name is base64 of an Arrow schema."""
    return [[field.name, _type_to_json(field.type)] for field in schema]


def from_json(pairs: Sequence[Sequence[str]]) -> pa.Schema:
    """The inverse of ``to_json``.

    >>> kept = pa.schema([("ts", pa.timestamp("ms", "UTC")), ("page", pa.string())])
    >>> from_json(to_json(kept)) == kept
    True
    """
    return pa.schema([pa.field(name, _type_from_json(kind)) for name, kind in pairs])


def _type_to_json(kind: pa.DataType) -> str:
    try:
        if pa.type_for_alias(str(kind)) == kind:
            return str(kind)
    except ValueError:
        pass
    data = pa.schema([pa.field("", kind)]).serialize().to_pybytes()
    return _BASE64 + base64.b64encode(data).decode()


def _type_from_json(text: str) -> pa.DataType:
    if not text.startswith(_BASE64):
        return pa.type_for_alias(text)
    data = base64.b64decode(text.removeprefix(_BASE64))
    return read_schema(pa.py_buffer(data)).schema.field(0).type


def misfit(have: pa.Schema, want: pa.Schema) -> str | None:
    """Why a file with schema ``have`` cannot give the columns of ``want``; None if it can. Additional columns are fine.

    >>> misfit(pa.schema([("a", pa.int32())]), pa.schema([("a", pa.int64())]))
    >>> misfit(pa.schema([("a", pa.string())]), pa.schema([("a", pa.int64())]))
    "its column 'a' is of type string, where the recorded schema has int64"
    """
    for field in want:
        places = have.get_all_field_indices(field.name)
        if len(places) != 1:
            found = "no column" if not places else "more than one column"
            return f"it has {found} {field.name!r}; its columns are {', '.join(have.names)}"
        kind = have.field(places[0]).type
        if not widens(_plain_type(kind), field.type) and not pa.types.is_null(kind):
            return f"its column {field.name!r} is of type {kind}, where the recorded schema has {field.type}"
    return None


def widens(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether every value of type ``have`` is also a value of type ``want``."""
    types = pa.types
    if have == want:
        return True
    if types.is_integer(have) and types.is_integer(want):
        signed = types.is_signed_integer(have) == types.is_signed_integer(want)
        narrower = have.bit_width < want.bit_width
        return bool(narrower and (signed or types.is_signed_integer(want)))
    if types.is_floating(want):
        exact = types.is_floating(have) or (types.is_integer(have) and have.bit_width * 2 <= want.bit_width)
        return bool(exact and have.bit_width <= want.bit_width)
    if types.is_timestamp(want):
        finer = types.is_timestamp(have) and _FINENESS.index(have.unit) <= _FINENESS.index(want.unit)
        return bool(finer or types.is_date(have))
    if types.is_decimal(have) and types.is_decimal(want):
        whole = want.precision - want.scale >= have.precision - have.scale
        return bool(whole and want.scale >= have.scale)
    if types.is_nested(have) and have.id == want.id:
        return _castable(have, want)
    same = (_is_string, _is_binary, types.is_date)
    return any(is_kind(have) and is_kind(want) for is_kind in same)


def _castable(have: pa.DataType, want: pa.DataType) -> bool:
    try:
        pa.array([], have).cast(want)
    except pa.ArrowException:
        return False
    return True


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def timeless(schema: pa.Schema) -> pa.Schema:
    """The schema with times as strings, which is how a text file holds them."""
    return pa.schema([pa.field(field.name, _timeless_type(field.type)) for field in schema])


def _timeless_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind) or _is_binary(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _timeless_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_timeless_type(kind.value_type))
    return kind


def unified(first: pa.Schema, second: pa.Schema) -> pa.Schema:
    """The columns of both. Where types disagree the first wins, but null gives way to any type and int64 to double.

    >>> unified(pa.schema([("a", pa.int64())]), pa.schema([("a", pa.float64()), ("b", pa.string())])).types
    [DataType(double), DataType(string)]
    """
    kinds = {field.name: field.type for field in first}
    for field in second:
        kinds[field.name] = _unified_type(kinds.get(field.name, pa.null()), field.type)
    return pa.schema(list(kinds.items()))


def _unified_type(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    if pa.types.is_null(first) or (pa.types.is_int64(first) and pa.types.is_float64(second)):
        return second
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        return pa.struct(list(unified(pa.schema(list(first)), pa.schema(list(second)))))
    if pa.types.is_list(first) and pa.types.is_list(second):
        return pa.list_(_unified_type(first.value_type, second.value_type))
    return first


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """An empty batch of a schema."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
