"""What a store promises holds between processes, for files of several blocks, and when a server dies."""

from __future__ import annotations

import hashlib
import os
import random
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from persistent.errors import StorageError
from persistent.storage import Put, Storage, open_storage
from persistent.storage.fsspec_storage import FsspecStorage
from tests.few import share
from tests.servers.drivers import PATIENCE, processes
from tests.servers.hdfs import HdfsServer
from tests.servers.s3 import Fault, S3Server

PROCESSES = 8
NAMES = 12
LARGE_BYTES = 130 * 2**20
"""More than a block of HDFS."""


@pytest.fixture(params=["hdfs", "s3"])
def url(request: pytest.FixtureRequest) -> str:
    """A folder of the test's own on a real server."""
    name = f"test-{uuid.uuid4().hex}"
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        return server.bucket(name)
    hdfs: HdfsServer = request.getfixturevalue("hdfs_server")
    return hdfs.url(name)


def race(url: str, number: int, environment: dict[str, str], gate: Any, answers: Any) -> None:
    """What a process of the race does."""
    os.environ.update(environment)
    storage = open_storage(url)
    storage.list("m")
    gate.wait()
    for name in random.Random(number).sample(range(NAMES), NAMES):
        answers.put((name, number, storage.put_if_absent(f"m/{name}", f"{number}".encode() * 1000)))


def test_of_eight_processes_one_wins(url: str) -> None:
    """I5: threads share a client that may put them in order; drivers on two machines share nothing."""
    context = processes()
    gate, answers = context.Barrier(PROCESSES), context.Queue()
    environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    racers = [context.Process(target=race, args=(url, n, environment, gate, answers)) for n in range(PROCESSES)]
    for racer in racers:
        racer.start()
    found = [answers.get(timeout=200) for _ in range(PROCESSES * NAMES)]
    for racer in racers:
        racer.join()
    storage = open_storage(url)
    for name in range(NAMES):
        of_name = {number: answer for place, number, answer in found if place == name}
        assert Counter(of_name.values()) == {Put.WON: 1, Put.LOST: PROCESSES - 1}
        winner = next(number for number, answer in of_name.items() if answer is Put.WON)
        assert bytes(storage.read(f"m/{name}")) == f"{winner}".encode() * 1000
    assert storage.list("m") == sorted(map(str, range(NAMES)))


@pytest.mark.slow
def test_a_file_of_several_blocks_comes_back(url: str) -> None:
    """A run of a large state would be cut off, or its blocks put together in another order."""
    data = random.Random(0).randbytes(LARGE_BYTES)
    storage = open_storage(url)
    storage.write("d/large", data)
    storage.rename("d/large", "d/final")
    assert hashlib.sha256(storage.read("d/final")).digest() == hashlib.sha256(data).digest()
    assert storage.list("d") == ["final"]


@pytest.fixture
def hdfs_files(hdfs_server: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """A storage that soon gives up, with a file; whatever happens to the nodes, they serve again afterwards."""
    for name, value in hdfs_server.environment.items():
        monkeypatch.setenv(name, value)
    storage = FsspecStorage(hdfs_server.url(f"test-{uuid.uuid4().hex}"), patience=PATIENCE)
    storage.write("d/before", b"before")
    yield storage
    for node in (hdfs_server.name_node, hdfs_server.data_node):
        if not node.is_running:
            hdfs_server.restart(node)


@pytest.mark.slow
@pytest.mark.parametrize("node", share(2, ["name_node", "data_node"]))
def test_a_node_that_dies_is_told_and_loses_nothing(node: str, hdfs_server: HdfsServer, hdfs_files: Storage) -> None:
    """A dead server must not look like an empty one, nor a file half written like a file."""
    server = getattr(hdfs_server, node)
    server.kill()
    with pytest.raises(StorageError, match=r"cannot read hdfs://.*/d/before: .*\. .*"):
        hdfs_files.read("d/before")
    with pytest.raises(StorageError, match=r"cannot write hdfs://.*/d/meanwhile: "):
        hdfs_files.write("d/meanwhile", b"meanwhile")
    hdfs_server.restart(server)
    assert bytes(hdfs_files.read("d/before")) == b"before"
    assert hdfs_files.put_if_absent("m/after", b"after") is Put.WON
    assert bytes(hdfs_files.read("m/after")) == b"after"


def test_a_server_that_is_away_for_a_while_is_waited_for(s3_server: S3Server) -> None:
    """A pause of the network would end a run that has been going for months."""
    storage = open_storage(s3_server.bucket(f"test-{uuid.uuid4().hex}"))
    storage.write("d/before", b"before")
    s3_server.server.pause()
    threading.Timer(1.0, s3_server.server.resume).start()
    assert storage.put_if_absent("m/1", b"x") is Put.WON
    assert storage.list("d") == ["before"]


@pytest.mark.parametrize("status", [503, 500, 0], ids=["slow down", "internal error", "closed"])
def test_a_put_whose_answer_is_lost_is_not_taken_for_absent(s3_server: S3Server, status: int) -> None:
    """The driver would put its checkpoint a second time, or think that another had won it."""
    storage = FsspecStorage(s3_server.bucket(f"test-{uuid.uuid4().hex}"), patience=PATIENCE)
    s3_server.fail(Fault("PUT", "/m/1", status, performed=True))
    answer = storage.put_if_absent("m/1", b"mine")
    assert bytes(storage.read("m/1")) == b"mine"
    # LOST and UNKNOWN are both answers after which the log reads back and finds its own bytes.
    assert answer in (Put.WON, Put.LOST, Put.UNKNOWN)
    s3_server.fail(Fault("PUT", "/m/2", status, times=100))
    # A store that says it is too busy is known not to have done it: that is an error; all else is not known.
    with suppress(StorageError):
        assert storage.put_if_absent("m/2", b"never") is Put.UNKNOWN
    s3_server.fail()
    assert storage.list("m") == ["1"]
