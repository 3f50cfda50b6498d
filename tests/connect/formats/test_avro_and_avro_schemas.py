"""Values in Avro become columns: those of the reader's schema, whoever has written them and whatever is away."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from persistent import Avro, InvalidPipeline, KafkaSource, SourceChanged, SourceError
from persistent.connect import registry as clients
from persistent.connect.formats.avro import AvroValues
from persistent.connect.formats.avro_schemas import SchemaError, parsed
from persistent.connect.formats.values import Decoded
from persistent.connect.registry import Registry
from tests.registry import RegistryServer, framed, registry_server

FIELDS = [
    {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "page", "type": "string"},
    {"name": "n", "type": ["null", "int"], "default": None},
]
VISIT = {"type": "record", "name": "Visit", "fields": FIELDS}
WIDER = {"type": "record", "name": "Visit", "fields": [*FIELDS, {"name": "by", "type": "string", "default": "nobody"}]}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    """A registry, whose word that there is nothing is believed soon."""
    monkeypatch.setattr(clients, "_SURE_SECONDS", 0.05)
    with registry_server() as server:
        yield server


def reading(registry: RegistryServer, away_ms: int = 300_000, **options: Any) -> AvroValues:
    avro = Avro(registry.url, **options)
    return AvroValues(avro, "visits-value", Registry(avro.access, 300_000, away_ms))


def decoded(values: AvroValues, given: list[bytes | None], fixed: Any = None) -> Decoded:
    fixed = fixed or values.fixed({})
    return values.decode(given, values.columns(fixed), fixed)


def visit(ts: int = 0, page: str = "a", n: int | None = 1, **more: Any) -> dict[str, Any]:
    return {"ts": ts, "page": page, "n": n, **more}


def test_each_value_is_a_record_or_a_reason(registry: RegistryServer) -> None:
    """What is neither is lost, and nobody is told; and one bad value costs no other."""
    number = registry.register("visits-value", VISIT)
    good = [framed(number, VISIT, visit(n, "abc"[n % 3], n)) for n in range(5)]
    bad: list[tuple[bytes | None, str]] = [
        (None, "the message has no value"),
        (b"", "not written by a registry's serializer"),
        (b'{"page": "a"}', "not with a zero byte"),
        (b"\0\0\0", "not with a zero byte"),
        (good[0][:5], "field 'ts' cannot be decoded"),
        (good[0][:-3], "field 'page' cannot be decoded"),
        (good[0][:-1], "field 'n' cannot be decoded: it ends too early"),
        (good[0][:6] + b"\x02\xff" + good[0][8:], "field 'page' cannot be decoded: UnicodeDecodeError"),
        (good[0] + b"x", "1 bytes remain after it"),
        (good[0][:-2] + b"\x02" + b"\xfe\xff\xff\xff\x7f", r"field 'n' (int32)"),
    ]
    values = [value for pair in zip(good, (value for value, _ in bad)) for value in pair] + [v for v, _ in bad[5:]]
    found = decoded(reading(registry), values)
    assert sorted([*found.rows, *(row for row, _ in found.dead)]) == list(range(len(values)))
    assert [values[row] for row in found.rows] == good
    assert [row["n"] for row in found.batch.to_pylist()] == [0, 1, 2, 3, 4]
    for row, said in found.dead:
        assert next(reason for value, reason in bad if value == values[row]) in said
    assert registry.asked[f"/schemas/ids/{number}"] == 1


def test_logical_types_are_columns(registry: RegistryServer) -> None:
    """A time that is a number, or a decimal that was rounded, is a wrong result that looks like one."""
    logical = {
        "ms": ("long", "timestamp-millis", 1_700_000_000_123, datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)),
        "us": ("long", "timestamp-micros", 5, datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC)),
        "wall": ("long", "local-timestamp-millis", 1_000, datetime(1970, 1, 1, 0, 0, 1)),
        "day": ("int", "date", -1, date(1969, 12, 31)),
        "uuid": ("string", "uuid", "0-0-0", "0-0-0"),
    }
    fields: list[Any] = [{"name": k, "type": {"type": t, "logicalType": to}} for k, (t, to, *_) in logical.items()]
    fields += [
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
        {"name": "days", "type": {"type": "map", "values": {"type": "int", "logicalType": "date"}}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "inner", "type": {"type": "array", "items": {"type": "record", "name": "In", "fields": FIELDS}}},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 2}},
        {"name": "same", "type": "Id"},
    ]
    schema = {"type": "record", "name": "All", "fields": fields}
    plain = json.loads(json.dumps(schema).replace('"logicalType"', '"was"'))
    number = registry.register("visits-value", schema)
    big = 12345678901234567899
    record = {name: value for name, (_, _, value, _) in logical.items()}
    record |= {"price": big.to_bytes(9, "big", signed=True), "days": {"x": 1}, "kind": "B", "inner": [visit(7)]}
    record |= {"id": b"ab", "same": b"cd"}
    (row,) = decoded(reading(registry), [framed(number, plain, record)]).batch.to_pylist()
    assert {name: row[name] for name in logical} == {name: expected for name, (*_, expected) in logical.items()}
    assert row["price"] == Decimal(big).scaleb(-2) and row["days"] == [("x", date(1970, 1, 2))] and row["kind"] == "B"
    assert row["inner"] == [visit(datetime(1970, 1, 1, 0, 0, 0, 7000, tzinfo=UTC))]  # type: ignore[arg-type]
    assert (row["id"], row["same"]) == (b"ab", b"cd")


def test_a_decimal_of_too_many_digits_is_a_dead_letter(registry: RegistryServer) -> None:
    """Rounded to the precision of its schema, it would count as another number."""
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    schema = {"type": "record", "name": "P", "fields": [{"name": "price", "type": kind}]}
    plain = {"type": "record", "name": "P", "fields": [{"name": "price", "type": "bytes"}]}
    number = registry.register("visits-value", schema)
    values: list[bytes | None] = [framed(number, plain, {"price": n.to_bytes(3, "big")}) for n in (123, 12_345, 999)]
    found = decoded(reading(registry), values)
    assert [row["price"] for row in found.batch.to_pylist()] == [Decimal("1.23"), Decimal("9.99")]
    ((row, said),) = found.dead
    assert row == 1 and "field 'price' (decimal128(4, 2))" in said


@pytest.mark.parametrize(
    ("more", "kind", "expected"),
    [
        ({"precision": 76}, pa.decimal256(76), Decimal(1)),
        ({"precision": 77}, pa.binary(), b"\1"),
        ({"precision": 100, "scale": 2}, pa.binary(), b"\1"),
        ({}, pa.binary(), b"\1"),
        ({"precision": 2, "scale": 3}, pa.binary(), b"\1"),
        ({"precision": 2, "scale": 2}, pa.decimal128(2, 2), Decimal("0.01")),
        ({"precision": 2, "scale": -1}, pa.binary(), b"\1"),
        ({"type": "fixed", "name": "P", "size": 1, "precision": 2}, pa.decimal128(2), Decimal(1)),
        ({"type": "fixed", "name": "P", "size": 1, "precision": 3}, pa.binary(1), b"\1"),
    ],
)
def test_what_is_no_decimal_is_bytes(registry: RegistryServer, more: Any, kind: pa.DataType, expected: Any) -> None:
    """Avro says so of one without a precision. A column of bytes takes no decimal: every row would be dead."""
    given = {"type": "bytes", "logicalType": "decimal"} | more
    schema, plain = record_of(given), record_of({"type": "bytes"} | {k: v for k, v in given.items() if k in FIXED})
    number = registry.register("visits-value", schema)
    for reader in (schema, {**schema, "doc": "the same, and yet another"}):
        found = decoded(reading(registry, reader=reader), [framed(number, plain, {"x": b"\1"})])
        assert found.batch.to_pylist() == [{"x": expected}] and found.batch.schema.field("x").type == kind


def test_a_decimal_that_the_reader_takes_as_bytes(registry: RegistryServer) -> None:
    """The rules of Avro know nothing of decimals: what is read as bytes is bytes."""
    number = registry.register("visits-value", record_of(PRICE))
    value = framed(number, record_of("bytes"), {"x": b"a"})
    for kind, expected in (("bytes", b"a"), ("string", "a"), (["null", "bytes"], b"a"), (PRICE, Decimal("0.97"))):
        reader = record_of(kind, doc="not the same")
        assert decoded(reading(registry, reader=reader), [value]).batch.to_pylist() == [{"x": expected}]


@pytest.mark.parametrize("first", ["older", "newer"])
def test_the_readers_schema_stays_as_it_was_first(registry: RegistryServer, first: str) -> None:
    """What a replay gives must not depend on what is registered meanwhile."""
    ids = [registry.register("visits-value", VISIT)]
    values: list[bytes | None] = [framed(ids[0], VISIT, visit(1))]
    before = reading(registry).fixed({})
    ids += [registry.register("visits-value", WIDER)]
    values += [framed(ids[1], WIDER, visit(2, by="me"))]
    fixed = before if first == "older" else reading(registry).fixed({})
    found = decoded(reading(registry), values, reading(registry).fixed({"reader": fixed["reader"]}))
    assert [row.get("by", "-") for row in found.batch.to_pylist()] == (
        ["-", "-"] if first == "older" else ["nobody", "me"]
    )
    assert [row["page"] for row in found.batch.to_pylist()] == ["a", "a"] and not found.dead


def test_what_does_not_resolve_is_a_dead_letter(registry: RegistryServer) -> None:
    """A long that becomes a text, or a field without a default that nobody wrote, has no value to count."""
    other = {"type": "record", "name": "Visit", "fields": [{"name": "page", "type": "long"}]}
    wide = {"type": "record", "name": "Visit", "fields": [{"name": "page", "type": "long"}, *FIELDS[:1]]}
    odd = [registry.register("visits-value", one) for one in (other, wide)]
    number = registry.register("visits-value", VISIT)
    values: list[bytes | None] = [framed(odd[0], other, {"page": 5}), framed(number, VISIT, visit())]
    found = decoded(reading(registry), [*values, framed(odd[1], wide, {"page": 5, "ts": 1})])
    assert list(found.rows) == [1] and [row for row, _ in found.dead] == [0, 2]
    assert all("does not resolve to the reader's" in said for _, said in found.dead)


NOW = 1_700_000_000_123
UTC_NOW = datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)


def logical(kind: str, name: str | None) -> Any:
    return {"type": kind, "logicalType": name} if name else kind


def moved(registry: RegistryServer, writer: Any, reader: Any, value: int) -> Any:
    """What a reader with another schema has of a number, or why it has none."""
    number = registry.register("visits-value", record_of(writer))
    kind = writer if isinstance(writer, str) else writer["type"]
    found = decoded(reading(registry, reader=record_of(reader)), [framed(number, record_of(kind), {"x": value})])
    return found.dead[0][1] if found.dead else found.batch.column("x").to_pylist()[0]


def record_of(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "One", "fields": [{"name": "x", "type": kind, **more}]}


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("timestamp-millis", "timestamp-micros", NOW, UTC_NOW),
        ("timestamp-micros", "timestamp-millis", NOW * 1000 + 999, UTC_NOW),
        ("timestamp-micros", "timestamp-millis", -1, datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
        ("timestamp-nanos", "timestamp-micros", NOW * 10**6, UTC_NOW),
        ("local-timestamp-millis", "local-timestamp-micros", NOW, UTC_NOW.replace(tzinfo=None)),
        ("timestamp-millis", None, NOW, NOW),
        (None, "timestamp-millis", NOW, UTC_NOW),
        ("unheard-of", "timestamp-millis", NOW, UTC_NOW),
        ("local-timestamp-millis", "timestamp-millis", NOW, "is not long (timestamp-millis)"),
        ("time-micros", "timestamp-micros", NOW, "long (time-micros) is not long (timestamp-micros)"),
        ("timestamp-millis", "time-micros", NOW, "is not long (time-micros)"),
        ("timestamp-millis", "timestamp-nanos", 2**62, "field 'x' (timestamp[ns, tz=UTC])"),
    ],
)
def test_a_time_is_told_in_the_unit_of_its_writer(
    registry: RegistryServer, writer: str | None, reader: str | None, value: int, expected: Any
) -> None:
    """A producer goes from milliseconds to microseconds, which registries allow: its number alone is a time in 1970."""
    for nullable in (False, True):
        kind: Any = logical("long", reader)
        found = moved(registry, logical("long", writer), ["null", kind] if nullable else kind, value)
        assert expected in found if isinstance(expected, str) else found == expected


@pytest.mark.parametrize(
    ("writer", "reader", "expected"),
    [
        (logical("int", "time-millis"), logical("long", "time-micros"), time(1)),
        (logical("int", "date"), logical("long", "timestamp-millis"), "int (date) is not long (timestamp-millis)"),
        (logical("int", "date"), logical("int", "time-millis"), "int (date) is not int (time-millis)"),
        ("int", logical("long", "timestamp-millis"), "int is not long (timestamp-millis)"),
        ("int", logical("int", "time-millis"), time(1)),
        (logical("int", "date"), "double", 3_600_000.0),
        (logical("int", "timestamp-millis"), "long", 3_600_000),
        (
            "int",
            "string",
            "does not resolve to the reader's: SchemaResolutionError: Schema mismatch: 'int' is not string",
        ),
    ],
)
def test_whole_numbers_that_are_times(registry: RegistryServer, writer: Any, reader: Any, expected: Any) -> None:
    """What another kind of time counts, or a plain number that is too small for one, is no time of the reader."""
    found = moved(registry, writer, reader, 3_600_000)
    assert expected in found if isinstance(expected, str) else found == expected


def test_a_large_number_widens_to_the_nearest(registry: RegistryServer) -> None:
    """A column of doubles takes no whole number that it cannot hold; the rules of Avro make one of it."""
    assert moved(registry, "long", "double", 2**53 + 1) == 2.0**53


def test_times_within_others_are_told_too(registry: RegistryServer) -> None:
    """A list, a map, a nested record and a named one hold times as a field does."""

    def schema(unit: str) -> Any:
        at = logical("long", unit) if unit else "long"
        inner = {"type": "record", "name": "In", "fields": [{"name": "at", "type": at}]}
        kinds = {"list": {"type": "array", "items": at}, "map": {"type": "map", "values": ["null", at]}}
        kinds |= {"one": ["null", inner], "two": "In"}
        return {"type": "record", "name": "R", "fields": [{"name": name, "type": one} for name, one in kinds.items()]}

    number = registry.register("visits-value", schema("timestamp-millis"))
    record = {"list": [NOW], "map": {"a": NOW, "b": None}, "one": {"at": NOW}, "two": {"at": NOW}}
    values = reading(registry, reader=schema("timestamp-micros"))
    (row,) = decoded(values, [framed(number, schema(""), record)]).batch.to_pylist()
    assert row == {
        "list": [UTC_NOW],
        "map": [("a", UTC_NOW), ("b", None)],
        "one": {"at": UTC_NOW},
        "two": {"at": UTC_NOW},
    }


def test_numbers_widen_and_defaults_of_bytes_are_bytes(registry: RegistryServer) -> None:
    """A default written as text, taken as text, is two bytes where it is one."""
    old = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "int"}]}
    price = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    fields = [
        {"name": "n", "type": "double"},
        {"name": "b", "type": "bytes", "default": "\u00ff"},
        {"name": "p", "type": price, "default": "\u00ff"},
    ]
    number = registry.register("visits-value", old)
    registry.register("visits-value", {"type": "record", "name": "E", "fields": fields})
    (row,) = decoded(reading(registry), [framed(number, old, {"n": 3})]).batch.to_pylist()
    assert row == {"n": 3.0, "b": b"\xff", "p": Decimal("-0.01")}


FIXED = {"type": "fixed", "name": "F", "size": 2}
IN = {
    "type": "record",
    "name": "In",
    "fields": [
        {"name": "raw", "type": "bytes", "default": "\u00fe"},
        {"name": "y", "type": "double", "default": 2},
        {"name": "z", "type": ["null", "int"], "default": None},
    ],
}
NEEDY = {"type": "record", "name": "Needy", "fields": [{"name": "raw", "type": "bytes"}]}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (IN, {"raw": "\u00ff\u0001"}, {"raw": b"\xff\x01", "y": 2.0, "z": None}),
        (IN, {}, {"raw": b"\xfe", "y": 2.0, "z": None}),
        (IN, {"z": 7, "y": 1.5}, {"raw": b"\xfe", "y": 1.5, "z": 7}),
        (NEEDY, {"raw": "\u00ff"}, {"raw": b"\xff"}),
        ({"type": "array", "items": "bytes"}, ["\u00ff", "a"], [b"\xff", b"a"]),
        ({"type": "array", "items": IN}, [{}], [{"raw": b"\xfe", "y": 2.0, "z": None}]),
        ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, [("k", b"\xff")]),
        ({"type": "array", "items": PRICE}, ["\u0001\u0000"], [Decimal("2.56")]),
        (FIXED, "\u00ff\u0001", b"\xff\x01"),
        ("F", "\u00ff\u0001", b"\xff\x01"),
        (["null", "bytes"], "\u00ff", b"\xff"),
        (["bytes", "null"], None, None),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "boolean"}, True, True),
        (logical("long", "timestamp-millis"), NOW, UTC_NOW),
        (NEEDY, {}, "No default value for field x"),
        ({"type": "array", "items": "bytes"}, ["\u0100"], "No default value for field x"),
        ({"type": "array", "items": "int"}, [True], "No default value for field x"),
    ],
)
def test_a_default_is_a_value_of_its_type(registry: RegistryServer, kind: Any, default: Any, expected: Any) -> None:
    """Taken as it is written, a byte is two, a field with a default of its own is null, and both are counted."""
    named = [] if kind is FIXED else [{"name": "f", "type": FIXED}]
    old = {"type": "record", "name": "One", "fields": [{"name": "f", "type": FIXED}]}
    number = registry.register("visits-value", old)
    reader = {"type": "record", "name": "One", "fields": [*named, {"name": "x", "type": kind, "default": default}]}
    found = decoded(reading(registry, reader=reader), [framed(number, old, {"f": b"ab"})])
    if found.dead:
        assert isinstance(expected, str) and expected in found.dead[0][1]
    else:
        assert found.batch.column("x").to_pylist() == [expected]


def test_schemas_that_refer_to_others(registry: RegistryServer) -> None:
    """A schema of a large house names types of other subjects, which name others."""
    place = {"type": "record", "name": "geo.Place", "fields": [{"name": "lat", "type": "double"}]}
    user = {"type": "record", "name": "crm.User", "fields": [{"name": "home", "type": "geo.Place"}]}
    visit_ = {"type": "record", "name": "Visit", "fields": [{"name": "who", "type": "crm.User"}]}
    registry.register("place", place)
    registry.register("user", user, references=[{"name": "geo.Place", "subject": "place", "version": 1}])
    number = registry.register("visits-value", visit_, references=[{"name": "U", "subject": "user", "version": 1}])
    whole = {**visit_, "fields": [{"name": "who", "type": {**user, "fields": [{"name": "home", "type": place}]}}]}
    values = reading(registry)
    fixed = json.loads(json.dumps(values.fixed({})))
    found = decoded(values, [framed(number, whole, {"who": {"home": {"lat": 1.5}}})], fixed)
    assert found.batch.to_pylist() == [{"who": {"home": {"lat": 1.5}}}]


def test_a_value_that_is_no_record_has_one_column(registry: RegistryServer) -> None:
    """A topic of numbers has a schema too."""
    number = registry.register("visits-value", '"long"')
    found = decoded(reading(registry), [framed(number, "long", 5), framed(number, "long", 6)])
    assert found.batch.to_pylist() == [{"value": 5}, {"value": 6}]


@pytest.mark.parametrize(
    ("kind", "said"),
    [(["int", "string"], "'x' is a union of 2 types"), (["null", "Visit"], "'x' is recursive")],
)
def test_types_that_no_column_can_have_are_refused(registry: RegistryServer, kind: Any, said: str) -> None:
    """With the way out: a reader's schema without the field."""
    schema = {"type": "record", "name": "Visit", "fields": [*FIELDS, {"name": "x", "type": kind}]}
    number = registry.register("visits-value", schema)
    with pytest.raises(SourceError, match=f"{said}.*Omit it from reader="):
        reading(registry).columns(reading(registry).fixed({}))
    found = decoded(
        reading(registry, reader=VISIT),
        [framed(number, schema, visit(5, x=None if said[1] == "x" and kind[0] == "null" else 7))],
    )
    assert found.batch.num_rows == 1 and found.batch.schema.names == ["ts", "page", "n"]


