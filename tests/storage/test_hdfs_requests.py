"""What is asked of HDFS, call by call, over a NameNode in memory that notes the calls."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from persistent.errors import UnsupportedStore
from persistent.storage import hdfs
from persistent.storage.hdfs import HdfsRequests

REQUESTS = HdfsRequests("hdfs://node:8020/a/b/")


@dataclass
class File:
    """A file being written or read."""

    data: bytes = b""
    pieces: list[bytes] = field(default_factory=list)
    is_closed: bool = False
    failure: Exception | None = None

    def write(self, data: memoryview) -> None:
        if self.failure:
            raise self.failure
        assert data.format == "B", "the client sends as many bytes as the view has items"
        self.pieces.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def read(self) -> bytes:
        return self.data


@dataclass(frozen=True)
class Status:
    """What a list tells of a file."""

    path: str
    isdir: bool = False


class Node:
    """Answers each method by the next of its ``answers``; raises what is an error."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers: dict[str, list[Any]] = {}

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls.append((method, *arguments))
            waiting = self.answers.get(method) or [None]
            answer = waiting.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def taken(self) -> list[tuple[Any, ...]]:
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    """The NameNode of hdfs://node:8020."""
    node = Node()
    monkeypatch.setattr(hdfs, "_connected", lambda process, url: {"hdfs://node:8020": node}[url])
    return node


def once(call: Callable[[], Any]) -> Any:
    return call()


def test_a_file_is_renamed_into_its_place() -> None:
    """HDFS makes the name before it has the bytes: a torn manifest would be seen."""
    assert REQUESTS.renames is True
    with pytest.raises(NotImplementedError):
        REQUESTS.create("m/1", b"")


@pytest.mark.parametrize(
    ("data", "pieces"), [(b"run", [b"run"]), (pa.array([1]).buffers()[1], [b"\1" + b"\0" * 7]), (b"", [])]
)
def test_a_file_is_written_and_completed(node: Node, data: Any, pieces: list[bytes]) -> None:
    """A file that is not completed is empty for whoever reads it; a repeated write must not collide with the first."""
    node.answers["create"] = [file := File()]
    REQUESTS.write("d/run", data, once)
    ((method, path, options),) = node.taken()
    assert (method, path) == ("create", "/a/b/d/run")
    assert options.overwrite is True and options.create_parent is True
    assert (file.pieces, file.is_closed) == (pieces, True)


def test_a_write_that_fails_is_repeated_then_taken_away(node: Node) -> None:
    """A torn file would stand there; and it must not be completed, for then it looks whole."""
    node.answers["create"] = [first := File(failure=OSError("first")), second := File(failure=OSError("second"))]
    node.answers["delete"] = [OSError("no delete either")]

    def twice(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except OSError:
            return call()

    with pytest.raises(OSError, match="second"):
        REQUESTS.write("d/run", b"run", twice)
    assert not first.is_closed and not second.is_closed
    assert [call[0] for call in node.taken()] == ["create", "create", "delete"]


def test_a_file_is_read_whole(node: Node) -> None:
    """A run that is cut is corrupt."""
    node.answers["read"] = [File(b"data"), FileNotFoundError("none")]
    assert REQUESTS.read("m/1").to_pybytes() == b"data"
    with pytest.raises(FileNotFoundError):
        REQUESTS.read("m/2")
    assert node.taken() == [("read", "/a/b/m/1"), ("read", "/a/b/m/2")]


def test_a_list_shows_whole_files_only(node: Node) -> None:
    """Recovery picks the highest manifest of a listing: folders and files being made must not be among them."""
    found = [Status("/a/b/m/2"), Status("/a/b/m/deep", isdir=True), Status("/a/b/m/.tmp-0"), Status("/a/b/m/1")]
    node.answers["list_status"] = [found, FileNotFoundError("none"), [Status("/a/b/FORMAT")], []]
    assert REQUESTS.list("m") == ["2", "1"]
    assert REQUESTS.list("none") == []
    assert REQUESTS.list("") == ["FORMAT"]
    assert HdfsRequests("hdfs://node:8020").list("") == []
    assert [call[1] for call in node.taken()] == ["/a/b/m", "/a/b/none", "/a/b", "/"]


def test_a_rename_never_overwrites(node: Node) -> None:
    """A commit would replace another driver's."""
    REQUESTS.rename("m/.tmp-0", "m/1")
    assert node.taken() == [("rename", "/a/b/m/.tmp-0", "/a/b/m/1", False)]


def test_a_rename_makes_the_folder_of_its_target(node: Node) -> None:
    """The first output of a sink has no folder yet."""
    moved = ("rename", "/a/b/s/1", "/a/b/out/deep/1", False)
    node.answers["rename"] = [FileNotFoundError("no folder")]
    REQUESTS.rename("s/1", "out/deep/1")
    assert node.taken() == [moved, ("mkdirs", "/a/b/out/deep", 0o755, True), moved]
    node.answers["rename"] = [FileNotFoundError("no folder"), FileNotFoundError("no source")]
    with pytest.raises(FileNotFoundError, match="no source"):
        REQUESTS.rename("s/1", "out/deep/1")


def test_a_delete_takes_a_file_and_never_a_tree(node: Node) -> None:
    """Garbage collection that is cut off could never be finished; or a folder would go with all that is in it."""
    node.answers["delete"] = [True, FileNotFoundError("gone")]
    REQUESTS.delete("d/run")
    REQUESTS.delete("d/run")
    assert node.taken() == [("delete", "/a/b/d/run", False)] * 2


def test_a_client_belongs_to_a_process_and_gives_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection does not outlive a fork; and the client alone would look for a NameNode for minutes."""
    made = []

    class Package:
        def Client(self, url: str, settings: dict[str, str]) -> tuple[str, int]:
            made.append((url, settings))
            return (url, len(made))

    monkeypatch.setattr(hdfs, "_package", Package)
    requests = HdfsRequests("hdfs://other:8020/x")
    assert requests._client() == requests._client() == ("hdfs://other:8020", 1)
    monkeypatch.setattr(os, "getpid", lambda: 0)
    assert requests._client() == ("hdfs://other:8020", 2)
    settings = {"dfs.client.failover.max.attempts": "3", "dfs.client.failover.sleep.max.millis": "1000"}
    assert made == [("hdfs://other:8020", settings)] * 2


def test_a_missing_client_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user would see an import that fails somewhere inside."""
    assert hdfs._package().__name__ == "hdfs_native"
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(UnsupportedStore, match="pip install hdfs-native"):
        hdfs._package()
