"""A request log in a PostgreSQL database, beside the tables that the requests change.

A work session: the connection of a request, which can do everything but end its transaction.

The database itself refuses to commit before the reply is stored: see ``GUARD``. What else ends the transaction, a
ROLLBACK, is noticed after its statement, and nothing more is sent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from persistent.connect.postgres.session import Patiences, Session, settings_of
from persistent.errors import StorageError
from persistent.requests.protocol import TABLE, Answered, checked_reply, checked_request, digest_of, is_answered
from persistent.time.clock import Duration, duration_ms

T = TypeVar("T")

_NOBODY = f"{TABLE}_nobody"
"""The table that the guard refers to. It is always empty."""
_AFTER = "Do not acknowledge the request: it will be delivered again, and its work is done once"


class PostgresRequestLog:
    """The requests of the database at ``dsn`` (``pip install 'persistent-monoids[postgres]'``), for any number of
    threads. Each request has a connection to itself, which is reset after it.

    ``connect_timeout``: how long to wait for the server at first; ``server_away``: how long once it has answered;
    ``call_timeout``: the longest time of one statement. Between statements, ``work`` may take as long as it wants.
    """

    def __init__(
        self,
        dsn: str,
        *,
        connect_timeout: Duration = "30 s",
        server_away: Duration = "5 min",
        call_timeout: Duration = "1 min",
    ) -> None:
        self._settings = settings_of(dsn, "PostgresRequestLog")
        host, database = self._settings.get("host", ""), self._settings.get("dbname", "")
        self._name = f"PostgresRequestLog({host!r}, {database!r})"
        self._patiences = Patiences(
            duration_ms(connect_timeout, "connect_timeout"),
            duration_ms(call_timeout, "call_timeout"),
            duration_ms(server_away, "server_away"),
            limits_pauses=False,
        )
        self._table = ""
        self._idle: dict[int, list[Session]] = {}

    def __repr__(self) -> str:
        return self._name

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_idle": {}}

    def answer(
        self, requester: str, id: int, work: Callable[[WorkSession], bytes], *, content: bytes | None = None
    ) -> bytes:
        """The reply to a request: of ``work``, or the stored one if the request was answered before.

        Changes made by ``work`` through ``session.execute(statement, words)`` are committed with its reply. If the
        connection is lost, ``work`` is called again. If it raises, all its changes are rolled back, and its error is
        raised as it is. ``content``: the body of the request, or what makes it the same request; a digest of it is
        stored. Refused for an id below the last, and for another content under the last id; StorageError for an error
        of the database, and if ``work`` ends its transaction or goes on after such an error.
        """
        checked_request(requester, id)
        digest = digest_of(content)

        def act(session: Session) -> bytes:
            # The row exists before it is locked: of two simultaneous requests, one waits here.
            session.execute(
                f"INSERT INTO {self._table} (requester, id, reply) VALUES (%s, -1, '') ON CONFLICT DO NOTHING",
                [requester],
            )
            answered = self._last(session, requester)
            if is_answered(answered, requester, id, digest, repr(self)):
                assert answered is not None
                return answered.reply
            reply = self._worked(session, requester, id, work)
            session.execute(f"UPDATE {self._table} SET content = %s WHERE requester = %s", [digest, requester])
            return reply

        return self._transact("answer from", act)

    def last(self, requester: str) -> int:
        """The last answered id, -1 if none was: a requester that has forgotten its ids continues after it."""
        answered = self._transact("read", lambda session: self._last(session, requester))
        return -1 if answered is None else answered.id

    def forget(self, requester: str) -> None:
        """Forget a requester, for good: it must never ask again."""
        self._transact(
            "write to", lambda session: session.execute(f"DELETE FROM {self._table} WHERE requester = %s", [requester])
        )

    def close(self) -> None:
        """Close the idle connections. The next call opens a new one."""
        for session in self._idle.pop(os.getpid(), []):
            session.close()

    def _worked(self, session: Session, requester: str, id: int, work: Callable[[WorkSession], bytes]) -> bytes:
        """Run ``work``, and store and return its reply. StorageError unless the transaction in which it began goes on.

        Until the reply is stored, ``working`` refers to no row, so that a COMMIT by the work fails. A rollback by the
        work resets ``working``, so that no reply is stored.
        """
        session.execute(f"UPDATE {self._table} SET working = '' WHERE requester = %s", [requester])
        with closing(WorkSession(session, repr(self), lambda: self._is_working(session, requester))) as work_session:
            try:
                reply = checked_reply(work(work_session))
            except Exception as error:
                work_session.check_not_ended(error)
                raise
            work_session.check_whole()
        stored = session.execute(
            f"UPDATE {self._table} SET id = %s, reply = %s, working = NULL WHERE requester = %s AND working = ''",
            [id, reply, requester],
        )
        if stored.rowcount != 1:
            raise work_session.ended()
        return reply

    def _is_working(self, session: Session, requester: str) -> bool:
        statement = f"SELECT FROM {self._table} WHERE requester = %s AND working = ''"
        return bool(session.execute(statement, [requester]).rowcount == 1)

    def _last(self, session: Session, requester: str) -> Answered | None:
        rows = session.execute(
            f"SELECT id, reply, content FROM {self._table} WHERE requester = %s FOR UPDATE", [requester]
        ).fetchall()
        return Answered(rows[0][0], bytes(rows[0][1]), rows[0][2] and bytes(rows[0][2])) if rows else None

    def _transact(self, what: str, act: Callable[[Session], T]) -> T:
        with self._session() as session:
            if not self._table:
                self._table = session.transact("make a table in", _make_table)
            return session.transact(what, act)

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """A session for this thread alone. After a fork, sessions of the parent process are not used."""
        idle = self._idle.setdefault(os.getpid(), [])
        try:
            session = idle.pop()
        except IndexError:
            session = Session(self._settings, self._patiences, self._name, after=_AFTER, has_answered=bool(self._table))
        yield session
        # Settings of this work, such as a role or a schema, must not reach the next one.
        session.reset()
        if self._idle.get(os.getpid()) is idle:
            idle.append(session)
        else:
            session.close()


def _make_table(session: Session) -> str:
    """Make the table; returns its full name, so that a changed search_path finds no other."""
    # Two that create it at once would conflict in the catalogue.
    session.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [TABLE])
    table = str(session.execute("SELECT quote_ident(current_schema()) || '.' || %s", [TABLE]).fetchone()[0])
    if session.execute("SELECT WHERE to_regclass(%s) IS NULL", [table]).rowcount:
        session.execute(f"CREATE TABLE IF NOT EXISTS {_NOBODY} (requester TEXT PRIMARY KEY)")
        session.execute(
            f"CREATE TABLE {TABLE} (requester TEXT PRIMARY KEY, id BIGINT NOT NULL, reply BYTEA NOT NULL, "
            f"content BYTEA, working TEXT CONSTRAINT {GUARD} REFERENCES {_NOBODY} DEFERRABLE INITIALLY DEFERRED)"
        )
    return table


GUARD = "persistent_requests_reply_before_commit"
"""The constraint of a row whose request is being answered. It is deferred, and never met: COMMIT checks it, and fails
until the reply is stored."""

_ENDED = (
    "the work of a request tried to end its transaction: its changes and the reply would no longer be atomic, so "
    "nothing was done. Leave COMMIT and ROLLBACK to the log; a SAVEPOINT can be rolled back, and SET CONSTRAINTS "
    "needs the names of your constraints"
)
_COPIED = "the work of a request began a COPY, which a work session cannot do, so nothing was done. INSERT the rows"
_WENT_ON = (
    "the work of a request continued after an error of the database, which undoes all its changes, so no reply is "
    "stored. Let the error propagate; or begin a SAVEPOINT before a statement that can fail, and roll back to it"
)
_OVER = "the work of a request is over, and its session with it. Use the session only until the work returns"


class WorkRows:
    """The rows that a statement returned. They give no access to the connection."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def __repr__(self) -> str:
        return f"WorkRows({self.rowcount})"

    def __iter__(self) -> Iterator[Any]:
        yield from self._cursor

    @property
    def rowcount(self) -> int:
        """How many rows were returned or changed."""
        return int(self._cursor.rowcount)

    @property
    def description(self) -> Any:
        """The columns; None if the statement returns no rows."""
        return self._cursor.description

    @property
    def statusmessage(self) -> str | None:
        """The answer of the server, such as ``INSERT 0 1``."""
        message: str | None = self._cursor.statusmessage
        return message

    def fetchone(self) -> Any:
        """The next row, None after the last."""
        return self._cursor.fetchone()

    def fetchmany(self, size: int = 1) -> list[Any]:
        """The next rows, at most ``size``."""
        return list(self._cursor.fetchmany(size))

    def fetchall(self) -> list[Any]:
        """The rows that are left."""
        return list(self._cursor.fetchall())


