"""A SQLite sink is a table in a SQLite file: rows and mark are written in one transaction."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from persistent.connect.formats.json_rows import with_shortest_decimals
from persistent.connect.marked import T
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.sink import Known, Looked, RefusedKeys
from persistent.connect.sql import (
    INCOMING,
    MARKS,
    OTHER_KEY,
    check_distinct,
    check_table_name,
    check_times,
    checked_mode,
    is_true,
    quoted,
)
from persistent.connect.sqlite.table import SqliteTable, insert_rows
from persistent.connect.table import TableSink
from persistent.errors import InvalidPipeline, StorageError
from persistent.storage.sqlite_file import connected
from persistent.text.spelling import spelled
from persistent.time.clock import Duration, duration_ms

_INT64_MAX = (1 << 63) - 1
_REMEDIES = {
    "locked": "Another program holds a lock: end it, or wait longer with lock_timeout=",
    "unable to open": "Create the folder, and give this user the right to read and write there",
    "readonly": "Give this user the right to write the file and its folder",
    "full": "Free some space",
    "not a database": "Give the path of a SQLite file, or of a file that does not exist yet",
    "UNIQUE": 'The table takes no second row of them, and mode="append" adds rows: drop the index or constraint, or '
    'use mode="upsert" to replace rows by their key',
    "malformed": "Restore the file from a copy",
}


_FILES: Final = (".db", ".db3", ".sqlite", ".sqlite3")


class SqliteSink(TableSink[sqlite3.Connection]):
    """Publishes into ``table`` of the database in the file ``path``, which is created if absent.

    ``mode``: "append" adds rows, "upsert" replaces the row of the same key and window. The table is created from the
    columns of the outputs, or checked against them; its column ``revision`` has the number of the batch that wrote a
    row. ``lock_timeout``: how long to wait while another program writes to the file. The sink keeps the tables
    ``persistent_marks`` and, for upserts, ``persistent_before_<table>``: do not change them.
    """

    _incoming = quoted("temp", INCOMING)

    @spelled
    def __init__(
        self, path: str | os.PathLike[str], table: str, *, mode: str = "append", lock_timeout: Duration = "1 min"
    ) -> None:
        self.path = os.fspath(path)
        if not isinstance(self.path, str) or not self.path or self.path.startswith(":memory:"):
            raise InvalidPipeline(
                f"SqliteSink path={path!r}: give the path of a file; a database in memory is not durable"
            )
        if isinstance(table, os.PathLike) or (isinstance(table, str) and (os.sep in table or table.endswith(_FILES))):
            raise InvalidPipeline(
                f"SqliteSink table={table!r} is the path of a file: are path={self.path!r} and table= the other way "
                "round?"
            )
        if not isinstance(table, str) or not table or table.startswith("sqlite_"):
            raise InvalidPipeline(f"SqliteSink table={table!r}: give the name of a table")
        check_table_name(table, f"SqliteSink table={table!r}")
        super().__init__(table, SqliteTable(self.path, table, checked_mode(mode, "SqliteSink")))
        self.lock_ms = duration_ms(lock_timeout, "lock_timeout")
        self.address = f"{os.path.realpath(self.path)} table {table.lower()}"

    def __repr__(self) -> str:
        return f"SqliteSink({self.path!r}, {self.table!r}, mode={self.mode!r})"

    def guarantee(self) -> Promise:
        """Exactly-once."""
        return Promise(EXACTLY_ONCE, "SQLite commits the rows of a batch and its mark in one transaction")

    def check_names(self, names: Sequence[str]) -> None:
        """InvalidPipeline if two of them are one name to SQLite."""
        check_distinct(names, repr(self))

    def refused_keys(self, keys: pa.Table) -> RefusedKeys:
        """A null or a NaN in the key of an upsert, or a time outside the years 1 to 9999."""
        yield from super().refused_keys(keys)
        if self.mode == "upsert":
            for name, column in zip(keys.column_names, keys.columns):
                if pa.types.is_floating(column.type):
                    reason = f"{self!r}: NaN in the key column {name!r}, which SQLite does not have: {OTHER_KEY}"
                    yield is_true(pc.is_nan(column)), reason

    def newest(self, job: str) -> int:
        """The number of the last batch of this job here, -1 if there is none."""
        return super().newest(job) if os.path.exists(self.path) else -1

    def look(self, known: Known, on_progress: Callable[[int, int], None]) -> Iterator[Looked]:
        """Look whether the table still exists. StorageError."""
        if os.path.exists(self.path):
            yield from super().look(known, on_progress)

    def _transact(self, what: str, act: Callable[[sqlite3.Connection], T], *, changes: bool = True) -> T:
        """``act`` in a transaction that alone may write, from its first statement on; without ``changes``, it only
        reads."""
        try:
            with closing(self._connect()) as database:
                database.execute("BEGIN IMMEDIATE" if changes else "BEGIN")
                if changes:
                    database.execute(
                        f"CREATE TABLE IF NOT EXISTS {MARKS} (target TEXT COLLATE NOCASE PRIMARY KEY, "
                        "job TEXT NOT NULL, number INTEGER NOT NULL, mode TEXT NOT NULL, kept_from INTEGER NOT NULL, "
                        "made INTEGER NOT NULL)"
                    )
                value = act(database)
                database.execute("COMMIT")
                return value
        except sqlite3.Error as error:
            remedy = next((text for word, text in _REMEDIES.items() if word in str(error)), "Check the cause")
            raise StorageError(
                f"cannot {what} {self!r}: {error}. {remedy}; then run again: the last checkpoint is good"
            ) from error

    def _connect(self) -> sqlite3.Connection:
        return connected(self.path, self.lock_ms)

    def _insert(self, database: sqlite3.Connection, target: str, outputs: pa.Table, key: tuple[str, ...]) -> int:
        self.check(outputs, key)
        return insert_rows(database, target, with_shortest_decimals(outputs, key))

    def _check_columns(self, columns: pa.Schema, key: tuple[str, ...]) -> None:
        self.check_names(columns.names)
        for field in columns:
            if pa.types.is_interval(field.type):
                raise InvalidPipeline(
                    f"{self!r}: column {field.name!r} is of type {field.type}, which SQLite cannot hold: give the "
                    "monoid another output_type"
                )

    def _check_values(self, outputs: pa.Table) -> None:
        check_times(outputs, repr(self))
        for name, column in zip(outputs.column_names, outputs.columns):
            if column.type == pa.uint64() and (pc.max(column).as_py() or 0) > _INT64_MAX:
                raise InvalidPipeline(
                    f"{self!r}: column {name!r} has the integer {pc.max(column)}, but SQLite's largest is "
                    f"{_INT64_MAX}: give the monoid another output_type, such as decimal128(20, 0)"
                )
