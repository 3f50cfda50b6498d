"""Avro schemas for readers of messages, and the columns of their records.

Arrow decodes logical types from plain numbers, so dates and times become columns at once. A decimal keeps a name of
ours, because fastavro would round it. If writer and reader differ, a number in the writer's unit is converted to the
reader's. A number that is not a time of the same kind does not resolve, because it would be another time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

from persistent.errors import InvalidPipeline

_PRIMITIVES: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL: Final[Mapping[Any, pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{
        ("long", f"{local}timestamp-{name}"): pa.timestamp(unit, None if local else "UTC")
        for local in ("", "local-")
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}
_JSON: Final[Mapping[str, Any]] = {
    "null": type(None),
    "boolean": bool,
    **dict.fromkeys(("int", "long"), int),
    **dict.fromkeys(("float", "double"), int | float),
    **dict.fromkeys(("bytes", "fixed", "string", "enum"), str),
    "array": list,
    **dict.fromkeys(("map", "record"), dict),
}
_NONE: Final = object()
_OURS: Final = "persistent-"
_DECIMAL: Final = f"{_OURS}decimal"
_PLAIN: Final = f"{_OURS}plain"
_KINDS: Final[Mapping[Any, tuple[str, int]]] = {
    ("int", "date"): ("date", 1),
    ("int", "time-millis"): ("time", 10**3),
    ("long", "time-micros"): ("time", 10**6),
    **{
        ("long", f"{kind}-{name}"): (kind, per_second)
        for kind in ("timestamp", "local-timestamp")
        for name, per_second in (("millis", 10**3), ("micros", 10**6), ("nanos", 10**9))
    },
}
"""What a number of a logical type counts, and how many of it make a second. Only types of one kind are compared."""
_DIGITS_MAX: Final = 76
_EXACT: Final = Context(prec=10_000)


class SchemaError(Exception):
    """An Avro schema that cannot be parsed or has no columns."""


class ResolutionError(ValueError):
    """A number that Avro would resolve to another time."""


def parsed(text: str, references: Sequence[str] = (), *, writes: bool = False) -> Any:
    """The schema in a JSON text, for fastavro: the reader's, or with ``writes`` that of a writer whose schema differs
    from the reader's. SchemaError."""
    fastavro = library()
    try:
        names: dict[str, Any] = {}
        for reference in references:
            fastavro.parse_schema(_ours(json.loads(reference), writes), named_schemas=names)
        schema = fastavro.parse_schema(_ours(json.loads(text), writes), named_schemas=names)
        if not writes:
            _mend_defaults(names)
        _check_bounded(schema, names, set())
        return schema
    except Exception as error:
        raise SchemaError(f"{type(error).__name__}: {error}") from error


def columns_of(text: str, references: Sequence[str] = ()) -> pa.Schema:
    """The columns of its records; for a schema other than a record, the column ``value``. SchemaError.

    >>> columns_of('{"type": "record", "name": "E", "fields": [{"name": "n", "type": ["null", "int"]}]}').types
    [DataType(int32)]
    """
    schema = parsed(text, references)
    names = schema.get("__named_schemas", {}) if isinstance(schema, Mapping) else {}
    if isinstance(schema, Mapping) and schema.get("type") == "record":
        names = {name: definition for name, definition in names.items() if name != schema["name"]}
        return pa.schema([(field["name"], _type(field["type"], field["name"], names)) for field in schema["fields"]])
    return pa.schema([("value", _type(schema, "value", names))])


def prefixes(schema: Any) -> list[tuple[str, Any]]:
    """The fields of a record, each with the schema of a record that ends with it; empty for another schema."""
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        return []
    fields = schema["fields"]
    return [(field["name"], {**schema, "fields": fields[: number + 1]}) for number, field in enumerate(fields)]


def _ours(schema: Any, writes: bool) -> Any:
    return _telling(_named(schema, _EXACT.prec)) if writes else _named(schema, _DIGITS_MAX)


