"""A mark says that a driver runs: for people and commands to see, and for nothing to rely on.

``r/e<epoch>-<nonce>.json`` holds who works, where and since when. It is put after the fence and deleted when the driver
ends; one that is killed leaves it behind, and the next driver deletes it. What keeps two drivers apart is the fence.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from persistent.clock import wall_ms
from persistent.codec import decode_document, encode_document
from persistent.errors import CorruptCheckpoint
from persistent.storage import Storage


@dataclass(frozen=True)
class Mark:
    """A driver that runs, or was killed while it did."""

    name: str
    epoch: int
    host: str
    pid: int
    started_ms: int

    @property
    def may_run(self) -> bool:
        """False where it is known to have ended: a process of this machine that is no more."""
        return self.host != socket.gethostname() or _lives(self.pid)


def put_mark(storage: Storage, epoch: int, nonce: str) -> str:
    """Say that this process drives; returns the name of the mark."""
    name = f"r/e{epoch}-{nonce}.json"
    body = {"epoch": epoch, "host": socket.gethostname(), "pid": os.getpid(), "started_ms": wall_ms()}
    storage.put_if_absent(name, encode_document(body))
    return name


def marks(storage: Storage) -> Iterator[Mark]:
    """The marks there are. One that cannot be read is of a driver that was killed while it put it."""
    for listed in storage.list("r"):
        name = f"r/{listed}"
        try:
            body = decode_document(storage.read(name).to_pybytes(), f"{storage.url}/{name}")
            yield Mark(name, body["epoch"], str(body["host"]), body["pid"], body["started_ms"])
        except (FileNotFoundError, CorruptCheckpoint, KeyError):
            continue


def sweep_dead_marks(storage: Storage) -> None:
    """Delete the marks of drivers that are known to have been killed."""
    for mark in marks(storage):
        if not mark.may_run:
            storage.delete(mark.name)


def sweep_marks(storage: Storage, epoch: int) -> None:
    """Delete the marks of drivers that have been fenced off: those of other epochs."""
    for listed in storage.list("r"):
        if not listed.startswith(f"e{epoch}-"):
            storage.delete(f"r/{listed}")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
