"""A rename by copy, where a store has no rename, is three operations: read, create, delete.

Between any two of them the caller may sleep for as long as it likes, and others go on: so it takes more than the
renamed file to say that something is published.
"""

from __future__ import annotations

import errno
from contextlib import suppress

import pyarrow as pa

from persistent.errors import StorageError
from persistent.storage.protocol import Put, Storage


def rename_by_copy(storage: Storage, source: str, target: str, tries_max: int) -> None:
    """Move without overwriting. FileNotFoundError / FileExistsError, as ``Storage.rename``."""
    data = storage.read(source)
    _copy(storage, data, target, tries_max)
    storage.delete(source)


def _copy(storage: Storage, data: pa.Buffer, target: str, tries_max: int) -> None:
    """Create ``target``, or find it with the same bytes: then an earlier try, or an earlier run, made it."""
    for _ in range(tries_max):
        if storage.put_if_absent(target, data) is Put.WON:
            return
        with suppress(FileNotFoundError):
            if storage.read(target).equals(data):
                return
            raise FileExistsError(errno.EEXIST, "exists", f"{storage.url}/{target}")
    raise StorageError(
        f"cannot rename to {storage.url}/{target}: the store neither took nor showed it in {tries_max} tries. Run "
        "again: the last checkpoint is good."
    )
