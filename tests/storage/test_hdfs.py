"""What only HDFS does: nodes that die, and files that must not appear torn."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable

import pytest

from persistent.errors import StorageError
from persistent.storage import FsspecStorage, Put
from persistent.storage.failures import Patience
from tests.servers.hdfs import HdfsServer

QUICK = Patience(tries_max=2, pause_first_seconds=0.01)


@pytest.fixture
def storage(hdfs_server: HdfsServer) -> FsspecStorage:
    """A folder with one file, and a client that has connected."""
    storage = FsspecStorage(hdfs_server.url(uuid.uuid4().hex), patience=QUICK)
    storage.write("m/1", b"first")
    return storage


def commands(server: HdfsServer) -> list[str]:
    """The calls that the NameNode has noted; it does not note those that add or complete blocks."""
    lines = server.name_node.log.read_text(errors="replace").splitlines()
    found = [re.search(r"FSNamesystem\.audit: .*\bcmd=(\w+)", line) for line in lines]
    return [match[1] for match in found if match]


def test_a_verb_makes_no_call_that_is_not_needed(hdfs_server: HdfsServer, storage: FsspecStorage) -> None:
    """Each asks the one NameNode that all jobs share."""
    verbs: tuple[tuple[Callable[[], object], list[str]], ...] = (
        (lambda: storage.put_if_absent("m/2", b"data"), ["create", "rename"]),
        (lambda: storage.write("d/run", b"data"), ["create"]),
        (lambda: storage.read("m/1"), ["open"]),
        (lambda: storage.list("m"), ["listStatus"]),
        (lambda: storage.rename("d/run", "m/3"), ["rename"]),
        (lambda: storage.delete("m/3"), ["delete"]),
    )
    for verb, expected in verbs:
        before = len(commands(hdfs_server))
        verb()
        assert commands(hdfs_server)[before:] == expected


def test_a_dead_data_node_leaves_no_file(hdfs_server: HdfsServer, storage: FsspecStorage) -> None:
    """HDFS makes the name before it has the bytes: an empty file would stand where a manifest should."""
    hdfs_server.data_node.kill()
    try:
        with pytest.raises(StorageError, match=r"cannot create hdfs://.*m/2: .*tries over") as caught:
            storage.put_if_absent("m/2", b"second")
        assert "\tat " not in str(caught.value) and "\\tat " not in str(caught.value)
        with pytest.raises(StorageError, match="cannot write"):
            storage.write("d/run", b"run")
        assert storage.list("m") == ["1"]
        assert storage.list("d") == []
        client = storage.requests._client()  # type: ignore[attr-defined]
        folder = storage.requests._path("m")  # type: ignore[attr-defined]
        assert [status.path.rpartition("/")[2] for status in client.list_status(folder)] == ["1"]
    finally:
        hdfs_server.restart(hdfs_server.data_node)
    assert storage.put_if_absent("m/2", b"second") is Put.WON
    assert storage.read("m/2").to_pybytes() == b"second"


def test_a_dead_name_node_is_told_in_bounded_time(hdfs_server: HdfsServer, storage: FsspecStorage) -> None:
    """The client alone would ask for three minutes."""
    hdfs_server.name_node.kill()
    try:
        with pytest.raises(StorageError, match=r"Connection refused.*2 tries over.*Check the endpoint"):
            storage.read("m/1")
    finally:
        hdfs_server.restart(hdfs_server.name_node)
    assert storage.read("m/1").to_pybytes() == b"first"


def test_losing_leaves_no_temporary_file(storage: FsspecStorage) -> None:
    """Each lost race would leave a file for ever, which no verb shows."""
    assert storage.put_if_absent("m/1", b"second") is Put.LOST
    client = storage.requests._client()  # type: ignore[attr-defined]
    folder = storage.requests._path("m")  # type: ignore[attr-defined]
    assert [status.path.rpartition("/")[2] for status in client.list_status(folder)] == ["1"]


def test_a_rename_makes_the_folder_of_its_target(storage: FsspecStorage) -> None:
    """The first output of a sink has no folder yet."""
    storage.rename("m/1", "new/deep/1")
    assert storage.list("new/deep") == ["1"]
