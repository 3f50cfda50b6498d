"""What only one kind of offset store meets."""

from __future__ import annotations

import sqlite3
import sys
import uuid
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from persistent.errors import CorruptLog, InvalidPipeline, StorageError
from persistent.offsets import LevelDbOffsets, SqliteOffsets, StoredOffsets
from persistent.storage import MemoryStorage, Put
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


def test_a_position_in_sqlite_outlasts_a_loss_of_power(tmp_path: Path) -> None:
    """Where it is stored before a batch is handed out, that batch would be read twice."""
    with SqliteOffsets(tmp_path / "a.db")._transaction("look into") as database:
        assert database.execute("PRAGMA synchronous").fetchone() == (3,)


def test_what_is_no_sqlite_is_told(tmp_path: Path) -> None:
    """With the file, and what to do."""
    (tmp_path / "a.db").write_bytes(b"no database" * 100)
    with pytest.raises(StorageError, match=r"cannot read SqliteOffsets\('.*a.db'\): file is not a database"):
        SqliteOffsets(tmp_path / "a.db").load("one")
    with pytest.raises(StorageError, match="cannot write"):
        SqliteOffsets(tmp_path / "none" / "a.db").swap("one", 0, b"a")


@pytest.mark.parametrize(
    "change", ["version = 0", "version = -1", "version = 'abc'", "data = ''", "data = 'text'", "data = 5"]
)
def test_a_changed_row_of_sqlite_is_an_error(change: str, tmp_path: Path) -> None:
    """It is read as absent, which is the beginning; or ends a reader with an error that names nothing."""
    store = SqliteOffsets(tmp_path / "a.db")
    assert store.swap("one", 0, b"a")
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute(f"UPDATE persistent_offsets SET {change}")
        database.commit()
    for act in (lambda: store.load("one"), lambda: store.swap("one", 0, b"b")):
        with pytest.raises(
            CorruptLog, match=r"SqliteOffsets\(.*reader 'one': the position of the reader is unreadable"
        ):
            act()


@pytest.mark.parametrize("data", [b"", b"abc", bytes(8), bytes(20)])
def test_a_changed_value_of_leveldb_is_an_error(data: bytes, tmp_path: Path) -> None:
    """It is read as absent, which is the beginning."""
    plyvel = pytest.importorskip("plyvel")
    with closing(plyvel.DB(str(tmp_path / "a"), create_if_missing=True)) as database:
        database.put(b"persistent/one", data)
    with closing(LevelDbOffsets(tmp_path / "a")) as store:
        for act in (lambda: store.load("one"), lambda: store.swap("one", 0, b"b")):
            with pytest.raises(CorruptLog, match="reader 'one': the position of the reader is unreadable"):
                act()
        assert store.load("two") == (0, b"")


def test_a_damaged_write_of_leveldb_is_an_error(tmp_path: Path) -> None:
    """It is skipped by default: the position goes back to the one before, or to the beginning."""
    pytest.importorskip("plyvel")
    for version in range(2):
        with closing(LevelDbOffsets(tmp_path / "a")) as store:
            assert store.swap("one", version, b"position" * 9)
    (written,) = (tmp_path / "a").glob("*.log")
    written.write_bytes(written.read_bytes()[:-1] + b"X")
    with pytest.raises(CorruptLog, match="Corruption: checksum mismatch"):
        LevelDbOffsets(tmp_path / "a").load("one")


def test_a_file_beside_the_documents_does_no_harm() -> None:
    """A copy, or what NFS leaves of a file that was deleted while somebody read it."""
    storage = MemoryStorage(uuid.uuid4().hex)
    store = StoredOffsets(storage)
    for name in (".nfs0001", "zz.tmp"):
        storage.put_if_absent(f"one/{name}", b"")
    for version in range(4):
        if version:
            assert store.load("one") == (version, b"%d" % version)
            assert store.swap("one", version, b"%d" % (version + 1))
        else:
            storage.put_if_absent(f"one/{1:020d}", b"1")
    assert [name for name in storage.list("one") if not name.isdigit()] == [".nfs0001", "zz.tmp"]
    assert len(storage.list("one")) == 4


def test_a_folder_without_a_document_is_not_absent() -> None:
    """What was renamed would be read from the beginning."""
    storage = MemoryStorage(uuid.uuid4().hex)
    storage.put_if_absent("one/00000000000000000007.bak", b"x")
    store = StoredOffsets(storage)
    for act in (lambda: store.load("one"), lambda: store.swap("one", 0, b"b")):
        with pytest.raises(CorruptLog, match=r"its folder has '00000000000000000007\.bak', and no document"):
            act()


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


def test_each_write_to_leveldb_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not by default: a loss of power would take the position back, of what is read at most once too."""
    plyvel = pytest.importorskip("plyvel")
    told: list[dict[str, Any]] = []

    class Told:
        def __init__(self, *words: Any, **options: Any) -> None:
            self.database = plyvel.DB(*words, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.database, name)

        def put(self, *words: Any, **options: Any) -> None:
            told.append(options)
            self.database.put(*words, **options)

    stand_in = SimpleNamespace(DB=Told, Error=plyvel.Error)
    monkeypatch.setitem(sys.modules, "plyvel", stand_in)
    store = LevelDbOffsets(tmp_path / "a")
    assert store.swap("one", 0, b"a") and store.swap("one", 1, b"b")
    store.close()
    assert told == [{"sync": True}] * 2


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


def test_an_old_number_that_is_free_again_replaces_nothing() -> None:
    """Numbers that are deleted can be put again: by a reader that slept since it looked."""
    for later in range(1, 6):
        storage = MemoryStorage(uuid.uuid4().hex)
        others = StoredOffsets(storage)
        assert others.swap("one", 0, b"a")

        class Sleepy:
            url = storage.url

            def __getattr__(self, name: str) -> Any:
                return getattr(storage, name)  # noqa: B023

            def put_if_absent(self, name: str, data: bytes) -> Put:
                for version in range(1, later + 1):  # noqa: B023
                    assert others.swap("one", version, b"other")  # noqa: B023
                return storage.put_if_absent(name, data)  # noqa: B023

        assert not StoredOffsets(Sleepy()).swap("one", 1, b"b")  # type: ignore[arg-type]
        assert others.load("one") == (1 + later, b"other") and others.swap("one", 1 + later, b"c")
        assert len(storage.list("one")) == 2


def test_a_store_keeps_few_documents() -> None:
    """A reader that flushes every ten seconds writes three million a year."""
    storage = MemoryStorage(uuid.uuid4().hex)
    store = StoredOffsets(storage)
    for version in range(9):
        assert store.swap("one", version, b"x")
    assert len(storage.list("one")) == 2
