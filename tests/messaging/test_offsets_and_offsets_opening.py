"""Every store keeps the contract of offset stores; and what is not a document is an error."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from persistent.codec.documents import encode_document
from persistent.errors import CorruptLog, InvalidPipeline, NewerFormat
from persistent.messaging.offsets import ReaderState, checked_id, load_state
from persistent.offsets import LevelDbOffsets, OffsetStore, SqliteOffsets, StoredOffsets, open_offsets
from persistent.storage.process import this_process
from tests.checkpoint.samples import document as written

Open = Callable[[], OffsetStore]


@pytest.fixture(params=["sqlite", "leveldb", "disk", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the store, as another process would; of LevelDB there is one at a time."""
    if request.param == "leveldb":
        pytest.importorskip("plyvel")
        store = LevelDbOffsets(tmp_path / "offsets")
        request.addfinalizer(store.close)
        return lambda: store
    name = uuid.uuid4().hex
    kinds: dict[str, Open] = {
        "sqlite": lambda: SqliteOffsets(tmp_path / "offsets.db"),
        "disk": lambda: StoredOffsets(tmp_path / "offsets"),
        "memory": lambda: StoredOffsets(f"memory://{name}"),
    }
    return kinds[request.param]


def test_a_document_is_exchanged_for_the_one_that_was_read(opened: Open) -> None:
    """Two readers that both store their position would take turns in going back."""
    store = opened()
    assert store.load("one") == (0, b"")
    assert store.swap("one", 0, b"a") and not store.swap("one", 0, b"b") and not opened().swap("one", 2, b"c")
    version, data = opened().load("one")
    assert data == b"a" and opened().swap("one", version, b"d") and not store.swap("one", version, b"e")
    for number in range(5):
        version, data = store.load("one")
        assert store.swap("one", version, b"%d" % number)
    assert opened().load("one")[1] == b"4" and store.load("other") == (0, b"")


def test_of_many_that_exchange_at_once_one_does(opened: Open) -> None:
    """Two readers under one id would each process every record."""
    won: list[int] = []
    stores = [opened() for _ in range(6)]

    def swap(number: int) -> None:
        if stores[number].swap("one", 0, b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=swap, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(won) == 1 and opened().load("one")[1] == b"%d" % won[0]


def test_a_state_comes_back(opened: Open) -> None:
    """Field by field."""
    state = ReaderState("log", "1-2-3", 4, 5, 6)
    assert load_state(opened(), "one") == (0, ReaderState())
    assert opened().swap("one", 0, state.encoded())
    version, found = load_state(opened(), "one")
    assert (
        version
        and found == state
        and found.taken("other", 9, 7) == ReaderState("other", "1-2-3", 5, 16, 7, process=this_process())
    )


def document(**fields: object) -> bytes:
    """A sealed document with some fields of another kind."""
    return written({"format": 4, "log": "log", **fields})


CORRUPT = [
    b"",
    b"x",
    ReaderState().encoded()[:-2],
    encode_document([]),
    encode_document({"format": "5"}),
    encode_document({"log": "log"}),
    document(more=1),
    document(until="soon"),
    document(lease=-1),
    document(position=None),
]


@pytest.mark.parametrize("data", CORRUPT)
def test_what_is_corrupt_is_an_error(opened: Open, data: bytes) -> None:
    """A reader that takes it for absent reads everything again, or nothing."""
    assert opened().swap("one", 0, data)
    with pytest.raises(CorruptLog, match="reader 'one': the position of the reader is unreadable"):
        load_state(opened(), "one")


def test_a_document_without_the_length_of_its_lease_is_read(opened: Open) -> None:
    """A reader would begin anew, or not at all."""
    data = document(position="1-2-3", token=4, until=5)
    assert opened().swap("one", 0, data)
    assert load_state(opened(), "one")[1] == ReaderState("log", "1-2-3", 4, 5, None)


@pytest.mark.parametrize(
    ("lease", "now", "left"),
    [
        (60, 1_000, 0),
        (60, 999, 1),
        (60, 940, 60),
        (60, 880, 120),
        (60, 879, 0),
        (60, 0, 0),
        (0, 999, 0),
        (None, 0, 1_000),
    ],
)
def test_a_lease_that_is_impossibly_long_is_over(lease: int | None, now: int, left: int) -> None:
    """It was taken while a clock was ahead, by a year: the id was blocked for that year."""
    assert ReaderState(until=1_000, lease=lease).left(now) == left


class Stored:
    """A store of somebody's own."""

    def __init__(self, version: object, data: object) -> None:
        self.document = (version, data)

    def load(self, reader: str) -> object:
        return self.document


@pytest.mark.parametrize(("version", "data"), [(0, b"x"), (0, None), (-1, b"x"), ("1", b"x"), (1, "x"), (None, b"")])
def test_only_what_is_absent_is_the_beginning(version: object, data: object) -> None:
    """A version that is lost would read everything again, of what is read at most once too."""
    with pytest.raises(CorruptLog, match="reader 'one': the position of the reader is unreadable"):
        load_state(Stored(version, data), "one")  # type: ignore[arg-type]
    assert load_state(Stored(0, b""), "one") == (0, ReaderState())  # type: ignore[arg-type]


def test_a_newer_document_is_named(opened: Open) -> None:
    """Nothing is wrong with it."""
    assert opened().swap("one", 0, encode_document({"format": 5}))
    with pytest.raises(NewerFormat):
        load_state(opened(), "one")


@pytest.mark.parametrize("reader", ["", "a/b", "..", ".a", "a b", "x" * 101, 7, "\u00e4"])
def test_an_id_is_one_in_every_store(reader: object) -> None:
    """In one of them it would be a path."""
    with pytest.raises(InvalidPipeline, match="reader id"):
        checked_id(reader)  # type: ignore[arg-type]


def test_a_place_says_which_store_it_is(tmp_path: Path) -> None:
    """A URL that is taken for a path makes a file of an odd name."""
    store = SqliteOffsets(tmp_path / "a")
    assert open_offsets(store) is store
    assert repr(open_offsets(tmp_path / "a.db")) == f"SqliteOffsets('{tmp_path}/a.db')"
    assert repr(open_offsets("memory://a")) == "StoredOffsets('memory://a')"
