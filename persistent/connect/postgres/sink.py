"""A PostgreSQL sink is a table on a server: rows by COPY, and a mark in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from persistent.connect.marked import SinkMark, T
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
from persistent.connect.postgres.session import Patiences, Session, settings_of
from persistent.connect.postgres.table import LOCK, PostgresTable
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.sink import OutputBatch, RefusedKeys
from persistent.connect.sql import INCOMING, MARKS, Statements, check_table_name, checked_mode, quoted
from persistent.connect.table import TableMark, TableSink
from persistent.errors import InvalidPipeline
from persistent.text.spelling import spelled
from persistent.time.clock import Duration, duration_ms

_JOIN_MB = 64


class PostgresSink(TableSink[Session]):
    """Publishes into ``table`` ("name" or "schema.name") of the database that ``dsn`` names, a URL or a string.

    ``mode``: "append" adds rows, "upsert" replaces the row of the same key and window. The table is created from the
    columns of the outputs, or checked against them; its column ``revision`` has the number of the batch that wrote a
    row. ``connect_timeout``: how long to wait for the server at the start of a run; ``server_away``: how long once it
    has answered; then the run stops at its last checkpoint. ``call_timeout``: the longest time of one statement. The
    sink keeps the tables ``persistent_marks`` and, for upserts, ``persistent_before_<table>``: do not change them.
    """

    _incoming = quoted(INCOMING)
    _temporary = " ON COMMIT DROP"

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
        checked_mode(mode, "PostgresSink")
        check_table_name(parts[-1], f"PostgresSink table={table!r}")
        places = [settings.get("host", "localhost"), settings.get("port", 5432), settings.get("dbname", "")]
        self.place = "{}:{}/{}".format(*places)
        super().__init__(table, PostgresTable(self.place, parts[-1], mode, tuple(parts[:-1])))
        self.address = f"{self.place} table {table}"
        patiences = Patiences(
            duration_ms(connect_timeout, "connect_timeout"),
            duration_ms(call_timeout, "call_timeout"),
            duration_ms(server_away, "server_away"),
        )
        self._session = Session(settings, patiences, repr(self))
        self._codec: str | None = None

    def __repr__(self) -> str:
        return f"PostgresSink({self.place!r}, {self.table!r}, mode={self.mode!r})"

    def guarantee(self) -> Promise:
        """Exactly-once."""
        return Promise(EXACTLY_ONCE, "PostgreSQL commits the rows of a batch and its mark in one transaction")

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        self._session.close()

    def refused_keys(self, keys: pa.Table) -> RefusedKeys:
        """A time outside the years 1 to 9999, or a text that the database cannot hold; of an upsert also a null, or a
        key that no index can hold."""
        yield from texts_refused(keys, repr(self), self._codec)
        yield from super().refused_keys(keys)
        if self.mode == "upsert":
            yield from sizes_refused(keys, repr(self))

    def _transact(self, what: str, act: Callable[[Session], T], *, changes: bool = True) -> T:
        return self._session.transact(what, act)

    def _prepare(self, database: Session) -> None:
        self._codec = codec_of(*database.execute("SHOW server_encoding").fetchone())
        if self._table.number(database, MARKS) is not None:
            return
        database.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        database.execute(
            f"CREATE TABLE IF NOT EXISTS {self._marks} (target text PRIMARY KEY, job text NOT NULL, "
            "number bigint NOT NULL, mode text NOT NULL, kept_from bigint NOT NULL, made boolean NOT NULL)"
        )

    def _publish(self, batch: OutputBatch, is_done: Callable[[SinkMark | None, OutputBatch, str], bool]) -> None:
        self._made = self._checked
        super()._publish(batch, is_done)
        self._checked = self._made

    def _insert(self, database: Session, target: str, outputs: pa.Table, key: tuple[str, ...]) -> int:
        columns = ", ".join(map(quoted, outputs.column_names))
        return database.copy(f"COPY {target} ({columns}) FROM STDIN (FORMAT csv)", csv_pieces(outputs))

    def _merge(self, database: Session, prior: TableMark | None, statements: Statements, batch: OutputBatch) -> int:
        for statement in (
            # The join fits in memory, and rough statistics suffice for its plan.
            f"SELECT set_config('work_mem', '{_JOIN_MB}MB', true) "
            f"WHERE pg_size_bytes(current_setting('work_mem')) < {_JOIN_MB << 20}",
            # Keys are unique, so memoizing lookups is wasted work.
            "SELECT set_config('enable_memoize', 'off', true) "
            "WHERE current_setting('server_version_num')::int >= 140000",
            "SET LOCAL default_statistics_target = 10",
            f"ANALYZE {self._incoming}",
        ):
            database.execute(statement)
        return super()._merge(database, prior, statements, batch)

    def _check_columns(self, columns: pa.Schema, key: Sequence[str]) -> None:
        check_columns(columns, repr(self))
        if self.mode == "upsert" and len(key) > INDEX_COLUMNS_MAX:
            raise InvalidPipeline(
                f"{self!r}: the key and window are {len(key)} columns, and an index of PostgreSQL has at most "
                f'{INDEX_COLUMNS_MAX}: join some of them to a text in the task, or use mode="append"'
            )

    def _check_values(self, outputs: pa.Table) -> None:
        check_values(outputs, repr(self), self._codec)
