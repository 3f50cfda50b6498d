"""What a storage behind a network makes of the answers of its store, over a store that answers what it is told to."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Sequence

import pytest

from persistent.errors import StorageError, UnsupportedStore
from persistent.storage import FsspecStorage, Put
from persistent.storage.failures import Patience
from persistent.storage.protocol import TEMPORARY
from tests.storage.scripted_store import BUSY, LOST, Store, storage_over


class StoreOfMany(Store):
    """Deletes many at once."""

    def delete_all(self, names: Sequence[str]) -> None:
        self._do(f"delete {len(names)}", lambda: [self.files.pop(name, None) for name in names])


def test_it_is_one_for_all_machines() -> None:
    """An engine would refuse the store that all its workers see, or take a disk that one of them sees for it."""
    storage = FsspecStorage("s3://bucket/folder")
    assert storage.shared and not storage.local


def test_a_url_is_kept_without_its_last_slash() -> None:
    """Two URLs of one folder would be two jobs."""
    storage = FsspecStorage("hdfs://node:8020/folder/")
    assert (storage.url, storage.scheme, storage.is_known) == ("hdfs://node:8020/folder", "hdfs", True)
    assert not FsspecStorage("http://host/folder").is_known


def test_patience_goes_along() -> None:
    """A worker would wait a minute for a store where the driver was told to wait a second."""
    patience = Patience(tries_max=3, seconds_max=1.5)
    storage = FsspecStorage("s3://bucket/folder", patience=patience)
    assert storage.patience is patience
    copy = pickle.loads(pickle.dumps(storage))
    assert (copy.url, copy.patience) == (storage.url, patience)
    assert FsspecStorage("s3://bucket/folder").patience == Patience()


@pytest.mark.parametrize("part", ["?token=hidden", "#hidden"])
def test_parameters_in_a_url_are_refused(part: str) -> None:
    """They end up in logs."""
    with pytest.raises(UnsupportedStore, match=r"s3://bucket/folder: a password or parameters") as caught:
        FsspecStorage(f"s3://bucket/folder{part}")
    assert "hidden" not in str(caught.value)


def test_a_password_in_a_url_is_refused() -> None:
    """It ends up in logs."""
    with pytest.raises(UnsupportedStore, match=r"ftp://host/folder: a password or parameters") as caught:
        FsspecStorage("ftp://me:hidden@host/folder")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("store", [Store(), Store(renames=True), StoreOfMany()])
def test_a_name_is_checked_before_the_store_is_asked(store: Store) -> None:
    """A name could reach outside the folder."""
    storage, _ = storage_over(store)
    verbs: tuple[Callable[[], object], ...] = (
        lambda: storage.put_if_absent("../a", b""),
        lambda: storage.write("../a", b""),
        lambda: storage.read("../a"),
        lambda: storage.list("../a"),
        lambda: storage.rename("../a", "b"),
        lambda: storage.rename("b", "../a"),
        lambda: storage.delete("../a"),
        lambda: storage.delete_all(["../a"]),
        lambda: storage.delete_all(["../a", "b"]),
    )
    for verb in verbs:
        with pytest.raises(ValueError, match=r"name '\.\./a'"):
            verb()
    assert store.calls == []


def test_a_list_is_sorted() -> None:
    """The newest checkpoint is the last of a list."""
    store = Store()
    store.files = {"m/2": b"", "m/10": b"", "m/1": b"", "b": b"", "a": b""}
    storage, _ = storage_over(store)
    assert storage.list("m") == ["1", "10", "2"]
    assert storage.list("") == ["a", "b"]


def test_a_busy_create_that_was_done_is_unknown(caplog: pytest.LogCaptureFixture) -> None:
    """A store can say "busy" of what it does all the same: the winner would believe to have lost, and stop."""
    store = Store()
    storage, pauses = storage_over(store)
    store.after["create"] = [BUSY]
    assert storage.put_if_absent("a", b"a") is Put.UNKNOWN
    assert store.calls == ["create", "create"] and len(pauses) == 1
    assert storage.put_if_absent("a", b"b") is Put.LOST
    store.before["create"] = [BUSY, BUSY]
    assert storage.put_if_absent("b", b"b") is Put.WON
    assert store.files == {"a": b"a", "b": b"b"}


def test_an_unanswered_create_is_unknown_after_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever asks the store at once whether it is there finds the store still away."""
    store = Store()
    storage, pauses = storage_over(store)
    store.after["create"] = [LOST]
    with caplog.at_level(logging.WARNING, "persistent"):
        assert storage.put_if_absent("a", b"a") is Put.UNKNOWN
    assert store.calls == ["create"] and len(pauses) == 1
    assert "checking whether it exists" in caplog.text


