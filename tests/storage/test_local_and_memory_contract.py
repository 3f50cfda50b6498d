"""The contract of a storage, over every kind there is, the remote ones as real servers."""

from __future__ import annotations

import pickle
import threading
import uuid
from pathlib import Path

import pytest

from persistent.storage import FsspecStorage, LocalStorage, MemoryStorage, Put, Storage, open_storage
from tests.few import only


@pytest.fixture(params=only({"local", "memory"}.__contains__, ["local", "memory", "s3", "hdfs"]))
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty storage that does not exist yet."""
    name = uuid.uuid4().hex
    if request.param == "local":
        return LocalStorage(tmp_path / "not" / "there" / "yet")
    if request.param == "memory":
        return MemoryStorage(name)
    if request.param == "s3":
        return open_storage(f"{request.getfixturevalue('s3_bucket')}/{name}")
    return open_storage(request.getfixturevalue("hdfs_server").url(name))


def test_put_if_absent_has_one_winner(storage: Storage) -> None:
    """Two drivers would commit the same checkpoint id, and the history would fork."""
    threads, rounds = 8, 10 if isinstance(storage, FsspecStorage) else 200
    answers: list[list[Put | None]] = [[None] * threads for _ in range(rounds)]
    gate = threading.Barrier(threads)

    def race(driver: int) -> None:
        for number in range(rounds):
            gate.wait()
            answers[number][driver] = storage.put_if_absent(f"m/{number}", f"{driver}".encode() * 100)

    racers = [threading.Thread(target=race, args=(driver,)) for driver in range(threads)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    for number, row in enumerate(answers):
        assert sorted(str(answer) for answer in row) == [str(Put.LOST)] * (threads - 1) + [str(Put.WON)]
        winner = row.index(Put.WON)
        assert bytes(storage.read(f"m/{number}")) == f"{winner}".encode() * 100
    assert storage.list("m") == sorted(str(number) for number in range(rounds))


def test_what_is_written_is_read(storage: Storage) -> None:
    """A byte that changes on the way makes a checkpoint corrupt."""
    data = bytes(range(256)) * 1000
    storage.write("d/visits/run.arrow", data)
    storage.write("d/empty", b"")
    assert bytes(storage.read("d/visits/run.arrow")) == data
    assert storage.read("d/visits/run.arrow").size == len(data)
    assert bytes(storage.read("d/empty")) == b""


def test_a_buffer_is_written_as_its_bytes(storage: Storage) -> None:
    """Runs are Arrow buffers; another length or an offset ignored would tear them."""
    import pyarrow as pa

    storage.write("whole", pa.py_buffer(b"0123456789"))
    storage.write("slice", pa.py_buffer(b"0123456789").slice(2, 5))
    assert bytes(storage.read("whole")) == b"0123456789"
    assert bytes(storage.read("slice")) == b"23456"


def test_nothing_is_overwritten(storage: Storage) -> None:
    """A file that a manifest names by its hash would change under it."""
    storage.write("a", b"first")
    if not isinstance(storage, FsspecStorage):
        # Behind a network a write relies on its name being new: only so can it be repeated.
        with pytest.raises(FileExistsError):
            storage.write("a", b"second")
    assert storage.put_if_absent("a", b"third") is Put.LOST
    assert storage.put_if_absent("a", b"") is Put.LOST
    assert bytes(storage.read("a")) == b"first"


def test_a_file_that_is_not_there_is_told(storage: Storage) -> None:
    """Absence would look like emptiness: "nothing committed yet" instead of "lost"."""
    storage.write("d/other", b"")
    for name in ("d/none", "none", "none/none"):
        with pytest.raises(FileNotFoundError):
            storage.read(name)
    with pytest.raises(FileNotFoundError):
        storage.rename("d/none", "d/new")
    assert storage.list("none") == []
    assert storage.list("d") == ["other"]


def test_list_shows_the_files_of_one_folder(storage: Storage) -> None:
    """Recovery picks the highest manifest of a listing: folders and deeper files must not be among them."""
    assert storage.list("") == []
    for name in ("FORMAT", "m/2", "m/10", "m/1", "m/deep/3", "mm/4"):
        storage.write(name, b"x")
    assert storage.list("m") == ["1", "10", "2"]
    assert storage.list("") == ["FORMAT"]
    assert storage.list("m/deep") == ["3"]


def test_rename_moves_without_overwriting(storage: Storage) -> None:
    """A published output would be replaced, or be there twice."""
    storage.write("_staged/a", b"a")
    storage.write("_staged/b", b"b")
    storage.rename("_staged/a", "out")
    with pytest.raises(FileExistsError):
        storage.rename("_staged/b", "out")
    assert bytes(storage.read("out")) == b"a"
    assert storage.list("_staged") == ["b"]
    with pytest.raises(FileNotFoundError):
        storage.rename("_staged/a", "out")


def test_delete_is_repeatable(storage: Storage) -> None:
    """Garbage collection that is cut off could never be finished."""
    storage.write("d/a", b"a")
    storage.delete("d/a")
    storage.delete("d/a")
    storage.delete("nowhere/a")
    assert storage.list("d") == []


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "../a", "a/../b", "a//b", "a/", "./a", "a b", "ä", "a\n", "a\0", ".tmp-1", "d/.tmp-"],
)
def test_names_outside_the_alphabet_are_refused(storage: Storage, name: str) -> None:
    """A name from a manifest could reach outside the checkpoint, or mean another file on another store."""
    for verb in (
        storage.read,
        storage.delete,
        lambda n: storage.put_if_absent(n, b""),
        lambda n: storage.write(n, b""),
    ):
        with pytest.raises(ValueError, match="name"):
            verb(name)
    for pair in ((name, "ok"), ("ok", name)):
        with pytest.raises(ValueError, match="name"):
            storage.rename(*pair)


def test_a_storage_pickles_as_its_url(storage: Storage) -> None:
    """Workers would write elsewhere, or carry a connection that died in the fork."""
    storage.write("a", b"a")
    copy = pickle.loads(pickle.dumps(storage))
    assert copy.url == storage.url
    assert bytes(copy.read("a")) == b"a"
    assert open_storage(storage.url).url == storage.url
    assert open_storage(storage) is storage