def test_a_schema_that_the_registry_does_not_have(registry: RegistryServer) -> None:
    """A run ends before it, unless the user says that such records are no loss."""
    number = registry.register("visits-value", VISIT)
    values: list[bytes | None] = [
        framed(number, VISIT, visit()),
        framed(77, VISIT, visit()),
        framed(77, VISIT, visit()),
    ]
    with pytest.raises(SourceError, match=r"has no schema 77.*Nothing was lost.*on_unknown_id=\"dead-letter\""):
        decoded(reading(registry), values)
    found = decoded(reading(registry, on_unknown_id="dead-letter"), values)
    assert list(found.rows) == [0] and found.dead == [(row, "the registry has no schema 77") for row in (1, 2)]


def test_an_id_that_is_registered_later(registry: RegistryServer) -> None:
    """A process that has once believed that there is none would make dead letters for as long as it lives."""
    registry.register("visits-value", VISIT)
    values: list[bytes | None] = [framed(2, WIDER, visit(by="me"))] * 3
    there = reading(registry, on_unknown_id="dead-letter")
    assert [row for row, _ in decoded(there, values).dead] == [0, 1, 2]
    asked = registry.asked["/schemas/ids/2"]
    assert not decoded(there, values).batch.num_rows
    assert registry.asked["/schemas/ids/2"] == asked + 1
    assert registry.register("visits-value", WIDER) == 2
    assert decoded(there, values).batch.num_rows == 3


