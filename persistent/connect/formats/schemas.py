"""The schema of a source is fixed by its first plan. This converts it to JSON, and fits other schemas to it.

Text without types has integers that a column of inferred doubles would round: such a record does not decode. Doubles
that ``schema=`` declares round, as asked. The schema says which doubles are inferred.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.groupby.sorting import Integers, Mask
from persistent.codec.sealed import Malformed, read_schema
from persistent.connect import remedies
from persistent.errors import InvalidPipeline, SourceError

logger = logging.getLogger("persistent.sources")

_BASE64 = "base64:"
_INFERRED = {b"inferred": b"yes"}
_INFERRED_DOUBLE = "float64"
"""The name of an inferred double in a record: every release reads it. A declared double has the name "double"."""
_FINENESS = ("s", "ms", "us", "ns")
_DIGITS_MAX = {128: 38, 256: 76}
"""How many digits a decimal of so many bits has."""
_NAMES = ("string", "int64", "double", "bool", "timestamp[ms]", "timestamp[us]", "date32", "int32", "float", "binary")
"""Common names of types; there are more."""


def plain(schema: pa.Schema, where: str) -> pa.Schema:
    """The schema without metadata, dictionaries, extension types and null columns: nullable fields of types that every
    step accepts. SourceError for a type that a checkpoint cannot record."""
    made = pa.schema([_plain_field(field) for field in schema])
    for field in made:
        try:
            _type_from_json(_type_to_json(field))
        except Malformed as error:
            raise SourceError(
                f"{where}: column {field.name!r} is of type {field.type}, which a checkpoint cannot record. Write it "
                "as another type, or leave it out: schema= says which columns of files are read"
            ) from error
    return made


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _plain_type(field.type), metadata=_INFERRED if is_inferred_double(field) else None)


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
    return pa.schema([_marked(field) for field in plain(inferred, where)])


def _marked(field: pa.Field) -> pa.Field:
    """The field with its doubles marked as inferred."""
    kind = field.type
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_marked(child) for child in kind]))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_marked(kind.value_field)))
    return field.with_metadata(_INFERRED) if pa.types.is_float64(kind) else field


def is_inferred_double(field: pa.Field) -> bool:
    """Whether a column is of type double because its values are, and not because ``schema=`` declares it."""
    return bool(pa.types.is_float64(field.type) and field.metadata == _INFERRED)


def _holds_null(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_null(field.type) for field in kind)
    return bool(_holds_null(kind.value_type) if pa.types.is_list(kind) else pa.types.is_null(kind))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return pa.string()
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return pa.string() if pa.types.is_string_view(kind) else pa.binary()
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field).with_name("item"))
    if pa.types.is_large_list(kind):
        return pa.large_list(_plain_type(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_type(kind.value_type), kind.list_size)
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
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
    return plain(schema, "schema=")


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
    return [[field.name, _type_to_json(field)] for field in schema]


def from_json(pairs: Sequence[Sequence[str]]) -> pa.Schema:
    """The inverse of ``to_json``.

    >>> kept = pa.schema([("ts", pa.timestamp("ms", "UTC")), ("page", pa.string())])
    >>> from_json(to_json(kept)) == kept
    True
    """
    fields = [(pa.field(name, _type_from_json(kind)), kind) for name, kind in pairs]
    return pa.schema([_marked(field) if kind == _INFERRED_DOUBLE else field for field, kind in fields])


def _type_to_json(field: pa.Field) -> str:
    kind = field.type
    if is_inferred_double(field):
        return _INFERRED_DOUBLE
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
    return read_schema(pa.py_buffer(data)).field(0).type


def misfit(
    have: pa.Schema, want: pa.Schema, fits: Callable[[pa.DataType, pa.DataType], bool] | None = None
) -> str | None:
    """Why a file with schema ``have`` cannot give the columns of ``want``; None if it can. Additional columns are fine.
    ``fits``: whether a type can be read as another; by default, whether it ``widens`` to it.

    >>> misfit(pa.schema([("a", pa.int32())]), pa.schema([("a", pa.int64())]))
    >>> misfit(pa.schema([("a", pa.string())]), pa.schema([("a", pa.int64())]))
    "its column 'a' is of type string, where the recorded schema has int64; give the columns with schema="
    """
    for field in want:
        places = have.get_all_field_indices(field.name)
        if len(places) != 1:
            count = "no column" if not places else "more than one column"
            return f"it has {count} {field.name!r}; its columns are {', '.join(have.names)}; {remedies.COMMON}"
        kind = have.field(places[0]).type
        plain_kind = _plain_type(kind)
        if not (fits or widens)(plain_kind, field.type) and not pa.types.is_null(kind):
            fault = f"its column {field.name!r} is of type {kind}, where the recorded schema has {field.type}"
            return fault + (_both(plain_kind, field.type) or f"; {remedies.OTHER_COLUMNS}")
    return None


def _both(have: pa.DataType, want: pa.DataType) -> str:
    """Which type takes values of both types; empty if none does."""
    if not convertible(have, want):
        return ""
    if pa.types.is_decimal(want):
        scale = max(have.scale, want.scale)
        kind = f"pa.decimal256({max(have.precision - have.scale, want.precision - want.scale) + scale}, {scale})"
    elif pa.types.is_timestamp(want):
        unit = max(have.unit, want.unit, key=_FINENESS.index)
        kind = f"pa.timestamp({unit!r}, {want.tz!r})" if want.tz else f"'timestamp[{unit}]'"
    elif pa.types.is_floating(have) or pa.types.is_floating(want):
        kind = "'double'"
    else:
        kind = repr(str(max(have, want, key=lambda kind: kind.bit_width) if widens(want, have) else pa.int64()))
    return f". As {kind} in schema= it takes the values of both that this type holds exactly"


def convertible(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether a value of type ``have`` can also be one of type ``want``, exactly and of the same meaning.

    >>> convertible(pa.int64(), pa.float64()), convertible(pa.string(), pa.int64())
    (True, False)
    """
    types = pa.types
    same = (_is_number, types.is_timestamp, types.is_decimal)
    return widens(have, want) or any(is_kind(have) and is_kind(want) for is_kind in same)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


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
        return _castable(have, want) and all(_exact_within(*pair) for pair in _inner_types(have, want))
    same = (_is_string, _is_binary, types.is_date)
    return any(is_kind(have) and is_kind(want) for is_kind in same)


