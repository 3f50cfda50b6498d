"""What is asked of any other store that fsspec knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from persistent.errors import UnsupportedStore
from persistent.storage import fsspec_storage
from persistent.storage.fsspec_storage import GenericRequests


class Files:
    """An implementation that notes its calls, and answers ``ls`` and each ``pipe_file`` as it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.entries: list[dict[str, str]] = []
        self.failures: list[Exception] = []

    def ls(self, path: str, *, detail: bool) -> list[dict[str, str]]:
        self.calls.append(("ls", path, detail))
        return self.entries

    def pipe_file(self, path: str, value: bytes, **mode: str) -> None:
        self.calls.append(("pipe_file", path, value, mode))
        if self.failures:
            raise self.failures.pop(0)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.calls.append(("makedirs", path, exist_ok))


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    """The implementation behind odd://job, whose root is /root."""
    files = Files()
    monkeypatch.setattr(fsspec_storage, "_connected", lambda process, url: {"odd://job": (files, "/root")}[url])
    return files


def once(call: Callable[[], Any]) -> Any:
    return call()


def test_files_of_a_real_store_come_and_go(tmp_path: Path) -> None:
    """Whatever is committed there would be lost, or never go."""
    requests = GenericRequests(f"local://{tmp_path}/new/")
    assert requests.list("") == requests.list("m") == []
    requests.create("m/1", b"one")
    with pytest.raises(FileExistsError):
        requests.create("m/1", b"two")
    requests.write("m/2", memoryview(b"two"), once)
    requests.write("FORMAT", b"", once)
    assert requests.read("m/1").to_pybytes() == b"one"
    assert requests.read("m/2").to_pybytes() == b"two"
    assert (requests.list(""), sorted(requests.list("m"))) == (["FORMAT"], ["1", "2"])
    requests.delete("m/1")
    requests.delete("m/1")
    assert requests.list("m") == ["2"]
    with pytest.raises(FileNotFoundError):
        requests.read("m/1")
    assert (tmp_path / "new" / "m" / "2").read_bytes() == b"two"
    assert requests.software() is LocalFileSystem


def test_a_file_is_created_and_not_renamed() -> None:
    """A rename of fsspec may overwrite: a commit would replace another driver's."""
    requests = GenericRequests("odd://job")
    assert requests.renames is False
    with pytest.raises(NotImplementedError):
        requests.rename("a", "b")


def test_only_files_directly_in_the_folder_are_listed(files: Files) -> None:
    """Implementations list the folder itself, what is deeper, or with and without slashes: each would be an id."""
    names = ("/root/m/2", "root/m/1", "/root/m/deep/3", "/root/m/.tmp-0", "/root/m/deep/.tmp-1", "/root/mm/4")
    files.entries = [{"name": name, "type": "file"} for name in names]
    files.entries += [{"name": "/root/m/folder/", "type": "directory"}, {"name": "/root/m", "type": "file"}]
    assert GenericRequests("odd://job").list("m") == ["2", "1"]
    assert files.calls == [("ls", "/root/m", True)]


def test_a_folder_that_is_not_there_is_made(files: Files) -> None:
    """The first file of a job could not be written; or two drivers that begin together would stop each other."""
    requests = GenericRequests("odd://job")
    for mode, write in (
        ({"mode": "create"}, lambda: requests.create("m/1", b"one")),
        ({}, lambda: requests.write("m/1", b"one", once)),
    ):
        files.calls, files.failures = [], [FileNotFoundError("no folder")]
        write()
        put = ("pipe_file", "/root/m/1", b"one", mode)
        assert files.calls == [put, ("makedirs", "/root/m", True), put]
    files.failures = [FileNotFoundError("no folder"), FileNotFoundError("still none")]
    with pytest.raises(FileNotFoundError, match="still none"):
        requests.create("m/1", b"one")


class Kept(LocalFileSystem):
    """Keeps what it has listed, if it may."""

    protocol = "kept"


def test_the_implementation_is_ours_alone_and_forgets_its_lists(tmp_path: Path) -> None:
    """What another driver commits would not be seen; or what a user has set on theirs would hold for us."""
    fsspec.register_implementation("kept", Kept, clobber=True)
    requests = GenericRequests(f"kept://{tmp_path}")
    ours, _ = requests._files()
    assert type(ours) is Kept
    assert all(theirs is not ours for theirs in Kept._cache.values())
    assert ours.dircache.use_listings_cache is False
    assert requests._files()[0] is ours, "a connection for each request"


def test_a_store_that_cannot_be_had_is_told_with_its_name() -> None:
    """The user would look for a fault in the URL."""
    with pytest.raises(UnsupportedStore, match=r"^gs:// needs another package: "):
        GenericRequests("gs://bucket/x").read("a")
    with pytest.raises(
        UnsupportedStore,
        match=r"^nobody-knows://.*: nobody-knows:// is not a store that fsspec knows\. Give a path, s3:// or hdfs://$",
    ):
        GenericRequests("nobody-knows://x").read("a")


def test_a_client_that_memory_does_not_suffice_for_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is there would be installed again, and the memory would lack all the same."""

    def short(*args: Any, **kwargs: Any) -> Any:
        raise ImportError("a.so: failed to map segment from shared object")

    monkeypatch.setattr(fsspec.core, "url_to_fs", short)
    with pytest.raises(ImportError, match="failed to map"):
        GenericRequests("odd://short-of-memory").software()