class WorkSession:
    """The session of one request, in its transaction. ``name``: of the log, for errors; ``is_begun``: whether the
    transaction is still the one in which the work began."""

    def __init__(self, session: Session, name: str, is_begun: Callable[[], bool]) -> None:
        self._session = session
        self._name = name
        self._is_begun = is_begun
        self._fault = ""

    def __repr__(self) -> str:
        return f"WorkSession({self._name!r})"

    def execute(self, statement: str, words: Iterable[Any] = ()) -> WorkRows:
        """The rows of one statement. StorageError if it would end the transaction, which belongs to the log."""
        if self._fault:
            raise self._error()
        try:
            rows = WorkRows(self._session.execute_alone(statement, words))
        except Exception as error:
            self._fault = self._fault_of(error)
            if self._fault:
                raise self._error() from error
            raise
        if self._has_ended(rows):
            raise self.ended()
        return rows

    def close(self) -> None:
        """Refuse whatever comes after the work, such as a thread that it has left behind."""
        self._fault = self._fault or _OVER

    def check_not_ended(self, error: Exception) -> None:
        """Raise StorageError if the work that raised ``error`` has ended its transaction, or has tried to."""
        if self._fault or self._session.transaction == "IDLE":
            self._fault = self._fault or _ENDED
            raise self._error() from error

    def check_whole(self) -> None:
        """Raise StorageError if the transaction can no longer be committed."""
        state = self._session.transaction
        if self._fault:
            raise self._error()
        if state == "IDLE":
            raise self.ended()
        if state == "INERROR":
            self._fault = _WENT_ON
            raise self._error()

    def ended(self) -> StorageError:
        """The error of a work that has ended its transaction, or has tried to."""
        self._fault = _ENDED
        return self._error()

    def _fault_of(self, error: Exception) -> str:
        """What the work did wrong, if ``error`` is no ordinary error of a statement."""
        state = self._session.transaction
        if state == "IDLE" or getattr(getattr(error, "diag", None), "constraint_name", None) == GUARD:
            return _ENDED
        return _COPIED if state == "ACTIVE" else ""

    def _has_ended(self, rows: WorkRows) -> bool:
        """Whether this statement has ended the transaction. After ROLLBACK AND CHAIN another one has begun."""
        state = self._session.transaction
        return state == "IDLE" or (state == "INTRANS" and rows.statusmessage == "ROLLBACK" and not self._is_begun())

    def _error(self) -> StorageError:
        return StorageError(f"{self._name}: {self._fault}")
