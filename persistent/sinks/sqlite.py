"""A SQLite sink is a table in a file of SQLite: rows and mark in one transaction."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from monoids.arrays import python_list
from monoids.encoding import to_json
from persistent.clock import Duration, duration_ms
from persistent.errors import InvalidPipeline, StorageError
from persistent.promises import EXACTLY_ONCE, Promise
from persistent.sinks.json_lines import iso_texts, with_shortest_decimals
from persistent.sinks.marks import SinkMark, claimed, has_retreated, is_published, is_settled
from persistent.sinks.protocol import Claim, OutputBatch, Retreat
from persistent.sinks.sql import (
    BATCH,
    MARKS,
    Statements,
    check_kept,
    check_keys,
    checked_mode,
    columns_of,
    images_name,
    no_unique_index,
    quoted,
    with_revision,
    wrong_column,
)
from persistent.text.spelling import spelled

_ROWS_AT_ONCE = 65_536
_INCOMING = "persistent_incoming"
_INT64_MAX = (1 << 63) - 1
_REMEDIES = {
    "locked": "Another program holds it: end that, or wait longer with lock_timeout=",
    "unable to open": "Make the folder, and let this user read and write there",
    "readonly": "Let this user write the file, and the folder it is in",
    "full": "Free some space",
    "not a database": "Give the path of a file of SQLite, or of one that is not there yet",
    "malformed": "Restore the file from a copy",
}


_FILES: Final = (".db", ".db3", ".sqlite", ".sqlite3")


class SqliteSink:
    """Publishes into ``table`` of the database at ``path``, a file, which is made if it is not there.

    ``mode``: "append" adds rows, "upsert" replaces the row of the same key and window. The table is made from the
    columns of the outputs, or checked against them; its column ``revision`` has the number of the batch that wrote a
    row. ``lock_timeout``: how long to wait while another program writes to the file. The tables ``persistent_marks``
    and, for upserts, ``persistent_before_<table>`` are beside it: leave them alone.
    """

    @spelled
    def __init__(
        self, path: str | os.PathLike[str], table: str, *, mode: str = "append", lock_timeout: Duration = "1 min"
    ) -> None:
        self.path = os.fspath(path)
        if not isinstance(self.path, str) or not self.path or self.path.startswith(":memory:"):
            raise InvalidPipeline(f"SqliteSink path={path!r}: give the path of a file; what is in memory does not last")
        if isinstance(table, os.PathLike) or (isinstance(table, str) and (os.sep in table or table.endswith(_FILES))):
            raise InvalidPipeline(
                f"SqliteSink table={table!r} is the path of a file: are path={self.path!r} and table= the other way "
                "round?"
            )
        if not isinstance(table, str) or not table or table.startswith("sqlite_"):
            raise InvalidPipeline(f"SqliteSink table={table!r}: give the name of a table")
        self.table = table
        self.mode = checked_mode(mode, "SqliteSink")
        self.lock_ms = duration_ms(lock_timeout, "lock_timeout")
        self.address = f"{os.path.realpath(self.path)} table {table.lower()}"

    def __repr__(self) -> str:
        return f"SqliteSink({self.path!r}, {self.table!r}, mode={self.mode!r})"

    def guarantee(self) -> Promise:
        """Exactly-once."""
        return Promise(EXACTLY_ONCE, "SQLite commits the rows of a batch and its mark in one transaction")

    def claim(self, claim: Claim) -> None:
        """Claim the table for a job, and check its columns. StorageError, InvalidPipeline."""
        columns = columns_of(claim.schema, claim.key, self.mode, repr(self))
        with self._transaction("claim") as database:
            found = self._mark(database)
            self._move(database, found, claimed(found, claim, repr(self)))
            self._check_table(database, columns, claim.key)

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        """InvalidPipeline for a null or a NaN in the key of an upsert, or an integer beyond those of SQLite."""
        if self.mode == "upsert":
            check_keys(outputs, key, repr(self))
            for name in key:
                column = outputs.column(name)
                if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                    raise InvalidPipeline(
                        f"{self!r}: a row has NaN in the key column {name!r}, and SQLite has none: give the key "
                        'another value in the task, or use mode="append"'
                    )
        for name, column in zip(outputs.column_names, outputs.columns):
            if column.type == pa.uint64() and (pc.max(column).as_py() or 0) > _INT64_MAX:
                raise InvalidPipeline(f"{self!r}: column {name!r} has an integer above {_INT64_MAX}, SQLite's largest")

    def deliver(self, batch: OutputBatch) -> None:
        """Write the rows of a batch and its mark. Fenced, StagedMissing, StorageError."""
        with self._transaction("publish to") as database:
            found = self._mark(database)
            if not is_published(found, batch, repr(self)):
                self._write(database, found, batch)

    def retract(self, retreat: Retreat) -> None:
        """Take back what came after a rollback. Fenced, StorageError; InvalidPipeline if it goes too far back."""
        with self._transaction("take back from") as database:
            for batch in retreat.staged:
                found = self._mark(database)
                if not is_settled(found, batch, repr(self)):
                    self._write(database, found, batch)
            found = self._mark(database)
            if not has_retreated(found, retreat, repr(self)):
                self._take_back(database, retreat)
                self._move(database, found, SinkMark(retreat.job, retreat.number))

    def newest(self, job: str) -> int:
        """The number of the last batch of this job here, -1 if there is none."""
        if not os.path.exists(self.path):
            return -1
        with self._transaction("read") as database:
            found = self._mark(database)
        return found.number if found is not None and found.job == job else -1

    # -- the mark ------------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, what: str) -> Iterator[sqlite3.Connection]:
        """A transaction that is alone in writing, from its first statement on."""
        try:
            with closing(self._connect()) as database:
                database.execute("BEGIN IMMEDIATE")
                database.execute(
                    f"CREATE TABLE IF NOT EXISTS {MARKS} (target TEXT COLLATE NOCASE PRIMARY KEY, job TEXT NOT NULL, "
                    "number INTEGER NOT NULL, mode TEXT NOT NULL, kept_from INTEGER NOT NULL)"
                )
                yield database
                database.execute("COMMIT")
        except sqlite3.Error as error:
            remedy = next((text for word, text in _REMEDIES.items() if word in str(error)), "Check the cause")
            raise StorageError(
                f"cannot {what} {self!r}: {error}. {remedy}; then run again: the last checkpoint is good"
            ) from error

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=self.lock_ms / 1000, isolation_level=None)

    def _mark(self, database: sqlite3.Connection) -> SinkMark | None:
        rows = database.execute(f"SELECT job, number FROM {MARKS} WHERE target = ?", (self.table,)).fetchall()
        return SinkMark(*rows[0]) if rows else None

    def _move(self, database: sqlite3.Connection, found: SinkMark | None, mark: SinkMark) -> None:
        """Set the mark. What was written in another mode is not taken back in this one."""
        database.execute(
            f"INSERT INTO {MARKS} VALUES (:target, :job, :number, :mode, 0) ON CONFLICT (target) DO UPDATE SET "
            "job = :job, number = :number, mode = :mode, kept_from = iif(mode = :mode, kept_from, :found)",
            {
                "target": self.table,
                "mode": self.mode,
                "found": 0 if found is None else found.number,
                **mark.__dict__,
            },
        )

    def _kept_from(self, database: sqlite3.Connection) -> int:
        """The number of the newest batch that can no longer be taken back."""
        rows = database.execute(f"SELECT kept_from FROM {MARKS} WHERE target = ?", (self.table,)).fetchall()
        return int(rows[0][0]) if rows else 0

    # -- rows ----------------------------------------------------------------------------------------------------

    def _write(self, database: sqlite3.Connection, found: SinkMark | None, batch: OutputBatch) -> None:
        for outputs in batch.tables():
            self.check(outputs, batch.key)
            columns = columns_of(outputs.schema, batch.key, self.mode, repr(self))
            if not self._check_table(database, columns, batch.key):
                self._make_table(database, columns, batch.key)
            self._insert(database, with_revision(outputs, batch.number), batch)
        if self.mode == "upsert" and batch.oldest > self._kept_from(database):
            database.execute(self._statements((), ()).forget(batch.oldest))
            database.execute(f"UPDATE {MARKS} SET kept_from = ? WHERE target = ?", (batch.oldest, self.table))
        self._move(database, found, SinkMark(batch.job, batch.number))

    def _insert(self, database: sqlite3.Connection, outputs: pa.Table, batch: OutputBatch) -> None:
        outputs = with_shortest_decimals(outputs, batch.key)
        statements = self._statements(outputs.column_names, batch.key)
        if self.mode == "append":
            _insert_rows(database, statements.target, outputs)
            return
        incoming = quoted("temp", _INCOMING)
        database.execute(
            f"CREATE TEMP TABLE {quoted(_INCOMING)} AS SELECT {statements.names} FROM {statements.target} LIMIT 0"
        )
        _insert_rows(database, incoming, outputs)
        kept = self._statements(self._fit_images(database, outputs.column_names), batch.key)
        database.execute(kept.save(incoming, batch.number))
        database.execute(statements.upsert(incoming))
        database.execute(f"DROP TABLE {incoming}")

    def _take_back(self, database: sqlite3.Connection, retreat: Retreat) -> None:
        if retreat.first is None or not self._columns(database, self.table):
            return
        check_kept(self._kept_from(database), retreat, repr(self))
        if self.mode == "append":
            database.execute(self._statements((), ()).take_back(retreat.first))
        elif self._columns(database, images_name(self.table)):
            for statement in self._statements(self._fit_images(database), retreat.key).restore(retreat.first):
                database.execute(statement)

    def _statements(self, columns: Iterable[str], key: Iterable[str]) -> Statements:
        return Statements(quoted(self.table), quoted(images_name(self.table)), tuple(columns), tuple(key))

    # -- the table -----------------------------------------------------------------------------------------------

    def _check_table(self, database: sqlite3.Connection, columns: pa.Schema, key: Sequence[str]) -> bool:
        """Whether the table is there. StorageError if it has another shape."""
        found = self._columns(database, self.table)
        if not found:
            return False
        for field in columns:
            expected, place = _type_of(field.type), f"{self.path}: table {self.table!r}"
            kind = found.get(field.name)
            if kind is None:
                remedy = f"Add it: ALTER TABLE {quoted(self.table)} ADD COLUMN {quoted(field.name)} {expected}"
                raise wrong_column(place, field.name, "missing", f"one of type {expected}", remedy)
            if not pa.types.is_null(field.type) and _affinity(kind) not in (expected, _NUMBERS.get(expected)):
                remedy = "Give the sink another table, or change this one"
                raise wrong_column(place, field.name, f"of type {kind or 'BLOB'}", f"{expected} ({field.type})", remedy)
        if self.mode == "upsert" and set(key) not in self._unique(database):
            raise no_unique_index(f"{self.path}: table {self.table!r}", self.table, quoted(self.table), key)
        if self.mode == "upsert":
            self._check_collations(database, key)
        return True

    def _check_collations(self, database: sqlite3.Connection, key: Sequence[str]) -> None:
        """StorageError for a key in which unlike texts are equal: two keys would be one row."""
        found = database.execute(
            "SELECT info.name, info.coll FROM pragma_index_list(?) AS list, pragma_index_xinfo(list.name) AS info "
            "WHERE list.\"unique\" AND info.key AND info.coll <> 'BINARY'",
            (self.table,),
        ).fetchall()
        for name, collation in found:
            if name in key:
                place, remedy = f"{self.path}: table {self.table!r}", "Give the sink another table, or change this one"
                text = f"compared by {collation}, to which unlike texts are equal"
                raise wrong_column(place, name, text, "each key apart", remedy)

    def _make_table(self, database: sqlite3.Connection, columns: pa.Schema, key: Sequence[str]) -> None:
        lines = [f"{quoted(field.name)} {_type_of(field.type)}" for field in columns]
        if self.mode == "upsert":
            lines = [f"{line} NOT NULL" if name in key else line for name, line in zip(columns.names, lines)]
            lines.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
        database.execute(f"CREATE TABLE {quoted(self.table)} ({', '.join(lines)})")

    def _columns(self, database: sqlite3.Connection, table: str) -> dict[str, str]:
        """The columns of a table with their declared types; none if there is no such table."""
        rows = database.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall()
        return {name: kind.upper() for name, kind in rows}

    def _fit_images(self, database: sqlite3.Connection, columns: Sequence[str] = ()) -> tuple[str, ...]:
        """Make the table of what upserts replace, with these columns and those of earlier outputs: what it has of the
        target's columns. They have no type, so that values stay as they are."""
        name = images_name(self.table)
        table, found = quoted(name), self._columns(database, name)
        if not found:
            database.execute(f"CREATE TABLE {table} ({quoted(BATCH)} INTEGER)")
            database.execute(f"CREATE INDEX {quoted(f'{name}_batch')} ON {table} ({quoted(BATCH)})")
        shared = [one for one in self._columns(database, self.table) if one in found or one in columns]
        for column in shared:
            if column not in found:
                database.execute(f"ALTER TABLE {table} ADD COLUMN {quoted(column)}")
        return tuple(shared)

    def _unique(self, database: sqlite3.Connection) -> list[set[str]]:
        """The sets of columns that a unique index is of."""
        rows = database.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0", (self.table,)).fetchall()
        indexes = database.execute(
            "SELECT list.name, info.name FROM pragma_index_list(?) AS list, pragma_index_info(list.name) AS info "
            'WHERE list."unique" AND NOT list.partial',
            (self.table,),
        ).fetchall()
        found = {index: {name for other, name in indexes if other == index} for index, _ in indexes}
        return [{name for (name,) in rows}, *found.values()]