TURNED = {**VISIT, "fields": [FIELDS[0], {"name": "n", "type": ["null", "int"]}, FIELDS[1]]}


@pytest.mark.parametrize("options", [{}, {"reader": VISIT}], ids=["newest", "given"])
def test_other_schemas_under_the_same_ids(registry: RegistryServer, options: dict[str, Any]) -> None:
    """A registry that was made anew gives ids again: the bytes of one field would be counted as another's."""
    number = registry.register("visits-value", VISIT)
    given: list[bytes | None] = [framed(number, VISIT, visit())]
    before = reading(registry, **options)
    assert ("writers" in before.fixed({})) is (not options)
    decoded(before, given)
    fixed = json.loads(json.dumps(before.fixed({})))
    assert list(fixed["writers"]) == [str(number)]
    with registry_server() as other:
        assert other.register("else", TURNED) == number
        with pytest.raises(SourceChanged, match=r"registry http.*: schema 1 is not the one .*correct registry="):
            decoded(reading(other, **options), given, fixed)
        assert reading(other, **options).fixed(fixed) == fixed
    with registry_server() as restored:
        assert restored.register("visits-value", json.dumps(VISIT, indent=2, sort_keys=True)) == number
        assert decoded(reading(restored, **options), given, fixed).batch.num_rows == 1


