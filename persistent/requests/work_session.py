"""A work session: the connection of a request, which can do everything but end its transaction."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from persistent.clients.postgres_session import Session
from persistent.errors import StorageError

_QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/", re.DOTALL)
_ENDS = re.compile(
    r"(?:COMMIT|END|ABORT|PREPARE\s+TRANSACTION|ROLLBACK(?!\s+(?:(?:WORK|TRANSACTION)\s+)?TO\b))\b", re.IGNORECASE
)


def ends_transaction(statements: str) -> bool:
    """Whether one of these statements, separated by semicolons, ends the transaction.

    >>> [ends_transaction(text) for text in ("INSERT INTO a VALUES ('; COMMIT')", "SELECT 1; commit", "ROLLBACK TO a")]
    [False, True, False]
    """
    plain = _QUOTED.sub(" ", statements)
    return any(_ENDS.match(statement.strip()) for statement in plain.split(";"))


class WorkSession:
    """The session of one request, in its transaction. ``name``: of the log, for errors."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self._refused = False

    def __repr__(self) -> str:
        return f"WorkSession({self._name!r})"

    def execute(self, statement: str, words: Iterable[Any] = ()) -> Any:
        """The cursor of a statement. StorageError if it would end the transaction, which belongs to the log."""
        if ends_transaction(_text(statement)):
            self._refused = True
            raise self.ended()
        return self._session.execute(statement, words)

    def check_not_ended(self, error: Exception) -> None:
        """Raise StorageError if the work that raised ``error`` has ended its transaction, or has tried to."""
        if self._refused or self._session.transaction == "IDLE":
            raise self.ended() from error

    def check_whole(self) -> None:
        """Raise StorageError if the transaction can no longer be committed."""
        state = self._session.transaction
        if self._refused or state == "IDLE":
            raise self.ended()
        if state == "INERROR":
            raise StorageError(
                f"{self._name}: the work of a request continued after an error of the database, which undoes all its "
                "changes, so no reply is stored. Let the error propagate; or begin a SAVEPOINT before a statement that "
                "can fail, and roll back to it"
            )

    def ended(self) -> StorageError:
        """The error of a work that has ended its transaction, or has tried to."""
        return StorageError(
            f"{self._name}: the work of a request tried to end its transaction: its changes and the reply "
            "would no longer "
            "be atomic, so no reply is stored. Leave COMMIT and ROLLBACK to the log; a SAVEPOINT can be rolled back"
        )


def _text(statement: Any) -> str:
    """The text of a statement. The client also accepts bytes and composed statements."""
    if isinstance(statement, bytes):
        return statement.decode("utf-8", "replace")
    return statement if isinstance(statement, str) else str(statement.as_string(None))
