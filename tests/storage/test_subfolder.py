"""What is inside a folder must stay there: a savepoint that wrote beside it would overwrite its job."""

from __future__ import annotations

import pytest

from persistent.storage import MemoryStorage, Put, Storage
from persistent.storage.subfolder import Subfolder, open_checkpoint, savepoint_folder


@pytest.fixture
def outer(request: pytest.FixtureRequest) -> Storage:
    return MemoryStorage(request.node.name)


def test_every_name_is_below_the_folder(outer: Storage) -> None:
    """Each verb for itself: one that forgot the folder would read or delete the job's own files."""
    inside = savepoint_folder(outer, "monday")
    assert inside.put_if_absent("m/1", b"one") is Put.WON
    assert inside.put_if_absent("m/1", b"two") is not Put.WON
    inside.write("d/run", b"rows")
    assert inside.read("m/1").to_pybytes() == b"one" == outer.read("s/monday/m/1").to_pybytes()
    assert inside.list("m") == ["1"] and sorted(inside.list("")) == sorted(outer.list("s/monday"))
    inside.rename("d/run", "d/moved")
    assert outer.list("s/monday/d") == ["moved"]
    inside.delete("d/moved")
    assert outer.list("s/monday/d") == []


def test_it_is_what_its_storage_is(outer: Storage) -> None:
    """Workers elsewhere are refused a storage that they cannot see."""
    inside = Subfolder(outer, "s/monday")
    assert (inside.shared, inside.local) == (outer.shared, outer.local)
    assert inside.url == f"{outer.url}/s/monday"


def test_a_savepoint_in_memory_is_in_the_memory_of_its_job(outer: Storage) -> None:
    """A job that starts from one in a test would find an empty storage."""
    savepoint_folder(outer, "monday").put_if_absent("m/1", b"one")
    opened = open_checkpoint(f"{outer.url}/s/monday")
    assert opened.read("m/1").to_pybytes() == b"one"
    assert isinstance(open_checkpoint(outer.url), MemoryStorage)
    assert isinstance(open_checkpoint(f"{outer.url}/s/monday/deeper"), MemoryStorage)
