"""A layout is what the first plan of a file source fixes: the format, the columns, which of them are folder names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from persistent.errors import InvalidPipeline, SourceError
from persistent.sources import schemas
from persistent.sources.formats import Unreadable

_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Layout:
    """``schema``: all columns; ``folders``: those that stand in the names of folders, as in ``day=2024-01-01/``."""

    format: str
    schema: pa.Schema
    folders: tuple[str, ...] = ()
    multiline: bool = False

    @property
    def file_schema(self) -> pa.Schema:
        """The columns that are in the files."""
        return pa.schema([field for field in self.schema if field.name not in self.folders])

    def to_json(self) -> dict[str, Any]:
        return {
            "folders": list(self.folders),
            "format": self.format,
            "multiline": self.multiline,
            "schema": schemas.to_json(self.schema),
        }

    @staticmethod
    def from_json(recorded: Mapping[str, Any]) -> Layout:
        schema = schemas.from_json(recorded["schema"])
        return Layout(recorded["format"], schema, tuple(recorded["folders"]), recorded["multiline"])

    def require_same(self, format: str | None, multiline: bool) -> None:
        """Raise ``InvalidPipeline`` if options contradict what was recorded."""
        if format not in (None, self.format) or multiline != self.multiline:
            raise InvalidPipeline(
                f"format={format!r}, multiline={multiline}: the checkpoint was made with format={self.format!r}, "
                f"multiline={self.multiline}, and its positions mean nothing otherwise; use a fresh checkpoint"
            )

    def require_folders(self, path: str) -> None:
        """Raise ``Unreadable`` unless the folders of a file are those that give columns."""
        found = folder_values(path)
        if set(found) != set(self.folders):
            raise Unreadable(f"its folders name {_listed(found)}, where the first file's name {_listed(self.folders)}")
        for name in self.folders:
            if name in self.schema.names:
                _folder_scalar(found[name], self.schema.field(name))

    def complete(self, batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
        """The columns of a file with those of its folders, in the order of the schema."""
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


def folder_values(path: str) -> dict[str, str | None]:
    """What the folders of a path say.

    >>> folder_values("day=2024-01-01/site=a%20b/part-0.parquet")
    {'day': '2024-01-01', 'site': 'a b'}
    """
    pairs = [folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder.strip("=")]
    return {unquote(name): None if value == _NULL_FOLDER else unquote(value) for name, value in pairs}


def with_folders(schema: pa.Schema, folders: Sequence[str], where: str) -> pa.Schema:
    """The columns of the files, and after them those of the folders."""
    both = [repr(name) for name in folders if name in schema.names]
    if both:
        raise SourceError(
            f"{where}: {', '.join(both)} is a column of the file and the name of a folder too; say schema= without it, "
            "or rename the folder"
        )
    return pa.schema([*schema, *(pa.field(name, pa.string()) for name in folders)])


def _folder_scalar(value: str | None, field: pa.Field) -> pa.Scalar:
    try:
        return pa.scalar(value, pa.string()).cast(field.type)
    except pa.ArrowException as error:
        raise Unreadable(f"its folder {field.name}={value} is not of type {field.type}: {error}") from error


def _listed(names: Mapping[str, Any] | Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "no column"
