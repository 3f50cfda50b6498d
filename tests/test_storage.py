"""The contract of a storage, over all that run here; what only one of them promises is below."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import stat
import threading
import uuid
from pathlib import Path

import pytest

from persistent.errors import StorageError, UnsupportedStore
from persistent.storage import FsspecStorage, LocalStorage, MemoryStorage, Put, Storage, open_storage
from tests.faults import DEATHS, FaultyStorage, Killed, Operations


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty storage that does not exist yet."""
    if request.param == "local":
        return LocalStorage(tmp_path / "not" / "there" / "yet")
    return MemoryStorage(uuid.uuid4().hex)


# -- the contract
# ----------------------------------------------------------------------------------------------------


def test_put_if_absent_has_one_winner(storage: Storage) -> None:
    """Two drivers would commit the same checkpoint id, and the history would fork."""
    threads, rounds = 8, 200
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
    with pytest.raises(FileExistsError):
        storage.write("a", b"second")
    assert storage.put_if_absent("a", b"third") is Put.LOST
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


# -- local
# -----------------------------------------------------------------------------------------------------------


class Disk:
    """Records what ``os`` is asked to make durable, and the order of links and unlinks among it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, str]] = []
        fsync, link, unlink = os.fsync, os.link, os.unlink

        def recorded_fsync(descriptor: int) -> None:
            self.events.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
            fsync(descriptor)

        def recorded_link(source: str, target: str) -> None:
            self.events.append(("link", str(target)))
            link(source, target)

        def recorded_unlink(path: str) -> None:
            self.events.append(("unlink", str(path)))
            unlink(path)

        monkeypatch.setattr(os, "fsync", recorded_fsync)
        monkeypatch.setattr(os, "link", recorded_link)
        monkeypatch.setattr(os, "unlink", recorded_unlink)

    def taken(self) -> list[tuple[str, str]]:
        events, self.events = self.events, []
        return events


def test_bytes_are_synced_before_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut of power would lose acknowledged checkpoints, or leave their names over empty files."""
    disk = Disk(monkeypatch)
    storage = LocalStorage(tmp_path / "a" / "b")
    folder = str(tmp_path / "a" / "b" / "m")
    storage.write("m/first", b"data")
    events = disk.taken()
    made = [("fsync", str(path)) for path in (tmp_path, tmp_path / "a", tmp_path / "a" / "b")]
    assert set(made) <= set(events[:-2])
    assert events[-2:] == [("fsync", f"{folder}/first"), ("fsync", folder)]

    storage.write("m/second", b"data")
    assert disk.taken() == [("fsync", f"{folder}/second"), ("fsync", folder)]

    assert storage.put_if_absent("m/third", b"data") is Put.WON
    verbs = disk.taken()
    temporary = verbs[0][1]
    assert os.path.basename(temporary).startswith(".tmp-")
    assert verbs == [
        ("fsync", temporary),
        ("link", f"{folder}/third"),
        ("unlink", temporary),
        ("fsync", folder),
    ]

    storage.rename("m/third", "final")
    root = str(tmp_path / "a" / "b")
    assert disk.taken() == [
        ("link", f"{root}/final"),
        ("fsync", root),
        ("unlink", f"{folder}/third"),
        ("fsync", folder),
    ]


