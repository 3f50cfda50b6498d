"""A store whose every answer is scripted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from persistent.storage import FsspecStorage
from persistent.storage.failures import Patience

Answers = dict[str, list[Exception | None]]


class Store:
    """Holds files; ``before`` and ``after``: of each verb, what its next calls raise before and after they are done."""

    def __init__(self, *, renames: bool = False) -> None:
        self.renames = renames
        self.files: dict[str, bytes] = {}
        self.calls: list[str] = []
        self.before: Answers = {}
        self.after: Answers = {}

    def create(self, name: str, data: bytes | pa.Buffer) -> None:
        self._do("create", lambda: self._new(name, bytes(data)))

    def write(self, name: str, data: bytes | pa.Buffer, again: Callable[[Callable[[], Any]], Any]) -> None:
        again(lambda: self._do("write", lambda: self.files.update({name: bytes(data)})))

    def read(self, name: str) -> pa.Buffer:
        return self._do("read", lambda: pa.py_buffer(self._there(name)))

    def rename(self, source: str, target: str) -> None:
        self._do("rename", lambda: self._moved(source, target))

    def delete(self, name: str) -> None:
        self._do("delete", lambda: self.files.pop(name, None))

    def list(self, folder: str) -> Any:
        prefix = f"{folder}/" if folder else ""
        inside = [name.removeprefix(prefix) for name in self.files if name.startswith(prefix)]
        return self._do("list", lambda: [name for name in inside if "/" not in name])

    def _do(self, verb: str, action: Callable[[], Any]) -> Any:
        self.calls.append(verb)
        self._raise(self.before, verb)
        done = action()
        self._raise(self.after, verb)
        return done

    @staticmethod
    def _raise(answers: Answers, verb: str) -> None:
        waiting = answers.get(verb)
        error = waiting.pop(0) if waiting else None
        if error is not None:
            raise error

    def _there(self, name: str) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def _new(self, name: str, data: bytes) -> None:
        if name in self.files:
            raise FileExistsError(name)
        self.files[name] = data

    def _moved(self, source: str, target: str) -> None:
        self._new(target, self._there(source))
        del self.files[source]


def storage_over(store: Store) -> tuple[FsspecStorage, list[float]]:
    """A storage over the store, and the pauses it makes."""
    pauses: list[float] = []
    storage = FsspecStorage("s3://bucket/folder", patience=Patience(tries_max=4, sleep=pauses.append))
    storage.requests = store
    return storage, pauses


BUSY, LOST = ConnectionRefusedError("busy"), TimeoutError("no answer")