def test_other_references_under_the_same_id(registry: RegistryServer) -> None:
    """A schema is what it refers to as well."""
    whole = {"type": "record", "name": "R", "fields": [{"name": "in", "type": "In"}]}
    found = []
    for kind in ("int", "long"):
        with registry_server() as one:
            one.register("in", {"type": "record", "name": "In", "fields": [{"name": "x", "type": kind}]})
            one.register("visits-value", whole, references=[{"name": "In", "subject": "in", "version": 1}])
            found.append(reading(one).fixed({})["writers"])
    assert list(found[0]) == list(found[1]) == ["2"] and found[0] != found[1]


def test_schemas_of_other_kinds(registry: RegistryServer) -> None:
    """A registry has JSON and Protobuf too."""
    number = registry.register("visits-value", "{}", kind="JSON")
    with pytest.raises(SourceError, match="is of JSON, not of Avro"):
        reading(registry).fixed({})
    found = decoded(reading(registry, reader=VISIT), [b"\0" + number.to_bytes(4, "big") + b"{}"])
    assert found.dead == [(0, f"schema {number} of the registry is of JSON, not of Avro")]
    broken = registry.register("visits-value", '{"type": "recrd"}')
    found = decoded(reading(registry, reader=VISIT), [b"\0" + broken.to_bytes(4, "big") + b"x"])
    assert f"schema {broken} of the registry cannot be parsed" in found.dead[0][1]


