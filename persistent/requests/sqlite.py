"""A request log in a SQLite file, beside the tables that the requests change."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from persistent.clients.sqlite_file import connected
from persistent.clock import Duration, duration_ms
from persistent.errors import InvalidPipeline, StorageError
from persistent.requests.protocol import TABLE, Answered, checked_reply, checked_request, is_answered


class SqliteRequestLog:
    """The requests in the file ``path``, which is created if absent. ``lock_timeout``: how long to wait while another
    program writes to it.

    >>> import tempfile
    >>> log = SqliteRequestLog(tempfile.mkdtemp() + "/shop.db")
    >>> def order(database):
    ...     database.execute("CREATE TABLE IF NOT EXISTS orders (what TEXT)")
    ...     database.execute("INSERT INTO orders VALUES ('tea')")
    ...     return b"%d orders" % database.execute("SELECT count(*) FROM orders").fetchone()[0]
    >>> log.answer("till 7", 1, order), log.answer("till 7", 1, order), log.answer("till 7", 2, order)
    (b'1 orders', b'1 orders', b'2 orders')
    """

    def __init__(self, path: str | os.PathLike[str], *, lock_timeout: Duration = "1 min") -> None:
        self.path = os.fspath(path)
        if not isinstance(self.path, str) or not self.path or self.path.startswith(":memory:"):
            raise InvalidPipeline(f"SqliteRequestLog path={path!r}: give the path of a file")
        self._lock_ms = duration_ms(lock_timeout, "lock_timeout")

    def __repr__(self) -> str:
        return f"SqliteRequestLog({self.path!r})"

    def answer(self, requester: str, id: int, work: Callable[[sqlite3.Connection], bytes]) -> bytes:
        """The reply to a request: of ``work``, or the stored one if the request was answered before.

        Changes made by ``work`` through the connection are committed with its reply. If it raises, or tries to end the
        transaction, all its changes are rolled back. Refused for an id below the last; StorageError.
        """
        checked_request(requester, id)
        with self._transaction() as database:
            found = self._last(database, requester)
            if is_answered(found, requester, id, repr(self)):
                assert found is not None
                return found.reply
            with self._kept_whole(database):
                reply = checked_reply(work(database))
            database.execute(
                f"INSERT INTO {TABLE} (requester, id, reply) VALUES (?, ?, ?) "
                "ON CONFLICT (requester) DO UPDATE SET id = excluded.id, reply = excluded.reply",
                (requester, id, reply),
            )
        return reply

    def last(self, requester: str) -> int:
        """The last answered id, -1 if none was: a requester that has forgotten its ids continues after it."""
        with self._transaction() as database:
            found = self._last(database, requester)
        return -1 if found is None else found.id

    def forget(self, requester: str) -> None:
        """Forget a requester, for good: it must never ask again."""
        with self._transaction() as database:
            database.execute(f"DELETE FROM {TABLE} WHERE requester = ?", (requester,))

    def _last(self, database: sqlite3.Connection, requester: str) -> Answered | None:
        rows = database.execute(f"SELECT id, reply FROM {TABLE} WHERE requester = ?", (requester,)).fetchall()
        return Answered(*rows[0]) if rows else None

    @contextmanager
    def _kept_whole(self, database: sqlite3.Connection) -> Iterator[None]:
        """Refuse statements that would end the transaction, and everything after a rollback by SQLite itself, which
        would be committed alone. StorageError, even if the work has swallowed the error."""
        refused: list[str | None] = []

        def answered(action: int, word: str | None, *_: str | None) -> int:
            if action != sqlite3.SQLITE_TRANSACTION and database.in_transaction:
                return sqlite3.SQLITE_OK
            refused.append(word)
            return sqlite3.SQLITE_DENY

        database.set_authorizer(answered)
        cause: Exception | None = None
        try:
            yield
        except Exception as error:
            if not refused:
                raise
            cause = error
        if refused or not database.in_transaction:
            raise StorageError(
                f"{self!r}: the work of a request tried to end its transaction, or had it rolled back (ON CONFLICT "
                "ROLLBACK): its changes and the reply would no longer be atomic, so nothing was done. Leave COMMIT and "
                "ROLLBACK to the log, including commit(), rollback(), executescript() and 'with database:'; a "
                "SAVEPOINT can be rolled back"
            ) from cause
        database.set_authorizer(None)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction that alone may write. An exception rolls it back."""
        try:
            # A cached statement would not be checked again.
            with closing(connected(self.path, self._lock_ms, cached_statements=0)) as database:
                database.execute("BEGIN IMMEDIATE")
                database.execute(
                    f"CREATE TABLE IF NOT EXISTS {TABLE} "
                    "(requester TEXT PRIMARY KEY, id INTEGER NOT NULL, reply BLOB NOT NULL)"
                )
                yield database
                database.execute("COMMIT")
        except sqlite3.Error as error:
            raise StorageError(
                f"cannot answer from {self!r}: {error}. Nothing of this request was done. Fix the cause, and do not "
                "acknowledge the request: it will be delivered again"
            ) from error
