"""What only the memory of a process promises."""

from __future__ import annotations

import multiprocessing
import uuid

from persistent.storage import MemoryStorage, Put, open_storage


def test_the_first_put_wins() -> None:
    """Nobody, or everybody, would have committed."""
    storage = MemoryStorage(uuid.uuid4().hex)
    assert storage.put_if_absent("a", b"1") is Put.WON
    assert storage.put_if_absent("a", b"2") is Put.LOST
    assert storage.read("a").to_pybytes() == b"1"


def test_memory_is_shared_by_name_in_one_process_only() -> None:
    """A pipeline on Spark with a checkpoint in memory would write into workers' memories; ``shared``
    refuses it."""
    name = uuid.uuid4().hex
    storage = open_storage(f"memory://{name}")
    storage.write("a", b"a")
    assert MemoryStorage(name).list("") == ["a"]
    assert MemoryStorage(name + "2").list("") == []
    assert repr(storage) == f"MemoryStorage('{name}')"
    assert not storage.shared
    assert storage.local, "its files go with this machine"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(storage.list, ("",)) == []
    MemoryStorage(name).clear()
    assert storage.list("") == []
