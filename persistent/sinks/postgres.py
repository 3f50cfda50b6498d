"""A PostgreSQL sink is a table on a server: rows by COPY, and a mark in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from persistent.clients.postgres_session import Moved, Patiences, Session, settings_of
from persistent.clock import Duration, duration_ms
from persistent.errors import InvalidPipeline, StorageError
from persistent.promises import EXACTLY_ONCE, Promise
from persistent.sinks.marks import SinkMark, claimed, has_retreated, is_published, is_settled
from persistent.sinks.postgres_columns import (
    NAME_BYTES_MAX,
    check_names,
    check_values,
    csv_pieces,
    fits,
    short_name,
    type_of,
)
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

_INCOMING = quoted("persistent_incoming")
_JOIN_MB = 64
_LOCK = 0x7065727369737401
"""The advisory lock of those who make tables."""


class PostgresSink:
    """Publishes into ``table`` ("name" or "schema.name") of the database that ``dsn`` names, a URL or a string.

    ``mode``: "append" adds rows, "upsert" replaces the row of the same key and window. The table is made from the
    columns of the outputs, or checked against them; its column ``revision`` has the number of the batch that wrote a
    row. ``connect_timeout``: how long to wait for the server when a run begins; ``server_away``: how long once it has
    answered; then the run stops at its last checkpoint. ``call_timeout``: the longest that one statement may take. The
    tables ``persistent_marks`` and, for upserts, ``persistent_before_<table>`` are beside it: leave them alone.
    """

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
                f"PostgresSink table={table!r}: PostgreSQL cuts names off after {NAME_BYTES_MAX} bytes; shorten it"
            )
        self.table = table
        self.mode = checked_mode(mode, "PostgresSink")
        self._schema, self._name = parts[:-1], parts[-1]
        places = [settings.get("host", "localhost"), settings.get("port", 5432), settings.get("dbname", "")]
        self.place = "{}:{}/{}".format(*places)
        self.address = f"{self.place} table {table}"
        patiences = Patiences(
            duration_ms(connect_timeout, "connect_timeout"),
            duration_ms(call_timeout, "call_timeout"),
            duration_ms(server_away, "server_away"),
        )
        self._session = Session(settings, patiences, repr(self))
        self._checked: tuple[pa.Schema, tuple[str, ...]] | None = None
        self._made: tuple[pa.Schema, tuple[str, ...]] | None = None

    def __repr__(self) -> str:
        return f"PostgresSink({self.place!r}, {self.table!r}, mode={self.mode!r})"

    def guarantee(self) -> Promise:
        """Exactly-once."""
        return Promise(EXACTLY_ONCE, "PostgreSQL commits the rows of a batch and its mark in one transaction")

    def close(self) -> None:
        """End the connection; the next call makes another."""
        self._session.close()

    def claim(self, claim: Claim) -> None:
        """Claim the table for a job, and check its columns. StorageError, InvalidPipeline."""
        columns = columns_of(claim.schema, claim.key, self.mode, repr(self))
        check_names(columns, repr(self))

        def act(session: Session) -> None:
            self._make_marks(session)
            found = self._mark(session, lock=True)
            self._move(session, found, claimed(found, claim, repr(self)))
            self._check_table(session, columns, claim.key)

        self._checked = None
        self._session.transact("claim", act)

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        """InvalidPipeline for a null in the key of an upsert, or a value that PostgreSQL has no place for."""
        if self.mode == "upsert":
            check_keys(outputs, key, repr(self))
        check_values(outputs, repr(self))

    def deliver(self, batch: OutputBatch) -> None:
        """Write the rows of a batch and its mark. Fenced, StagedMissing, StorageError."""

        def act(session: Session) -> None:
            found = self._mark(session)
            if not is_published(found, batch, repr(self)):
                self._write(session, found, batch)

        self._publish(act)

    def retract(self, retreat: Retreat) -> None:
        """Take back what came after a rollback. Fenced, StorageError; InvalidPipeline if it goes too far back."""
        for batch in retreat.staged:

            def settle(session: Session, batch: OutputBatch = batch) -> None:
                found = self._mark(session)
                if not is_settled(found, batch, repr(self)):
                    self._write(session, found, batch)

            self._publish(settle)

        def act(session: Session) -> None:
            # Locked before anything is deleted: what commits first is seen, what comes later finds the mark moved.
            found = self._mark(session, lock=True)
            if not has_retreated(found, retreat, repr(self)):
                self._take_back(session, retreat)
                self._move(session, found, SinkMark(retreat.job, retreat.number))

        self._session.transact("take back from", act)

    def newest(self, job: str) -> int:
        """The number of the last batch of this job here, -1 if there is none."""
        found = self._session.transact("read", self._mark)
        return found.number if found is not None and found.job == job else -1

    # -- the mark ------------------------------------------------------------------------------------------------

    def _make_marks(self, session: Session) -> None:
        if self._exists(session, MARKS):
            return
        session.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {self._quoted(MARKS)} (target text PRIMARY KEY, job text NOT NULL, "
            "number bigint NOT NULL, mode text NOT NULL, kept_from bigint NOT NULL)"
        )

    def _mark(self, session: Session, *, lock: bool = False) -> SinkMark | None:
        if not self._exists(session, MARKS):
            return None
        statement = f"SELECT job, number FROM {self._quoted(MARKS)} WHERE target = %s{' FOR UPDATE' if lock else ''}"
        row = session.execute(statement, [self._name]).fetchone()
        return None if row is None else SinkMark(*row)

    def _move(self, session: Session, found: SinkMark | None, mark: SinkMark) -> None:
        """Set the mark, from where it was found: one row, or it has moved. What was written in another mode is not
        taken back in this one."""
        marks = self._quoted(MARKS)
        if found is None:
            done = session.execute(
                f"INSERT INTO {marks} VALUES (%s, %s, %s, %s, 0) ON CONFLICT DO NOTHING",
                [self._name, mark.job, mark.number, self.mode],
            )
        else:
            done = session.execute(
                f"UPDATE {marks} SET job = %s, number = %s, mode = %s, "
                "kept_from = CASE WHEN mode = %s THEN kept_from ELSE number END "
                "WHERE target = %s AND job = %s AND number = %s",
                [mark.job, mark.number, self.mode, self.mode, self._name, found.job, found.number],
            )
        if done.rowcount != 1:
            raise Moved

    def _kept_from(self, session: Session) -> int:
        """The number of the newest batch that can no longer be taken back."""
        marks = self._quoted(MARKS)
        row = session.execute(
            f"SELECT CASE WHEN mode = %s THEN kept_from ELSE number END FROM {marks} WHERE target = %s",
            [self.mode, self._name],
        ).fetchone()
        return 0 if row is None else int(row[0])

    # -- rows ----------------------------------------------------------------------------------------------------

    def _publish(self, act: Callable[[Session], None]) -> None:
        def from_the_beginning(session: Session) -> None:
            # What a transaction has made is gone if it is not committed.
            self._made = self._checked
            act(session)

        self._session.transact("publish to", from_the_beginning)
        self._checked = self._made

    def _write(self, session: Session, found: SinkMark | None, batch: OutputBatch) -> None:
        """Rows first: what takes long must not hold the mark, which a stopped driver would keep from its successor."""
        names: tuple[str, ...] = ()
        for outputs in batch.tables():
            self.check(outputs, batch.key)
            columns = columns_of(outputs.schema, batch.key, self.mode, repr(self))
            self._ready(session, columns, batch.key)
            if self.mode == "upsert" and not names:
                names = tuple(columns.names)
                self._make_incoming(session, self._statements(names, batch.key))
            target = _INCOMING if self.mode == "upsert" else self._target
            outputs = with_revision(outputs, batch.number)
            columns_text = ", ".join(map(quoted, outputs.column_names))
            session.copy(f"COPY {target} ({columns_text}) FROM STDIN (FORMAT csv)", csv_pieces(outputs))
        self._move(session, found, SinkMark(batch.job, batch.number))
        if names:
            self._merge(session, self._statements(names, batch.key), batch)

    def _merge(self, session: Session, statements: Statements, batch: OutputBatch) -> None:
        """Put the incoming rows in their places, and keep what was there."""
        kept = self._statements(self._fit_images(session, statements.columns), batch.key)
        for statement in (
            # What is joined fits in memory, and a rough look at it is enough for the plan.
            f"SELECT set_config('work_mem', '{_JOIN_MB}MB', true) "
            f"WHERE pg_size_bytes(current_setting('work_mem')) < {_JOIN_MB << 20}",
            "SET LOCAL default_statistics_target = 10",
            f"ANALYZE {_INCOMING}",
            kept.save(_INCOMING, batch.number),
            statements.upsert(_INCOMING),
        ):
            session.execute(statement)
        if batch.oldest > self._kept_from(session):
            session.execute(statements.forget(batch.oldest))
            marks = self._quoted(MARKS)
            session.execute(f"UPDATE {marks} SET kept_from = %s WHERE target = %s", [batch.oldest, self._name])

    def _take_back(self, session: Session, retreat: Retreat) -> None:
        if retreat.first is None or not self._exists(session, self._name):
            return
        check_kept(self._kept_from(session), retreat, repr(self))
        if self.mode == "append":
            session.execute(self._statements((), ()).take_back(retreat.first))
        elif self._exists(session, self._images):
            for statement in self._statements(self._fit_images(session), retreat.key).restore(retreat.first):
                session.execute(statement)

    # -- the table -----------------------------------------------------------------------------------------------

    def _ready(self, session: Session, columns: pa.Schema, key: tuple[str, ...]) -> None:
        """Make the table, or check it, unless this has been done for such rows."""
        if self._made == (columns, key):
            return
        if not self._check_table(session, columns, key):
            session.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            if self._exists(session, self._name):
                raise Moved
            self._make_table(session, columns, key)
        self._made = (columns, key)

    def _check_table(self, session: Session, columns: pa.Schema, key: Sequence[str]) -> bool:
        """Whether the table is there. StorageError if it has another shape."""
        found = {name: (kind, is_wanted) for name, kind, is_wanted in self._columns(session, self._name)}
        if not found:
            return False
        place = f"{self.place}: table {self.table}"
        for field in columns:
            expected = type_of(field.type)
            if field.name not in found:
                remedy = f"Add it: ALTER TABLE {self._target} ADD COLUMN {quoted(field.name)} {expected}"
                raise wrong_column(place, field.name, "missing", f"one of type {expected}", remedy)
            kind = found[field.name][0]
            if not pa.types.is_null(field.type) and not fits(kind, expected):
                remedy = (
                    f"Change it: ALTER TABLE {self._target} ALTER COLUMN {quoted(field.name)} TYPE {expected}; or give "
                    "the sink another table"
                )
                raise wrong_column(place, field.name, f"of type {kind}", f"{expected} ({field.type})", remedy)
        for name, (kind, is_wanted) in found.items():
            if columns and is_wanted and name not in columns.names and len(columns) > 1:
                remedy = f"Give it a default: ALTER TABLE {self._target} ALTER COLUMN {quoted(name)} DROP NOT NULL"
                raise wrong_column(place, name, f"{kind} NOT NULL without a default", "to leave it out", remedy)
        self._check_kind(session, place, columns, key)
        if self.mode == "upsert" and set(key) not in self._unique(session):
            raise no_unique_index(place, self._name, self._target, key)
        return True

    def _check_kind(self, session: Session, place: str, columns: pa.Schema, key: Sequence[str]) -> None:
        """StorageError for a table that a crash empties, a column that the server computes, a key of unlike texts."""
        (kind,) = session.execute(
            "SELECT relpersistence FROM pg_class WHERE oid = to_regclass(%s)", [self._target]
        ).fetchone()
        if kind != "p":
            raise StorageError(
                f"{place} is UNLOGGED: a crash of the server empties it, and its mark stays. Change it: "
                f"ALTER TABLE {self._target} SET LOGGED"
            )
        found = session.execute(
            "SELECT attname, attgenerated <> '', collname FROM pg_attribute LEFT JOIN pg_collation c "
            "ON c.oid = attcollation AND NOT collisdeterministic "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            [self._target],
        )
        remedy = "Give the sink another table, or change this one"
        for name, is_computed, collation in found.fetchall():
            if is_computed and name in columns.names:
                raise wrong_column(place, name, "computed by the server", "one to write into", remedy)
            if collation and name in key and self.mode == "upsert":
                raise wrong_column(
                    place, name, f"compared by {collation}, to which unlike texts are equal", "each key apart", remedy
                )

    def _make_table(self, session: Session, columns: pa.Schema, key: Sequence[str]) -> None:
        lines = [f"{quoted(field.name)} {type_of(field.type)}" for field in columns]
        if self.mode == "upsert":
            lines.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
        session.execute(f"CREATE TABLE {self._target} ({', '.join(lines)})")

    def _fit_images(self, session: Session, columns: Sequence[str] = ()) -> tuple[str, ...]:
        """Make the table of what upserts replace, with these columns and those of earlier outputs: what it has of the
        target's columns. They have the types that the target has by now, so that values stay as they are."""
        name = self._images
        kinds = {column: kind for column, kind, _ in self._columns(session, self._name)}
        found = {column: kind for column, kind, _ in self._columns(session, name)}
        table = self._quoted(name)
        if not found:
            session.execute(f"CREATE TABLE {table} ({quoted(BATCH)} bigint NOT NULL)")
            session.execute(f"CREATE INDEX ON {table} USING brin ({quoted(BATCH)})")
        shared = [column for column in kinds if column in found or column in columns]
        for column in shared:
            place, kind = quoted(column), kinds[column]
            if column not in found:
                session.execute(f"ALTER TABLE {table} ADD COLUMN {place} {kind}")
            elif found[column] != kind:
                session.execute(f"ALTER TABLE {table} ALTER COLUMN {place} TYPE {kind} USING {place}::{kind}")
        return tuple(shared)

    def _make_incoming(self, session: Session, statements: Statements) -> None:
        session.execute(
            f"CREATE TEMP TABLE {_INCOMING} ON COMMIT DROP AS SELECT {statements.names} FROM {self._target} LIMIT 0"
        )

    def _columns(self, session: Session, table: str) -> list[tuple[str, str, bool]]:
        """The columns of a table, their types, and whether a row must say a value; none if there is no such table."""
        found = session.execute(
            "SELECT attname, format_type(atttypid, atttypmod), "
            "attnotnull AND NOT atthasdef AND attidentity = '' AND attgenerated = '' FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [self._quoted(table)],
        )
        return list(found.fetchall())

    def _unique(self, session: Session) -> list[set[str]]:
        """The sets of columns that a unique index is of."""
        found = session.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
            "AND a.attnum = ANY (i.indkey) WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid "
            "AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = i.indnatts "
            "GROUP BY i.indexrelid",
            [self._target],
        )
        return [set(names) for (names,) in found.fetchall()]

    def _exists(self, session: Session, table: str) -> bool:
        (found,) = session.execute("SELECT to_regclass(%s) IS NOT NULL", [self._quoted(table)]).fetchone()
        return bool(found)

    def _quoted(self, table: str) -> str:
        return quoted(*self._schema, table)

    @property
    def _target(self) -> str:
        return self._quoted(self._name)

    @property
    def _images(self) -> str:
        return short_name(images_name(self._name))

    def _statements(self, columns: Iterable[str], key: Iterable[str]) -> Statements:
        return Statements(self._target, self._quoted(self._images), tuple(columns), tuple(key))
