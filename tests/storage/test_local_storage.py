"""What only a local disk promises: durability in the right order, privacy, and errors that name the place."""

from __future__ import annotations

import errno
import os
import pickle
import stat
from pathlib import Path

import pytest

from persistent.errors import StorageError
from persistent.storage import LocalStorage, Put, open_storage
from persistent.storage.local import OsDisk
from tests.faults import Killed


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


def synced(disk: Disk) -> list[str]:
    return [path for verb, path in disk.taken() if verb == "fsync"]


def test_no_folder_is_synced_that_need_not_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sync costs milliseconds: a step would take twice as long; or a folder above may not be opened at all."""
    disk = Disk(monkeypatch)
    storage = LocalStorage(tmp_path / "url")
    folder = str(tmp_path / "url")
    storage.write("m/1", b"")
    assert synced(disk) == [folder, str(tmp_path), f"{folder}/m/1", f"{folder}/m"]
    storage.write("d/1", b"")
    assert synced(disk) == [folder, f"{folder}/d/1", f"{folder}/d"]
    storage.write("m/2", b"")
    assert synced(disk) == [f"{folder}/m/2", f"{folder}/m"]


def test_a_folder_that_was_taken_away_is_made_and_synced_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut of power would take away a folder that counts as durable."""
    storage = LocalStorage(tmp_path / "url")
    storage.write("a/b/1", b"")
    storage.delete("a/b/1")
    (tmp_path / "url" / "a" / "b").rmdir()
    (tmp_path / "url" / "a").rmdir()
    disk = Disk(monkeypatch)
    storage.write("a/b/2", b"")
    folder = str(tmp_path / "url")
    assert synced(disk) == [f"{folder}/a", folder, f"{folder}/a/b/2", f"{folder}/a/b"]


class Refusing(OsDisk):
    """The system of a user who may do nothing with what is there already."""

    def access(self, path: str, mode: int) -> bool:
        return False


def test_a_folder_that_may_not_be_opened_is_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may write into a folder, but not read the one above it, could not write at all."""
    (tmp_path / "url").mkdir()
    disk = Disk(monkeypatch)
    storage = LocalStorage(tmp_path / "url", disk=Refusing())
    folder = str(tmp_path / "url")
    storage.write("a", b"")
    assert synced(disk) == [f"{folder}/a", folder]
    storage.write("new/a", b"")
    assert synced(disk) == [folder, f"{folder}/new/a", f"{folder}/new"]


def test_a_list_syncs_what_it_shows_for_the_first_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver died before it synced the name of its manifest: whoever goes by it would find it gone."""
    storage = LocalStorage(tmp_path)
    storage.write("m/1", b"")
    disk = Disk(monkeypatch)
    for names in (["1"], ["1", "2"]):
        for name in names:
            (tmp_path / "m" / name).touch()
        assert storage.list("m") == names
        assert synced(disk) == [str(tmp_path / "m")]
        assert storage.list("m") == names
        assert synced(disk) == []
    assert LocalStorage(tmp_path, disk=Refusing()).list("m") == ["1", "2"]
    assert synced(disk) == [], "who may only read has nothing to sync"


class Opened(OsDisk):
    """Notes what is opened, and how."""

    def __init__(self) -> None:
        self.flags: list[int] = []
        self.descriptors: list[int] = []

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        self.flags.append(flags)
        self.descriptors.append(super().open(path, flags, mode))
        return self.descriptors[-1]

    def close(self, descriptor: int) -> None:
        self.descriptors.remove(descriptor)
        super().close(descriptor)


def test_what_is_opened_is_closed_and_stays_with_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors would run out after a thousand steps; or a pipe in the place of a folder would block for ever."""
    files = Opened()
    storage = LocalStorage(tmp_path, disk=files)
    storage.write("a", b"a")
    storage.put_if_absent("b", b"b")
    storage.list("")
    assert files.descriptors == []
    assert all(flags & os.O_CLOEXEC for flags in files.flags)
    assert all(flags & (os.O_CREAT | os.O_DIRECTORY) for flags in files.flags)

    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    for verb in (lambda: storage.write("c", b"c"), lambda: storage.rename("a", "d")):
        with pytest.raises(StorageError, match="Input/output"):
            verb()
    assert files.descriptors == []


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


def test_files_in_a_folder_of_others_are_private(tmp_path: Path) -> None:
    """A folder made by hand is open to all: what we put into it must not be."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    before = os.umask(0)
    try:
        storage = LocalStorage(folder)
        storage.write("run", b"")
        storage.put_if_absent("m/1", b"")
        storage.write("staged", b"")
        storage.rename("staged", "out/final")
    finally:
        os.umask(before)
    for name, mode in (("", 0o777), ("run", 0o600), ("m", 0o700), ("m/1", 0o600), ("out", 0o700), ("out/final", 0o600)):
        assert stat.S_IMODE((folder / name).stat().st_mode) == mode


def test_files_are_for_all_if_told(tmp_path: Path) -> None:
    """Results that others are to read could not be read; nor those that a worker writes."""
    before = os.umask(0)
    try:
        storage = LocalStorage(tmp_path / "url", private=False)
        storage.write("d/run", b"")
        pickle.loads(pickle.dumps(storage)).write("e/run", b"")
        pickle.loads(pickle.dumps(LocalStorage(tmp_path / "mine"))).write("d/run", b"")
    finally:
        os.umask(before)
    modes = {"url": 0o777, "url/d": 0o777, "url/d/run": 0o666, "url/e": 0o777, "url/e/run": 0o666}
    modes |= {"mine": 0o700, "mine/d": 0o700, "mine/d/run": 0o600}
    assert {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in modes} == modes


def test_it_is_seen_by_the_processes_of_this_machine(tmp_path: Path) -> None:
    """An engine would refuse its workers the disk; or send files of this machine's disk to others."""
    storage = LocalStorage(tmp_path)
    assert storage.shared is True and storage.local is True
    assert repr(storage) == f"LocalStorage('{tmp_path}')"


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


class Busy(OsDisk):
    """Another process is faster: it makes each folder first, and sweeps temporary files that are linked."""

    def mkdir(self, path: str, mode: int) -> None:
        super().mkdir(path, mode)
        super().mkdir(path, mode)

    def link(self, old: str, new: str) -> None:
        super().link(old, new)
        super().unlink(old)


def test_another_process_may_be_faster(tmp_path: Path) -> None:
    """Of two drivers that begin together one would fail; or a sweep by hand would make a winner fail."""
    storage = LocalStorage(tmp_path / "url", disk=Busy())
    assert storage.put_if_absent("m/deep/1", b"one") is Put.WON
    assert bytes(storage.read("m/deep/1")) == b"one"


class Full(OsDisk):
    """A disk that takes no new file."""

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().open(path, flags, mode)


def test_a_full_disk_is_told_and_not_what_it_has_not_made(tmp_path: Path) -> None:
    """Of a full disk the user would read that some temporary file is not there."""
    with pytest.raises(StorageError, match=r"cannot create .*/m/1: No space left"):
        LocalStorage(tmp_path, disk=Full()).put_if_absent("m/1", b"")
    assert os.listdir(tmp_path / "m") == []


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    """The likeliest wrong URL: that of a file."""
    (tmp_path / "file").write_text("not a folder")
    storage = LocalStorage(tmp_path / "file")
    with pytest.raises(StorageError, match=r"/file is a file\. .*folder is needed"):
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
