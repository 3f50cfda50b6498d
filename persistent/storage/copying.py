"""A rename by copy, where a store has no rename, is three operations: read, create, delete.

The caller may stall between any two of them while others continue. So a renamed file alone does not prove that
something is published.
"""

from __future__ import annotations

import errno

from persistent.storage.protocol import Storage, put_or_read


def rename_by_copy(storage: Storage, source: str, target: str, tries_max: int) -> None:
    """Move without overwriting. FileNotFoundError / FileExistsError, as ``Storage.rename``."""
    data = storage.read(source)
    held = put_or_read(storage, target, data, tries_max)
    # The same bytes are from an earlier try, or an earlier run.
    if held is not None and not held.equals(data):
        raise FileExistsError(errno.EEXIST, "exists", f"{storage.url}/{target}")
    storage.delete(source)