def _named(schema: Any, digits_max: int) -> Any:
    """The schema without logical types, except decimals of at most ``digits_max`` digits, which get a name of ours. An
    invalid decimal, and one with more digits than a column holds, is bytes."""
    if isinstance(schema, list):
        return [_named(branch, digits_max) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    logical = made.pop("logicalType", None)
    if logical is not None and made.get("type") in ("bytes", "fixed"):
        made["logicalType"] = logical
        if logical == "decimal":
            made["logicalType"] = _DECIMAL if _is_decimal(made, digits_max) else f"{_OURS}bytes"
    elif logical is not None:
        made["ourType"] = logical
    for inner in ("type", "items", "values"):
        if isinstance(made.get(inner), dict | list):
            made[inner] = _named(made[inner], digits_max)
    if isinstance(made.get("fields"), list):
        made["fields"] = [_named(field, digits_max) for field in made["fields"]]
    return made


def _is_decimal(schema: Mapping[str, Any], digits_max: int) -> bool:
    """Whether precision and scale are valid for a decimal, by the rules of Avro."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return False
    if not 0 < precision <= digits_max or not 0 <= scale <= precision:
        return False
    return bool(schema["type"] == "bytes" or 10**precision <= 2 ** (8 * schema["size"] - 1))


def _telling(schema: Any) -> Any:
    """The schema of a writer in which whole numbers carry their unit, for ``_rescaled``."""
    if isinstance(schema, list):
        return [_telling(branch) for branch in schema]
    if schema in ("int", "long"):
        return {"type": schema, "logicalType": _PLAIN}
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in ("int", "long"):
        known = (schema["type"], schema.get("ourType")) in _KINDS
        return {"type": schema["type"], "logicalType": f"{_OURS}{schema['ourType']}" if known else _PLAIN}
    made = dict(schema)
    for inner in ("type", "items", "values"):
        if inner in made:
            made[inner] = _telling(made[inner])
    if isinstance(made.get("fields"), list):
        made["fields"] = [{**field, "type": _telling(field["type"])} for field in made["fields"]]
    return made


def untold(text: str) -> str:
    """A text of fastavro about a schema, without our additions."""
    text = re.sub(rf"\{{'logicalType': '{_PLAIN}', 'type': ('\w+')\}}", r"\1", text)
    return text.replace(_OURS, "").replace("'ourType'", "'logicalType'")


def _mend_defaults(names: Mapping[str, Any]) -> None:
    """Convert the defaults of all fields of these records, which fastavro leaves as they are written. A default that is
    not a value of its type is removed, so a record that needs it does not resolve."""
    fields = [field for schema in names.values() if schema["type"] == "record" for field in schema["fields"]]
    made = [_made(field["type"], field["default"], names) if "default" in field else _NONE for field in fields]
    for field, value in zip(fields, made, strict=True):
        if value is not _NONE:
            field["default"] = value
        else:
            field.pop("default", None)


def _made(schema: Any, default: Any, names: Mapping[str, Any]) -> Any:
    """A JSON default as a value of its type, ``schema``; ``_NONE`` if the type has no such value."""
    if isinstance(schema, list):
        candidates = (_made(branch, default, names) for branch in schema)
        return next((value for value in candidates if value is not _NONE), _NONE)
    kind = schema["type"] if isinstance(schema, Mapping) else schema
    if kind in names:
        return _made(names[kind], default, names)
    if not isinstance(default, _JSON.get(kind, object)) or (isinstance(default, bool) and kind != "boolean"):
        return _NONE
    if kind in ("bytes", "fixed"):
        # Each character is a byte.
        if any(ord(character) > 0xFF for character in default):
            return _NONE
        data = default.encode("latin-1")
        is_decimal = isinstance(schema, Mapping) and schema.get("logicalType") == _DECIMAL
        return _decimal(data, schema) if is_decimal else data
    if kind == "array":
        return _all_made(dict(enumerate(default)), lambda _: schema["items"], names, list)
    if kind == "map":
        return _all_made(default, lambda _: schema["values"], names, dict)
    if kind == "record":
        types = {field["name"]: field["type"] for field in schema["fields"]}
        defaults = {field["name"]: field["default"] for field in schema["fields"] if "default" in field} | default
        if not defaults.keys() >= types.keys():
            return _NONE
        return _all_made({name: defaults[name] for name in types}, types.__getitem__, names, dict)
    return float(default) if kind in ("float", "double") else default


def _all_made(
    defaults: Mapping[Any, Any],
    types: Callable[[Any], Any],
    names: Mapping[str, Any],
    kind: type[list[Any] | dict[Any, Any]],
) -> Any:
    """The defaults in a list, map or record as values of their types; ``_NONE`` if one of them is no such value."""
    made = {key: _made(types(key), value, names) for key, value in defaults.items()}
    if any(value is _NONE for value in made.values()):
        return _NONE
    return list(made.values()) if kind is list else made


def _type(schema: Any, path: str, names: Mapping[str, Any]) -> pa.DataType:
    """The type of the column at ``path``. ``names``: the named types in scope, without those that enclose it."""
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) != 1:
            raise SchemaError(
                f"field {path!r} is a union of {len(branches)} types, which no column can hold. Omit it from reader="
            )
        return _type(branches[0], path, names)
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, dict | list):
        return _type(kind, path, names)
    if isinstance(schema, Mapping):
        return _complex_type(schema, path, names)
    if kind in names:
        return _type(names[kind], path, {name: definition for name, definition in names.items() if name != kind})
    if kind not in _PRIMITIVES:
        raise SchemaError(f"field {path!r} is recursive ({kind}), which no column can hold. Omit it from reader=")
    return _PRIMITIVES[kind]


def _complex_type(schema: Mapping[str, Any], path: str, names: Mapping[str, Any]) -> pa.DataType:
    kind, logical = schema["type"], schema.get("ourType")
    if kind == "record":
        inner = {name: definition for name, definition in names.items() if name != schema["name"]}
        return pa.struct(
            [(field["name"], _type(field["type"], f"{path}.{field['name']}", inner)) for field in schema["fields"]]
        )
    if kind == "array":
        return pa.list_(_type(schema["items"], f"{path}[]", names))
    if kind == "map":
        return pa.map_(pa.string(), _type(schema["values"], f"{path}[]", names))
    if schema.get("logicalType") == _DECIMAL:
        wide = pa.decimal128 if schema["precision"] <= 38 else pa.decimal256
        return wide(schema["precision"], schema.get("scale", 0))
    if kind == "fixed":
        return pa.binary(schema["size"])
    return _LOGICAL[kind, logical] if (kind, logical) in _LOGICAL else _type(kind, path, names)


def _decimal(data: bytes, writer: Any, reader: Any = None) -> Any:
    """The number of a decimal; for a reader of another type, its bytes or text."""
    if reader is not None and (not isinstance(reader, Mapping) or reader.get("logicalType") != _DECIMAL):
        base = reader["type"] if isinstance(reader, Mapping) else reader
        return data.decode() if base == "string" else data
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-writer.get("scale", 0), _EXACT)


def _rescaled(data: int, writer: Any, reader: Any = None) -> Any:
    """A whole number of the writer in the unit of the reader. ResolutionError if it is not a time of that kind."""
    base = reader["type"] if isinstance(reader, Mapping) else reader
    if base in ("float", "double"):
        return float(data)
    reader_unit = _KINDS.get((base, reader.get("ourType"))) if isinstance(reader, Mapping) else None
    if reader_unit is None:
        return data
    logical = writer["logicalType"].removeprefix(_OURS)
    writer_unit = _KINDS.get((writer["type"], logical))
    if writer_unit is None and writer["type"] == base:
        # A plain number matches by its type alone; an int is too small for a time that is a long.
        return data
    if writer_unit is None or writer_unit[0] != reader_unit[0]:
        written = writer["type"] if writer_unit is None else f"{writer['type']} ({logical})"
        raise ResolutionError(f"{written} is not {base} ({reader['ourType']})")
    return data * reader_unit[1] // writer_unit[1]


def _check_bounded(schema: Any, names: Mapping[str, Any], seen: set[str]) -> None:
    """Raise SchemaError for a list whose items have no bytes: ten bytes could claim any length."""
    if isinstance(schema, str) and schema in names and schema not in seen:
        seen.add(schema)
        _check_bounded(names[schema], names, seen)
    for branch in schema if isinstance(schema, list) else ():
        _check_bounded(branch, names, seen)
    if not isinstance(schema, Mapping):
        return
    if schema["type"] == "array" and _has_no_bytes(schema["items"], names, frozenset()):
        raise SchemaError("a list of items without bytes, such as null, can have any length. Omit it")
    inner = [field["type"] for field in schema.get("fields", ())]
    for part in (*inner, *(schema[name] for name in ("items", "values") if name in schema)):
        _check_bounded(part, names, seen)


def _has_no_bytes(schema: Any, names: Mapping[str, Any], above: frozenset[str]) -> bool:
    kind = schema["type"] if isinstance(schema, Mapping) else schema
    if isinstance(kind, str) and kind in names:
        return kind not in above and _has_no_bytes(names[kind], names, above | {kind})
    if kind == "record":
        return all(_has_no_bytes(field["type"], names, above) for field in schema["fields"])
    return bool(kind == "null" or (kind == "fixed" and schema["size"] == 0))


def library() -> Any:
    """fastavro with our decimals. InvalidPipeline, with the extra to install, if it is missing."""
    try:
        import fastavro
        import fastavro.read
    except ImportError as error:
        raise InvalidPipeline("Avro needs a decoder: pip install 'persistent-monoids[avro]'") from error
    # Its own decimal reader rounds numbers with more digits than the schema allows.
    for kind in ("bytes", "fixed"):
        fastavro.read.LOGICAL_READERS.setdefault(f"{kind}-{_DECIMAL}", _decimal)
    for kind, logical in (*_KINDS, ("int", _PLAIN.removeprefix(_OURS)), ("long", _PLAIN.removeprefix(_OURS))):
        fastavro.read.LOGICAL_READERS.setdefault(f"{kind}-{_OURS}{logical}", _rescaled)
    return fastavro
