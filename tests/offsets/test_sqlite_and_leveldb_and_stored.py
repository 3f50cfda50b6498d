"""What only one kind of offset store meets."""

from __future__ import annotations

import sqlite3
import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from persistent.errors import InvalidPipeline, StorageError
from persistent.offsets import LevelDbOffsets, SqliteOffsets, StoredOffsets
from persistent.storage import MemoryStorage
from persistent.testing.faults import FaultyStorage, Operations


def test_looking_into_sqlite_makes_no_file(tmp_path: Path) -> None:
    """Nothing is written before the first read."""
    assert SqliteOffsets(tmp_path / "a.db").load("one") == (0, b"") and not list(tmp_path.iterdir())


def test_sqlite_stands_beside_other_tables(tmp_path: Path) -> None:
    """A user has one file for all that an application keeps."""
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute("CREATE TABLE mine (x)")
    assert SqliteOffsets(tmp_path / "a.db").swap("one", 0, b"a")
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        assert database.execute("SELECT count(*) FROM mine").fetchall() == [(0,)]


def test_what_is_no_sqlite_is_told(tmp_path: Path) -> None:
    """With the file, and what to do."""
    (tmp_path / "a.db").write_bytes(b"no database" * 100)
    with pytest.raises(StorageError, match=r"cannot read SqliteOffsets\('.*a.db'\): file is not a database"):
        SqliteOffsets(tmp_path / "a.db").load("one")
    with pytest.raises(StorageError, match="cannot write"):
        SqliteOffsets(tmp_path / "none" / "a.db").swap("one", 0, b"a")


def test_leveldb_is_for_one_process(tmp_path: Path) -> None:
    """A second one is refused by name, and the first loses nothing."""
    pytest.importorskip("plyvel")
    first, second = LevelDbOffsets(tmp_path / "a"), LevelDbOffsets(tmp_path / "a")
    assert first.swap("one", 0, b"a")
    with pytest.raises(StorageError, match="one process at a time"):
        second.load("one")
    first.close()
    first.close()
    assert second.load("one") == (1, b"a")
    second.close()


def test_leveldb_without_its_library_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "plyvel", None)
    with pytest.raises(InvalidPipeline, match=r"persistent-monoids\[leveldb\]"):
        LevelDbOffsets(tmp_path / "a").load("one")


@pytest.mark.parametrize("how", ["lost", "lost-undone"])
def test_a_store_that_does_not_answer_is_asked(how: str) -> None:
    """A put that was done and not answered would take the reader's id from itself."""
    for at in range(6):
        storage = MemoryStorage(uuid.uuid4().hex)
        StoredOffsets(storage).swap("one", 0, b"a")
        try:
            done = StoredOffsets(FaultyStorage(storage, Operations(at=at, how=how))).swap("one", 1, b"b")
        except StorageError:
            continue
        assert done and StoredOffsets(storage).load("one") == (2, b"b")


def test_a_store_keeps_few_documents() -> None:
    """A reader that flushes every ten seconds writes three million a year."""
    storage = MemoryStorage(uuid.uuid4().hex)
    store = StoredOffsets(storage)
    for version in range(9):
        assert store.swap("one", version, b"x")
    assert len(storage.list("one")) == 2
