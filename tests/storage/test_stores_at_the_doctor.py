"""The doctor finds a store that creates in two halves, and lets an honest one pass: over real implementations."""

from __future__ import annotations

import uuid
from pathlib import Path

import fsspec
import pytest

from persistent import MemorySource, Pipeline
from persistent.errors import UnsupportedStore
from persistent.storage import FsspecStorage, is_proved, open_storage, opening
from persistent.storage.doctor import Diagnosis, probe
from tests.crash.worlds import Totals
from tests.few import one_in
from tests.servers.hdfs import HdfsServer

_STORES = """
import os
import threading
import uuid

from fsspec.implementations.local import LocalFileSystem

__version__ = "1.2"
lock = threading.Lock()


class Racy(LocalFileSystem):
    "As fsspec has it: it looks, then writes."

    protocol = "racy"

    @classmethod
    def _strip_protocol(cls, path):
        return path.partition("://")[2] or path

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        super().pipe_file(path, value)


class Honest(Racy):
    "Writes aside, then links."

    protocol = "honest"

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        aside = f"{path}.{uuid.uuid4().hex}"
        with open(aside, "wb") as file:
            file.write(value)
        try:
            (os.link if mode == "create" else os.replace)(aside, path)
        finally:
            if os.path.exists(aside):
                os.unlink(aside)


class Locked(Honest):
    "Honest among the threads of one process only."

    protocol = "locked"

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        with lock:
            if mode == "create" and self.exists(path):
                raise FileExistsError(path)
            super().pipe_file(path, value)


class Careless(Honest):
    "Does not know the mode."

    protocol = "careless"

    def pipe_file(self, path, value, **kwargs):
        super().pipe_file(path, value)


class Torn(Racy):
    "Takes the name first, then writes."

    protocol = "torn"

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        with open(path, "xb" if mode == "create" else "wb", buffering=0) as file:
            for start in range(0, len(value), 10):
                file.write(value[start : start + 10])
"""
_NAMES = ("Racy", "Honest", "Locked", "Careless", "Torn")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of the disk; the stores are installed as a package would be, so that other processes find them."""
    package = tmp_path / "package"
    (package / "stores_of_the_test-1.2.dist-info").mkdir(parents=True)
    (package / "stores_of_the_test.py").write_text(_STORES)
    points = "".join(f"{name.lower()} = stores_of_the_test.{name}\n" for name in _NAMES)
    (package / "stores_of_the_test-1.2.dist-info" / "METADATA").write_text("Name: stores-of-the-test\nVersion: 1.2\n")
    (package / "stores_of_the_test-1.2.dist-info" / "entry_points.txt").write_text(f"[fsspec.specs]\n{points}")
    monkeypatch.syspath_prepend(str(package))
    for name in _NAMES:
        fsspec.register_implementation(name.lower(), f"stores_of_the_test.{name}", clobber=True)
    (tmp_path / "data" / "job").mkdir(parents=True)
    return str(tmp_path / "data" / "job")


def failed(diagnosis: Diagnosis) -> list[str]:
    return [probe.name for probe in diagnosis.probes if not probe.passed]


@pytest.mark.check
def test_an_honest_store_passes_and_is_opened_from_then_on(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could use a store that we do not know."""
    url = f"honest://{folder}"
    with pytest.raises(UnsupportedStore, match="doctor"):
        open_storage(url)
    diagnosis = probe(url, rounds=30)
    assert diagnosis.is_safe, diagnosis
    storage = open_storage(url)
    assert is_proved(storage)
    assert storage.list("") == ["DOCTOR"]
    text = storage.read("DOCTOR").to_pybytes().decode()
    assert '"implementation":"stores_of_the_test.Honest"' in text and '"version":"1.2"' in text
    assert open_storage(f"{url}/deeper").list("") == []
    assert probe(url, rounds=3).is_safe
    monkeypatch.setattr("stores_of_the_test.__version__", "1.3")
    with pytest.raises(UnsupportedStore, match=r"1\.2, but this is stores_of_the_test\.Honest 1\.3"):
        open_storage(url)


@pytest.mark.parametrize(
    ("protocol", "names"),
    one_in(
        4,
        [
            ("careless", ["overwrite", "race of threads", "race of processes"]),
            ("racy", ["race of threads"]),
            ("locked", ["race of processes"]),
            ("torn", ["race of threads"]),
        ],
    ),
)
def test_a_store_that_creates_in_two_halves_is_found(folder: str, protocol: str, names: list[str]) -> None:
    """Two drivers would both commit: messages lost and doubled, with nothing to tell."""
    url = f"{protocol}://{folder}"
    diagnosis = probe(url)
    assert not diagnosis.is_safe
    assert set(names) <= set(failed(diagnosis)), diagnosis
    with pytest.raises(UnsupportedStore, match=f"persistent doctor {url}"):
        open_storage(url)
    assert open_storage(url, unsafe_single_driver=True).list("") == []


def test_a_store_that_is_honest_no_longer_loses_its_document(folder: str) -> None:
    """An upgrade that breaks the store would still count as proved."""
    url = f"careless://{folder}"
    storage = FsspecStorage(url)
    opening.leave_evidence(storage)
    assert is_proved(storage)
    assert not probe(url, rounds=3).is_safe
    assert not is_proved(storage)


def test_a_pipeline_takes_an_unproved_store_only_when_told(folder: str) -> None:
    """One forgotten probe, and two drivers fork the history."""
    url = f"racy://{folder}"
    source = MemorySource([{"ts": 1, "page": "a", "n": 2}], timestamp="ts")
    with pytest.raises(UnsupportedStore, match="unsafe_single_driver=True"):
        Pipeline(source=source, task=Totals(), checkpoint=url)
    pipeline = Pipeline(source=source, task=Totals(), checkpoint=url, unsafe_single_driver=True)
    assert pipeline.guarantee().startswith("exactly-once while never more than one driver runs")
    assert pipeline.run(engine="embedded").rows == 1
    assert pipeline.state().to_pylist() == [{"page": "a", "value": 2}]


def test_the_stores_we_know_pass(tmp_path: Path, s3_bucket: str, hdfs_server: HdfsServer) -> None:
    """A doctor that fails the healthy is not believed about the ill."""
    for url in (str(tmp_path), f"{s3_bucket}/x", hdfs_server.url(uuid.uuid4().hex)):
        diagnosis = probe(url, rounds=5)
        assert diagnosis.is_safe, diagnosis
        storage = open_storage(url)
        assert storage.list("") == storage.list(".doctor") == []


def test_what_cannot_be_opened_or_written_is_a_diagnosis(tmp_path: Path) -> None:
    """The doctor would die of the illness it is asked about."""
    (tmp_path / "file").write_text("")
    for url, name in (
        (str(tmp_path / "file"), "create"),
        ("nobody-knows://x", "create"),
        ("s3:///x", "open"),
        ("memory://x", ""),
    ):
        diagnosis = probe(url, rounds=3)
        assert not diagnosis.is_safe
        assert diagnosis.probes[-1].name == (name or "race of processes")
        assert diagnosis.probes[-1].text
