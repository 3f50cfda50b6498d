"""The mutants of the section "disk": each leaves out one thing that makes a local storage safe, and must be found."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from persistent.storage import Put, Storage
from tests.proof.disk import File, Folder, SimulatedFiles
from tests.proof.powercut import Sweep
from tests.proof.worlds import VISITS, Process, drawn_names

_CASES_MAX = 3_000


class NoFileSync(SimulatedFiles):
    def fsync(self, descriptor: int) -> None:
        if isinstance(self.disk.inodes[self._opened[descriptor][0]], Folder):
            super().fsync(descriptor)


class NoFolderSync(SimulatedFiles):
    def fsync(self, descriptor: int) -> None:
        if isinstance(self.disk.inodes[self._opened[descriptor][0]], File):
            super().fsync(descriptor)


class NewFolderNotSynced(SimulatedFiles):
    """The folder that holds a new folder is not synced."""

    def fsync(self, descriptor: int) -> None:
        inodes = self.disk.inodes
        inode = inodes[self._opened[descriptor][0]]
        if not (
            isinstance(inode, Folder) and any(isinstance(inodes.get(new or 0), Folder) for _, new in inode.pending)
        ):
            super().fsync(descriptor)


class RenamedNotSynced(SimulatedFiles):
    """The folder to which a file was renamed is not synced before its old name goes."""

    _renamed = ""

    def link(self, old: str, new: str) -> None:
        super().link(old, new)
        self._renamed = "" if ".tmp-" in old else os.path.dirname(new)

    def fsync(self, descriptor: int) -> None:
        if self._opened[descriptor][1] != self._renamed:
            super().fsync(descriptor)
        self._renamed = ""


class RenamedOver(SimulatedFiles):
    """A put renames its file to the final name, whatever is there."""

    def link(self, old: str, new: str) -> None:
        if ".tmp-" in old and self.exists(new):
            self._name(new, None)
        super().link(old, new)


class ListedNotSynced(SimulatedFiles):
    """A folder is not synced when it is listed."""

    _listed = ""

    def file_names(self, path: str) -> list[str]:
        self._listed = path
        return super().file_names(path)

    def link(self, old: str, new: str) -> None:
        self._listed = ""
        super().link(old, new)

    def fsync(self, descriptor: int) -> None:
        if self._opened[descriptor][1] != self._listed:
            super().fsync(descriptor)


class SyncTriedAgain(SimulatedFiles):
    """A failed sync is tried again."""

    def fsync(self, descriptor: int) -> None:
        try:
            super().fsync(descriptor)
        except OSError:
            super().fsync(descriptor)


class ManifestFirst:
    """Runs are written after the manifest that names them."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self._waiting: dict[str, bytes] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, name: str, data: Any) -> None:
        if name.startswith("d/"):
            self._waiting[name] = bytes(data)
        else:
            self._inner.write(name, data)

    def read(self, name: str) -> pa.Buffer:
        waiting = self._waiting.get(name)
        return self._inner.read(name) if waiting is None else pa.py_buffer(waiting)

    def put_if_absent(self, name: str, data: bytes) -> Put:
        answer = self._inner.put_if_absent(name, data)
        if name.startswith("m/"):
            for waiting, run in self._waiting.items():
                self._inner.write(waiting, run)
            self._waiting.clear()
        return answer


@dataclass(frozen=True)
class Mutant:
    """A defect: of the calls to the operating system, or of the storage; and what brings it to light: "crashes",
    "failed syncs", "unsynced names" or "overtakings"."""

    name: str
    files: type[SimulatedFiles] = SimulatedFiles
    changed: Callable[[Storage], Storage] | None = None
    by: str = "crashes"

    def plant(self, process: Process) -> None:
        process.files = self.files
        if self.changed is not None:
            process.changed = self.changed


MUTANTS = (
    Mutant("a file is not synced", NoFileSync),
    Mutant("a folder is not synced", NoFolderSync),
    Mutant("the folder above a new folder is not synced", NewFolderNotSynced),
    Mutant("a folder is not synced before the old name of a renamed file goes", RenamedNotSynced),
    Mutant("a folder is not synced when it is listed", ListedNotSynced, by="unsynced names"),
    Mutant("a put renames over what is there", RenamedOver, by="overtakings"),
    Mutant("a sync that failed is tried again", SyncTriedAgain, by="failed syncs"),
    Mutant("a manifest is put before its runs", changed=ManifestFirst),
)


def is_found(mutant: Mutant, seed: object) -> bool:
    """Whether a sweep of a few cases sees the defect."""
    return bool(failure_of(mutant, seed))


def failure_of(mutant: Mutant, seed: object = 0) -> str:
    """The first failure that the defect leads to; "" if it is not found."""
    with drawn_names((mutant.name, seed)):
        sweep = Sweep(VISITS, seed, _CASES_MAX, failures_max=1, mutant=mutant)
        moments = sweep.calm()
        if mutant.by == "overtakings":
            sweep.overtakings(len(moments))
        elif mutant.by == "unsynced names":
            sweep.unsynced_names(moments, _CASES_MAX)
        elif mutant.by == "failed syncs":
            sweep.sync_failures(sum(moment.verb == "fsync" for moment in moments))
        else:
            sweep.crash_everywhere(moments)
    return sweep.failures[0] if sweep.failures else ""
