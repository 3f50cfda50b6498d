"""Which URL is which storage, and which is refused."""

from __future__ import annotations

import pickle

import pytest

from persistent.errors import UnsupportedStore
from persistent.storage import FsspecStorage, Put, open_storage


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
