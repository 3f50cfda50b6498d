"""A simulated disk keeps what POSIX promises, and nothing more."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from persistent.storage import LocalStorage, Put
from persistent.storage.local import Disk, OsDisk
from tests.proof.disk import SECTOR_BYTES, SimulatedDisk, SimulatedFiles

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_FOLDER = os.O_RDONLY | os.O_DIRECTORY


def make(files: Disk, path: str, data: bytes, *, sync: bool = True) -> None:
    descriptor = files.open(path, _NEW, 0o600)
    files.write(descriptor, memoryview(data))
    if sync:
        files.fsync(descriptor)
    files.close(descriptor)


def sync_folder(files: Disk, path: str) -> None:
    descriptor = files.open(path, _FOLDER)
    files.fsync(descriptor)
    files.close(descriptor)


def left(disk: SimulatedDisk, at_most: int = 1_000) -> set[tuple[tuple[str, bytes | None], ...]]:
    """All that a loss of power may leave."""
    return {survivor.tree() for survivor in disk.survivors(random.Random(0), at_most)}


def test_what_is_synced_with_its_folder_is_safe() -> None:
    """A model that loses what POSIX keeps would find faults in any storage."""
    files = SimulatedFiles(SimulatedDisk())
    make(files, "/a", b"data")
    sync_folder(files, "/")
    assert left(files.disk) == {(("/a", b"data"),)}


def test_data_that_is_not_synced_survives_in_any_part() -> None:
    """A model that keeps it whole would pass a storage that never syncs a file."""
    files = SimulatedFiles(SimulatedDisk())
    data = b"x" * (2 * SECTOR_BYTES)
    make(files, "/a", data, sync=False)
    sync_folder(files, "/")
    found = {dict(tree)["/a"] for tree in left(files.disk)}
    hole = bytes(SECTOR_BYTES)
    assert {b"", data, data[:SECTOR_BYTES], bytes(len(data)), hole + data[SECTOR_BYTES:]} <= found


def test_names_survive_one_by_one_until_their_folder_is_synced() -> None:
    """A model in which names keep their order would pass a storage that syncs only the last folder."""
    files = SimulatedFiles(SimulatedDisk())
    make(files, "/a", b"a")
    make(files, "/b", b"b")
    a, b = ("/a", b"a"), ("/b", b"b")
    assert left(files.disk) == {(), (a,), (b,), (a, b)}
    sync_folder(files, "/")
    files.link("/a", "/c")
    files.unlink("/a")
    c = ("/c", b"a")
    assert left(files.disk) == {(a, b), (a, b, c), (b, c), (b,)}


def test_a_new_folder_takes_all_below_it_along() -> None:
    """Syncing the folder of a file helps nobody if the folder's own name is lost."""
    files = SimulatedFiles(SimulatedDisk())
    files.mkdir("/f")
    make(files, "/f/a", b"a")
    sync_folder(files, "/f")
    assert left(files.disk) == {(), (("/f", None), ("/f/a", b"a"))}


def test_a_failed_sync_drops_the_data_for_good() -> None:
    """A kernel that has reported an error once says that all is well; a storage that tries again believes it."""
    files = SimulatedFiles(SimulatedDisk())
    descriptor = files.open("/a", _NEW, 0o600)
    files.write(descriptor, memoryview(b"data"))
    files.before = lambda verb, path, data: _fail(verb)
    with pytest.raises(OSError):
        files.fsync(descriptor)
    files.before = None
    files.fsync(descriptor)
    sync_folder(files, "/")
    assert (("/a", b""),) in left(files.disk)
    assert files.disk.data("/a") == b"data"


def _fail(verb: str) -> None:
    if verb == "fsync":
        raise OSError(errno.EIO, "fails")


def test_a_copy_of_a_disk_is_another_disk() -> None:
    """Cases go on from copies: one that changes its original would change the next case."""
    disk = SimulatedDisk()
    copy = disk.copy()
    make(SimulatedFiles(copy), "/a", b"a")
    assert disk.tree() == () and copy.tree() != ()


def test_few_survivors_are_drawn_where_there_are_many() -> None:
    """A loss of power with hundreds of outcomes must not take hundreds of recoveries."""
    files = SimulatedFiles(SimulatedDisk())
    for number in range(12):
        make(files, f"/{number}", b"data")
    assert 2 <= len(left(files.disk, 7)) <= 7 < len(left(files.disk, 5_000))


@pytest.mark.parametrize("kind", ["simulated", "real"])
def test_the_production_storage_meets_the_same_answers(kind: str, tmp_path: Path) -> None:
    """A simulated operating system that answers unlike the real one proves something about another storage."""
    files: Disk = SimulatedFiles(SimulatedDisk()) if kind == "simulated" else OsDisk()
    storage = LocalStorage("/top/store" if kind == "simulated" else tmp_path / "top" / "store", disk=files)
    assert storage.list("m") == []
    assert storage.put_if_absent("m/1", b"one") is Put.WON
    assert storage.put_if_absent("m/1", b"two") is Put.LOST
    storage.write("d/x/run", b"")
    with pytest.raises(FileExistsError):
        storage.write("d/x/run", b"again")
    storage.rename("d/x/run", "late/run")
    storage.write("d/x/run", b"another")
    with pytest.raises(FileExistsError):
        storage.rename("d/x/run", "late/run")
    storage.delete("d/x/run")
    storage.delete("d/x/run")
    with pytest.raises(FileNotFoundError):
        storage.read("d/x/run")
    with pytest.raises(FileNotFoundError):
        storage.rename("d/x/run", "late/other")
    assert (bytes(storage.read("m/1")), bytes(storage.read("late/run"))) == (b"one", b"")
    assert (storage.list("m"), storage.list("late"), storage.list("")) == (["1"], ["run"], [])
