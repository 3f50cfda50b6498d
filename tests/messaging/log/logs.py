"""Logs on both kinds of stores, and what is in them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from persistent.log import LogPosition, SegmentedLog
from persistent.storage import LocalStorage, Put

KINDS = ("file", "memory")


def place(kind: str, folder: Path) -> str:
    return str(folder / "log") if kind == "file" else f"memory://{uuid.uuid4().hex}"


def values(log: SegmentedLog, start: LogPosition | None = None, **options: Any) -> list[bytes]:
    """All records from a position on."""
    return [record for batch in log.read(start, **options) for record in batch.records.to_pylist()]


def positions(log: SegmentedLog) -> list[LogPosition]:
    """Where each record is."""
    return [
        batch.first._replace(slot=batch.first.slot + slot) for batch in log.read() for slot in range(len(batch.records))
    ]


class Hooked(LocalStorage):
    """A local storage that does something once, before an operation on a name that begins so."""

    def __init__(self, url: Path) -> None:
        super().__init__(str(url))
        self.before: dict[tuple[str, str], Callable[[], object]] = {}

    def _pass(self, verb: str, name: str) -> None:
        for key in [key for key in self.before if key[0] == verb and name.startswith(key[1])]:
            self.before.pop(key)()

    def list(self, folder: str) -> list[str]:
        self._pass("list", folder)
        return super().list(folder)

    def read(self, name: str) -> Any:
        self._pass("read", name)
        return super().read(name)

    def put_if_absent(self, name: str, data: bytes) -> Put:
        self._pass("put", name)
        return super().put_if_absent(name, data)

    def rename(self, source: str, target: str) -> None:
        self._pass("rename", source)
        super().rename(source, target)

    def delete(self, name: str) -> None:
        self._pass("delete", name)
        super().delete(name)
