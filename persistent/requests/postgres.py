"""A request log in a PostgreSQL database, beside the tables that the requests change."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from persistent.clients.postgres_session import Patiences, Session, settings_of
from persistent.clock import Duration, duration_ms
from persistent.requests.protocol import TABLE, Answered, checked_reply, checked_request, is_answered
from persistent.requests.work_session import GUARD, WorkSession

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

    def answer(self, requester: str, id: int, work: Callable[[WorkSession], bytes]) -> bytes:
        """The reply to a request: of ``work``, or the stored one if the request was answered before.

        Changes made by ``work`` through ``session.execute(statement, words)`` are committed with its reply. If the
        connection is lost, ``work`` is called again. If it raises, all its changes are rolled back, and its error is
        raised as it is. Refused for an id below the last; StorageError for an error of the database, and if ``work``
        ends its transaction or goes on after such an error.
        """
        checked_request(requester, id)

        def act(session: Session) -> bytes:
            # The row exists before it is locked: of two simultaneous requests, one waits here.
            session.execute(
                f"INSERT INTO {self._table} (requester, id, reply) VALUES (%s, -1, '') ON CONFLICT DO NOTHING",
                [requester],
            )
            found = self._last(session, requester)
            if is_answered(found, requester, id, repr(self)):
                assert found is not None
                return found.reply
            return self._worked(session, requester, id, work)

        return self._transact("answer from", act)

    def last(self, requester: str) -> int:
        """The last answered id, -1 if none was: a requester that has forgotten its ids continues after it."""
        found = self._transact("read", lambda session: self._last(session, requester))
        return -1 if found is None else found.id

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
        """The reply of ``work``, stored if the transaction is still the one in which it began.

        Until then ``working`` refers to nobody, so that a COMMIT by the work fails. A rollback resets it.
        """
        session.execute(f"UPDATE {self._table} SET working = '' WHERE requester = %s", [requester])
        with closing(WorkSession(session, repr(self), lambda: self._is_working(session, requester))) as given:
            try:
                reply = checked_reply(work(given))
            except Exception as error:
                given.check_not_ended(error)
                raise
            given.check_whole()
        stored = session.execute(
            f"UPDATE {self._table} SET id = %s, reply = %s, working = NULL WHERE requester = %s AND working = ''",
            [id, reply, requester],
        )
        if stored.rowcount != 1:
            raise given.ended()
        return reply

    def _is_working(self, session: Session, requester: str) -> bool:
        statement = f"SELECT FROM {self._table} WHERE requester = %s AND working = ''"
        return bool(session.execute(statement, [requester]).rowcount == 1)

    def _last(self, session: Session, requester: str) -> Answered | None:
        rows = session.execute(
            f"SELECT id, reply FROM {self._table} WHERE requester = %s FOR UPDATE", [requester]
        ).fetchall()
        return Answered(rows[0][0], bytes(rows[0][1])) if rows else None

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
    guarded = "SELECT FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'working'"
    if session.execute(guarded, [table]).rowcount == 0:
        session.execute(f"CREATE TABLE IF NOT EXISTS {_NOBODY} (requester TEXT PRIMARY KEY)")
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {TABLE} (requester TEXT PRIMARY KEY, id BIGINT NOT NULL, reply BYTEA NOT NULL)"
        )
        session.execute(
            f"ALTER TABLE {TABLE} ADD COLUMN working TEXT "
            f"CONSTRAINT {GUARD} REFERENCES {_NOBODY} DEFERRABLE INITIALLY DEFERRED"
        )
    return table
