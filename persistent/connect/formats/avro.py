"""Avro with a schema registry, as a format of values: a zero byte, four bytes of the writer's schema id, the record.

The writer's schema of an id never changes, so a worker requests it once. The reader's schema is recorded in the
checkpoint, so the columns are always the same. If the two differ, the resolution rules of Avro apply.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from threading import Lock
from typing import Any, Final

import pyarrow as pa

from persistent.connect import options
from persistent.connect.formats.avro_schemas import SchemaError, columns_of, library, parsed, prefixes, untold
from persistent.connect.formats.schemas import empty_batch
from persistent.connect.formats.values import NO_VALUE, Decoded, MessageValue, ValueFormat, value_format
from persistent.connect.registry import Registered, Registry, registry_access
from persistent.errors import InvalidPipeline, SourceChanged, SourceError
from persistent.text.spelling import spelled

_MAGIC: Final = 0
_HEAD: Final = 5
_REASON_MAX: Final = 300
_ON_UNKNOWN_ID: Final = ("fail", "dead-letter")


class Avro:
    """The ``format`` of values written by Confluent's Avro serializers.

    ``registry``: the URL of the schema registry, or several separated by commas. ``subject``: the subject of the
    values, by default "<topic>-value". ``reader``: the reader's schema, as JSON or a mapping, which defines the
    columns; by default the newest of the subject at the first plan, which is kept from then on. ``on_unknown_id``: a
    value whose schema the registry does not have ends the run ("fail"), or is a "dead-letter". ``client``: credentials
    and certificates for the registry: "basic.auth.user.info" ("user:password") or "bearer.auth.token";
    "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password".

    >>> Avro("https://user:secret@registry:8081")
    Avro('https://registry:8081')
    """

    @spelled
    def __init__(
        self,
        registry: str,
        *,
        subject: str | None = None,
        reader: str | Mapping[str, Any] | Sequence[Any] | None = None,
        on_unknown_id: str = "fail",
        client: Mapping[str, str] | None = None,
    ) -> None:
        self.access = registry_access(registry, client or {})
        options.require_choice("on_unknown_id", on_unknown_id, _ON_UNKNOWN_ID)
        if subject is not None:
            options.require_type("subject", subject, str, "'clicks-value'")
        self.subject = subject
        self.reader = None if reader is None else _reader_text(reader)
        self.on_unknown_id = on_unknown_id

    def __repr__(self) -> str:
        return f"Avro({','.join(self.access.servers)!r})"


class AvroValues:
    """The ``ValueFormat`` of one topic. ``avro``: the user's options; ``subject``: applies if ``avro`` names none."""

    name = "avro"

    def __init__(self, avro: Avro, subject: str, registry: Registry) -> None:
        library()
        self._avro = avro
        self._subject = avro.subject or subject
        self._registry = registry
        self._codecs: dict[tuple[str, bytes], Any] = {}
        self._readers: dict[str, Any] = {}
        self._writers: dict[int, Registered] = {}
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_codecs": {}, "_readers": {}, "_writers": {}, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "_lock": Lock()}

    def fixed(self, recorded: Mapping[str, Any]) -> Mapping[str, Any]:
        """The ``reader`` schema: as given, as recorded, or the newest of the subject; and ``writers``, the digest of
        each schema by its id: those recorded, the newest, and those that this process has seen. SourceError."""
        reader = self._given(recorded)
        with self._lock:
            met = {str(number): writer.digest() for number, writer in self._writers.items()}
        writers = {**met, **recorded.get("writers", {})}
        return {"reader": reader} | ({"writers": writers} if writers else {})

    def _given(self, recorded: Mapping[str, Any]) -> Any:
        if self._avro.reader is not None:
            return [self._avro.reader]
        if "reader" in recorded:
            return recorded["reader"]
        schema = self._registry.newest(self._subject)
        if schema is None:
            raise SourceError(
                f"{self._registry!r} has no subject {self._subject!r}: give Avro(..., subject=), or the schema itself, "
                "reader="
            )
        if schema.kind != "AVRO":
            raise SourceError(f"{self._registry!r}: subject {self._subject!r} is of {schema.kind}, not of Avro")
        if schema.number is not None:
            self._writer(schema.number)
        return [schema.text, *schema.references]

    def columns(self, fixed: Mapping[str, Any]) -> pa.Schema:
        """The columns of the reader's schema."""
        text, *references = fixed["reader"]
        try:
            return columns_of(text, references)
        except SchemaError as error:
            raise SourceError(f"the reader's schema of {self._subject!r}: {error}") from error

    def infer(self, values: Sequence[MessageValue]) -> pa.Schema | None:
        """None: the reader's schema defines the columns."""
        return None

    def decode(self, values: Sequence[MessageValue], schema: pa.Schema, fixed: Mapping[str, Any]) -> Decoded:
        """The records of these values. SourceError if the registry is unreachable, or lacks a schema."""
        key = json.dumps(fixed["reader"])
        records: list[Any] = []
        rows: list[int] = []
        dead: list[tuple[int, str]] = []
        read = library().schemaless_reader
        is_record = bool(prefixes(self._reader(key)))
        expected = fixed.get("writers", {})
        unknown: set[int] = set()
        for row, value in enumerate(values):
            codec = self._codec(key, value, expected, unknown)
            if isinstance(codec, str):
                dead.append((row, codec))
                continue
            stream = BytesIO(value)  # type: ignore[arg-type]
            stream.seek(_HEAD)
            try:
                record = read(stream, *codec)
            except MemoryError:
                raise
            except Exception as error:
                dead.append((row, _why(read, value or b"", codec, error)))
                continue
            left = len(value or b"") - stream.tell()
            if left:
                dead.append((row, f"the value is not a record of its schema: {left} bytes remain after it"))
                continue
            records.append(record if is_record else {"value": record})
            rows.append(row)
        batches: list[pa.RecordBatch] = []
        kept: list[int] = []
        _shape(records, rows, schema, batches, kept, dead)
        batch = pa.concat_batches(batches) if batches else empty_batch(schema)
        return Decoded(batch, kept, sorted(dead))

    def _codec(self, key: str, value: MessageValue, expected: Mapping[str, str], unknown: set[int]) -> Any:
        """The schemas of writer and reader for a value; or the reason why it has none."""
        if value is None:
            return NO_VALUE
        head = value[:_HEAD]
        codec = self._codecs.get((key, head))
        if codec is not None:
            return codec
        if len(head) < _HEAD or head[0] != _MAGIC:
            return (
                f"the value was not written by a registry's serializer: it begins with {head!r}, not with a zero byte "
                'and the id of a schema. If it is JSON or bytes, give format="json" or "bytes"'
            )
        number = int.from_bytes(head[1:], "big")
        writer = None if number in unknown else self._writer(number)
        if writer is None:
            # It may exist the next time: only the values of this call are without a schema.
            unknown.add(number)
            return self._unknown(number)
        self._require_same(number, writer, expected)
        codec = self._codecs[key, head] = self._made(key, number, writer)
        return codec

    def _made(self, key: str, number: int, writer: Registered) -> Any:
        if writer.kind != "AVRO":
            return f"schema {number} of the registry is of {writer.kind}, not of Avro"
        text, *references = json.loads(key)
        if [writer.text, *writer.references] == [text, *references]:
            return self._reader(key), None
        try:
            return parsed(writer.text, writer.references, writes=True), self._reader(key)
        except SchemaError as error:
            return f"schema {number} of the registry cannot be parsed: {error}"[:_REASON_MAX]

    def _writer(self, number: int) -> Registered | None:
        """The schema of this id, or None if the registry does not have it, which is not cached."""
        with self._lock:
            writer = self._writers.get(number) or self._registry.schema(number, under_way=True)
            if writer is not None:
                self._writers[number] = writer
            return writer

    def _unknown(self, number: int) -> str:
        if self._avro.on_unknown_id == "dead-letter":
            return f"the registry has no schema {number}"
        raise SourceError(
            f"{self._registry!r} has no schema {number}, with which a record of {self._subject!r} was written. "
            "Nothing was lost, the last checkpoint is good: correct registry=, or put the schema back, and run "
            'again. If such records can be dropped: on_unknown_id="dead-letter"'
        )

    def _require_same(self, number: int, writer: Registered, expected: Mapping[str, str]) -> None:
        """Raise SourceChanged if the checkpoint has seen another schema under this id."""
        if expected.get(str(number)) not in (None, writer.digest()):
            raise SourceChanged(
                f"{self._registry!r}: schema {number} is not the one that the checkpoint has seen under this id. The "
                "registry was recreated, or registry= is another one, and records would be decoded wrongly. The last "
                "checkpoint is good: correct registry=, or restore its schemas under their ids, and run again. If the "
                "topic was rewritten with the new ids, read it into a fresh checkpoint and sink"
            )

    def _reader(self, key: str) -> Any:
        reader = self._readers.get(key)
        if reader is None:
            text, *references = json.loads(key)
            reader = self._readers[key] = parsed(text, references)
        return reader


