"""The connection of a request lets go of the file, and refuses what would make its transaction less than whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from persistent.requests.sqlite import WorkConnection


def opened(path: Path) -> WorkConnection:
    """A connection in a transaction, as the log opens it."""
    database = sqlite3.connect(path, isolation_level=None, factory=WorkConnection, cached_statements=0)
    database.execute("CREATE TABLE IF NOT EXISTS done (id)")
    database.executemany("INSERT INTO done VALUES (?)", [(1,), (2,)])
    database.execute("BEGIN IMMEDIATE")
    return database


BEGUN: dict[str, Callable[[WorkConnection], sqlite3.Cursor]] = {
    "execute": lambda database: database.execute("SELECT id FROM done"),
    "a cursor": lambda database: database.cursor().execute("SELECT id FROM done"),
    "a cursor of a kind": lambda database: database.cursor(type("Kind", (sqlite3.Cursor,), {})).execute(
        "SELECT 1 FROM done"
    ),
    "an insertion": lambda database: database.execute("INSERT INTO done VALUES (3), (4) RETURNING id"),
}


@pytest.mark.parametrize("how", BEGUN)
def test_a_closed_connection_holds_nothing(how: str, tmp_path: Path) -> None:
    """SQLite keeps a connection open, and its locks, until its last statement has ended."""
    database = opened(tmp_path / "a.db")
    cursor = BEGUN[how](database)
    cursor.fetchone()
    database.close()
    database.close()
    with closing(sqlite3.connect(tmp_path / "a.db", timeout=0)) as other:
        other.execute("INSERT INTO done VALUES (5)")
        other.commit()
        assert other.execute("SELECT count(*) FROM done").fetchone() == (3,)
    assert cursor.connection is database


def test_a_cursor_made_by_hand_holds_no_transaction(tmp_path: Path) -> None:
    """Nobody knows of it: what it reads may stay, but the transaction of a work that failed is over."""
    with closing(sqlite3.connect(tmp_path / "a.db")) as other:
        other.execute("PRAGMA journal_mode = WAL")
    database = opened(tmp_path / "a.db")
    cursor = sqlite3.Cursor(database).execute("SELECT id FROM done")
    cursor.fetchone()
    database.close()
    with closing(sqlite3.connect(tmp_path / "a.db", timeout=0)) as other:
        other.execute("INSERT INTO done VALUES (5)")
        other.commit()
    assert cursor.connection is database


def test_a_script_runs_outside_of_a_work(tmp_path: Path) -> None:
    """The log itself is not kept from ending its transaction."""
    with closing(opened(tmp_path / "a.db")) as database:
        with database.kept_whole():
            database.execute("INSERT INTO done VALUES (3)")
        database.executescript("INSERT INTO done VALUES (4)")
        assert not database.in_transaction
        assert database.execute("SELECT count(*) FROM done").fetchone() == (4,)


def test_the_first_refusal_is_the_fault(tmp_path: Path) -> None:
    """It is the cause of those that follow, and remains if the work swallows it."""
    with closing(opened(tmp_path / "a.db")) as database:
        assert database.fault == "" == database.refused
        with database.kept_whole():
            for statement in ("ATTACH ':memory:' AS more", "COMMIT"):
                with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
                    database.execute(statement)
        assert "tried to attach" in database.fault and database.refused == database.fault


def test_a_rollback_by_sqlite_is_a_fault(tmp_path: Path) -> None:
    """What came after it would be committed alone."""
    with closing(opened(tmp_path / "a.db")) as database:
        with database.kept_whole():
            database.execute("CREATE TEMP TABLE one (x UNIQUE ON CONFLICT ROLLBACK)")
            with pytest.raises(sqlite3.IntegrityError):
                database.execute("INSERT INTO one VALUES (1), (1)")
            assert not database.refused and "tried to end its transaction" in database.fault
            with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
                database.execute("INSERT INTO done VALUES (3)")
        assert "tried to end its transaction" in database.refused
