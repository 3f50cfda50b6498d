"""A SQLite sink is a table in a SQLite file: rows and mark are written in one transaction."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from persistent.connect.formats.json_rows import with_revision, with_shortest_decimals
from persistent.connect.marked import SinkMark, claimed, has_retreated, is_published, is_settled
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.sink import BatchSink, Claim, Known, Looked, OutputBatch, RefusedKeys, Retreat
from persistent.connect.sql import (
    INCOMING,
    MARKS,
    OTHER_KEY,
    Statements,
    check_distinct,
    check_kept,
    check_keys,
    check_table_name,
    check_taken,
    check_times,
    check_unclaimed,
    checked_mode,
    columns_of,
    gone,
    images_name,
    is_true,
    looked_at,
    nulls_refused,
    quoted,
    times_refused,
)
from persistent.connect.sqlite.table import INSERT, SqliteTable, insert_rows
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


class SqliteSink(BatchSink):
    """Publishes into ``table`` of the database in the file ``path``, which is created if absent.

    ``mode``: "append" adds rows, "upsert" replaces the row of the same key and window. The table is created from the
    columns of the outputs, or checked against them; its column ``revision`` has the number of the batch that wrote a
    row. ``lock_timeout``: how long to wait while another program writes to the file. The sink keeps the tables
    ``persistent_marks`` and, for upserts, ``persistent_before_<table>``: do not change them.
    """

    limits_keys = True
    abilities = frozenset({"look", "newest", "retract"})

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
        self.table = table
        self.mode = checked_mode(mode, "SqliteSink")
        self.replaces = self.mode == "upsert"
        self._claimed = pa.schema([])
        self._table = SqliteTable(self.path, table, self.mode)
        self.lock_ms = duration_ms(lock_timeout, "lock_timeout")
        self.address = f"{os.path.realpath(self.path)} table {table.lower()}"

    def __repr__(self) -> str:
        return f"SqliteSink({self.path!r}, {self.table!r}, mode={self.mode!r})"

    def guarantee(self) -> Promise:
        """Exactly-once."""
        return Promise(EXACTLY_ONCE, "SQLite commits the rows of a batch and its mark in one transaction")

    def claim(self, claim: Claim) -> None:
        """Claim the table for a job, and check its columns. SinkMismatch, StorageError, InvalidPipeline."""
        columns = columns_of(claim.schema, claim.key, self.mode, repr(self))
        check_distinct(columns.names, repr(self))
        self._claimed = columns
        with self._transaction("claim") as database:
            old_mark = self._mark(database)
            mark = claimed(old_mark, claim, repr(self))
            copied = mark if old_mark is not None else SinkMark(claim.job, claim.inherited)
            is_there = self._is_there(database, copied, columns, claim.key)
            if old_mark is None and is_there and self._table.highest_revision(database):
                # Rows without a mark are a copy of the table of the job that this one started from.
                mark = copied
            self._move(database, old_mark, mark, made=is_there)

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        """InvalidPipeline for a null or a NaN in the key of an upsert, an integer that SQLite cannot hold, or a time
        outside the years 1 to 9999."""
        check_distinct(outputs.column_names, repr(self))
        for field in outputs.schema:
            if pa.types.is_interval(field.type):
                raise InvalidPipeline(
                    f"{self!r}: column {field.name!r} is of type {field.type}, which SQLite cannot hold: give the "
                    "monoid another output_type"
                )
        check_keys(self.refused_keys(outputs.select(key)))
        check_times(outputs, repr(self))
        for name, column in zip(outputs.column_names, outputs.columns):
            if column.type == pa.uint64() and (pc.max(column).as_py() or 0) > _INT64_MAX:
                raise InvalidPipeline(
                    f"{self!r}: column {name!r} has the integer {pc.max(column)}, but SQLite's largest is "
                    f"{_INT64_MAX}: give the monoid another output_type, such as decimal128(20, 0)"
                )

    def refused_keys(self, keys: pa.Table) -> RefusedKeys:
        """A null or a NaN in the key of an upsert, or a time outside the years 1 to 9999."""
        yield from times_refused(keys, repr(self))
        if self.mode == "upsert":
            yield from nulls_refused(keys, repr(self))
            for name, column in zip(keys.column_names, keys.columns):
                if pa.types.is_floating(column.type):
                    reason = f"{self!r}: NaN in the key column {name!r}, which SQLite does not have: {OTHER_KEY}"
                    yield is_true(pc.is_nan(column)), reason

    def deliver(self, batch: OutputBatch) -> None:
        """Write the rows of a batch and its mark. Fenced, StagedMissing, StorageError."""
        with self._transaction("publish to") as database:
            mark = self._mark(database)
            if not is_published(mark, batch, repr(self)):
                self._write(database, mark, batch)

    def retract(self, retreat: Retreat) -> None:
        """Take back what came after a rollback. Fenced, StorageError; InvalidPipeline if it goes too far back."""
        with self._transaction("take back from") as database:
            for batch in retreat.staged:
                mark = self._mark(database)
                if not is_settled(mark, batch, repr(self)):
                    self._write(database, mark, batch)
            mark = self._mark(database)
            if not has_retreated(mark, retreat, repr(self)):
                self._take_back(database, mark, retreat)
                self._move(database, mark, SinkMark(retreat.job, retreat.number))

    def newest(self, job: str) -> int:
        """The number of the last batch of this job here, -1 if there is none."""
        if not os.path.exists(self.path):
            return -1
        with self._transaction("read", changes=False) as database:
            mark = self._mark(database) if self._table.columns(database, MARKS) else None
        return mark.number if mark is not None and mark.job == job else -1

    def look(self, known: Known, on_progress: Callable[[int, int], None]) -> Iterator[Looked]:
        """Look whether the table still exists. StorageError."""
        if not os.path.exists(self.path):
            return
        with self._transaction("look at", changes=False) as database:
            is_made = bool(self._table.columns(database, MARKS)) and self._is_made(database)
            is_there = bool(self._table.columns(database, self.table))
        yield from looked_at(str(self._table), is_made=is_made, is_there=is_there)

    @contextmanager
    def _transaction(self, what: str, *, changes: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction that alone may write, from its first statement on; without ``changes``, it only reads."""
        try:
            with closing(self._connect()) as database:
                database.execute("BEGIN IMMEDIATE" if changes else "BEGIN")
                if changes:
                    database.execute(
                        f"CREATE TABLE IF NOT EXISTS {MARKS} (target TEXT COLLATE NOCASE PRIMARY KEY, "
                        "job TEXT NOT NULL, number INTEGER NOT NULL, mode TEXT NOT NULL, kept_from INTEGER NOT NULL, "
                        "made INTEGER NOT NULL)"
                    )
                yield database
                database.execute("COMMIT")
        except sqlite3.Error as error:
            remedy = next((text for word, text in _REMEDIES.items() if word in str(error)), "Check the cause")
            raise StorageError(
                f"cannot {what} {self!r}: {error}. {remedy}; then run again: the last checkpoint is good"
            ) from error

    def _connect(self) -> sqlite3.Connection:
        return connected(self.path, self.lock_ms)

    def _mark(self, database: sqlite3.Connection) -> SinkMark | None:
        rows = database.execute(f"SELECT job, number FROM {MARKS} WHERE target = ?", (self.table,)).fetchall()
        return SinkMark(*rows[0]) if rows else None

    def _move(
        self, database: sqlite3.Connection, prior: SinkMark | None, mark: SinkMark, *, made: bool = False
    ) -> None:
        """Move the mark from ``prior``. ``made``: the table exists, and belongs to this job. If the mode has changed,
        rows written in the earlier mode can no longer be taken back."""
        database.execute(
            f"INSERT INTO {MARKS} VALUES (:target, :job, :number, :mode, 0, :made) ON CONFLICT (target) DO UPDATE SET "
            "job = :job, number = :number, mode = :mode, kept_from = iif(mode = :mode, kept_from, :found), "
            "made = made OR :made",
            {
                "target": self.table,
                "mode": self.mode,
                "found": prior.number if made and prior is not None else 0,
                "made": int(made),
                **mark.__dict__,
            },
        )

    def _is_made(self, database: sqlite3.Connection) -> bool:
        """Whether the table once existed as this job's."""
        rows = database.execute(f"SELECT made FROM {MARKS} WHERE target = ?", (self.table,)).fetchall()
        return bool(rows and rows[0][0])

    def _kept_from(self, database: sqlite3.Connection) -> int:
        """The number of the newest batch that can no longer be taken back."""
        rows = database.execute(f"SELECT kept_from FROM {MARKS} WHERE target = ?", (self.table,)).fetchall()
        return int(rows[0][0]) if rows else 0

    def _keep_from(self, database: sqlite3.Connection, number: int) -> None:
        database.execute(f"UPDATE {MARKS} SET kept_from = max(kept_from, ?) WHERE target = ?", (number, self.table))

    def _write(self, database: sqlite3.Connection, mark: SinkMark | None, batch: OutputBatch) -> None:
        has_rows = False
        for outputs in batch.tables():
            self.check(outputs, batch.key)
            columns = columns_of(outputs.schema, batch.key, self.mode, repr(self))
            if has_rows:
                self._table.check(database, columns, batch.key)
            elif not self._is_there(database, mark, columns, batch.key):
                database.execute(self._table.creation(columns, batch.key))
            has_rows = True
            self._insert(database, with_revision(outputs, batch.number), batch)
        if self.mode == "upsert" and batch.oldest > self._kept_from(database):
            if self._table.columns(database, images_name(self.table)):
                database.execute(self._statements((), ()).forget(batch.oldest))
            self._keep_from(database, batch.oldest)
        self._move(database, mark, SinkMark(batch.job, batch.number), made=has_rows)

    def _insert(self, database: sqlite3.Connection, outputs: pa.Table, batch: OutputBatch) -> None:
        outputs = with_shortest_decimals(outputs, batch.key)
        statements = self._statements(outputs.column_names, batch.key)
        if self.mode == "append":
            taken = insert_rows(database, statements.target, outputs)
        else:
            incoming = quoted("temp", INCOMING)
            rows = f"SELECT {statements.names} FROM {statements.target} LIMIT 0"
            database.execute(f"CREATE TEMP TABLE {quoted(INCOMING)} AS {rows}")
            insert_rows(database, incoming, outputs)
            shared, was_there = self._table.fit_images(database, outputs.column_names)
            if not was_there:
                # Whether and what the batches of the rows in the table have replaced is unknown.
                self._keep_from(database, self._table.highest_revision(database))
            database.execute(self._statements(shared, batch.key).save(incoming, batch.number))
            taken = database.execute(statements.upsert(incoming, shared)).rowcount
            database.execute(f"DROP TABLE {incoming}")
        check_taken(str(self._table), taken, outputs.num_rows, self.mode)

    def _take_back(self, database: sqlite3.Connection, mark: SinkMark | None, retreat: Retreat) -> None:
        if retreat.first is None:
            return
        if not self._table.columns(database, self.table):
            self._check_not_gone(database, mark, self._claimed, retreat.key)
            return
        check_kept(self._kept_from(database), retreat, repr(self))
        if self.mode == "append":
            database.execute(self._statements((), ()).take_back(retreat.first))
        elif self._table.columns(database, images_name(self.table)):
            for statement in self._statements(self._table.fit_images(database)[0], retreat.key).restore(retreat.first):
                database.execute(statement)
        elif self._table.highest_revision(database) >= retreat.first:
            check_kept(retreat.number, retreat, repr(self))

    def _statements(self, columns: Iterable[str], key: Iterable[str]) -> Statements:
        return Statements(self._table.target, self._table.images, tuple(columns), tuple(key), INSERT)

    def _is_there(
        self, database: sqlite3.Connection, mark: SinkMark | None, columns: pa.Schema, key: Sequence[str]
    ) -> bool:
        """Whether the table exists, for rows after the mark. SinkMismatch if it is not as it should be."""
        if not self._table.check(database, columns, key):
            self._check_not_gone(database, mark, columns, key)
            return False
        if not self._is_made(database):
            number = 0 if mark is None else mark.number
            check_unclaimed(str(self._table), self._table.target, self._table.highest_revision(database), number)
        return True

    def _check_not_gone(
        self, database: sqlite3.Connection, mark: SinkMark | None, columns: pa.Schema, key: Sequence[str]
    ) -> None:
        if mark is not None and self._is_made(database):
            raise gone(str(self._table), mark.number, self._table.creation(columns, key), self.mode)
