"""Which URL is which storage, and which is refused."""

from __future__ import annotations

import pickle
import stat
import uuid
from pathlib import Path

import pytest

from persistent.errors import InvalidPipeline, UnsupportedStore
from persistent.storage import FsspecStorage, LocalStorage, MemoryStorage, Put, is_proved, open_storage
from persistent.storage.opening import leave_evidence


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_local_folder_is_for_its_owner_unless_told(tmp_path: Path, prefix: str) -> None:
    """State holds the user's data: others on the machine would read it; or nobody could read a result."""
    for name, private, mode in (("mine", None, 0o700), ("private", True, 0o700), ("open", False, 0o755)):
        url = f"{prefix}{tmp_path}/{name}"
        storage = open_storage(url) if private is None else open_storage(url, private=private)
        assert isinstance(storage, LocalStorage)
        storage.write("a", b"")
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode


def test_a_url_says_which_storage(tmp_path: Path) -> None:
    """A checkpoint would go to another place than the user meant."""
    assert isinstance(open_storage(tmp_path), LocalStorage)
    name = uuid.uuid4().hex
    memory = open_storage(f"memory://{name}")
    assert isinstance(memory, MemoryStorage) and memory.name == name
    assert open_storage(memory) is memory
    bucket = open_storage("s3://bucket/folder")
    assert isinstance(bucket, FsspecStorage) and bucket.is_known


def test_a_storage_that_passes_everything_on_is_one() -> None:
    """Later Pythons do not see what ``__getattr__`` gives when a protocol is asked for."""

    class Passing:
        def __getattr__(self, name: str) -> object:
            return getattr(inner, name)

    inner = MemoryStorage(uuid.uuid4().hex)
    passing = Passing()
    assert open_storage(passing) is passing  # type: ignore[arg-type, comparison-overlap]


def test_a_store_is_proved_by_its_kind_or_by_a_probe(tmp_path: Path) -> None:
    """The guarantee that a pipeline tells its user would be wrong."""
    for storage in (LocalStorage(tmp_path), MemoryStorage(uuid.uuid4().hex), FsspecStorage("s3://bucket/folder")):
        assert is_proved(storage) is True
    url = f"local://{tmp_path}/job"
    with pytest.raises(UnsupportedStore):
        open_storage(url)
    other = open_storage(url, unsafe_single_driver=True)
    assert isinstance(other, FsspecStorage)
    assert is_proved(other) is False
    leave_evidence(other)
    assert is_proved(other) is True
    assert open_storage(url).url == url


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", "zip://x"])
def test_stores_that_nothing_has_probed_are_refused(url: str) -> None:
    """Two drivers there would both win the same checkpoint."""
    with pytest.raises(UnsupportedStore, match=r"atomically.*'persistent doctor .*unsafe_single_driver=True") as caught:
        open_storage(url)
    assert url in str(caught.value)
    assert open_storage(url, unsafe_single_driver=True).url == url


def test_a_store_without_its_package_names_it() -> None:
    """The user would look for a fault in the URL."""
    with pytest.raises(UnsupportedStore, match="needs another package"):
        open_storage("gs://bucket/x")
    with pytest.raises(UnsupportedStore, match="fsspec knows"):
        open_storage("nobody-knows://x")


def test_s3a_is_s3(s3_bucket: str) -> None:
    """What Hadoop calls s3a:// would be another store, refused or without atomic create."""
    open_storage(f"{s3_bucket}/x").write("a", b"a")
    storage = open_storage(f"{s3_bucket.replace('s3://', 's3a://')}/x")
    assert storage.list("") == ["a"]
    assert storage.put_if_absent("a", b"b") is Put.LOST


def test_secrets_never_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickled file system holds its secret key, and every worker's log would."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    storage = FsspecStorage("s3://bucket/folder/")
    assert storage.url == "s3://bucket/folder"
    assert b"hidden" not in pickle.dumps(storage)
    assert "hidden" not in repr(storage)
    for url in ("s3://key:hidden@bucket/folder", "s3://bucket/folder?token=hidden", "s3://hidden@bucket/folder"):
        with pytest.raises(UnsupportedStore) as caught:
            open_storage(url)
        assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("given", ["", None, 7, b"folder"])
def test_what_names_no_place_is_refused(given: object) -> None:
    """Nothing at all is the current folder to some; a checkpoint would lie where nobody looks."""
    with pytest.raises(InvalidPipeline, match=r"^checkpoint=.* names no place: give the path of a folder"):
        open_storage(given, option="checkpoint")  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["s3://bucket/a\nb", "hdfs://name/a\tb", "memory://a\rb"])
def test_what_a_url_would_lose_is_refused(url: str) -> None:
    """Two places that differ by it alone would be one."""
    with pytest.raises(InvalidPipeline, match="contains a control character, which URLs lose"):
        open_storage(url)
