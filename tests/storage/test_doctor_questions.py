"""Each question of the doctor finds the store that answers it wrongly, and passes the one that does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from persistent.errors import StorageError
from persistent.storage import FsspecStorage, LocalStorage, Put, Storage, doctor, opening
from persistent.storage.doctor import Diagnosis, Probe, probe
from persistent.storage.fsspec_storage import GenericRequests
from tests.storage.noting import Noting, RefusesAll


class Cuts(Noting):
    """Keeps a part."""

    def put_if_absent(self, name: str, data: bytes) -> Put:
        return super().put_if_absent(name, data[:1000])


class WinsAlways(Noting):
    """Keeps the first, and tells the second that it has won."""

    def put_if_absent(self, name: str, data: bytes) -> Put:
        super().put_if_absent(name, data)
        return Put.WON


class ReplacesByNothing(Noting):
    """Tells the second that it has lost, but if it is empty has already emptied the file."""

    def put_if_absent(self, name: str, data: bytes) -> Put:
        answer = super().put_if_absent(name, data)
        if answer is Put.LOST and not data:
            self.delete(name)
            super().put_if_absent(name, data)
        return answer


class ReplacesNothing(Noting):
    """Takes an empty file for none."""

    def put_if_absent(self, name: str, data: bytes) -> Put:
        if name in self.list("") and not self.read(name).size:
            self.delete(name)
        return super().put_if_absent(name, data)


class ListsLate(Noting):
    """A list shows what was there at the one before."""

    shown: list[str] = []

    def list(self, folder: str) -> list[str]:
        shown, self.shown = self.shown, super().list(folder)
        return shown


class RenamesOver(Noting):
    """A rename replaces its target."""

    def rename(self, source: str, target: str) -> None:
        self.delete(target)
        super().rename(source, target)


class RenamesByCopy(Noting):
    """A rename leaves its source."""

    def rename(self, source: str, target: str) -> None:
        data = self.read(source)
        super().rename(source, target)
        self.write(source, data)


class DeletesNothing(Noting):
    """A delete does nothing."""

    def delete(self, name: str) -> None:
        self.read(name)


class DeletesOnce(Noting):
    """Does not know that what is gone is gone."""

    def delete(self, name: str) -> None:
        self.read(name)
        super().delete(name)


class ListsTheDead(Noting):
    """A list shows what was deleted."""

    def list(self, folder: str) -> list[str]:
        return ["name"]


class ReadsTheDead(Noting):
    """A read has what was deleted."""

    def read(self, name: str) -> Any:
        return b"x"


Question = Callable[[Storage, str], str]


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (doctor._create, "a new file reads back at once as it was written"),
        (doctor._overwrite, "a second create is refused and changes nothing"),
        (doctor._list, "a list shows a file as soon as it is created"),
        (doctor._rename, "a rename moves a file and never overwrites another"),
        (doctor._delete, "a deleted file is gone at once"),
    ],
)
def test_an_honest_store_answers_each_question(question: Question, told: str) -> None:
    """A doctor that fails the healthy is not believed about the ill."""
    storage = Noting()
    storage.put_if_absent("another", b"of another doctor")
    assert question(storage, "name") == told


@pytest.mark.parametrize(
    ("question", "storage", "told"),
    [
        (doctor._create, RefusesAll(), "creating a new file of 0 bytes is refused, as if it existed"),
        (doctor._create, Cuts(), "a new file of 1048576 bytes does not read back as it was written"),
        (doctor._overwrite, WinsAlways(), "a file of 5 bytes is overwritten by a second create of 6 bytes"),
        (doctor._overwrite, ReplacesByNothing(), "a file of 5 bytes is overwritten by a second create of 0 bytes"),
        (doctor._overwrite, ReplacesNothing(), "a file of 0 bytes is overwritten by a second create of 6 bytes"),
        (doctor._list, ListsLate(), "after 1 files were created, a list shows 0"),
        (doctor._rename, RenamesOver(), "a rename overwrites its target"),
        (doctor._rename, RenamesByCopy(), "a rename does not move the file, or changes another"),
        (doctor._delete, DeletesNothing(), "a deleted file is still visible"),
        (doctor._delete, ListsTheDead(), "a deleted file is still visible"),
        (doctor._delete, ReadsTheDead(), "a deleted file is still visible"),
    ],
)
def test_a_store_that_lies_is_found(question: Question, storage: Storage, told: str) -> None:
    """A store would be taken on which a checkpoint is lost."""
    with pytest.raises(doctor._Unfit) as caught:
        question(storage, "name")
    assert str(caught.value) == told


def test_a_store_that_forgets_what_it_deleted_is_found() -> None:
    """Garbage collection that is cut off could never be finished."""
    with pytest.raises(FileNotFoundError):
        doctor._delete(DeletesOnce(), "name")


def test_files_of_all_sizes_are_tried() -> None:
    """A store may take small files in another way than large ones; too large ones take their time."""
    storage = Noting()
    doctor._create(storage, "name")
    assert storage.sizes == [0, 1, 1 << 20]
    storage.sizes.clear()
    doctor._list(storage, "listed")
    assert storage.sizes == [0] * 5


def test_an_answer_is_a_probe_whatever_it_is() -> None:
    """The doctor would die of the illness it is asked about."""

    def raising(error: Exception) -> Callable[[], str]:
        def question() -> str:
            raise error

        return question

    assert doctor._asked("list", lambda: "well") == Probe("list", True, "well")
    for error, told in (
        (doctor._Unfit("unfit"), "unfit"),
        (StorageError("cannot."), "cannot."),
        (FileNotFoundError("gone"), "FileNotFoundError: gone"),
    ):
        assert doctor._asked("list", raising(error)) == Probe("list", False, told)
    with pytest.raises(ZeroDivisionError):
        doctor._asked("list", raising(ZeroDivisionError()))


def races(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The names and numbers of the races that are asked for; none is run."""
    asked: list[tuple[str, int]] = []

    def race(storage: Storage, name: str, rounds: int) -> str:
        asked.append((name.rpartition("-")[2], rounds))
        return "raced"

    monkeypatch.setattr(doctor, "_race_of_threads", race)
    monkeypatch.setattr(doctor, "_race_of_processes", race)
    return asked


