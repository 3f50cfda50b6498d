"""An asking storage calls back before each operation, so that a test can delay it or run another driver first."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from persistent.storage import Put, Storage

Before = Callable[[str, str], None]
"""Called with the verb and the name, before the operation."""


class AskingStorage:
    """``inner``, which calls ``before`` before every operation."""

    def __init__(self, inner: Storage, before: Before) -> None:
        self.inner = inner
        self.before = before
        self.url = inner.url
        self.shared = inner.shared
        self.local = inner.local

    def __repr__(self) -> str:
        return f"AskingStorage({self.inner!r})"

    def put_if_absent(self, name: str, data: bytes) -> Put:
        self.before("put_if_absent", name)
        return self.inner.put_if_absent(name, data)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        self.before("write", name)
        self.inner.write(name, data)

    def read(self, name: str) -> pa.Buffer:
        self.before("read", name)
        return self.inner.read(name)

    def list(self, folder: str) -> list[str]:
        self.before("list", folder)
        return self.inner.list(folder)

    def rename(self, source: str, target: str) -> None:
        self.before("rename", source)
        self.inner.rename(source, target)

    def delete(self, name: str) -> None:
        self.before("delete", name)
        self.inner.delete(name)


class Once:
    """Runs ``action`` before the first operation that ``matches``, in the thread that was about to perform it."""

    def __init__(self, matches: Callable[[str, str], bool], action: Callable[[], object]) -> None:
        self._matches = matches
        self._action = action
        self.happened = False

    def __call__(self, verb: str, name: str) -> None:
        if not self.happened and self._matches(verb, name):
            self.happened = True
            self._action()