def test_a_folder_made_by_another_process_is_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever loses the race to make a folder would commit into one that a cut of power takes away."""
    LocalStorage(tmp_path / "url").write("m/0", b"")
    disk = Disk(monkeypatch)
    LocalStorage(tmp_path / "url").write("m/1", b"")
    synced = [path for verb, path in disk.taken() if verb == "fsync"]
    assert str(tmp_path / "url") in synced
    assert str(tmp_path) in synced


def test_losing_also_syncs_what_won(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loser goes by the winner's file; if the winner died before syncing its name, both would be gone."""
    storage = LocalStorage(tmp_path)
    storage.put_if_absent("a", b"1")
    disk = Disk(monkeypatch)
    assert storage.put_if_absent("a", b"2") is Put.LOST
    assert disk.taken()[-1] == ("fsync", str(tmp_path))
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("verb", ["put_if_absent", "write"])
def test_a_failed_sync_is_an_error_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """After a failed fsync the kernel forgets the pages: a second try would answer "durable" over lost
    bytes."""
    storage = LocalStorage(tmp_path)
    storage.write("before", b"")
    calls = []

    def failing(descriptor: int) -> None:
        calls.append(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StorageError, match=r"(create|write) .*/a: Input/output error\. .*device"):
        getattr(storage, verb)("a", b"data")
    assert len(calls) == 1
    if verb == "put_if_absent":
        assert sorted(os.listdir(tmp_path)) == ["before"]


def test_a_torn_file_is_never_seen_under_a_manifest_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a manifest would be taken for a corrupt checkpoint."""
    storage = LocalStorage(tmp_path)
    write = os.write

    def half(descriptor: int, data: memoryview) -> int:
        write(descriptor, data[: len(data) // 2])
        raise Killed("in the middle of write()")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(Killed):
        storage.put_if_absent("m/1", b"0123456789")
    assert storage.list("m") == []
    with pytest.raises(FileNotFoundError):
        storage.read("m/1")


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may take fewer bytes than it was given, and the rest would be missing."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    storage = LocalStorage(tmp_path)
    storage.write("a", b"0123456789")
    assert bytes(storage.read("a")) == b"0123456789"


def test_temporaries_of_the_dead_stay_hidden(tmp_path: Path) -> None:
    """The listing of manifests would hold a name that is no id."""
    storage = LocalStorage(tmp_path)
    storage.write("m/1", b"")
    (tmp_path / "m" / ".tmp-0123").write_bytes(b"half")
    assert storage.list("m") == ["1"]


def test_a_rename_cut_off_is_finished(tmp_path: Path) -> None:
    """An output that is published and still staged would stop the next run."""
    storage = LocalStorage(tmp_path)
    storage.write("_staged/a", b"a")
    os.link(tmp_path / "_staged" / "a", tmp_path / "a")
    storage.rename("_staged/a", "a")
    assert storage.list("_staged") == []
    assert bytes(storage.read("a")) == b"a"


def test_files_are_private(tmp_path: Path) -> None:
    """State holds the user's data: others on the machine must not read it."""
    storage = LocalStorage(tmp_path / "url")
    storage.write("d/run", b"")
    storage.put_if_absent("m/1", b"")
    for name, mode in (("", 0o700), ("d", 0o700), ("m", 0o700), ("d/run", 0o600), ("m/1", 0o600)):
        assert stat.S_IMODE((tmp_path / "url" / name).stat().st_mode) == mode


