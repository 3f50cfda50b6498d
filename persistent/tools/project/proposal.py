"""A proposal says which columns of a file are likely its time, its key and its values, as its first records suggest.

A reading is the options with which a source can read the files: the delimiter and the encoding of a CSV file, and
whether its fields have several lines. The first records show which options these are.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from persistent.connect.files.listing import Files
from persistent.connect.files.reader import Unreadable
from persistent.connect.files.source import FileSource
from persistent.connect.files.walk import Listed
from persistent.connect.formats.csv_dialect import COMMA, UTF_8, checked_dialect
from persistent.connect.formats.csv_lines import CsvLines
from persistent.connect.formats.lines import open_text
from persistent.connect.formats.protocol import Format, InputFile, bad_file, format_of
from persistent.connect.formats.table import formats_by_name
from persistent.connect.formats.text import Text
from persistent.connect.formats.timestamps import UNITS, milliseconds, misread, separator_in
from persistent.connect.source import NO_TIMESTAMP, Budget, Records, SourceState
from persistent.errors import InvalidPipeline, SourceError
from persistent.text.readable import readable, readable_list
from persistent.tools.project.answers import Field, is_name

ROWS: Final = 1_000
"""How many records are looked at."""
_LIKELY_MS: Final = 631_152_000_000, 4_102_444_800_000
"""The years 1990 to 2100."""
_TIME_WORDS: Final = re.compile(r"(^|_)(ts|time|timestamp|date|at|when|datetime)(_|$)", re.IGNORECASE)
_ID_WORDS: Final = re.compile(r"(^|_)(id|nr|no|number|code|year|zip)(_|$)", re.IGNORECASE)
_TYPES: Final = {"string": "str", "large_string": "str", "int64": "int", "double": "float", "bool": "bool"}
_CODE_WORDS: Final = re.compile(r"(^|_)(zip|zipcode|postcode|postal|plz|code|sku|ean|isbn)(_|$)", re.IGNORECASE)
_FILES_MAX: Final = 8
"""How many CSV files are looked at for types that the first file does not show."""
_NEARLY_ALL: Final = 0.9
"""The share of the values of a column that must be times."""
_WHOLE: Final = frozenset({"int8", "int16", "int32", "uint8", "uint16", "uint32"})


@dataclass(frozen=True)
class Proposal:
    """``fields``: the columns that a project can be made with; ``others``: the other columns, with their types.
    ``times``: the columns that hold times, the likeliest first, each with its unit; ``timeless``: how many records have
    no time in each. ``key``, ``values``: names, or None. ``why_dead``: why the first dead record is dead. ``reading``:
    the options with which the source reads the files."""

    fields: dict[str, Field]
    others: dict[str, str]
    times: dict[str, str | None]
    key: str | None
    values: tuple[str, ...]
    schema: dict[str, str]
    read: int
    dead: int
    timeless: dict[str, int] = field(default_factory=dict)
    why_dead: str = ""
    reading: dict[str, Any] = field(default_factory=dict)

    def chosen(self, name: str, option: str) -> Field:
        """The column of that name. InvalidPipeline if there is none, or a project cannot be made with it."""
        if name in self.fields:
            return self.fields[name]
        there = ", ".join(self.fields)
        why = f"is of type {self.others[name]}" if name in self.others else "is no column of the file"
        raise InvalidPipeline(
            f"{option} {name!r} {why}: choose one of {there}; a key of another type is made in task.py, with "
            'key = {"name": lambda message: ...}'
        )


def proposal_of(path: str, known_options: Mapping[str, str] | None = None) -> Proposal:
    """What the first records below ``path`` suggest. SourceError if they cannot be read, or hold no time.
    ``known_options``: the delimiter and the encoding, if they are known."""
    files = Files(path)
    inferred, reading = _columns_of(files, known_options or {})
    columns = _as_all_have_them(files, inferred, reading)
    names = columns.names
    records, times, timeless, reading = _first(path, columns, reading, typed=columns != inferred)
    batch = records.batch.slice(0, ROWS)
    times = dict(sorted(times.items(), key=lambda pair: _likelihood(pair[0], batch, timeless)))
    types = dict(zip(batch.schema.names, batch.schema.types))
    empty = {name for name in names if batch.column(name).null_count}
    fields = {name: Field(name, kind, name in empty) for name in names if (kind := _type_of(types[name]))}
    others = {name: str(types[name]) for name in names if name not in fields}
    time, *_ = times
    key = _key_of(batch, [field for field in fields.values() if field.name != time and is_name(field.name)])
    values = [one.name for one in fields.values() if one.type in ("int", "float") and one.name not in (time, key)]
    is_text = format_name(files, files.list()[0]) != "parquet"
    schema = {name: str(types[name]) for name in (*fields, *times)} if is_text else {}
    values = [name for name in values if is_name(name) and not _ID_WORDS.search(name)]
    dead = len(records.dead)
    why = records.dead[0].reason if dead else ""
    read = batch.num_rows + dead
    return Proposal(fields, others, times, key, tuple(values), schema, read, dead, timeless, why, reading)


def _columns_of(files: Files, known_options: Mapping[str, str]) -> tuple[pa.Schema, dict[str, Any]]:
    """The columns of the first file that holds a record, and the options with which it is read."""
    listing = files.list()
    for listed in listing:
        file = InputFile(files, listed.path, listed.size)
        name = format_name(files, listed)
        try:
            reading = options_of(file, known_options) if name == "csv" else {}
            format: Format = csv_text(reading) if name == "csv" else formats_by_name("", None, multiline=False)[name]
            schema = format.infer(file)
        except Unreadable as error:
            raise bad_file(file, str(error)) from error
        if schema is not None:
            if name == "csv" and (hint := misread(schema.names, reading.get("delimiter", ","))):
                raise SourceError(f"{file.where}: its columns are {', '.join(schema.names)}. {hint}")
            return schema, reading
    why = "".join(f" ({files.where(file.path)} {'has no record' if file.size else 'is empty'})" for file in listing[:1])
    raise SourceError(
        f"{files.url}: no file with a record exists{why}, so no columns can be proposed: put a record into one, or "
        "check the path; or leave out --source, and start with records that are made"
    )


def _as_all_have_them(files: Files, columns: pa.Schema, reading: Mapping[str, Any]) -> pa.Schema:
    """The columns of the first CSV file, with types that fit some later files too; columns of another format unchanged.

    A column of whole numbers becomes text if a value begins with a zero, if its name is that of a code, or if it is
    text in another file: as numbers, the codes ``01234`` and ``1234`` would be equal.
    """
    listed = files.list()
    csv = [entry for entry in listed if format_name(files, entry) == "csv"]
    if csv[:1] != listed[:1]:
        return columns
    codes, kinds = set[str](), dict[str, set[str]]()
    for entry in csv[:: max(1, -(-len(csv) // _FILES_MAX))]:
        file = InputFile(files, entry.path, entry.size)
        try:
            schema = csv_text(reading).infer(file)
            codes |= csv_text(reading).codes(file)
        except (Unreadable, SourceError):
            # The source says what is wrong with it.
            continue
        for column in schema or ():
            kinds.setdefault(column.name, set()).add(str(column.type))
    return pa.schema([(one.name, _wider(one, kinds.get(one.name, set()), one.name in codes)) for one in columns])


def _wider(column: pa.Field, kinds: set[str], is_code: bool) -> pa.DataType:
    """The type of ``column``, which has the types ``kinds`` in other files."""
    if not pa.types.is_integer(column.type):
        return column.type
    if is_code or _CODE_WORDS.search(column.name) or "string" in kinds:
        return pa.string()
    return pa.float64() if "double" in kinds else column.type


def _first(
    path: str, columns: pa.Schema, reading: dict[str, Any], *, typed: bool
) -> tuple[Records, dict[str, str | None], dict[str, int], dict[str, Any]]:
    """The first records, as the source reads them; the columns that hold times; how many records have no time in each;
    and the options of the source. SourceError if no column holds times. ``typed``: the source would infer other columns
    than ``columns``."""
    able = [field.name for field in columns if _may_be_time(field.type)]
    schema = columns if typed else None
    read = {"timestamp": able[0], "timestamp_unit": "ms", "schema": schema} if able else {}
    records = next(_read(FileSource(path, **read, **reading)), None) if able else None
    if records is not None and records.dead and _is_csv(path):
        longer = {**reading, "multiline": True}
        again = next(_read(FileSource(path, **read, **longer)), None)
        # With several lines a field, a quote that is not closed makes one record of many good lines.
        if again is not None and again.batch.num_rows > records.batch.num_rows and len(again.dead) < len(records.dead):
            records, reading = again, longer
    times, timeless = dict[str, str | None](), dict[str, int]()
    for name, unit, lacking in () if records is None else _times_in(records.batch.slice(0, ROWS)):
        times[name], timeless[name] = unit, lacking
    if records is None or not times:
        _require_decoded(path, records)
        raise _without_times(path, columns, records)
    return records, times, timeless, reading


def _is_csv(path: str) -> bool:
    files = Files(path)
    return format_name(files, files.list()[0]) == "csv"


def _without_times(path: str, columns: pa.Schema, records: Records | None) -> SourceError:
    batch = None if records is None else records.batch.slice(0, ROWS)
    if batch is not None and (old := _old_in(batch)):
        return SourceError(
            f"{path}: the times in {old!r} are before 1970, as {readable(batch.column(old).drop_null()[0])!s}, and a "
            "record of such a time is a dead letter: choose a file of later ones, or add a fixed number of years where "
            "the file is written"
        )
    first = "" if batch is None else f", in the first record {_shown(batch)}"
    return SourceError(
        f"{path}: no column holds times in its first records; the columns are {', '.join(columns.names)}"
        f"{first}. A time is ISO 8601, as in 2024-05-01T10:00:00Z, or a whole number of seconds, ms, us or ns "
        "since 1970. Correct or add one where the file is written"
    )


def _old_in(batch: pa.RecordBatch) -> str | None:
    """The first column that would be the time if its times were later; None if there is none. Numbers do not count."""
    for name, column in zip(batch.schema.names, batch.columns):
        there = column.drop_null()
        if len(there) and not pa.types.is_integer(column.type) and _may_be_time(column.type):
            times = milliseconds(there)
            if np.count_nonzero(times != NO_TIMESTAMP) >= _NEARLY_ALL * len(there):
                return str(name)
    return None


def _require_decoded(path: str, records: Records | None) -> None:
    """SourceError if most records cannot be decoded: then the records are at fault, rather than their times."""
    dead = () if records is None else records.dead
    if records is not None and len(dead) > records.batch.num_rows:
        count = "none" if not records.batch.num_rows else f"only {records.batch.num_rows:,}"
        raise SourceError(
            f"{path}: {count} of its first {len(dead) + records.batch.num_rows:,} records can be decoded; of the first "
            f"other one, {dead[0].reason}"
        )


def _read(source: FileSource) -> Iterator[Records]:
    plan = source.plan(SourceState({}), Budget(ROWS))
    for split in plan.splits:
        yield from source.read(split, plan.recorded)


def _shown(batch: pa.RecordBatch) -> str:
    (row,) = readable_list(batch.slice(0, 1)) or [{}]
    return ", ".join(f"{name}={str(value)[:40]!r}" for name, value in islice(row.items(), 8))


def _times_in(batch: pa.RecordBatch) -> Iterator[tuple[str, str | None, int]]:
    """The columns in which nearly every value is a time since 1970 (a number: of the years 1990 to 2100), each with its
    unit, and the number of records without a time in it. Empty values do not count against a column."""
    for name, column in zip(batch.schema.names, batch.columns):
        kind, there = column.type, column.drop_null()
        if not len(there) or not _may_be_time(kind):
            continue
        is_time = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
        for unit in (None,) if is_time else UNITS if pa.types.is_integer(kind) else (None, *UNITS):
            times = milliseconds(there, unit)
            read = times[times != NO_TIMESTAMP]
            is_likely = unit is None or ((read >= _LIKELY_MS[0]) & (read < _LIKELY_MS[1])).all()
            counted = np.count_nonzero(read >= 0)
            if counted >= _NEARLY_ALL * len(there) and is_likely:
                yield name, unit, batch.num_rows - counted
                break


def _may_be_time(kind: pa.DataType) -> bool:
    types = pa.types
    return any(is_kind(kind) for is_kind in (types.is_timestamp, types.is_date, types.is_string, types.is_integer))


def _likelihood(name: str, batch: pa.RecordBatch, timeless: Mapping[str, int]) -> tuple[bool, bool, bool, bool, int]:
    """The sort key of a column that may be the time. It prefers names that Python allows, then columns without numbers,
    then columns with a time in nearly all records, then names such as "time" or "date", then the order of the file."""
    kind = batch.schema.field(name).type
    return (
        not is_name(name),
        pa.types.is_integer(kind),
        timeless[name] > (1 - _NEARLY_ALL) * batch.num_rows,
        not _TIME_WORDS.search(name),
        batch.schema.get_field_index(name),
    )


def _type_of(kind: pa.DataType) -> str | None:
    return "int" if str(kind) in _WHOLE else "float" if str(kind) == "float" else _TYPES.get(str(kind))


def _key_of(batch: pa.RecordBatch, fields: list[Field]) -> str | None:
    """The first text whose values repeat, or number of an id; then any text, one with several values first; or None."""
    texts = [field.name for field in fields if field.type == "str"]
    ids = [field.name for field in fields if field.type == "int" and _ID_WORDS.search(field.name)]
    distinct = {name: pc.count_distinct(batch.column(name)).as_py() for name in (*texts, *ids)}
    repeated = [name for name in (*texts, *ids) if 1 < distinct[name] <= batch.num_rows // 2]
    several = [name for name in texts if distinct[name] > 1]
    candidates = [*repeated, *several, *texts, *ids]
    return candidates[0] if candidates else None


_TEXT_ENDINGS: Final = (".txt", ".tsv", ".tab")
"""The endings of files that are read as CSV."""
_SAMPLE_BYTES: Final = 64 * 1024
_WINDOWS: Final = "cp1252"
_LATIN: Final = "iso8859-1"
"""In this encoding every byte is a character."""
NAMED_DELIMITERS: Final = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}
"""Delimiters by names that are easy to type in a shell."""


def format_name(files: Files, listed: Listed) -> str:
    """The format of a file, by its name; a text file is CSV. SourceError if the name shows no format."""
    plain = listed.path.removesuffix(".gz").removesuffix(".zst").lower()
    if plain.endswith(_TEXT_ENDINGS):
        return "csv"
    try:
        return format_of(files, listed)
    except SourceError as error:
        raise SourceError(
            f"{files.where(listed.path)}: its name does not show its format: let it end in .csv, .jsonl or .parquet, "
            "or give a pattern of the files that do"
        ) from error


def options_of(file: InputFile, known_options: Mapping[str, str]) -> dict[str, Any]:
    """The options with which a source reads a CSV file, without options at their default. ``known_options`` stay."""
    options: dict[str, Any] = {}
    if not file.path.removesuffix(".gz").removesuffix(".zst").lower().endswith(".csv"):
        options["format"] = "csv"
    encoding = known_options.get("encoding") or _encoding_of(_beginning(file))
    delimiter = known_options.get("delimiter", "")
    delimiter = NAMED_DELIMITERS.get(delimiter, delimiter)
    if not delimiter:
        names, _ = CsvLines(False, dialect=checked_dialect(COMMA, encoding)).header(file)
        delimiter = separator_in(names) or COMMA
    dialect = checked_dialect(delimiter, encoding)
    return options | dialect.to_json()


def csv_text(options: Mapping[str, Any]) -> Text:
    """CSV with these options of a source."""
    dialect = checked_dialect(options.get("delimiter", COMMA), options.get("encoding", UTF_8))
    return Text(CsvLines(options.get("multiline", False), dialect=dialect), warns=False)


def _beginning(file: InputFile) -> bytes:
    buffer = memoryview(bytearray(_SAMPLE_BYTES))
    with open_text(file, 0) as stream:
        return bytes(buffer[: stream.fill(buffer)])


def _encoding_of(text: bytes) -> str:
    """The encoding of a CSV file by its first bytes: UTF-8 if they can be decoded by it, otherwise cp1252, otherwise
    Latin-1. UTF-8 also for a text that begins as UTF-16 does: the error of its header then names UTF-16."""
    if text[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return UTF_8
    for encoding in (UTF_8, _WINDOWS):
        try:
            # The last character may be cut.
            codecs.getincrementaldecoder(encoding)().decode(text)
        except UnicodeDecodeError:
            continue
        return encoding
    return _LATIN
