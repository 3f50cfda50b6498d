"""A storage in the memory of one process."""

from __future__ import annotations

import errno
import threading

import pyarrow as pa

from persistent.storage.protocol import Put, checked_name


class MemoryStorage:
    """A storage in the memory of this process. Instances with the same name share their files."""

    shared = False
    local = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.url = f"memory://{name}"
        self._files = _memory(name)

    def __repr__(self) -> str:
        return f"MemoryStorage({self.name!r})"

    def __reduce__(self) -> tuple[type[MemoryStorage], tuple[str]]:
        return MemoryStorage, (self.name,)

    def put_if_absent(self, name: str, data: bytes) -> Put:
        checked_name(name)
        with _MEMORY_LOCK:
            if name in self._files:
                return Put.LOST
            self._files[name] = pa.py_buffer(bytes(data))
            return Put.WON

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        if self.put_if_absent(name, bytes(data)) is Put.LOST:
            raise FileExistsError(errno.EEXIST, "written before", f"{self.url}/{name}")

    def read(self, name: str) -> pa.Buffer:
        checked_name(name)
        with _MEMORY_LOCK:
            return self._existing(name)

    def list(self, folder: str) -> list[str]:
        prefix = f"{checked_name(folder)}/" if folder else ""
        with _MEMORY_LOCK:
            inside = [name[len(prefix) :] for name in self._files if name.startswith(prefix)]
        return sorted(name for name in inside if "/" not in name)

    def rename(self, source: str, target: str) -> None:
        checked_name(source), checked_name(target)
        with _MEMORY_LOCK:
            data = self._existing(source)
            if self._files.get(target, data) is not data:
                raise FileExistsError(errno.EEXIST, "exists", f"{self.url}/{target}")
            self._files[target] = data
            del self._files[source]

    def delete(self, name: str) -> None:
        checked_name(name)
        with _MEMORY_LOCK:
            self._files.pop(name, None)

    def clear(self) -> None:
        """Delete every file."""
        with _MEMORY_LOCK:
            self._files.clear()

    def _existing(self, name: str) -> pa.Buffer:
        if name not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such file", f"{self.url}/{name}")
        return self._files[name]


_MEMORY_LOCK = threading.Lock()
_MEMORIES: dict[str, dict[str, pa.Buffer]] = {}


def _memory(name: str) -> dict[str, pa.Buffer]:
    with _MEMORY_LOCK:
        return _MEMORIES.setdefault(name, {})
