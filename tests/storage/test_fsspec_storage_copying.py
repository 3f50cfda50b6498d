"""A rename by copying never overwrites, and ends."""

from __future__ import annotations

import pytest

from persistent.errors import StorageError
from tests.storage.scripted_store import LOST, Store, storage_over


def test_a_rename_by_copying_never_overwrites() -> None:
    """An output would be replaced by another."""
    store = Store()
    storage, _ = storage_over(store)
    storage.write("a", b"a")
    storage.write("b", b"b")
    storage.rename("a", "c")
    with pytest.raises(FileExistsError, match="c"):
        storage.rename("b", "c")
    assert store.files == {"b": b"b", "c": b"a"}
    storage.write("a", b"a")
    storage.rename("a", "c")
    assert store.files == {"b": b"b", "c": b"a"}


def test_a_rename_that_the_store_never_shows_ends() -> None:
    """It would create and look for ever; and the source must stay, for it is the only copy."""
    store = Store()
    storage, _ = storage_over(store)
    storage.write("a", b"a")
    store.before["create"] = [LOST] * 9
    store.before["read"] = [None, *[FileNotFoundError("none")] * 9]
    with pytest.raises(StorageError, match=r"neither accepted nor showed it in 4 tries"):
        storage.rename("a", "b")
    assert store.calls.count("create") == 4
    assert store.files == {"a": b"a"}


def test_a_rename_that_the_store_did_not_answer_is_looked_up() -> None:
    """A copy that was made would be made again, and again, and then called a failure."""
    store = Store()
    storage, _ = storage_over(store)
    storage.write("a", b"a")
    store.after["create"] = [LOST]
    storage.rename("a", "b")
    assert store.calls.count("create") == 1
    assert store.files == {"b": b"a"}
