"""A SQLite table of a sink: created for the outputs, checked against them, or refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from monoids.arrays import python_list
from monoids.encoding import to_json
from persistent.connect.formats.json_rows import iso_texts
from persistent.connect.sql import BATCH, quoted, wrong_column
from persistent.connect.table import ANOTHER_TABLE, SinkTable
from persistent.errors import SinkMismatch
from persistent.text.readable import readable_list

INSERT = "INSERT OR ABORT"
"""Overrides the conflict clauses of the table's constraints, such as REPLACE and IGNORE."""
_ROWS_AT_ONCE = 65_536
_COMPUTED = "COMPUTED"
"""Stands for the declared type of a computed column."""
_REMEDY = f"{ANOTHER_TABLE}, or change this one"
_NAMED = "name = ? COLLATE NOCASE AND type IN ('table', 'view')"
_NUMBERS = {"INTEGER": "NUMERIC", "REAL": "NUMERIC"}


@dataclass(frozen=True)
class SqliteTable(SinkTable[sqlite3.Connection]):
    """A table in the file at ``place``."""

    insert: ClassVar[str] = INSERT

    def __str__(self) -> str:
        return f"{self.place}: table {self.name!r}"

    def number(self, database: sqlite3.Connection, name: str) -> int | None:
        """The row of a table in SQLite's own list; None if it does not exist."""
        row = database.execute(f"SELECT rowid FROM sqlite_master WHERE {_NAMED}", (name,)).fetchone()
        return None if row is None else int(row[0])

    def _new(self, field: pa.Field, key: Sequence[str]) -> str:
        return f"{_type_of(field.type)}{' NOT NULL' if self.mode == 'upsert' and field.name in key else ''}"

    def _image(self, kind: str) -> str:
        return ""

    def _images_creation(self, images: str) -> Sequence[str]:
        batch = quoted(BATCH)
        index = quoted(f"{self.images_name}_batch")
        return f"CREATE TABLE {images} ({batch} INTEGER)", f"CREATE INDEX {index} ON {images} ({batch})"

    def _columns(self, database: sqlite3.Connection, name: str) -> dict[str, tuple[str, bool]]:
        rows = database.execute(
            'SELECT name, upper(type), hidden IN (2, 3), "notnull" AND dflt_value IS NULL AND NOT hidden '
            "AND NOT (pk AND upper(type) = 'INTEGER') FROM pragma_table_xinfo(?)",
            (name,),
        ).fetchall()
        return {name: (_COMPUTED if is_computed else kind, bool(wanted)) for name, kind, is_computed, wanted in rows}

    def _is_one(self, database: sqlite3.Connection) -> bool:
        """Whether it exists. SinkMismatch for a view or a virtual table."""
        row = database.execute(f"SELECT type, sql FROM sqlite_master WHERE {_NAMED}", (self.name,)).fetchone()
        if row is not None and (row[0] == "view" or row[1].upper().startswith("CREATE VIRTUAL")):
            what = "a view" if row[0] == "view" else "a virtual table"
            raise SinkMismatch(f"{self!s} is {what}, and the sink needs a table. {ANOTHER_TABLE}")
        return row is not None

    def _omission(self, name: str) -> str:
        return _REMEDY

    def _check_column(self, field: pa.Field, kinds: dict[str, str], default: str) -> None:
        expected, kind = _type_of(field.type), kinds.get(field.name)
        similar_name = next((name for name in kinds if name.lower() == field.name.lower()), None)
        if kind is None and similar_name is not None:
            rename = f"ALTER TABLE {self.target} RENAME COLUMN {quoted(similar_name)} TO {quoted(field.name)}"
            raise wrong_column(str(self), field.name, f"named {similar_name!r}", "this name", f"Rename it: {rename}")
        if kind is None:
            add = f"Add it: ALTER TABLE {self.target} ADD COLUMN {quoted(field.name)} {expected}{default}"
            raise wrong_column(str(self), field.name, "missing", f"one of type {expected}", add)
        if kind == _COMPUTED:
            raise wrong_column(str(self), field.name, "computed by SQLite", "one to write into", _REMEDY)
        if not pa.types.is_null(field.type) and _affinity(kind) not in (expected, _NUMBERS.get(expected)):
            found_type, needed = f"of type {kind or 'BLOB'}", f"{expected} ({field.type})"
            raise wrong_column(str(self), field.name, found_type, needed, _REMEDY)

    def _check_columns(self, database: sqlite3.Connection, columns: pa.Schema, key: Sequence[str]) -> None:
        """SinkMismatch for a key whose collation equates different texts: two keys would be one row."""
        collations = database.execute(
            "SELECT info.name, info.coll FROM pragma_index_list(?) AS list, pragma_index_xinfo(list.name) AS info "
            "WHERE list.\"unique\" AND info.key AND info.coll <> 'BINARY'",
            (self.name,),
        ).fetchall()
        for name, collation in collations:
            if name in key and self.mode == "upsert":
                text = f"compared by {collation}, which treats different texts as equal"
                raise wrong_column(str(self), name, text, "to tell keys apart", _REMEDY)

    def _unique(self, database: sqlite3.Connection) -> list[set[str]]:
        """The column sets of the unique indexes."""
        rows = database.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0", (self.name,)).fetchall()
        indexes = database.execute(
            "SELECT list.name, info.name FROM pragma_index_list(?) AS list, pragma_index_info(list.name) AS info "
            'WHERE list."unique" AND NOT list.partial',
            (self.name,),
        ).fetchall()
        columns_by_index = {index: {name for owner, name in indexes if owner == index} for index, _ in indexes}
        return [{name for (name,) in rows}, *columns_by_index.values()]


def _type_of(kind: pa.DataType) -> str:
    """The type of a column for values of this type."""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_duration(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    return "BLOB" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else "TEXT"


def _affinity(declared: str) -> str:
    """SQLite's affinity of a declared type, by its own rule."""
    for words, affinity in ((("INT",), "INTEGER"), (("CHAR", "CLOB", "TEXT"), "TEXT"), (("BLOB",), "BLOB")):
        if any(word in declared for word in words):
            return affinity
    if not declared:
        return "BLOB"
    return "REAL" if any(word in declared for word in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def insert_rows(database: sqlite3.Connection, table: str, outputs: pa.Table) -> int:
    """Insert outputs; returns how many rows the table has accepted."""
    columns, values = ", ".join(map(quoted, outputs.column_names)), ", ".join("?" * outputs.num_columns)
    taken = 0
    for start in range(0, outputs.num_rows, _ROWS_AT_ONCE):
        piece = outputs.slice(start, _ROWS_AT_ONCE).combine_chunks()
        rows = zip(*(_values(column.combine_chunks()) for column in piece.columns))
        taken += database.executemany(f"{INSERT} INTO {table} ({columns}) VALUES ({values})", rows).rowcount
    return taken


def _values(column: pa.Array) -> list[Any]:
    """A column as SQLite values. Timestamps are ISO 8601 in UTC, nested values JSON, decimals their digits."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column.to_numpy().tolist() if not column.null_count else python_list(column)
    if pa.types.is_boolean(kind) or pa.types.is_duration(kind):
        return python_list(column.cast(pa.int8() if pa.types.is_boolean(kind) else pa.int64()))
    if pa.types.is_timestamp(kind):
        return python_list(iso_texts(column))
    if pa.types.is_decimal(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return python_list(column.cast(pa.string()))
    if pa.types.is_nested(kind):
        return [None if value is None else to_json(value) for value in readable_list(column)]
    return python_list(column)
