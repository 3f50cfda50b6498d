"""An appended file grows only at its end, on a local disk."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from persistent.storage.disk import Disk
from persistent.storage.failures import disk_failures

_JOINED_BYTES_MAX = 1 << 20


class AppendedFile:
    """A file that this process appends to. Each method can raise StorageError. After a failed ``append`` or ``sync``
    the fate of the bytes since the last sync is unknown, and the file must be left alone: a second sync would report
    success."""

    def __init__(self, disk: Disk, descriptor: int, path: str) -> None:
        self._disk = disk
        self._descriptor: int | None = descriptor
        self._path = path

    def append(self, parts: Sequence[bytes | memoryview | pa.Buffer]) -> None:
        """Write at the end: visible at once, durable after ``sync``."""
        with disk_failures("append to", self._path):
            # Few system calls: small parts are joined.
            small = sum(memoryview(part).nbytes for part in parts) <= _JOINED_BYTES_MAX
            for part in [b"".join(parts)] if small else parts:
                view = memoryview(part)
                while view.nbytes:
                    view = view[self._disk.write(self._open(), view) :]

    def sync(self) -> None:
        with disk_failures("sync", self._path):
            self._disk.fsync(self._open())

    def close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with disk_failures("close", self._path):
                self._disk.close(descriptor)

    def _open(self) -> int:
        if self._descriptor is None:
            raise ValueError(f"{self._path} is closed")
        return self._descriptor
