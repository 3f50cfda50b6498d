"""A request log on a server of PostgreSQL, beside the tables that the requests change."""

from __future__ import annotations

from collections.abc import Callable

from persistent.clients.postgres_session import Patiences, Session, settings_of
from persistent.clock import Duration, duration_ms
from persistent.requests.protocol import TABLE, Answered, checked_reply, checked_request, is_answered


class PostgresRequestLog:
    """The requests of the database at ``dsn`` (``pip install 'persistent-monoids[postgres]'``).

    ``connect_timeout``: how long to wait for the server at first; ``server_away``: once it has answered;
    ``call_timeout``: the longest that one statement may take.
    """

    def __init__(
        self,
        dsn: str,
        *,
        connect_timeout: Duration = "30 s",
        server_away: Duration = "5 min",
        call_timeout: Duration = "1 min",
    ) -> None:
        settings = settings_of(dsn)
        self._name = f"PostgresRequestLog({settings.get('host', '')!r}, {settings.get('dbname', '')!r})"
        patiences = Patiences(
            duration_ms(connect_timeout, "connect_timeout"),
            duration_ms(call_timeout, "call_timeout"),
            duration_ms(server_away, "server_away"),
        )
        self._session = Session(settings, patiences, self._name)
        self._made = False

    def __repr__(self) -> str:
        return self._name

    def answer(self, requester: str, id: int, work: Callable[[Session], bytes]) -> bytes:
        """The reply to a request: of ``work``, whose changes through ``session.execute(statement, words)`` are
        committed with it; or the same as before. Where the connection is lost, ``work`` is called again; what it raises
        undoes all of it. Refused for an id below the last; StorageError."""
        checked_request(requester, id)
        self._make()

        def act(session: Session) -> bytes:
            # The row is there before it is locked: of two that ask at once one waits here.
            session.execute(
                f"INSERT INTO {TABLE} (requester, id, reply) VALUES (%s, -1, '') ON CONFLICT DO NOTHING", [requester]
            )
            found = self._last(session, requester)
            if is_answered(found, requester, id, repr(self)):
                assert found is not None
                return found.reply
            reply = checked_reply(work(session))
            session.execute(f"UPDATE {TABLE} SET id = %s, reply = %s WHERE requester = %s", [id, reply, requester])
            return reply

        return self._session.transact("answer from", act)

    def last(self, requester: str) -> int:
        """The id that was answered last, -1 if none was: a requester that has forgotten goes on behind it."""
        self._make()
        found = self._session.transact("read", lambda session: self._last(session, requester))
        return -1 if found is None else found.id

    def forget(self, requester: str) -> None:
        """Forget a requester, for good: it must never ask again."""
        self._make()
        self._session.transact(
            "write to", lambda session: session.execute(f"DELETE FROM {TABLE} WHERE requester = %s", [requester])
        )

    def close(self) -> None:
        """End the connection; the next call makes another."""
        self._session.close()

    def _last(self, session: Session, requester: str) -> Answered | None:
        rows = session.execute(f"SELECT id, reply FROM {TABLE} WHERE requester = %s FOR UPDATE", [requester]).fetchall()
        return Answered(rows[0][0], bytes(rows[0][1])) if rows else None

    def _make(self) -> None:
        if not self._made:
            self._session.transact("make a table in", _make_table)
            self._made = True


def _make_table(session: Session) -> None:
    # Two that make it at once would meet in the catalogue.
    session.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [TABLE])
    session.execute(
        f"CREATE TABLE IF NOT EXISTS {TABLE} (requester TEXT PRIMARY KEY, id BIGINT NOT NULL, reply BYTEA NOT NULL)"
    )
