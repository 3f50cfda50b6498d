"""What a work may ask of its session. On a real server: tests/servers/test_request_log.py."""

from __future__ import annotations

from typing import Any

import pytest

from persistent.errors import StorageError
from persistent.requests.work_session import WorkSession, ends_transaction

ENDED, GONE_ON = "Leave COMMIT and ROLLBACK to the log", "continued after an error of the database"


class Told:
    """A session that keeps what it was told, and says in which state its transaction is."""

    def __init__(self, transaction: str = "INTRANS") -> None:
        self.transaction = transaction
        self.statements: list[Any] = []

    def execute(self, statement: Any, words: Any) -> Any:
        self.statements.append((statement, words))
        return self


class Composed:
    """A statement of psycopg.sql."""

    def as_string(self, context: None) -> str:
        return "ROLLBACK"


@pytest.mark.parametrize(
    "statement",
    [
        "COMMIT",
        " commit;",
        "END",
        "ABORT",
        "Rollback",
        "ROLLBACK WORK",
        "ROLLBACK AND CHAIN",
        "PREPARE  TRANSACTION 'a'",
        "INSERT INTO a VALUES (1); COMMIT",
        "-- it is done\nCOMMIT",
        "/* paid; */ COMMIT",
        "DO $$ BEGIN END $$; COMMIT",
        b"COMMIT",
        Composed(),
    ],
)
def test_what_ends_a_transaction_is_never_sent(statement: Any) -> None:
    """Its changes would be there without the reply, and come twice. Who swallows it has no reply stored either."""
    told = Told()
    given = WorkSession(told, "log")  # type: ignore[arg-type]
    with pytest.raises(StorageError, match=ENDED):
        given.execute(statement)
    assert not told.statements
    with pytest.raises(StorageError, match=ENDED):
        given.check_whole()
    with pytest.raises(StorageError, match=ENDED) as found:
        given.check_not_ended(KeyError())
    assert isinstance(found.value.__cause__, KeyError)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 'a; COMMIT'",
        'SELECT "; COMMIT"',
        "SELECT $a$; COMMIT; $a$",
        "SELECT 1 -- ; COMMIT",
        "SELECT 1 /* ; COMMIT */",
        "SELECT 'it''s'; SELECT '; END'",
        "ROLLBACK TO a",
        "ROLLBACK TRANSACTION TO SAVEPOINT a",
        "COMMITMENT",
        "SELECT CASE WHEN true THEN 1 END",
        "PREPARE a AS SELECT 1",
        "",
    ],
)
def test_what_does_not_is_sent_as_it_is(statement: str) -> None:
    """A work that holds the word in a value is as good as any."""
    told = Told()
    given = WorkSession(told, "log")  # type: ignore[arg-type]
    assert not ends_transaction(statement) and given.execute(statement, [1]) is told
    assert told.statements == [(statement, [1])]
    given.check_whole()
    given.check_not_ended(KeyError())


def test_a_transaction_that_is_over_is_found_out() -> None:
    """However it came about."""
    given = WorkSession(Told("IDLE"), "log")  # type: ignore[arg-type]
    with pytest.raises(StorageError, match=ENDED):
        given.check_whole()
    with pytest.raises(StorageError, match=ENDED):
        given.check_not_ended(KeyError())


def test_an_error_that_was_swallowed_is_found_out() -> None:
    """The reply would tell of what was undone. A work that raises tells of it itself."""
    given = WorkSession(Told("INERROR"), "log")  # type: ignore[arg-type]
    with pytest.raises(StorageError, match=GONE_ON):
        given.check_whole()
    given.check_not_ended(KeyError())
    WorkSession(Told("UNKNOWN"), "log").check_whole()  # type: ignore[arg-type]
