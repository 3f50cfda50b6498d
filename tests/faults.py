"""The faulty storage of ``persistent.testing``, with what a death in the middle leaves on a local disk."""

from __future__ import annotations

import os
import uuid

from persistent.storage import LocalStorage
from persistent.testing import faults
from persistent.testing.faults import DEATHS, Killed, Operations

__all__ = ["DEATHS", "FaultyStorage", "Killed", "Operations"]


class FaultyStorage(faults.FaultyStorage):
    """``inner``, with a fault at the operation that ``operations`` says."""

    def torn_put(self, name: str, data: bytes) -> None:
        if isinstance(self.inner, LocalStorage):
            folder = os.path.dirname(os.path.join(self.url, name))
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, f".tmp-{uuid.uuid4().hex}"), "wb") as file:
                file.write(data[: len(data) // 2])

    def torn_rename(self, source: str, target: str) -> None:
        super().torn_rename(source, target)
        if isinstance(self.inner, LocalStorage):
            old, new = os.path.join(self.url, source), os.path.join(self.url, target)
            if os.path.exists(old) and not os.path.exists(new):
                os.makedirs(os.path.dirname(new), exist_ok=True)
                os.link(old, new)