_NUMBERS = {"INTEGER": "NUMERIC", "REAL": "NUMERIC"}


def _type_of(kind: pa.DataType) -> str:
    """The type of a column for values of this type."""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_duration(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    return "BLOB" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else "TEXT"


def _affinity(declared: str) -> str:
    """What SQLite makes of a declared type, by its own rule."""
    for words, affinity in ((("INT",), "INTEGER"), (("CHAR", "CLOB", "TEXT"), "TEXT"), (("BLOB",), "BLOB")):
        if any(word in declared for word in words):
            return affinity
    if not declared:
        return "BLOB"
    return "REAL" if any(word in declared for word in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def _insert_rows(database: sqlite3.Connection, table: str, outputs: pa.Table) -> None:
    columns, values = ", ".join(map(quoted, outputs.column_names)), ", ".join("?" * outputs.num_columns)
    for start in range(0, outputs.num_rows, _ROWS_AT_ONCE):
        piece = outputs.slice(start, _ROWS_AT_ONCE).combine_chunks()
        rows = zip(*(_values(column.combine_chunks()) for column in piece.columns))
        database.executemany(f"INSERT INTO {table} ({columns}) VALUES ({values})", rows)


def _values(column: pa.Array) -> list[Any]:
    """A column as values of SQLite. Timestamps are ISO 8601 in UTC, nested values JSON, decimals their digits."""
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
        return [None if value is None else to_json(value) for value in python_list(column)]
    return python_list(column)
