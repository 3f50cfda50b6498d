"""A request log in a SQLite file, beside the tables that the requests change.

A work connection: the connection to SQLite of a request, which can do everything but end its transaction.

SQLite calls an authorizer for each statement before it runs. The authorizer refuses what would end the transaction,
write into another file, or weaken the journal.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, cast
from weakref import WeakSet

from persistent.errors import InvalidPipeline, StorageError
from persistent.requests.protocol import TABLE, Answered, checked_reply, checked_request, digest_of, is_answered
from persistent.storage.sqlite_file import connected
from persistent.time.clock import Duration, duration_ms

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

    def answer(
        self, requester: str, id: int, work: Callable[[sqlite3.Connection], bytes], *, content: bytes | None = None
    ) -> bytes:
        """The reply to a request: of ``work``, or the stored one if the request was answered before.

        Changes made by ``work`` through the connection are committed with its reply. If it raises, or tries to end the
        transaction, all its changes are rolled back. Its cursors end with it. ``content``: the body of the request, or
        what makes it the same request; a digest of it is stored. Refused for an id below the last, and for another
        content under the last id; StorageError, also for a ``sqlite3.Error`` of ``work``.
        """
        checked_request(requester, id)
        digest = digest_of(content)
        with self._transaction() as database:
            answered = self._last(database, requester)
            if is_answered(answered, requester, id, digest, repr(self)):
                assert answered is not None
                return answered.reply
            reply = self._worked(database, work)
            self._store(database, requester, id, reply, digest)
        return reply

    def last(self, requester: str) -> int:
        """The last answered id, -1 if none was: a requester that has forgotten its ids continues after it."""
        with self._transaction() as database:
            answered = self._last(database, requester)
        return -1 if answered is None else answered.id

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

    def _store(self, database: WorkConnection, requester: str, id: int, reply: bytes, digest: bytes | None) -> None:
        """Store a reply. StorageError unless it is there: without it the work would be done again."""
        database.execute(
            f"INSERT INTO {_TABLE} (requester, id, reply, content) VALUES (?, ?, ?, ?) ON CONFLICT (requester) "
            "DO UPDATE SET id = excluded.id, reply = excluded.reply, content = excluded.content",
            (requester, id, reply, digest),
        )
        stored = f"SELECT 1 FROM {_TABLE} WHERE requester = ? AND id = ? AND reply = ? AND content IS ?"
        if database.execute(stored, (requester, id, reply, digest)).fetchone() is None:
            raise StorageError(
                f"{self!r}: the reply to a request was not stored, because something in the database changes "
                f"{TABLE} (a trigger): nothing was done. Remove it"
            )

    def _last(self, database: sqlite3.Connection, requester: str) -> Answered | None:
        rows = database.execute(f"SELECT id, reply, content FROM {_TABLE} WHERE requester = ?", (requester,)).fetchall()
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
                    "(requester TEXT PRIMARY KEY, id INTEGER NOT NULL, reply BLOB NOT NULL, content BLOB)"
                )
                yield database
                database.finish_cursors()
                database.execute("COMMIT")
        except sqlite3.Error as error:
            raise StorageError(
                f"cannot answer from {self!r}: {str(error).rstrip('.')}. Nothing of this request was done. Fix the "
                "cause, and do not acknowledge the request: it will be delivered again"
            ) from error


_ENDED = (
    "tried to end its transaction, or had it rolled back (ON CONFLICT ROLLBACK): its changes and the reply would no "
    "longer be atomic, so nothing was done. Leave COMMIT and ROLLBACK to the log, including commit(), rollback(), "
    "close(), executescript() and 'with database:'; a SAVEPOINT can be rolled back"
)
_ATTACHED = (
    "tried to attach or to replace a database: a transaction over several files is not atomic when the power is lost, "
    "so nothing was done. Keep what the work changes in the file of the log, and read others by a connection of "
    "their own"
)
_JOURNAL = (
    "tried to set the journal mode: its changes could no longer be undone, so nothing was done. Set it before, by a "
    "connection of your own"
)
_AUTHORIZER = (
    "tried to set the authorizer, by which the log keeps the transaction whole, so nothing was done. Set one on a "
    "connection of your own"
)


class WorkConnection(sqlite3.Connection):
    """The connection of one request."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()
        self._faults: list[str] = []

    def cursor(self, factory: Any = sqlite3.Cursor) -> Any:
        """As in ``sqlite3``. The log closes every cursor at the end, even one that the work still holds."""
        cursor = super().cursor(factory)
        self._cursors.add(cursor)
        return cursor

    # The shortcuts of ``sqlite3`` make cursors that nobody else sees.

    def execute(self, *words: Any) -> Any:
        """As of ``sqlite3``."""
        return self.cursor().execute(*words)

    def executemany(self, *words: Any) -> Any:
        """As of ``sqlite3``."""
        return self.cursor().executemany(*words)

    def executescript(self, *words: Any) -> Any:
        """As of ``sqlite3``."""
        return self.cursor().executescript(*words)

    def set_authorizer(self, *_: Any, **__: Any) -> None:
        """Refused: the log itself needs the authorizer."""
        self._faults.append(_AUTHORIZER)
        raise sqlite3.ProgrammingError("not authorized: the request log has the authorizer")

    def close(self) -> None:
        """Roll back, and let go of the file, also if an exception or an object still holds a cursor."""
        self.finish_cursors()
        with suppress(sqlite3.Error):
            if self.in_transaction:
                self.execute("ROLLBACK")
        super().close()

    def finish_cursors(self) -> None:
        """Close the cursors: an unfinished statement would hold its lock beyond the transaction and the connection."""
        for cursor in list(self._cursors):
            with suppress(sqlite3.Error):
                cursor.close()

    @property
    def refused(self) -> str:
        """What the work tried to do to its transaction, "" if nothing."""
        return self._faults[0] if self._faults else ""

    @property
    def fault(self) -> str:
        """Why the transaction cannot be committed, "" if it can."""
        return self.refused or ("" if self.in_transaction else _ENDED)

    @contextmanager
    def kept_whole(self) -> Iterator[None]:
        """Refuse what would break up the transaction. After a rollback by SQLite itself, refuse every statement: its
        changes would be committed alone."""
        super().set_authorizer(self._answer)
        try:
            yield
        finally:
            super().set_authorizer(None)
            # A row_factory of the work would be called with the rows of the log.
            self.row_factory = None

    def _answer(self, action: int, word: str | None, value: str | None, *_: str | None) -> int:
        fault = self._fault(action, word, value)
        if not fault:
            return sqlite3.SQLITE_OK
        self._faults.append(fault)
        return sqlite3.SQLITE_DENY

    def _fault(self, action: int, word: str | None, value: str | None) -> str:
        """What is wrong with a part of a statement, "" if nothing is. ``word``, ``value``: of a PRAGMA."""
        if action == sqlite3.SQLITE_TRANSACTION or not self.in_transaction:
            return _ENDED
        if action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH):
            return _ATTACHED
        if action == sqlite3.SQLITE_PRAGMA and (word or "").lower() == "journal_mode" and value is not None:
            return _JOURNAL
        return ""
