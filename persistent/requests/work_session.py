"""A work session: the connection of a request, which can do everything but end its transaction.

The database itself refuses to commit before the reply is stored: see ``GUARD``. What else ends the transaction, a
ROLLBACK, is noticed after its statement, and nothing more is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from persistent.clients.postgres_session import Session
from persistent.errors import StorageError

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
    """The rows that a statement returned. No way leads from them to the connection."""

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
