"""A PostgreSQL sink is a table on a server: rows by COPY, and a mark in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import pyarrow as pa

from persistent.connect.formats.json_rows import with_revision
from persistent.connect.marked import SinkMark, claimed, has_retreated, is_published, is_settled
from persistent.connect.postgres.columns import (
    INDEX_COLUMNS_MAX,
    NAME_BYTES_MAX,
    check_columns,
    check_values,
    codec_of,
    csv_pieces,
    sizes_refused,
    texts_refused,
)
from persistent.connect.postgres.session import Moved, Patiences, Session, settings_of
from persistent.connect.postgres.table import LOCK, PostgresTable
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.sink import BatchSink, Claim, Known, Looked, OutputBatch, RefusedKeys, Retreat
from persistent.connect.sql import (
    INCOMING,
    MARKS,
    Statements,
    check_kept,
    check_keys,
    check_table_name,
    check_taken,
    check_unclaimed,
    checked_mode,
    columns_of,
    gone,
    looked_at,
    nulls_refused,
    quoted,
    times_refused,
)
from persistent.errors import InvalidPipeline
from persistent.text.spelling import spelled
from persistent.time.clock import Duration, duration_ms

_INCOMING = quoted(INCOMING)
_JOIN_MB = 64

_Looked: TypeAlias = tuple[int | None, pa.Schema, tuple[str, ...]]
"""The server's number of a table that was checked, and the columns and the key that it was checked for."""