def _exact_within(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether Arrow's cast of a nested column refuses an inner value that does not convert exactly. The cast
    rounds to a shorter float, and a decimal may overflow unnoticed."""
    unchecked = pa.types.is_float16(want) or (pa.types.is_floating(have) and want.bit_width < have.bit_width)
    if pa.types.is_decimal(have) and pa.types.is_decimal(want):
        digits = have.precision - have.scale + want.scale
        unchecked = want.bit_width < 128 or digits > _DIGITS_MAX[want.bit_width]
    return pa.types.is_null(have) or widens(have, want) or (convertible(have, want) and not unchecked)


def _inner_types(have: pa.DataType, want: pa.DataType) -> list[tuple[pa.DataType, pa.DataType]]:
    """The types of the fields that two nested types of one kind share."""
    if pa.types.is_struct(have):
        shared = [field.name for field in want if have.get_field_index(field.name) >= 0]
        return [(have.field(name).type, want.field(name).type) for name in shared]
    return [(have.field(place).type, want.field(place).type) for place in range(have.num_fields)]


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


_INTEGERS_END: Final = 2.0**53
"""From here on, not every integer has a double of its own."""
_SHOWN = 40


def large_rows(batch: pa.RecordBatch) -> dict[str, Integers]:
    """By column, the rows in which an inferred double may be a rounded integer.

    >>> schema = settled(pa.schema({"id": pa.float64()}), "a.csv")
    >>> large_rows(pa.RecordBatch.from_arrays([pa.array([0.5, 2.0**53])], schema=schema))
    {'id': array([1])}
    """
    columns = {field.name: _large(batch.column(place), field) for place, field in enumerate(batch.schema)}
    return {name: np.flatnonzero(mask) for name, mask in columns.items() if mask is not None and mask.any()}


def _large(column: pa.Array, field: pa.Field) -> Mask | None:
    """Which rows hold an inferred double that may be rounded; None if the type has no inferred double."""
    kind = field.type
    if is_inferred_double(field):
        large: Mask = np.abs(column.to_numpy(zero_copy_only=False)) >= _INTEGERS_END
        return large
    if pa.types.is_struct(kind):
        parts = [_large(part, child) for part, child in zip(column.flatten(), kind)]
        masks = [part for part in parts if part is not None]
        return np.logical_or.reduce(masks) if masks else None
    if pa.types.is_list(kind):
        values = _large(column.flatten(), kind.value_field)
        if values is None:
            return None
        rows = np.zeros(len(column), np.bool_)
        rows[pc.list_parent_indices(column).to_numpy()[values]] = True
        return rows
    return None


def is_rounded(literal: Decimal) -> bool:
    """Whether no double has the value of an integer.

    >>> is_rounded(Decimal(2**53)), is_rounded(Decimal(2**53 + 1))
    (False, True)
    """
    return literal != float(literal)


def why_rounded(column: str, literal: object) -> str:
    """Why a record with a rounded integer cannot be read, and which types read it."""
    text = str(literal)
    number = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return (
        f"column {column!r} was inferred to be of type double, which rounds the integer {number}. {remedies.TYPES}: "
        "this one pa.decimal128(38, 0); pa.decimal128(38, 9), if it has fractions too; or 'double', which rounds"
    )
