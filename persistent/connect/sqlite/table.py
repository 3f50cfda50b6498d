"""A SQLite table of a sink: created for the outputs, checked against them, or refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from monoids.arrays import python_list
from monoids.encoding import to_json
from persistent.connect.formats.json_rows import REVISION, iso_texts
from persistent.connect.sql import BATCH, default_of, images_name, no_unique_index, quoted, wrong_column
from persistent.errors import SinkMismatch
from persistent.text.readable import readable_list

INSERT = "INSERT OR ABORT"
"""Overrides the conflict clauses of the table's constraints, such as REPLACE and IGNORE."""
_ROWS_AT_ONCE = 65_536
_COMPUTED = "COMPUTED"
"""Stands for the declared type of a computed column."""
_NUMBERS = {"INTEGER": "NUMERIC", "REAL": "NUMERIC"}


@dataclass(frozen=True)
class SqliteTable:
    """``name`` in the file at ``path``; ``mode``: of the sink."""

    path: str
    name: str
    mode: str

    def __str__(self) -> str:
        return f"{self.path}: table {self.name!r}"

    @property
    def target(self) -> str:
        """Its name in statements."""
        return quoted(self.name)

    @property
    def images(self) -> str:
        """The name, in statements, of the table of replaced rows."""
        return quoted(images_name(self.name))

    def check(self, database: sqlite3.Connection, columns: pa.Schema, key: Sequence[str]) -> bool:
        """Whether the table exists. SinkMismatch if it has another shape, or is not a table."""
        kinds, remedy = self.columns(database, self.name), "Give the sink another table, or change this one"
        if not kinds:
            return False
        self._check_kind(database)
        for field in columns:
            self._check_column(field, kinds, default_of(columns, field.name), remedy)
        for name, kind in self._wanted(database).items():
            if name not in columns.names and len(columns) > 1:
                raise wrong_column(str(self), name, f"{kind} NOT NULL without a default", "to omit it", remedy)
        if self.mode == "upsert" and set(key) not in self._unique(database):
            raise no_unique_index(str(self), self.name, self.target, key)
        if self.mode == "upsert":
            self._check_collations(database, key)
        return True

    def creation(self, columns: pa.Schema, key: Sequence[str]) -> str:
        """The statement that creates the table."""
        lines = [f"{quoted(field.name)} {_type_of(field.type)}{default_of(columns, field.name)}" for field in columns]
        if self.mode == "upsert":
            lines = [f"{line} NOT NULL" if name in key else line for name, line in zip(columns.names, lines)]
            lines.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
        return f"CREATE TABLE {self.target} ({', '.join(lines)})"

    def columns(self, database: sqlite3.Connection, table: str) -> dict[str, str]:
        """The columns of a table with their declared types; empty without such a table."""
        rows = database.execute("SELECT name, type, hidden FROM pragma_table_xinfo(?)", (table,)).fetchall()
        return {name: _COMPUTED if hidden in (2, 3) else kind.upper() for name, kind, hidden in rows}

    def highest_revision(self, database: sqlite3.Connection) -> int:
        """The highest revision of its rows; 0 without one."""
        ((revision,),) = database.execute(f"SELECT max({quoted(REVISION)}) FROM {self.target}").fetchall()
        return int(revision or 0)

    def fit_images(self, database: sqlite3.Connection, columns: Sequence[str] = ()) -> tuple[tuple[str, ...], bool]:
        """Create the table of replaced rows, or add ``columns`` to those of earlier outputs. Returns the columns that
        the target has too, and whether the table existed. The columns have no type, so values stay unchanged."""
        name = images_name(self.name)
        table, image_columns = quoted(name), self.columns(database, name)
        if not image_columns:
            database.execute(f"CREATE TABLE {table} ({quoted(BATCH)} INTEGER)")
            database.execute(f"CREATE INDEX {quoted(f'{name}_batch')} ON {table} ({quoted(BATCH)})")
        shared = [
            column for column in self.columns(database, self.name) if column in image_columns or column in columns
        ]
        for column in shared:
            if column not in image_columns:
                database.execute(f"ALTER TABLE {table} ADD COLUMN {quoted(column)}")
        return tuple(shared), bool(image_columns)

    def _check_kind(self, database: sqlite3.Connection) -> None:
        """SinkMismatch for a view or a virtual table."""
        query = "SELECT type, sql FROM sqlite_master WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')"
        ((kind, statement),) = database.execute(query, (self.name,)).fetchall()
        if kind == "view" or statement.upper().startswith("CREATE VIRTUAL"):
            what = "a view" if kind == "view" else "a virtual table"
            raise SinkMismatch(f"{self!s} is {what}, and the sink needs a table. Give the sink another table")

    def _check_column(self, field: pa.Field, kinds: dict[str, str], default: str, remedy: str) -> None:
        expected, kind = _type_of(field.type), kinds.get(field.name)
        similar_name = next((name for name in kinds if name.lower() == field.name.lower()), None)
        if kind is None and similar_name is not None:
            rename = f"ALTER TABLE {self.target} RENAME COLUMN {quoted(similar_name)} TO {quoted(field.name)}"
            raise wrong_column(str(self), field.name, f"named {similar_name!r}", "this name", f"Rename it: {rename}")
        if kind is None:
            add = f"Add it: ALTER TABLE {self.target} ADD COLUMN {quoted(field.name)} {expected}{default}"
            raise wrong_column(str(self), field.name, "missing", f"one of type {expected}", add)
        if kind == _COMPUTED:
            raise wrong_column(str(self), field.name, "computed by SQLite", "one to write into", remedy)
        if not pa.types.is_null(field.type) and _affinity(kind) not in (expected, _NUMBERS.get(expected)):
            found_type, needed = f"of type {kind or 'BLOB'}", f"{expected} ({field.type})"
            raise wrong_column(str(self), field.name, found_type, needed, remedy)

    def _check_collations(self, database: sqlite3.Connection, key: Sequence[str]) -> None:
        """SinkMismatch for a key whose collation equates different texts: two keys would be one row."""
        collations = database.execute(
            "SELECT info.name, info.coll FROM pragma_index_list(?) AS list, pragma_index_xinfo(list.name) AS info "
            "WHERE list.\"unique\" AND info.key AND info.coll <> 'BINARY'",
            (self.name,),
        ).fetchall()
        for name, collation in collations:
            if name in key:
                text = f"compared by {collation}, which treats different texts as equal"
                remedy = "Give the sink another table, or change this one"
                raise wrong_column(str(self), name, text, "to tell keys apart", remedy)

    def _wanted(self, database: sqlite3.Connection) -> dict[str, str]:
        """The columns for which an INSERT must give a value, with their declared types."""
        rows = database.execute(
            'SELECT name, upper(type) FROM pragma_table_info(?) WHERE "notnull" AND dflt_value IS NULL '
            "AND NOT (pk AND upper(type) = 'INTEGER')",
            (self.name,),
        ).fetchall()
        return dict(rows)

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
