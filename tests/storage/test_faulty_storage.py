"""The storage with faults does what it says, else the crash tests crash nothing."""

from __future__ import annotations

import errno
import uuid
from pathlib import Path

import pytest

from persistent.errors import StorageError
from persistent.storage import LocalStorage, MemoryStorage, Storage
from tests.faults import DEATHS, FaultyStorage, Killed, Operations


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty storage that does not exist yet."""
    if request.param == "local":
        return LocalStorage(tmp_path / "not" / "there" / "yet")
    return MemoryStorage(uuid.uuid4().hex)


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
