"""The records of a correction are read whole, as the sources of the job read theirs: what the task makes of a record
depends on its types."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from persistent.connect.formats.csv_dialect import USUAL, CsvDialect
from persistent.connect.formats.json_rows import json_rows
from persistent.connect.formats.schemas import from_json, to_json, widens
from persistent.connect.remedies import fault_of
from persistent.connect.source import Budget, DeadRecord, Records, Source, SourceState
from persistent.errors import InvalidPipeline, Refused, SourceError
from persistent.task.message import Message
from persistent.text.readable import readable

_ROWS = 1_000_000
_SHOWN_MAX = 200
_TIME = "persistent.timestamp"
_OTHERS = (".json", ".jsonl", ".ndjson", ".parquet")
NOTHING = "Nothing was changed"
CORRECT_IT = "Correct the record or omit it, and give all of them again"


@dataclass(frozen=True)
class Given:
    """Records that are given by hand. ``option``: "add" or "remove"."""

    option: str
    parts: tuple[Records, ...] = ()
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))

    @property
    def rows(self) -> int:
        return sum(len(part.timestamps) for part in self.parts)


@dataclass(frozen=True)
class Kinds:
    """The sources that read the records of a correction, as whoever asks for it knows them: of ``rows``, and of a file
    or a folder of ``files``."""

    rows: type[Any]
    files: type[Any]


@dataclass(frozen=True)
class Form:
    """How the sources of a pipeline read their records, where they agree: the column and the unit of timestamps, and,
    if they fix them, the columns with their types. A record of other types is another record to the task: 7 is not
    "007", and 2 is not 2.0."""

    timestamp: str
    timestamp_unit: str | None
    schema: pa.Schema | None = None
    folders: tuple[str, ...] = ()
    multiline: bool = False
    dialect: CsvDialect = USUAL

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Form | None:
        """The form in the record of a source; None if its timestamps are in no column."""
        timestamp, pairs = record.get("timestamp"), record.get("schema")
        if not isinstance(timestamp, str):
            return None
        schema = None if pairs is None else from_json(pairs)
        folders, multiline = tuple(record.get("folders", ())), record.get("multiline", False)
        return cls(timestamp, record.get("timestamp_unit"), schema, folders, multiline, CsvDialect.of(record))

    def file(self, kinds: Kinds, path: str, schema: pa.Schema | None) -> Source:
        """A source over a file or a folder of files, which reads as the sources do: the columns of ``schema``, or,
        without one, every column of the files."""
        how: dict[str, Any] = {"timestamp": self.timestamp, "timestamp_unit": self.timestamp_unit}
        if self.schema is not None:
            # A correction of records of CSV may be in another format.
            dialect = {} if _is_other(path) else self.dialect.__dict__
            how = {**how, "schema": schema, "multiline": self.multiline, **dialect}
        source: Source = kinds.files(path, **how)
        return source

    def unread(self, kinds: Kinds, path: str) -> list[str]:
        """The fields of a file, or of a folder of files, that are no column of the sources."""
        if self.schema is None:
            return []
        whole = self.file(kinds, path, None)
        file_schema = whole.schema(whole.plan(SourceState({}), Budget(_ROWS, ends=True)).recorded)
        return sorted({*file_schema.names} - {*self.schema.names, self.timestamp})

    def rows(self, kinds: Kinds, rows: Any) -> tuple[Source, Mapping[str, Any]]:
        """A source over mappings or an Arrow table, and the record to read it by. A column of the sources has their
        type if its values go into it (``_fits``), otherwise the type of its values."""
        source: Source = kinds.rows(rows, timestamp=self.timestamp, timestamp_unit=self.timestamp_unit)
        if self.schema is None or not len(rows):
            return source, {}
        record = source.plan(SourceState({}), Budget(_ROWS)).recorded
        known = {column.name: column for column in self.schema}
        columns = [
            known[column.name] if column.name in known and _fits(rows, known[column.name], column.type) else column
            for column in from_json(record["schema"])
        ]
        return source, {**record, "schema": to_json(pa.schema(columns))}


def _is_other(path: str) -> bool:
    """Whether the name of a file shows another format than CSV."""
    return path.removesuffix(".gz").removesuffix(".zst").endswith(_OTHERS)


def _fits(rows: Any, column: pa.Field, kind: pa.DataType) -> bool:
    """Whether the rows' values of this ``kind`` go into the sources' ``column``: its type holds every such value, or is
    floating while they are integers, or all of them are null."""
    if widens(kind, column.type) or (pa.types.is_integer(kind) and pa.types.is_floating(column.type)):
        return True
    if isinstance(rows, pa.Table):
        return bool(rows.column(column.name).null_count == len(rows))
    return all(row.get(column.name) is None for row in rows)


def given_records(option: str, value: Any, form: Form | None, kinds: Kinds) -> Given:
    """The records in an option: a path, mappings, messages, an Arrow table, or a source that is read whole. ``form``:
    how the sources of the pipeline read; None if they differ, or if it is unknown. InvalidPipeline for anything else,
    Refused for a record that cannot be read."""
    is_list = isinstance(value, list | tuple)
    if value is None or (is_list and not value):
        return Given(option)
    if is_list and all(isinstance(message, Message) for message in value):
        rows = [{**message.value, _TIME: message.timestamp} for message in value]
        return _without_time(_read(option, kinds.rows(rows, timestamp=_TIME)))
    if isinstance(value, (kinds.rows, kinds.files)):
        return _read(option, value)
    is_path = isinstance(value, str | os.PathLike)
    are_rows = isinstance(value, pa.Table) or (is_list and all(isinstance(row, Mapping) for row in value))
    if not is_path and not are_rows:
        raise InvalidPipeline(
            f"{option}= takes the path of a file, a list of mappings or of messages, an Arrow table, a MemorySource or "
            f"a FileSource, not {type(value).__name__}{' of something else' if is_list else ''}"
        )
    if form is None:
        example = 'FileSource(path, timestamp="ts")' if is_path else 'MemorySource(rows, timestamp="ts")'
        raise InvalidPipeline(
            f"{option}=: which column has the timestamp is not known from the sources of this pipeline, or they "
            f"differ in their columns: give {option}={example}, from Python; or run the pipeline first, if the job has "
            "gone back to a clock"
        )
    if not is_path:
        return _read(option, *form.rows(kinds, value))
    path = os.fspath(value)
    records = _read(option, form.file(kinds, path, form.schema))
    nulls = {name for part in records.parts for name in part.batch.schema.names if part.batch.column(name).null_count}
    for name in form.folders:
        if name in nulls:
            raise Refused(
                f"{option}=: a record has no {name!r}, which the sources take from the names of their folders: give it "
                f"as a field of the file, or give a folder that has such folders. {NOTHING}"
            )
    if nulls and (unread := form.unread(kinds, path)):
        raise Refused(
            f"{option}=: the field {unread[0]!r} of {path!r} is no column of the sources, and a record has no "
            f"{min(nulls)!r}. If that is what it is called there, correct its name; otherwise leave the field out. "
            f"{NOTHING}"
        )
    return records


def digest(*options: Given) -> str:
    """The SHA-256 of the records of a correction, by which a repeated correction is recognised."""
    sha256 = hashlib.sha256()
    for records in options:
        for part in records.parts:
            sha256.update(json.dumps([records.option, part.timestamps.tolist()]).encode())
            for lines in json_rows(pa.Table.from_batches([part.batch])) if part.batch.num_columns else ():
                sha256.update(b"\n".join(lines))
    return sha256.hexdigest()


def _read(option: str, source: Source, record: Mapping[str, Any] | None = None) -> Given:
    """All records of a source, which no checkpoint knows. ``record``: its own, if it has one."""
    parts: list[Records] = []
    schema = pa.schema([])
    try:
        for part, columns in _parts(option, source, record or {}):
            parts.append(part)
            schema = columns
    except SourceError as error:
        fault, is_of_files = fault_of(str(error)), bool(source.url)
        remedy = "Correct the file or its path, and give it again. " if is_of_files and fault != str(error) else ""
        raise type(error)(f"{option}=: {fault}. {remedy}{NOTHING}") from error
    return Given(option, tuple(parts), schema)


def _parts(option: str, source: Source, record: Mapping[str, Any]) -> Iterator[tuple[Records, pa.Schema]]:
    """The records of a source with their columns, step by step. Refused for a record that cannot be read."""
    state = SourceState({}, recorded=record)
    while (plan := source.plan(state, Budget(_ROWS, ends=True))).splits:
        schema = source.schema(plan.recorded)
        tables = [table for table in (state.index, plan.appended) if table is not None]
        index = pa.concat_tables(tables, promote_options="default") if tables else None
        for split in plan.splits:
            for part in source.read(split, plan.recorded):
                for dead in part.dead:
                    raise Refused(f"{option}=: {_unread(index, dead)}. {CORRECT_IT}. {NOTHING}")
                yield part, schema
        state = replace(state, positions=plan.end, recorded=plan.recorded, index=index)


def _unread(index: pa.Table | None, dead: DeadRecord) -> str:
    """Which record cannot be read, and why."""
    where = "" if index is None else f" of {index.column('path')[dead.ordinal].as_py()!r}"
    return f"the record at offset {dead.offset}{where} cannot be read: {fault_of(dead.reason)}"


def record_text(part: Records, row: int) -> str:
    """A record of a batch, for a message."""
    values = {name: readable(part.batch.column(name)[row]) for name in part.batch.schema.names}
    return f"the record {str(values)[:_SHOWN_MAX]}"


def _without_time(records: Given) -> Given:
    """The records of messages, without the column of their times."""
    schema = pa.schema([column for column in records.schema if column.name != _TIME])
    parts = [replace(part, batch=part.batch.select(schema.names)) for part in records.parts]
    return replace(records, parts=tuple(parts), schema=schema)