def test_a_subject_that_is_not_there(registry: RegistryServer) -> None:
    """Other strategies of naming exist."""
    registry.register("com.acme.Visit", VISIT)
    with pytest.raises(SourceError, match=r"has no subject 'visits-value': give Avro\(..., subject=\)"):
        reading(registry).fixed({})
    assert reading(registry, subject="com.acme.Visit").fixed({})["reader"] == [json.dumps(VISIT)]


def test_a_registry_that_is_away_makes_no_dead_letter(registry: RegistryServer) -> None:
    """The records are good; the run waits, and then it stops."""
    number = registry.register("visits-value", VISIT)
    values = reading(registry, reader=VISIT)
    again = pickle.loads(pickle.dumps(reading(registry, away_ms=300, reader=VISIT)))
    registry.fail += [503, None]
    assert list(decoded(values, [framed(number, VISIT, visit())]).rows) == [0]
    registry.close()
    assert list(decoded(values, [framed(number, VISIT, visit())]).rows) == [0]
    with pytest.raises(SourceError, match=r"cannot read schema 1 of registry .*Start the registry"):
        decoded(again, [framed(number, VISIT, visit())])


def test_the_options_are_checked_at_once() -> None:
    """Far from the mistake, the same would be an error of a worker."""
    for refused, said in (
        (lambda: Avro("localhost:8081"), "give the URL of a schema registry"),
        (lambda: Avro("http://r", reader={"type": "recrd"}), "reader= is not an Avro schema"),
        (lambda: Avro("http://r", reader="{"), "reader= is not an Avro schema"),
        (lambda: Avro("http://r", on_unknown_id="skip"), "on_unknown_id='skip' is not known"),
        (lambda: Avro("http://r", subject=5), "subject=5"),  # type: ignore[arg-type]
        (lambda: Avro("http://r", client={"ssl.ca": "x"}), "has no 'ssl.ca'"),
        (lambda: KafkaSource("h:1", "t", format="avro"), "format=Avro"),
        (lambda: KafkaSource("h:1", "t", format=Avro("http://r"), schema={"n": "int64"}), "reader="),
    ):
        with pytest.raises(InvalidPipeline) as error:
            refused()
        assert said in str(error.value)
    assert "secret" not in repr(Avro("https://me:secret@r:1"))


