"""What holds for every storage alike: which names it takes, and how many files are deleted."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest

from persistent.storage import MemoryStorage, delete_all
from persistent.storage.protocol import checked_name


class AtOnce(MemoryStorage):
    """Deletes many at once, and notes how it was asked."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked: list[list[str]] = []

    def delete(self, name: str) -> None:
        raise AssertionError("asked for one file")

    def delete_all(self, names: Sequence[str]) -> None:
        self.asked.append(list(names))


def test_many_files_are_deleted_one_by_one() -> None:
    """A store that cannot delete many at once would keep its garbage for ever."""
    storage = MemoryStorage(uuid.uuid4().hex)
    for name in ("d/a", "d/b", "d/c"):
        storage.write(name, b"")
    delete_all(storage, ["d/a", "d/none", "d/c"])
    assert storage.list("d") == ["b"]


def test_a_store_that_deletes_many_at_once_is_asked_once() -> None:
    """A checkpoint of ten thousand old files would cost ten thousand requests."""
    storage = AtOnce(uuid.uuid4().hex)
    delete_all(storage, ["a", "b"])
    assert storage.asked == [["a", "b"]]


@pytest.mark.parametrize("name", ["FORMAT", "m/1", "d/visits/e3-c41.arrow", "a=b/c@d+e_f", "...", "a/.tmp"])
def test_a_name_of_the_alphabet_is_taken(name: str) -> None:
    """A checkpoint could not name its own files."""
    assert checked_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "/a", "a/", "a//b", "a/../b", "./a", "a b", "ä", "a\n", "a\0", "a\\b", "a:b", "a?b"]
)
def test_a_name_outside_the_alphabet_is_refused(name: str) -> None:
    """It could reach outside the folder, or mean another file on another store."""
    with pytest.raises(ValueError, match="separated by '/'"):
        checked_name(name)


@pytest.mark.parametrize("name", [".tmp-1", "d/.tmp-"])
def test_a_name_kept_for_files_being_made_is_refused(name: str) -> None:
    """The file would be written, and no list would ever show it; nor would the user know why."""
    with pytest.raises(ValueError, match="is reserved for unfinished files"):
        checked_name(name)
