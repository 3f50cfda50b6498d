"""What only the memory of a process promises."""

from __future__ import annotations

import multiprocessing
import uuid

from persistent.storage import MemoryStorage, open_storage


def test_memory_is_shared_by_name_in_one_process_only() -> None:
    """A pipeline on Spark with a checkpoint in memory would write into workers' memories; ``shared``
    refuses it."""
    name = uuid.uuid4().hex
    storage = open_storage(f"memory://{name}")
    storage.write("a", b"a")
    assert MemoryStorage(name).list("") == ["a"]
    assert MemoryStorage(name + "2").list("") == []
    assert not storage.shared
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(storage.list, ("",)) == []
    MemoryStorage(name).clear()
    assert storage.list("") == []