def test_a_create_that_is_refused_for_good_is_told() -> None:
    """A driver without rights would look for a file that nobody wrote."""
    for error in (PermissionError("no"), StorageError("refused. Do something.")):
        store = Store()
        storage, pauses = storage_over(store)
        store.before["create"] = [error]
        with pytest.raises(StorageError, match=r"no\. Give|refused"):
            storage.put_if_absent("a", b"a")
        assert store.calls == ["create"] and not pauses


def test_a_create_by_renaming_leaves_no_temporary_file() -> None:
    """Each lost race would leave a file for ever, which no verb shows."""
    store = Store(renames=True)
    storage, _ = storage_over(store)
    assert storage.put_if_absent("m/1", b"a") is Put.WON
    assert store.calls == ["write", "rename"]
    assert storage.put_if_absent("m/1", b"b") is Put.LOST
    store.after["rename"] = [LOST]
    assert storage.put_if_absent("m/2", b"b") is Put.UNKNOWN
    store.before["rename"] = [PermissionError("no")]
    with pytest.raises(StorageError, match="cannot create s3://bucket/folder/m/3"):
        storage.put_if_absent("m/3", b"c")
    store.before["write"] = [PermissionError("no")]
    store.before["delete"] = [PermissionError("no")]
    with pytest.raises(StorageError, match="cannot create s3://bucket/folder/m/4"):
        storage.put_if_absent("m/4", b"d")
    assert store.files == {"m/1": b"a", "m/2": b"b"}


def test_a_file_being_made_is_hidden_in_the_folder_of_its_name() -> None:
    """A rename may cross no folders with other rights, and a list of manifests would show half a file."""
    store = Store(renames=True)
    storage, _ = storage_over(store)
    store.before["rename"] = [LOST] * 2
    store.before["delete"] = [PermissionError("no")] * 2
    for name in ("m/1", "FORMAT"):
        assert storage.put_if_absent(name, b"a") is Put.UNKNOWN
    inside, root = store.files
    assert inside.startswith(f"m/{TEMPORARY}") and root.startswith(TEMPORARY)


def test_a_temporary_file_that_is_gone_was_moved() -> None:
    """The client asks again itself, and its second request finds no file: the winner would believe to have failed."""
    store = Store(renames=True)
    storage, _ = storage_over(store)
    store.after["rename"] = [FileNotFoundError("gone")]
    assert storage.put_if_absent("m/1", b"a") is Put.UNKNOWN
    assert storage.read("m/1").to_pybytes() == b"a"
    plain, _ = storage_over(other := Store())
    other.before["create"] = [FileNotFoundError("no such bucket")]
    with pytest.raises(StorageError, match="Correct the URL"):
        plain.put_if_absent("m/1", b"a")


def test_a_rename_whose_answer_was_lost_is_done() -> None:
    """The second try finds no source: an output that is published would look lost."""
    store = Store(renames=True)
    storage, _ = storage_over(store)
    storage.write("_staged/a", b"a")
    store.after["rename"] = [LOST]
    storage.rename("_staged/a", "out/a")
    assert store.calls == ["write", "rename", "rename", "list"]
    storage.write("b", b"b")
    store.after["rename"] = [LOST]
    storage.rename("b", "c")
    assert store.files == {"out/a": b"a", "c": b"b"}


def test_a_rename_of_what_never_was_is_told() -> None:
    """A lost output would count as published."""
    store = Store(renames=True)
    storage, _ = storage_over(store)
    store.files = {"x/a": b"", "other": b""}
    with pytest.raises(FileNotFoundError):
        storage.rename("_staged/a", "a")
    assert store.calls == ["rename"]
    store.before["rename"] = [BUSY]
    with pytest.raises(FileNotFoundError):
        storage.rename("_staged/a", "a")
    storage.write("_staged/a", b"")
    with pytest.raises(FileExistsError):
        storage.rename("_staged/a", "other")
    assert store.calls[-1] == "rename"


def test_many_are_deleted_at_once_where_the_store_can() -> None:
    """A thousand files would be a thousand requests; a single one needs none of the larger kind."""
    store = StoreOfMany()
    storage, _ = storage_over(store)
    store.files = dict.fromkeys("abcd", b"")
    storage.delete_all(["a", "b"])
    storage.delete_all(["c"])
    storage.delete_all([])
    assert store.calls == ["delete 2", "delete"]
    assert list(store.files) == ["d"]
    store.before["delete 3"] = [PermissionError("no")]
    with pytest.raises(StorageError, match="cannot delete s3://bucket/folder/x and 2 more: "):
        storage.delete_all(["x", "y", "z"])


def test_many_are_deleted_one_by_one_where_the_store_cannot() -> None:
    """Garbage would stay."""
    store = Store()
    storage, _ = storage_over(store)
    store.files = dict.fromkeys("abc", b"")
    storage.delete_all(["a", "b"])
    assert store.calls == ["delete", "delete"]
    assert list(store.files) == ["c"]
