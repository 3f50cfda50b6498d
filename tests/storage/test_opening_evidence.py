"""Only a probe of the same software, in the folder or one above it, is evidence."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
import tenacity
from fsspec.implementations.local import LocalFileSystem

from persistent.codec.documents import decode_document
from persistent.errors import StorageError, UnsupportedStore
from persistent.storage import FsspecStorage, fsspec_storage, is_proved, opening
from persistent.storage.opening import check_evidence, leave_evidence, withdraw_evidence

MIDNIGHT_MS = 1_700_006_400_000


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FsspecStorage:
    """A folder in a folder of a store that is not known, shortly after midnight of 15 November 2023."""
    monkeypatch.setattr(opening, "wall_ms", lambda: MIDNIGHT_MS + 999)
    return FsspecStorage(f"local://{tmp_path}/above/job")


def above(storage: FsspecStorage) -> FsspecStorage:
    return FsspecStorage(storage.url.rpartition("/")[0])


def test_the_document_says_what_was_probed_and_when(storage: FsspecStorage) -> None:
    """Another implementation would count as proved; and nobody could tell how old the proof is."""
    leave_evidence(storage)
    leave_evidence(storage)
    assert decode_document(storage.read("DOCTOR"), "DOCTOR") == {
        "protocol": "local",
        "implementation": "fsspec.implementations.local.LocalFileSystem",
        "version": fsspec.__version__,
        "date": "2023-11-15",
    }
    check_evidence(storage)
    assert is_proved(storage) is True


def test_evidence_that_is_withdrawn_holds_no_longer(storage: FsspecStorage) -> None:
    """A store that has failed a probe would still count as proved."""
    leave_evidence(storage)
    withdraw_evidence(storage)
    withdraw_evidence(storage)
    assert storage.list("") == []
    assert is_proved(storage) is False


def test_two_doctors_at_work_are_told(storage: FsspecStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them may have found the store wanting, and the other would leave its document."""
    leave_evidence(storage)
    monkeypatch.setattr(storage.requests, "delete", lambda name: None)
    with pytest.raises(StorageError, match=r"cannot create .*/above/job/DOCTOR: another doctor"):
        leave_evidence(storage)


def test_torn_evidence_is_none(storage: FsspecStorage) -> None:
    """A checkpoint that is whole would be called corrupt; and the document of a folder above would not be looked at."""
    leave_evidence(storage)
    data = bytes(storage.read("DOCTOR"))
    withdraw_evidence(storage)
    storage.write("DOCTOR", data[: len(data) // 2])
    assert is_proved(storage) is False
    with pytest.raises(UnsupportedStore, match=r"DOCTOR.*Probe it with 'persistent doctor"):
        check_evidence(storage)
    leave_evidence(above(storage))
    check_evidence(storage)


def test_evidence_of_a_folder_above_counts(storage: FsspecStorage) -> None:
    """Each job of a bucket would have to be probed."""
    leave_evidence(above(storage))
    check_evidence(storage)


def test_a_document_that_cannot_be_read_does_not_hide_the_one_above(storage: FsspecStorage) -> None:
    """A store that is proved would be refused; and one that is not would not say what is wrong with the document."""
    storage.write("DOCTOR/file", b"")
    with pytest.raises(UnsupportedStore, match=r"cannot read .*above/job/DOCTOR.*Probe it with 'persistent doctor"):
        check_evidence(storage)
    leave_evidence(above(storage))
    check_evidence(storage)


@pytest.mark.parametrize("field", ["protocol", "implementation", "version"])
def test_evidence_of_another_software_is_none(
    storage: FsspecStorage, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """An upgrade may create files in another way; and the trouble that is nearest is to be told."""
    software = opening._software(storage)
    leave_evidence(above(storage))
    with monkeypatch.context() as patch:
        patch.setattr(opening, "_software", lambda storage: {**software, field: "another"})
        leave_evidence(storage)
    check_evidence(storage)
    withdraw_evidence(above(storage))
    with pytest.raises(UnsupportedStore, match=r"job/DOCTOR is about .*, but this is fsspec\.implementations\.local"):
        check_evidence(storage)


def test_a_folder_above_that_cannot_be_had_is_told(storage: FsspecStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user would be told to probe a store whose package is missing."""
    connected = fsspec_storage._connected

    def lacking(process: int, url: str) -> Any:
        if url != storage.url:
            raise UnsupportedStore("local:// needs another package")
        return connected(process, url)

    monkeypatch.setattr(fsspec_storage, "_connected", lacking)
    with pytest.raises(UnsupportedStore, match=r"^local:// needs another package$"):
        check_evidence(storage)


def test_folders_are_looked_at_from_the_nearest_up() -> None:
    """The document of a bucket would not be found."""
    assert list(opening._folders("gs://bucket/a/b")) == ["gs://bucket/a/b", "gs://bucket/a", "gs://bucket"]
    assert list(opening._folders("local:///a/b")) == ["local:///a/b", "local:///a"]


def test_a_version_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every version of a package that does not say its own would count as proved by one."""
    monkeypatch.setattr(fsspec, "__version__", "0.0.1")
    assert opening._version("fsspec") == "0.0.1"
    monkeypatch.delattr(fsspec, "__version__")
    assert opening._version("fsspec") == importlib.metadata.version("fsspec")
    assert opening._version("nobody_knows") == "unknown"


class Ailing(LocalFileSystem):
    """Never answers."""

    protocol = "ailing"
    asked: Callable[[], None]

    def cat_file(self, path: str, *_: Any, **__: Any) -> bytes:
        type(self).asked()
        raise TimeoutError("no answer")


@pytest.mark.parametrize(("seconds", "tries"), [(0.0, 3), (2.5, 3), (5.5, 1)])
def test_a_store_that_does_not_answer_is_told_soon(monkeypatch: pytest.MonkeyPatch, seconds: float, tries: int) -> None:
    """To open a store that is away would take a minute for each folder above it."""
    now, asked = [0.0], []

    def ask() -> None:
        now[0] += seconds
        asked.append(now[0])

    monkeypatch.setattr(Ailing, "asked", staticmethod(ask), raising=False)
    fsspec.register_implementation("ailing", Ailing, clobber=True)
    monkeypatch.setattr(fsspec_storage, "_connected", lambda process, url: (Ailing(skip_instance_cache=True), "/x"))
    monkeypatch.setattr(tenacity.nap, "sleep", lambda pause: None)
    monkeypatch.setattr(
        opening,
        "_PATIENCE",
        replace(opening._PATIENCE, clock=lambda: now[0], pause_first_seconds=0.0, pause_max_seconds=0.0),
    )
    with pytest.raises(UnsupportedStore, match=r"no answer.*Probe it with 'persistent doctor"):
        check_evidence(FsspecStorage("ailing://x"))
    assert len(asked) == tries