class PostgresSink(BatchSink):
    """Publishes into ``table`` ("name" or "schema.name") of the database that ``dsn`` names, a URL or a string.

    ``mode``: "append" adds rows, "upsert" replaces the row of the same key and window. The table is created from the
    columns of the outputs, or checked against them; its column ``revision`` has the number of the batch that wrote a
    row. ``connect_timeout``: how long to wait for the server at the start of a run; ``server_away``: how long once it
    has answered; then the run stops at its last checkpoint. ``call_timeout``: the longest time of one statement. The
    sink keeps the tables ``persistent_marks`` and, for upserts, ``persistent_before_<table>``: do not change them.
    """

    limits_keys = True
    abilities = frozenset({"look", "newest", "retract"})

    @spelled
    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        mode: str = "append",
        connect_timeout: Duration = "30 s",
        call_timeout: Duration = "1 min",
        server_away: Duration = "5 min",
    ) -> None:
        settings = settings_of(dsn)
        parts = table.split(".") if isinstance(table, str) else []
        if not 1 <= len(parts) <= 2 or not all(parts):
            raise InvalidPipeline(f'PostgresSink table={table!r}: give "name" or "schema.name"')
        if any(len(part.encode()) > NAME_BYTES_MAX for part in parts):
            raise InvalidPipeline(
                f"PostgresSink table={table!r}: PostgreSQL truncates names after {NAME_BYTES_MAX} bytes; shorten it"
            )
        self.table = table
        self.mode = checked_mode(mode, "PostgresSink")
        self.replaces = self.mode == "upsert"
        check_table_name(parts[-1], f"PostgresSink table={table!r}")
        places = [settings.get("host", "localhost"), settings.get("port", 5432), settings.get("dbname", "")]
        self.place = "{}:{}/{}".format(*places)
        self.address = f"{self.place} table {table}"
        patiences = Patiences(
            duration_ms(connect_timeout, "connect_timeout"),
            duration_ms(call_timeout, "call_timeout"),
            duration_ms(server_away, "server_away"),
        )
        self._session = Session(settings, patiences, repr(self))
        self._claimed = pa.schema([])
        self._codec: str | None = None
        self._table = PostgresTable(tuple(parts[:-1]), parts[-1], self.mode, self.place)
        self._checked: _Looked | None = None
        self._made: _Looked | None = None

    def __repr__(self) -> str:
        return f"PostgresSink({self.place!r}, {self.table!r}, mode={self.mode!r})"

    def guarantee(self) -> Promise:
        """Exactly-once."""
        return Promise(EXACTLY_ONCE, "PostgreSQL commits the rows of a batch and its mark in one transaction")

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        self._session.close()

    def claim(self, claim: Claim) -> None:
        """Claim the table for a job, and check its columns. SinkMismatch, StorageError, InvalidPipeline."""
        columns = columns_of(claim.schema, claim.key, self.mode, repr(self))
        check_columns(columns, repr(self))

        def act(session: Session) -> None:
            self._codec = codec_of(*session.execute("SHOW server_encoding").fetchone())
            self._make_marks(session)
            old_mark = self._mark(session, lock=True)
            mark = claimed(old_mark, claim, repr(self))
            copied = mark if old_mark is not None else SinkMark(claim.job, claim.inherited)
            is_there = self._is_there(session, copied, columns, claim.key)
            if old_mark is None and is_there and self._table.highest_revision(session):
                # Rows without a mark are a copy of the table of the job that this one started from.
                mark = copied
            self._move(session, old_mark, mark, made=is_there)

        self._checked, self._claimed = None, columns
        self._session.transact("claim", act)

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        """InvalidPipeline for a null in the key of an upsert, or a value that PostgreSQL cannot hold."""
        check_columns(outputs.schema, repr(self))
        if self.mode == "upsert" and len(key) > INDEX_COLUMNS_MAX:
            raise InvalidPipeline(
                f"{self!r}: the key and window are {len(key)} columns, and an index of PostgreSQL has at most "
                f'{INDEX_COLUMNS_MAX}: join some of them to a text in the task, or use mode="append"'
            )
        check_keys(self.refused_keys(outputs.select(key)))
        check_values(outputs, repr(self), self._codec)

    def refused_keys(self, keys: pa.Table) -> RefusedKeys:
        """A time outside the years 1 to 9999, or a text that the database cannot hold; of an upsert also a null, or a
        key that no index can hold."""
        yield from times_refused(keys, repr(self))
        yield from texts_refused(keys, repr(self), self._codec)
        if self.mode == "upsert":
            yield from nulls_refused(keys, repr(self))
            yield from sizes_refused(keys, repr(self))

    def deliver(self, batch: OutputBatch) -> None:
        """Write the rows of a batch and its mark. Fenced, StagedMissing, StorageError."""

        def act(session: Session) -> None:
            mark = self._mark(session)
            if not is_published(mark, batch, repr(self)):
                self._write(session, mark, batch)

        self._publish(act)

    def retract(self, retreat: Retreat) -> None:
        """Take back what came after a rollback. Fenced, StorageError; InvalidPipeline if it goes too far back."""
        for batch in retreat.staged:

            def settle(session: Session, batch: OutputBatch = batch) -> None:
                mark = self._mark(session)
                if not is_settled(mark, batch, repr(self)):
                    self._write(session, mark, batch)

            self._publish(settle)

        def act(session: Session) -> None:
            # Locked before anything is deleted: earlier commits are seen, and later ones find the mark moved.
            mark = self._mark(session, lock=True)
            if not has_retreated(mark, retreat, repr(self)):
                self._take_back(session, mark, retreat)
                self._move(session, mark, SinkMark(retreat.job, retreat.number))

        self._session.transact("take back from", act)

    def newest(self, job: str) -> int:
        """The number of the last batch of this job here, -1 if there is none."""
        mark = self._session.transact("read", self._mark)
        return mark.number if mark is not None and mark.job == job else -1

    def look(self, known: Known, on_progress: Callable[[int, int], None]) -> Iterator[Looked]:
        """Look whether the table still exists. StorageError."""

        def act(session: Session) -> tuple[bool, bool]:
            is_made = self._table.number(session, self._marks) is not None and self._is_made(session)
            return is_made, self._table.number(session) is not None

        is_made, is_there = self._session.transact("look at", act)
        yield from looked_at(str(self._table), is_made=is_made, is_there=is_there)

    def _make_marks(self, session: Session) -> None:
        if self._table.number(session, self._marks) is not None:
            return
        session.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {self._marks} (target text PRIMARY KEY, job text NOT NULL, "
            "number bigint NOT NULL, mode text NOT NULL, kept_from bigint NOT NULL, made boolean NOT NULL)"
        )

    def _mark(self, session: Session, *, lock: bool = False) -> SinkMark | None:
        if self._table.number(session, self._marks) is None:
            return None
        statement = f"SELECT job, number FROM {self._marks} WHERE target = %s{' FOR UPDATE' if lock else ''}"
        row = session.execute(statement, [self._table.name]).fetchone()
        return None if row is None else SinkMark(*row)

    def _move(self, session: Session, prior: SinkMark | None, mark: SinkMark, *, made: bool = False) -> None:
        """Move the mark from ``prior``. Moved unless one row changes: another writer was first. ``made``: the table
        exists, and belongs to this job. If the mode has changed, rows of the earlier mode cannot be taken back."""
        if prior is None:
            done = session.execute(
                f"INSERT INTO {self._marks} VALUES (%s, %s, %s, %s, 0, %s) ON CONFLICT DO NOTHING",
                [self._table.name, mark.job, mark.number, self.mode, made],
            )
        else:
            done = session.execute(
                f"UPDATE {self._marks} SET job = %s, number = %s, mode = %s, made = made OR %s, "
                "kept_from = CASE WHEN mode = %s THEN kept_from WHEN %s THEN number ELSE 0 END "
                "WHERE target = %s AND job = %s AND number = %s",
                [mark.job, mark.number, self.mode, made, self.mode, made, self._table.name, prior.job, prior.number],
            )
        if done.rowcount != 1:
            raise Moved

    def _is_made(self, session: Session) -> bool:
        """Whether the table once existed as this job's."""
        statement = f"SELECT made FROM {self._marks} WHERE target = %s"
        row = session.execute(statement, [self._table.name]).fetchone()
        return row is not None and bool(row[0])

    def _kept_from(self, session: Session) -> int:
        """The number of the newest batch that can no longer be taken back."""
        row = session.execute(
            f"SELECT CASE WHEN mode = %s THEN kept_from ELSE number END FROM {self._marks} WHERE target = %s",
            [self.mode, self._table.name],
        ).fetchone()
        return 0 if row is None else int(row[0])

    def _keep_from(self, session: Session, number: int) -> None:
        statement = f"UPDATE {self._marks} SET kept_from = %s WHERE target = %s AND kept_from < %s"
        session.execute(statement, [number, self._table.name, number])

    def _publish(self, act: Callable[[Session], None]) -> None:
        def from_the_beginning(session: Session) -> None:
            # What a transaction has made is gone if it is rolled back.
            self._made = self._checked
            act(session)

        self._session.transact("publish to", from_the_beginning)
        self._checked = self._made

    def _write(self, session: Session, mark: SinkMark | None, batch: OutputBatch) -> None:
        """Rows first: slow work must not hold the mark, which a stopped driver would withhold from its successor."""
        names: tuple[str, ...] = ()
        rows = 0
        for outputs in batch.tables():
            columns = columns_of(outputs.schema, batch.key, self.mode, repr(self))
            self._ready(session, mark, columns, batch.key)
            if self.mode == "upsert" and not names:
                statements = self._statements(columns.names, batch.key)
                like = f"SELECT {statements.names} FROM {statements.target} LIMIT 0"
                session.execute(f"CREATE TEMP TABLE {_INCOMING} ON COMMIT DROP AS {like}")
            names = tuple(columns.names)
            target = _INCOMING if self.mode == "upsert" else self._table.target
            outputs = with_revision(outputs, batch.number)
            columns_text = ", ".join(map(quoted, outputs.column_names))
            taken = session.copy(f"COPY {target} ({columns_text}) FROM STDIN (FORMAT csv)", csv_pieces(outputs))
            check_taken(str(self._table), taken, outputs.num_rows, self.mode)
            rows += taken
        self._move(session, mark, SinkMark(batch.job, batch.number), made=bool(names))
        if names and self.mode == "upsert":
            taken = self._merge(session, self._statements(names, batch.key), batch)
            check_taken(str(self._table), taken, rows, self.mode)
        if names:
            self._table.check_obeys(session)

    def _merge(self, session: Session, statements: Statements, batch: OutputBatch) -> int:
        """Upsert the incoming rows, and keep those that they replace. Returns how many rows were written."""
        shared, was_there = self._table.fit_images(session, statements.columns)
        kept = self._statements(shared, batch.key)
        for statement in (
            # The join fits in memory, and rough statistics suffice for its plan.
            f"SELECT set_config('work_mem', '{_JOIN_MB}MB', true) "
            f"WHERE pg_size_bytes(current_setting('work_mem')) < {_JOIN_MB << 20}",
            # Keys are unique, so memoizing lookups is wasted work.
            "SELECT set_config('enable_memoize', 'off', true) "
            "WHERE current_setting('server_version_num')::int >= 140000",
            "SET LOCAL default_statistics_target = 10",
            f"ANALYZE {_INCOMING}",
            kept.save(_INCOMING, batch.number),
        ):
            session.execute(statement)
        if not was_there:
            # Whether and what the batches of the rows in the table have replaced is unknown.
            self._keep_from(session, self._table.highest_revision(session))
        taken = session.execute(statements.upsert(_INCOMING, shared)).rowcount
        if batch.oldest > self._kept_from(session):
            session.execute(statements.forget(batch.oldest))
            self._keep_from(session, batch.oldest)
        return int(taken)

    def _take_back(self, session: Session, mark: SinkMark | None, retreat: Retreat) -> None:
        if retreat.first is None:
            return
        if self._table.number(session) is None:
            self._check_not_gone(session, mark, self._claimed, retreat.key)
            return
        check_kept(self._kept_from(session), retreat, repr(self))
        if self.mode == "append":
            session.execute(self._statements((), ()).take_back(retreat.first))
        elif self._table.number(session, self._table.images) is not None:
            for statement in self._statements(self._table.fit_images(session)[0], retreat.key).restore(retreat.first):
                session.execute(statement)
        elif self._table.highest_revision(session) >= retreat.first:
            check_kept(retreat.number, retreat, repr(self))
        self._table.check_obeys(session)

    def _ready(self, session: Session, mark: SinkMark | None, columns: pa.Schema, key: tuple[str, ...]) -> None:
        """Make the table or check it, unless it was checked for such rows before."""
        number = self._table.number(session)
        if number is not None and self._made == (number, columns, key):
            return
        if not self._is_there(session, mark, columns, key):
            self._table.make(session, columns, key)
            number = self._table.number(session)
        self._made = (number, columns, key)

    def _is_there(self, session: Session, mark: SinkMark | None, columns: pa.Schema, key: tuple[str, ...]) -> bool:
        """Whether the table exists, for rows after the mark. SinkMismatch if it is not as it should be."""
        if not self._table.check(session, columns, key):
            self._check_not_gone(session, mark, columns, key)
            return False
        if self._made is None and not self._is_made(session):
            number = 0 if mark is None else mark.number
            check_unclaimed(str(self._table), self._table.target, self._table.highest_revision(session), number)
        return True

    def _check_not_gone(
        self, session: Session, mark: SinkMark | None, columns: pa.Schema, key: tuple[str, ...]
    ) -> None:
        if mark is not None and self._is_made(session):
            raise gone(str(self._table), mark.number, self._table.creation(columns, key), self.mode)

    @property
    def _marks(self) -> str:
        return self._table.beside(MARKS)

    def _statements(self, columns: Iterable[str], key: Iterable[str]) -> Statements:
        return Statements(self._table.target, self._table.images, tuple(columns), tuple(key))
