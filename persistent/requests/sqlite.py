"""A request log in a SQLite file, beside the tables that the requests change."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import cast

from persistent.clients.sqlite_file import connected
from persistent.clock import Duration, duration_ms
from persistent.errors import InvalidPipeline, StorageError
from persistent.requests.protocol import TABLE, Answered, checked_reply, checked_request, is_answered
from persistent.requests.work_connection import WorkConnection

_TABLE = f"main.{TABLE}"
"""The work may have a temporary table of the same name, which would be found first."""


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
        transaction, all its changes are rolled back. Its cursors end with it. Refused for an id below the last;
        StorageError, also for a ``sqlite3.Error`` of ``work``.
        """
        checked_request(requester, id)
        with self._transaction() as database:
            found = self._last(database, requester)
            if is_answered(found, requester, id, repr(self)):
                assert found is not None
                return found.reply
            reply = self._worked(database, work)
            self._store(database, requester, id, reply)
        return reply

    def last(self, requester: str) -> int:
        """The last answered id, -1 if none was: a requester that has forgotten its ids continues after it."""
        with self._transaction() as database:
            found = self._last(database, requester)
        return -1 if found is None else found.id

    def forget(self, requester: str) -> None:
        """Forget a requester, for good: it must never ask again."""
        with self._transaction() as database:
            database.execute(f"DELETE FROM {_TABLE} WHERE requester = ?", (requester,))

    def _worked(self, database: WorkConnection, work: Callable[[sqlite3.Connection], bytes]) -> bytes:
        """The reply of ``work``. StorageError if it tried to end its transaction, even if it swallowed the error."""
        cause: Exception | None = None
        try:
            with database.kept_whole():
                reply = checked_reply(work(database))
        except Exception as error:
            if not database.refused:
                raise
            cause = error
        if database.fault:
            raise StorageError(f"{self!r}: the work of a request {database.fault}") from cause
        return reply

    def _store(self, database: WorkConnection, requester: str, id: int, reply: bytes) -> None:
        """Store a reply. StorageError unless it is there: without it the work would be done again."""
        database.execute(
            f"INSERT INTO {_TABLE} (requester, id, reply) VALUES (?, ?, ?) "
            "ON CONFLICT (requester) DO UPDATE SET id = excluded.id, reply = excluded.reply",
            (requester, id, reply),
        )
        stored = f"SELECT 1 FROM {_TABLE} WHERE requester = ? AND id = ? AND reply = ?"
        if database.execute(stored, (requester, id, reply)).fetchone() is None:
            raise StorageError(
                f"{self!r}: the reply to a request was not stored, because something in the database changes "
                f"{TABLE} (a trigger): nothing was done. Remove it"
            )

    def _last(self, database: sqlite3.Connection, requester: str) -> Answered | None:
        rows = database.execute(f"SELECT id, reply FROM {_TABLE} WHERE requester = ?", (requester,)).fetchall()
        return Answered(*rows[0]) if rows else None

    @contextmanager
    def _transaction(self) -> Iterator[WorkConnection]:
        """A transaction that alone may write. An exception rolls it back."""
        try:
            # A cached statement would not be checked again.
            connection = connected(self.path, self._lock_ms, factory=WorkConnection, cached_statements=0)
            with closing(cast("WorkConnection", connection)) as database:
                database.execute("BEGIN IMMEDIATE")
                database.execute(
                    f"CREATE TABLE IF NOT EXISTS {_TABLE} "
                    "(requester TEXT PRIMARY KEY, id INTEGER NOT NULL, reply BLOB NOT NULL)"
                )
                yield database
                database.finish_cursors()
                database.execute("COMMIT")
        except sqlite3.Error as error:
            raise StorageError(
                f"cannot answer from {self!r}: {str(error).rstrip('.')}. Nothing of this request was done. Fix the "
                "cause, and do not acknowledge the request: it will be delivered again"
            ) from error
