"""What is committed to a file of SQLite outlasts a loss of power."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from persistent.storage.sqlite_file import connected

EXTRA = 3


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_the_folder_is_synced_behind_a_commit(journal: str, tmp_path: Path) -> None:
    """The journal that was deleted would come back, and take the commit with it."""
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        assert database.execute(f"PRAGMA journal_mode = {journal}").fetchone() == (journal,)
    with closing(connected(str(tmp_path / "a.db"), 2_500)) as database:
        assert database.execute("PRAGMA synchronous").fetchone() == (EXTRA,)
        assert database.execute("PRAGMA journal_mode").fetchone() == (journal,)
        assert database.execute("PRAGMA busy_timeout").fetchone() == (2_500,)


def test_no_transaction_begins_by_itself(tmp_path: Path) -> None:
    """A row and its mark are one where their writer says so."""
    with closing(connected(str(tmp_path / "a.db"), 0, cached_statements=0)) as database:
        database.execute("CREATE TABLE a (x)")
        database.execute("INSERT INTO a VALUES (1)")
        assert not database.in_transaction
