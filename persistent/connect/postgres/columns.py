"""The columns of outputs as PostgreSQL has them: their types, and their values as CSV for COPY."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from monoids.arrays import python_list
from monoids.encoding import to_json
from persistent.connect.sink import RefusedKeys
from persistent.connect.sql import OTHER_KEY, check_times, is_true, leaves
from persistent.errors import InvalidPipeline
from persistent.text.readable import readable_list

_ROWS_AT_ONCE = 65_536
_OPTIONS: Any = csv.WriteOptions(include_header=False, quoting_style="needed")
_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.uint8(): "smallint",
    pa.int16(): "smallint",
    pa.uint16(): "integer",
    pa.int32(): "integer",
    pa.uint32(): "bigint",
    pa.int64(): "bigint",
    pa.uint64(): "numeric(20,0)",
    pa.float16(): "real",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.date32(): "date",
    pa.date64(): "date",
}
_WIDER = {
    "smallint": ("integer", "bigint", "numeric"),
    "integer": ("bigint", "numeric"),
    "bigint": ("numeric",),
    "real": ("double precision",),
    "text": ("character varying",),
    "jsonb": ("json", "text"),
    "timestamp with time zone": ("timestamp(6) with time zone",),
    "timestamp without time zone": ("timestamp(6) without time zone",),
}
"""Types that hold every value of a type as well."""
NAME_BYTES_MAX = 63
_COLUMNS_MAX = 1_600
INDEX_COLUMNS_MAX = 32
_KEY_BYTES_MAX = 2_600
"""A row of an index has at most 2,704 bytes, including the window and headers."""
_NUMBER_BYTES, _DECIMAL_BYTES = 8, 32
"""The most bytes that another column of the key takes in an index; for a text or bytes, its header and padding."""
_SYSTEM_COLUMNS = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")
_WRITABLE: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_timestamp,
    pa.types.is_time,
    pa.types.is_decimal,
    pa.types.is_duration,
    pa.types.is_null,
)
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")


def type_of(kind: pa.DataType) -> str:
    """The type of a column, as PostgreSQL spells it.

    >>> type_of(pa.int64()), type_of(pa.timestamp("ms", "UTC")), type_of(pa.decimal128(10, 2))
    ('bigint', 'timestamp with time zone', 'numeric(10,2)')
    """
    types = pa.types
    if kind in _TYPES:
        return _TYPES[kind]
    if types.is_timestamp(kind):
        return f"timestamp {'with' if kind.tz else 'without'} time zone"
    if types.is_time(kind):
        return "time without time zone"
    if types.is_decimal(kind):
        # Without a negative scale, which servers before 15 do not support.
        return f"numeric({kind.precision - min(kind.scale, 0)},{max(kind.scale, 0)})"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return "bytea"
    if types.is_duration(kind):
        return "bigint"
    return "jsonb" if types.is_nested(kind) else "text"


def fits(kind: str, expected: str) -> bool:
    """Whether a column of type ``kind`` holds every value of type ``expected``.

    >>> fits("bigint", "integer"), fits("integer", "bigint"), fits("numeric(12,2)", "numeric(10,2)")
    (True, False, True)
    """
    if kind == expected or kind in _WIDER.get(expected, ()):
        return True
    wanted, there = _NUMERIC.fullmatch(expected), _NUMERIC.fullmatch(kind)
    if wanted is None:
        return False
    if there is None:
        return kind == "numeric"
    whole, digits = int(wanted[1]) - int(wanted[2]), int(wanted[2])
    return int(there[2]) >= digits and int(there[1]) - int(there[2]) >= whole


def short_name(name: str) -> str:
    """A name that PostgreSQL does not truncate: it drops what is beyond 63 bytes, so two names could become one.

    >>> short_name("visits"), short_name("v" * 64)
    ('visits', 'persistent_c354e929475813d85401c35279e49116')
    """
    return name if len(name.encode()) <= NAME_BYTES_MAX else f"persistent_{sha256(name.encode()).hexdigest()[:32]}"


def check_columns(columns: pa.Schema, place: str) -> None:
    """InvalidPipeline for columns that a PostgreSQL table cannot have, because of their names, types or number."""
    if len(columns) > _COLUMNS_MAX:
        raise InvalidPipeline(
            f"{place}: a table has at most {_COLUMNS_MAX} columns, but the outputs have {len(columns)}"
        )
    for field in columns:
        name, remedy = field.name, "rename the field of the record, or the key"
        if name in _SYSTEM_COLUMNS:
            raise InvalidPipeline(f"{place}: each PostgreSQL table has a system column {name!r}: {remedy}")
        if not name or "\0" in name or len(name.encode()) > NAME_BYTES_MAX:
            raise InvalidPipeline(
                f"{place}: the name of a column has 1 to {NAME_BYTES_MAX} bytes and no NUL, {name!r:.80} does not: "
                f"{remedy}"
            )
        if not _is_writable(field.type):
            raise InvalidPipeline(
                f"{place}: column {name!r} is of type {field.type}, which PostgreSQL cannot hold: give the "
                "monoid another output_type"
            )


def _is_writable(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        return bool(types.is_string(kind.value_type) or types.is_large_string(kind.value_type))
    if types.is_union(kind) or types.is_run_end_encoded(kind):
        return False
    if types.is_nested(kind):
        return all(_is_writable(kind.field(place).type) for place in range(kind.num_fields))
    return kind in _TYPES or any(is_one(kind) for is_one in _WRITABLE)


def check_values(outputs: pa.Table, place: str, codec: str | None = None) -> None:
    """InvalidPipeline for text with a NUL or a character that the ``codec`` of the database lacks, a time finer than
    microseconds, or one outside the years 1 to 9999."""
    for name, column in zip(outputs.column_names, outputs.columns):
        kind = column.type
        for where, values in leaves(name, column):
            _check_text(values, where, place, codec)
        if (pa.types.is_timestamp(kind) or pa.types.is_time(kind)) and kind.unit == "ns":
            try:
                column.cast(_microseconds(kind))
            except pa.ArrowInvalid as error:
                raise InvalidPipeline(
                    f"{place}: column {name!r} has a time in nanoseconds, but those of the server are "
                    "microseconds: round it in the task"
                ) from error
    check_times(outputs, place)


def codec_of(encoding: str) -> str | None:
    """Python's codec for the encoding of a database; None if the encoding has every character, or Python has no codec.

    >>> codec_of("LATIN1"), codec_of("WIN1252"), codec_of("UTF8")
    ('iso8859-1', 'cp1252', None)
    """
    try:
        return None if encoding in ("UTF8", "SQL_ASCII") else codecs.lookup(encoding.replace("WIN", "cp")).name
    except LookupError:
        return None


def _check_text(values: pa.Array, where: str, place: str, codec: str | None) -> None:
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        for rows, what in _unwritable(values, codec):
            if rows.any():
                text = values[int(rows.argmax())].as_py()
                raise InvalidPipeline(
                    f"{place}: column {where!r} has a text with {what}: {text!r:.80}. Replace it in the task"
                )


def texts_refused(keys: pa.Table, place: str, codec: str | None) -> RefusedKeys:
    """The rows of key columns with a text that the database cannot hold. ``codec``: of the database."""
    for name, column in zip(keys.column_names, keys.columns):
        if pa.types.is_string(column.type):
            for rows, what in _unwritable(column, codec):
                yield rows, f"{place}: the key column {name!r} has a text with {what}: {OTHER_KEY}"


def _unwritable(values: pa.Array | pa.ChunkedArray, codec: str | None) -> RefusedKeys:
    """The rows that the database cannot hold, and what is in their texts."""
    yield is_true(pc.match_substring(values, "\0")), "a NUL character, which text cannot hold"
    if codec is not None:
        rows = is_true(pc.invert(pc.string_is_ascii(values)))
        rows[rows] = [not _has(codec, values[row].as_py()) for row in np.flatnonzero(rows).tolist()]
        yield rows, f"a character that the encoding of the database, {codec}, does not have"


def _has(codec: str, text: str) -> bool:
    try:
        return bool(text.encode(codec))
    except UnicodeEncodeError:
        return False


def sizes_refused(keys: pa.Table, place: str) -> RefusedKeys:
    """The rows of key columns that no index can hold."""
    texts = [column for column in keys.columns if pa.types.is_string(column.type) or pa.types.is_binary(column.type)]
    decimals = sum(pa.types.is_decimal(column.type) for column in keys.columns)
    others = max(0, keys.num_columns - decimals - 1) * _NUMBER_BYTES + decimals * _DECIMAL_BYTES
    limit = _KEY_BYTES_MAX - others
    if sum(pc.max(pc.binary_length(column)).as_py() or 0 for column in texts) > limit:
        sizes = sum(pc.fill_null(pc.binary_length(column), 0).to_numpy().astype("int64") for column in texts)
        yield (
            sizes > limit,
            f"{place}: the texts of a key have more than {limit} bytes, and beside its other columns a PostgreSQL "
            "index accepts no more: make them shorter in the task, for example by a hash",
        )


def csv_pieces(outputs: pa.Table) -> Iterator[bytes]:
    """The rows as CSV: null is empty, text is quoted."""
    outputs = pa.table({name: _as_written(column) for name, column in zip(outputs.column_names, outputs.columns)})
    for start in range(0, outputs.num_rows, _ROWS_AT_ONCE):
        out = io.BytesIO()
        csv.write_csv(outputs.slice(start, _ROWS_AT_ONCE), out, _OPTIONS)
        yield out.getvalue()


def _as_written(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of values whose CSV PostgreSQL can read."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        unit = "us" if kind.unit == "ns" else kind.unit
        return column.cast(pa.timestamp(unit, "UTC" if kind.tz else None))
    if pa.types.is_duration(kind):
        return column.cast(pa.int64())
    if pa.types.is_time(kind) and kind.unit == "ns":
        return column.cast(_microseconds(kind))
    if pa.types.is_decimal(kind) or kind == pa.float16():
        return column.cast(pa.float32() if kind == pa.float16() else pa.string())
    if type_of(kind) == "bytea":
        return pa.chunked_array(
            [[None if value is None else f"\\x{value.hex()}" for value in python_list(column)]], pa.string()
        )
    if pa.types.is_nested(kind):
        return pa.chunked_array(
            [[None if value is None else to_json(value) for value in readable_list(column)]], pa.string()
        )
    return column


def _microseconds(kind: pa.DataType) -> pa.DataType:
    return pa.time64("us") if pa.types.is_time(kind) else pa.timestamp("us", kind.tz)
