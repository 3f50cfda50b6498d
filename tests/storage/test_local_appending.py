"""An appended file: what is synced is there, and after a failure nobody goes on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from persistent.errors import StorageError
from persistent.storage import LocalStorage
from tests.proof.disk import SimulatedDisk, SimulatedFiles


def test_parts_follow_each_other(tmp_path: Path) -> None:
    """A part that is lost shifts all that comes behind."""
    storage = LocalStorage(tmp_path / "new")
    file = storage.append("o/1")
    file.append([b"ab", memoryview(b"cd"), b""])
    file.sync()
    file.append([b"e"])
    assert storage.read("o/1").to_pybytes() == b"abcde"
    file.close()
    file.close()
    with pytest.raises(StorageError, match="is closed"):
        file.append([b"f"])


def test_a_name_that_is_there_is_not_taken(tmp_path: Path) -> None:
    """Two that append to one file mix what they write."""
    LocalStorage(tmp_path).append("o/1").close()
    with pytest.raises(FileExistsError):
        LocalStorage(tmp_path).append("o/1")


def test_the_name_is_durable_before_anything_is_written() -> None:
    """After a loss of power a synced file without a name is gone."""
    calls = SimulatedFiles(SimulatedDisk())
    file = LocalStorage("/log", disk=calls).append("o/1")
    file.append([b"abc"])
    file.sync()
    assert [disk.data("/log/o/1") for disk in calls.disk.survivors(random.Random(0), 100)] == [b"abc"]


def test_a_write_that_is_cut_short_goes_on(tmp_path: Path) -> None:
    """A system call may take a part of what it was given."""

    class Short(SimulatedFiles):
        def write(self, descriptor: int, data: memoryview) -> int:
            return super().write(descriptor, data[:2])

    calls = Short(SimulatedDisk())
    LocalStorage("/log", disk=calls).append("a").append([b"abcdefg"])
    assert calls.disk.data("/log/a") == b"abcdefg"


@pytest.mark.parametrize("verb", ["write", "fsync"])
def test_a_failure_names_the_file(verb: str) -> None:
    """Nobody would know which disk is full."""
    calls = SimulatedFiles(SimulatedDisk())
    file = LocalStorage("/log", disk=calls).append("a")

    def fail(what: str, path: str, data: bytes) -> None:
        if what == verb:
            raise OSError(28, "No space left on device")

    calls.before = fail
    with pytest.raises(StorageError, match="/log/a: No space left on device"):
        file.append([b"x"])
        file.sync()