def test_all_questions_are_asked_and_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question left out is an illness not found; and what another doctor is at work with would be taken away."""
    asked = races(monkeypatch)
    storage = LocalStorage(tmp_path)
    storage.write(".doctor/another", b"")
    diagnosis = probe(str(tmp_path))
    names = ["create", "overwrite", "list", "rename", "delete", "race of threads", "race of processes"]
    assert [one.name for one in diagnosis.probes] == names
    assert diagnosis.is_safe is True and diagnosis.url == str(tmp_path)
    assert asked == [("threads", 300), ("processes", 300)]
    assert storage.list(".doctor") == ["another"]
    assert storage.list("") == []


def test_one_failure_is_enough_but_not_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store would count as safe; or its user would mend one thing after the other."""
    races(monkeypatch)
    monkeypatch.setattr(doctor, "_overwrite", lambda storage, name: storage.read("none"))
    diagnosis = probe(str(tmp_path))
    assert [one.passed for one in diagnosis.probes] == [True, False, True, True, True, True, True]
    assert diagnosis.is_safe is False
    assert Diagnosis("x", ()).is_safe is True


def test_a_store_that_takes_no_file_is_asked_no_more(tmp_path: Path) -> None:
    """The same failure would be told seven times."""
    (tmp_path / "file").write_text("")
    diagnosis = probe(str(tmp_path / "file"))
    assert [(one.name, one.passed) for one in diagnosis.probes] == [("create", False)]


def test_a_store_that_cannot_be_opened_is_a_diagnosis() -> None:
    """The doctor would die of the illness it is asked about."""
    diagnosis = probe("s3:///x")
    assert diagnosis.url == "s3:///x"
    assert [(one.name, one.passed) for one in diagnosis.probes] == [("open", False)]
    assert "name a bucket" in diagnosis.probes[0].text


@pytest.fixture
def unknown(tmp_path: Path) -> FsspecStorage:
    """A folder of a store that only a probe can prove, with a document of an earlier probe."""
    storage = FsspecStorage(f"local://{tmp_path}/job")
    opening.leave_evidence(storage)
    return storage


def test_only_what_has_passed_is_proved(unknown: FsspecStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that fails would stay proved, or one that passes be refused for ever."""
    races(monkeypatch)
    unknown.delete("DOCTOR")
    assert probe(unknown.url).is_safe
    assert unknown.list("") == ["DOCTOR"]
    monkeypatch.setattr(doctor, "_list", lambda storage, name: storage.read("none"))
    assert not probe(unknown.url).is_safe
    assert unknown.list("") == []


def test_a_store_that_is_away_stays_proved(unknown: FsspecStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe on a day without network would shut out every job of the folder."""

    def away(storage: Storage, name: str) -> str:
        raise StorageError("away")

    monkeypatch.setattr(doctor, "_create", away)
    assert not probe(unknown.url).is_safe
    assert unknown.list("") == ["DOCTOR"]


def test_a_store_that_is_known_needs_no_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a job would hold a file that says nothing."""
    races(monkeypatch)
    storage = FsspecStorage("s3://bucket/job")
    storage.requests = GenericRequests(f"local://{tmp_path}")
    monkeypatch.setattr(doctor, "open_storage", lambda url, unsafe_single_driver: storage)
    assert probe("s3://bucket/job").is_safe
    assert storage.list("") == []
