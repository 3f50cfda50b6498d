"""A layout is the record of a file source in a checkpoint: the options that fix the meaning of positions and records.

    schema, folders              from the first plan; ``schema=`` may give others from the next plan on
    format, multiline            where records begin, and so what an offset is
    delimiter, encoding          of CSV: what each field holds; left out if they are a comma and UTF-8
    timestamp, timestamp_unit    the time of each record, and so what is late and which window it counts in

All but the first two are refused if they differ from before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from persistent.codec.decimals import from_text
from persistent.connect import options
from persistent.connect.files.reader import Unreadable
from persistent.connect.formats import schemas
from persistent.connect.formats.csv_dialect import USUAL, CsvDialect
from persistent.connect.formats.timestamps import milliseconds
from persistent.connect.source import NO_TIMESTAMP
from persistent.errors import InvalidPipeline

_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_POSITIONS = "its positions mean nothing otherwise"
_READ = "what it has counted was read so"
_REFUSED = {
    **options.REFUSALS,
    "format": _POSITIONS,
    "multiline": _POSITIONS,
    "delimiter": _READ,
    "encoding": _READ,
}


@dataclass(frozen=True)
class Layout:
    """``schema``: all columns; ``folders``: the columns from folder names, as in ``day=2024-01-01/``."""

    format: str
    schema: pa.Schema
    timestamp: str
    timestamp_unit: str | None = None
    folders: tuple[str, ...] = ()
    multiline: bool = False
    dialect: CsvDialect = USUAL

    @cached_property
    def file_schema(self) -> pa.Schema:
        """The columns that the files hold."""
        return pa.schema([field for field in self.schema if field.name not in self.folders])

    def to_json(self) -> dict[str, Any]:
        return {
            "folders": list(self.folders),
            "format": self.format,
            "multiline": self.multiline,
            "schema": self._schema_json,
            "timestamp": self.timestamp,
            "timestamp_unit": self.timestamp_unit,
            **self.dialect.to_json(),
        }

    @cached_property
    def _schema_json(self) -> list[list[str]]:
        return schemas.to_json(self.schema)

    def require_folders(self, path: str) -> None:
        """Raise ``Unreadable`` unless a file's folders name exactly the folder columns."""
        values = folder_values(path)
        names = Counter(name for name, _ in _pairs(path) if name in self.schema.names)
        if twice := [name for name, count in names.items() if count > 1]:
            raise Unreadable(f"two of its folders name the column {_listed(twice)}: rename one")
        if set(values) != set(self.folders):
            raise Unreadable(f"its folders name {_listed(values)}, where the first file's name {_listed(self.folders)}")
        for name in self.folders:
            if name in self.schema.names:
                _folder_scalar(values[name], self.schema.field(name))

    @cached_property
    def of_folders(self) -> tuple[str, ...]:
        """The columns that folders give, which a file must not have as well."""
        return tuple(name for name in self.folders if name in self.schema.names)

    def misfit(self, fields: Iterable[str]) -> str | None:
        """Why a file with these fields, or a record, does not fit: its folders name one of them as well."""
        both = dict.fromkeys(name for name in fields if name in self.of_folders)
        return of_folder_too(both) if both else None

    @property
    def times_in_folders(self) -> bool:
        """Whether a file's path gives the time of all its records, whatever it holds."""
        return self.timestamp in self.folders

    def folder_time(self, path: str) -> int | None:
        """The time (ms) of all records of a file, if its folders give it; None if not."""
        scalar = _folder_scalar(folder_values(path)[self.timestamp], self.schema.field(self.timestamp))
        time = int(milliseconds(pa.repeat(scalar, 1), self.timestamp_unit)[0])
        return None if time == NO_TIMESTAMP else time

    def complete(self, batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
        """The columns of a file, joined by those of its folders, in schema order."""
        if not self.folders:
            return batch
        values = folder_values(path)
        columns = [
            pa.repeat(_folder_scalar(values[field.name], field), batch.num_rows)
            if field.name in self.folders
            else batch.column(field.name)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True)
class LayoutOptions:
    """The options of a source that a layout records. If ``format`` is None, the record decides."""

    timestamp: str
    timestamp_unit: str | None
    format: str | None
    multiline: bool
    dialect: CsvDialect = USUAL
    _last: list[tuple[dict[str, Any], Layout]] = field(default_factory=list, compare=False, repr=False)
    """The last record and its layout: mostly, each step has the same. No part of a pickle."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": []}

    def layout(self, format: str, schema: pa.Schema, folders: tuple[str, ...]) -> Layout:
        """The layout of a new checkpoint. ``InvalidPipeline`` if an option of CSV was given for another format."""
        for name, value in self.dialect.to_json().items() if format != "csv" else ():
            raise InvalidPipeline(f"{name}={value!r} is an option of CSV, but the files are {format}: omit it")
        return Layout(format, schema, self.timestamp, self.timestamp_unit, folders, self.multiline, self.dialect)

    def check(self, record: Mapping[str, Any]) -> None:
        """``InvalidPipeline`` if an option contradicts the record."""
        kept = {**record, **(CsvDialect.of(record).__dict__ if "format" in record else {})}
        settings = {name: getattr(self, name, None) for name in _REFUSED} | self.dialect.__dict__
        if self.format is None:
            del settings["format"]
        options.require_recorded(kept, settings, _REFUSED)

    def recorded(self, record: Mapping[str, Any]) -> Layout:
        """The layout that a plan or checkpoint recorded. ``InvalidPipeline`` as in ``check``."""
        for last, layout in self._last:
            if last == record:
                return layout
        self.check(record)
        schema, folders = schemas.from_json(record["schema"]), tuple(record["folders"])
        layout = self.layout(record["format"], schema, folders)
        self._last[:] = [(dict(record), layout)]
        return layout


def columns_of_text(record: Mapping[str, Any]) -> frozenset[str]:
    """The columns that a source reads from text without types, by the record of a plan: the columns of CSV files. An
    inferred type can make one value of different texts there. Empty for another source.

    >>> layout = Layout("csv", pa.schema({"id": pa.int64(), "day": pa.string()}), "ts", folders=("day",))
    >>> columns_of_text(layout.to_json()), columns_of_text({"format": "json"})
    (frozenset({'id'}), frozenset())
    """
    if record.get("format") != "csv" or "schema" not in record:
        return frozenset()
    return frozenset(schemas.from_json(record["schema"]).names) - {*record["folders"]}


def folder_values(path: str) -> dict[str, str | None]:
    """The columns in the folder names of a path.

    >>> folder_values("day=2024-01-01/site=a%20b/part-0.parquet")
    {'day': '2024-01-01', 'site': 'a b'}
    """
    return {name: None if value == _NULL_FOLDER else unquote(value) for name, value in _pairs(path)}


def _pairs(path: str) -> Iterator[tuple[str, str]]:
    """The names in the folders of a path, each with its value as written."""
    for folder in path.split("/")[:-1]:
        if "=" in folder.strip("="):
            name, value = folder.split("=", 1)
            yield unquote(name), value


def of_folder_too(names: Collection[str]) -> str:
    """Why a file, or a record, with columns that its folders name as well cannot be read."""
    each = "is both a column of the file and the name of a folder; give schema= without it, or rename the folder"
    if len(names) > 1:
        each = "are both columns of the file and names of folders; give schema= without them, or rename the folders"
    return f"{_listed(names)} {each}"


def with_folders(schema: pa.Schema, folders: Sequence[str]) -> pa.Schema:
    """The columns of the files, followed by those of the folders."""
    return pa.schema(
        [*(field for field in schema if field.name not in folders), *(pa.field(name, pa.string()) for name in folders)]
    )


def _folder_scalar(value: str | None, field: pa.Field) -> pa.Scalar:
    try:
        return from_text(pa.array([value], pa.string()), field.type)[0]
    except pa.ArrowException as error:
        raise Unreadable(f"its folder {field.name}={value} is not of type {field.type}: {error}") from error


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(repr, names)) or "no column"
