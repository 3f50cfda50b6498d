"""What a work may ask of its session. On a real server: tests/servers/test_request_log.py."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from persistent.errors import StorageError
from persistent.requests.postgres import GUARD, WorkRows, WorkSession

ENDED, WENT_ON = "Leave COMMIT and ROLLBACK to the log", "continued after an error of the database"


class DatabaseError(Exception):
    """An error of the client. ``constraint``: what it violates."""

    def __init__(self, constraint: str | None = None) -> None:
        self.diag = SimpleNamespace(constraint_name=constraint)


class Session:
    """A session that keeps what it was told. ``answer``: what becomes of the transaction, and the tag; or an error."""

    def __init__(self, transaction: str = "INTRANS", tag: str = "", error: Exception | None = None) -> None:
        self.transaction = "INTRANS"
        self.answer = (transaction, tag, error)
        self.statements: list[Any] = []

    def execute_alone(self, statement: Any, words: Any) -> Any:
        self.statements.append((statement, words))
        self.transaction, tag, error = self.answer
        if error is not None:
            raise error
        return Cursor(tag)


class Cursor:
    """Two rows, and what leads back to the connection."""

    rowcount = 2
    description = ("n",)
    connection = "the way back"

    def __init__(self, tag: str = "SELECT 2") -> None:
        self.statusmessage = tag
        self.left = [(1,), (2,)]

    def fetchone(self) -> Any:
        return self.left.pop(0) if self.left else None

    def fetchmany(self, size: int) -> list[Any]:
        taken, self.left = self.left[:size], self.left[size:]
        return taken

    def fetchall(self) -> list[Any]:
        return self.fetchmany(2)

    def __iter__(self) -> Any:
        return iter(self.left)

    def execute(self, statement: str) -> None:
        raise AssertionError("sent past the session")


def given(session: Session, is_begun: Callable[[], bool] = lambda: True) -> WorkSession:
    return WorkSession(session, "log", is_begun)  # type: ignore[arg-type]


ENDINGS: dict[str, tuple[Session, bool]] = {
    "a COMMIT, which the guard fails": (Session("IDLE", error=DatabaseError(GUARD)), True),
    "a COMMIT after an error": (Session("IDLE", "ROLLBACK"), True),
    "ROLLBACK": (Session("IDLE", "ROLLBACK"), True),
    "ROLLBACK AND CHAIN": (Session("INTRANS", "ROLLBACK"), False),
    "every constraint at once": (Session("INERROR", error=DatabaseError(GUARD)), True),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_after_the_end_of_its_transaction_nothing_more_is_sent(how: str) -> None:
    """It would be committed by itself, without the reply, and come twice."""
    session, is_begun = ENDINGS[how]
    session.statements.clear()
    session.transaction = "INTRANS"
    work = given(session, lambda: is_begun)
    for _ in range(2):
        with pytest.raises(StorageError, match=ENDED):
            work.execute("what ends it")
    assert session.statements == [("what ends it", ())]
    with pytest.raises(StorageError, match=ENDED):
        work.check_whole()
    with pytest.raises(StorageError, match=ENDED) as found:
        work.check_not_ended(KeyError())
    assert isinstance(found.value.__cause__, KeyError)


@pytest.mark.parametrize(
    "session",
    [Session(tag="SELECT 1"), Session(tag="ROLLBACK"), Session("INERROR", error=DatabaseError("unique_page"))],
    ids=["a statement", "ROLLBACK TO a savepoint", "a constraint of the work"],
)
def test_what_ends_nothing_is_the_work_s_own(session: Session) -> None:
    """A work that fails by itself is told what the database said."""
    work = given(session)
    if session.answer[2] is None:
        assert work.execute("SELECT %s", [1]).statusmessage == session.answer[1]
        work.check_whole()
    else:
        with pytest.raises(DatabaseError):
            work.execute("SELECT %s", [1])
    assert session.statements == [("SELECT %s", [1])]
    work.check_not_ended(KeyError())


def test_rows_lead_to_no_connection() -> None:
    """Its commit() would let the effect in without the reply."""
    rows = given(Session(tag="SELECT 2")).execute("SELECT 1")
    assert isinstance(rows, WorkRows)
    assert not any(hasattr(rows, name) for name in ("connection", "execute", "executemany", "copy", "stream"))
    assert (rows.rowcount, rows.description, rows.statusmessage) == (2, ("n",), "SELECT 2")
    assert list(rows) == [(1,), (2,)] == WorkRows(Cursor()).fetchall() == WorkRows(Cursor()).fetchmany(2)
    assert (rows.fetchmany(), rows.fetchone(), rows.fetchone()) == ([(1,)], (2,), None)
    assert not hasattr(iter(rows), "connection")


def test_a_transaction_that_is_over_is_found_out() -> None:
    """However it came about."""
    session = Session()
    session.transaction = "IDLE"
    with pytest.raises(StorageError, match=ENDED):
        given(session).check_whole()
    with pytest.raises(StorageError, match=ENDED):
        given(session).check_not_ended(KeyError())


def test_an_error_that_was_swallowed_is_found_out() -> None:
    """The reply would tell of what was undone. A work that raises tells of it itself."""
    session = Session()
    session.transaction = "INERROR"
    with pytest.raises(StorageError, match=WENT_ON):
        given(session).check_whole()
    given(session).check_not_ended(KeyError())
    session.transaction = "UNKNOWN"
    given(session).check_whole()


def test_a_copy_is_named() -> None:
    """The connection waits for its data for ever: that read as a server that is away."""
    work = given(Session("ACTIVE", error=DatabaseError()))
    with pytest.raises(StorageError, match="began a COPY"):
        work.execute("COPY a FROM STDIN")
    with pytest.raises(StorageError, match="began a COPY"):
        work.check_whole()


def test_a_session_ends_with_its_work() -> None:
    """A thread that is left behind would write into the transaction of the next request."""
    session = Session()
    work = given(session)
    work.close()
    with pytest.raises(StorageError, match="the work of a request is over"):
        work.execute("SELECT 1")
    assert not session.statements
