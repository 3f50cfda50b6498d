"""Storages that tests of the doctor share."""

from __future__ import annotations

import uuid

from persistent.storage import MemoryStorage, Put


class Noting(MemoryStorage):
    """An honest storage that notes what is put."""

    def __init__(self) -> None:
        super().__init__(uuid.uuid4().hex)
        self.sizes: list[int] = []

    def put_if_absent(self, name: str, data: bytes) -> Put:
        self.sizes.append(len(data))
        return super().put_if_absent(name, data)


class RefusesAll(Noting):
    """Takes everything, and says that it was there."""

    def put_if_absent(self, name: str, data: bytes) -> Put:
        super().put_if_absent(name, data)
        return Put.LOST
