"""A work connection: the connection to SQLite of a request, which can do everything but end its transaction.

SQLite asks about each statement before it runs (its authorizer), and is told to refuse what would end the transaction,
write into another file, or weaken the journal.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet

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
        """As of ``sqlite3``. The log finishes every cursor, whoever still holds it."""
        found = super().cursor(factory)
        self._cursors.add(found)
        return found

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
        """Refused: the log has it."""
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
        """A statement that is under way would hold its lock beyond the transaction, even beyond the connection."""
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
        """Refuse what would make the transaction less than whole, and everything after a rollback by SQLite itself,
        which would be committed alone."""
        super().set_authorizer(self._answer)
        try:
            yield
        finally:
            super().set_authorizer(None)
            # The work's would be called with the rows of the log.
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