def test_columns_are_recorded_as_json(registry: RegistryServer) -> None:
    """A manifest is a document."""
    registry.register("visits-value", VISIT)
    fixed = reading(registry).fixed({})
    assert json.loads(json.dumps(fixed)) == fixed
    assert reading(registry).columns(fixed) == pa.schema(
        [("ts", pa.timestamp("ms", "UTC")), ("page", pa.string()), ("n", pa.int32())]
    )


EMPTY = {"type": "record", "name": "Empty", "fields": [{"name": "n", "type": "null"}]}


@pytest.mark.parametrize(
    ("kind", "is_bounded"),
    [
        ({"type": "array", "items": "null"}, False),
        ({"type": "map", "values": ["null", {"type": "array", "items": EMPTY}]}, False),
        ({"type": "array", "items": {"type": "array", "items": "null"}}, False),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, False),
        ({"type": "record", "name": "In", "fields": [{"name": "a", "type": {"type": "array", "items": EMPTY}}]}, False),
        ({"type": "array", "items": ["null", "int"]}, True),
        ({"type": "array", "items": {"type": "map", "values": "null"}}, True),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 1}}, True),
    ],
)
def test_a_list_of_nothing_is_refused(kind: Any, is_bounded: bool) -> None:
    """Ten bytes would say that it has 2**60 items, and a worker would make them all."""
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]})
    for writes in (False, True):
        if is_bounded:
            parsed(text, writes=writes)
        else:
            with pytest.raises(SchemaError, match="items without bytes"):
                parsed(text, writes=writes)
