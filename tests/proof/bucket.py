"""A bucket is an S3 store in memory, under the production storage for such stores; a request can fail in every way that
a network has.

The errors are those that s3fs raises: an ``OSError`` whose cause holds the response.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from persistent.storage import FsspecStorage, Storage
from persistent.storage.failures import Patience
from tests.proof.oracle import CHECKPOINT, SINK
from tests.proof.worlds import Process

NAME = "proof"


class Answer(Exception):
    """What the store said, as the client of AWS keeps it."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}")
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


def refused(status: int, code: str, number: int = errno.EBUSY) -> OSError:
    """The error that s3fs makes of an answer."""
    error = OSError(number, f"{status} {code}")
    error.__cause__ = Answer(status, code)
    return error


Around = Callable[[str, str, Callable[[], Any]], Any]
"""Makes a request of this verb and key, by calling the last argument; or does not, or raises, or both."""


def calmly(verb: str, key: str, request: Callable[[], Any]) -> Any:
    """Nothing goes wrong."""
    return request()


@dataclass
class Bucket:
    """Objects by key. Also what an oracle reads: ``/checkpoint/m/...`` is the object ``checkpoint/m/...``."""

    objects: dict[str, bytes] = field(default_factory=dict)

    def copy(self) -> Bucket:
        return Bucket(dict(self.objects))

    def data(self, path: str) -> bytes:
        if path[1:] not in self.objects:
            raise FileNotFoundError(errno.ENOENT, "no such object", path)
        return self.objects[path[1:]]

    def files_in(self, path: str) -> list[str]:
        prefix = f"{path[1:]}/"
        names = [key[len(prefix) :] for key in self.objects if key.startswith(prefix)]
        return sorted(name for name in names if "/" not in name)

    def files_below(self, path: str) -> list[str]:
        return sorted(f"/{key}" for key in self.objects if key.startswith(f"{path[1:]}/"))


class BucketRequests:
    """The requests of one storage below ``prefix``: a ``persistent.storage.fsspec_storage.Requests``."""

    renames = False

    def __init__(self, bucket: Bucket, prefix: str, around: Around) -> None:
        self._objects = bucket.objects
        self._prefix = prefix
        self._around = around

    def create(self, name: str, data: Any) -> None:
        def put() -> None:
            if self._prefix + name in self._objects:
                raise FileExistsError(errno.EEXIST, "412 PreconditionFailed", name)
            self._objects[self._prefix + name] = bytes(data)

        self._around("create", name, put)

    def write(self, name: str, data: Any, again: Callable[[Callable[[], Any]], Any]) -> None:
        def put() -> None:
            self._objects[self._prefix + name] = bytes(data)

        again(lambda: self._around("write", name, put))

    def read(self, name: str) -> pa.Buffer:
        def get() -> pa.Buffer:
            if self._prefix + name not in self._objects:
                raise FileNotFoundError(errno.ENOENT, "404 NoSuchKey", name)
            return pa.py_buffer(self._objects[self._prefix + name])

        return self._around("read", name, get)

    def list(self, folder: str) -> list[str]:
        prefix = f"{self._prefix}{folder}/" if folder else self._prefix

        def keys() -> list[str]:
            names = [key[len(prefix) :] for key in self._objects if key.startswith(prefix)]
            return [name for name in names if "/" not in name]

        return list(self._around("list", folder, keys))

    def rename(self, source: str, target: str) -> None:
        raise NotImplementedError

    def delete(self, name: str) -> None:
        self._around("delete", name, lambda: self._objects.pop(self._prefix + name, None))


@dataclass
class BucketProcess(Process):
    """One driver on a bucket. ``tries_max``: how often it makes a request that fails."""

    around: Around = calmly
    tries_max: int = 2

    def storages(self) -> tuple[Storage, Storage]:
        return self._storage(CHECKPOINT), self._storage(SINK)

    def _storage(self, path: str) -> Storage:
        patience = Patience(tries_max=self.tries_max, sleep=lambda seconds: None)
        storage = FsspecStorage(f"s3://{NAME}{path}", patience=patience)
        storage.requests = BucketRequests(self.disk, f"{path[1:]}/", self.around)
        return storage