@pytest.mark.parametrize(
    ("code", "remedy"),
    [(errno.ENOSPC, "free some space"), (errno.EACCES, "Let this user"), (errno.EROFS, "read-only")],
)
def test_a_refusal_says_where_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str
) -> None:
    """A bare errno does not tell the user which of their disks is meant, or what to do."""
    storage = LocalStorage(tmp_path)

    def refusing(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(StorageError, match=remedy) as caught:
        storage.write("run", b"data")
    assert f"{tmp_path}/run" in str(caught.value)
    assert os.strerror(code) in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    """The likeliest wrong URL: that of a file."""
    (tmp_path / "file").write_text("not a folder")
    storage = LocalStorage(tmp_path / "file")
    with pytest.raises(StorageError, match="folder is needed"):
        storage.put_if_absent("m/1", b"")
    with pytest.raises(StorageError, match="folder is needed"):
        storage.list("m")


def test_a_mapped_file_outlives_its_name(tmp_path: Path) -> None:
    """State being folded while garbage collection deletes an old run would crash the process."""
    storage = LocalStorage(tmp_path)
    storage.write("run", b"x" * 100_000)
    data = storage.read("run")
    storage.delete("run")
    assert bytes(data) == b"x" * 100_000


def test_a_relative_path_is_fixed_when_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers run in other folders: they would write next to the checkpoint, not into it."""
    monkeypatch.chdir(tmp_path)
    storage = open_storage("here")
    monkeypatch.chdir("/")
    storage.write("a", b"")
    assert (tmp_path / "here" / "a").exists()
    assert open_storage(f"file://{tmp_path}/here").list("") == ["a"]


# -- memory
# ----------------------------------------------------------------------------------------------------------


def test_memory_is_shared_by_name_in_one_process_only() -> None:
    """A pipeline on Spark with a checkpoint in memory would write into workers' memories; ``shared``
    refuses it."""
    name = uuid.uuid4().hex
    storage = open_storage(f"memory://{name}")
    storage.write("a", b"a")
    assert MemoryStorage(name).list("") == ["a"]
    assert MemoryStorage(name + "2").list("") == []
    assert not storage.shared
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(storage.list, ("",)) == []
    MemoryStorage(name).clear()
    assert storage.list("") == []


# -- other stores
# ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["gs://bucket/x", "abfs://container/x", "http://host/x", "webhdfs://host/x"])
def test_stores_without_atomic_create_are_refused(url: str) -> None:
    """Two drivers there would both win the same checkpoint."""
    with pytest.raises(UnsupportedStore, match=r"atomically.*Use a local path, s3://"):
        open_storage(url)


def test_secrets_never_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickled file system holds its secret key, and every worker's log would."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    storage = FsspecStorage("s3://bucket/folder/")
    assert storage.url == "s3://bucket/folder"
    assert b"hidden" not in pickle.dumps(storage)
    assert "hidden" not in repr(storage)
    with pytest.raises(UnsupportedStore) as caught:
        open_storage("s3://key:hidden@bucket/folder")
    assert "hidden" not in str(caught.value)


# -- faults
# ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", DEATHS)
@pytest.mark.parametrize("verb", ["write", "put_if_absent", "rename", "delete"])
def test_a_fault_does_what_it_says(storage: Storage, verb: str, how: str) -> None:
    """The crash tests would crash nothing."""
    storage.write("old", b"0123456789")
    operations = Operations(at=1, how=how)
    faulty, other = FaultyStorage(storage, operations), FaultyStorage(storage, operations)
    assert bytes(faulty.read("old")) == b"0123456789"
    arguments = {"rename": ("old", "new"), "delete": ("old",)}.get(verb, ("new", b"0123456789"))
    with pytest.raises(Killed):
        getattr(other, verb)(*arguments)
    for dead in (faulty, other):
        with pytest.raises(Killed):
            dead.list("")
    done = {"rename": ["new"], "delete": []}.get(verb, ["new", "old"])
    torn = {"rename": ["new", "old"], "write": ["new", "old"]}.get(verb, ["old"])
    assert storage.list("") == {"before": ["old"], "after": done, "half": torn}[how]
    if (verb, how) == ("write", "half"):
        assert bytes(storage.read("new")) == b"01234"
    if (verb, how) == ("rename", "half"):
        storage.rename("old", "new")
        assert storage.list("") == ["new"]
    assert [line[0] for line in operations.log] == ["read", verb]


def test_a_full_disk_refuses_once_or_for_good(storage: Storage) -> None:
    """The test of a full disk would pass on one that never is."""
    once = FaultyStorage(storage, Operations(at=1, how="full-once"))
    once.write("a", b"")
    assert once.list("") == ["a"]
    with pytest.raises(StorageError) as caught:
        once.write("b", b"")
    assert isinstance(caught.value.__cause__, OSError) and caught.value.__cause__.errno == errno.ENOSPC
    once.write("b", b"")
    full = FaultyStorage(storage, Operations(at=0, how="full"))
    for _ in range(2):
        with pytest.raises(StorageError):
            full.put_if_absent("c", b"")
    assert full.list("") == ["a", "b"]