def message_format(
    format: str | Avro, subject: str, schema: Any, connect_timeout_ms: int, server_away_ms: int
) -> ValueFormat:
    """The option ``format`` of a source whose values can be Avro. InvalidPipeline."""
    if isinstance(format, Avro):
        if schema is not None:
            raise InvalidPipeline(
                "schema= is for values without one; to choose columns of Avro give Avro(..., reader=)"
            )
        return AvroValues(format, subject, Registry(format.access, connect_timeout_ms, server_away_ms))
    if format == "avro":
        raise InvalidPipeline('format="avro": Avro needs its registry: format=Avro("http://localhost:8081")')
    return value_format(format, infers=schema is None)


def _reader_text(reader: Any) -> str:
    try:
        text = reader if isinstance(reader, str) else json.dumps(reader)
        columns_of(text)
    except (SchemaError, TypeError) as error:
        raise InvalidPipeline(f"reader= is not an Avro schema: {error}") from error
    return text


def _why(read: Any, value: bytes, codec: tuple[Any, Any], error: Exception) -> str:
    """Which field cannot be decoded, and why."""
    writer, _ = codec
    ends = isinstance(error, EOFError) or str(error) == "string index out of range"
    reason = f"{type(error).__name__}: {untold(str(error))}".split(", 'fields'")[0][:_REASON_MAX]
    if type(error).__name__ in ("ResolutionError", "SchemaResolutionError"):
        return f"the writer's schema does not resolve to the reader's: {reason}"
    reason = "it ends too early" if ends else reason
    for name, prefix in prefixes(writer):
        try:
            read(BytesIO(value[_HEAD:]), prefix)
        except Exception:
            return f"field {name!r} cannot be decoded: {reason}"
    return f"the value cannot be decoded: {reason}"


def _shape(
    records: Sequence[Any],
    rows: Sequence[int],
    schema: pa.Schema,
    batches: list[pa.RecordBatch],
    kept: list[int],
    dead: list[tuple[int, str]],
) -> None:
    """The records as columns. Batches are bisected, so a record that fits no column costs only itself."""
    if not records:
        return
    try:
        batches.append(pa.RecordBatch.from_struct_array(pa.array(records, pa.struct(list(schema)))))
        kept.extend(rows)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        if len(records) == 1:
            dead.append((rows[0], _misfit(records[0], schema, error)))
            return
        half = len(records) // 2
        _shape(records[:half], rows[:half], schema, batches, kept, dead)
        _shape(records[half:], rows[half:], schema, batches, kept, dead)


def _misfit(record: Any, schema: pa.Schema, error: Exception) -> str:
    for field in schema:
        try:
            pa.array([record[field.name]], field.type)
        except Exception as inner:
            return f"field {field.name!r} ({field.type}): {str(inner).splitlines()[0]}"[:_REASON_MAX]
    return str(error).splitlines()[0][:_REASON_MAX]
