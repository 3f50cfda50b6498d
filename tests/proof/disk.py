"""A simulated disk is what POSIX promises of a disk and no more: data and names, each with a durable half.

- What is written to a file is seen at once; only a sync of the *file* makes it durable. Until then a loss of power
  leaves any of it: all, nothing, a part, zeroes in the place of any piece. What was safe before it was appended stays.
- A name that is made, linked or unlinked is seen at once; only a sync of its *folder* makes that durable. Until then
  a loss of power keeps or undoes it, each name by itself, and each in whatever order.
- A sync that fails has dropped the data: a second one succeeds, and still nothing is durable.
- The death of a process takes only its descriptors.

``SimulatedDisk`` is the disk, cheap to copy. ``SimulatedFiles`` is the operating system as one process sees it: a
``persistent.storage.local.Disk``, so the production storage runs over it.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import pyarrow as pa

SECTOR_BYTES = 128
"""Data is lost in pieces of this size: small, so that the small files of a test have several."""

_ROOT = 1


@dataclass(frozen=True, slots=True)
class File:
    """``data``: what readers see. ``durable``: what the last sync made safe; None before the first. ``dropped``: a sync
    has failed."""

    data: bytes = b""
    durable: bytes | None = None
    dropped: bool = False

    @property
    def is_durable(self) -> bool:
        return self.data == self.durable


@dataclass(frozen=True, slots=True)
class Folder:
    """``names``: what readers see, to inode numbers. ``durable``: as of the last sync. ``pending``: the changes since
    then, (name, inode number or None), in order."""

    names: Mapping[str, int]
    durable: Mapping[str, int]
    pending: tuple[tuple[str, int | None], ...] = ()

    def with_name(self, name: str, inode: int | None) -> Folder:
        names = {known: number for known, number in self.names.items() if known != name}
        if inode is not None:
            names[name] = inode
        return Folder(names, self.durable, (*self.pending, (name, inode)))


Inode = File | Folder


class SimulatedDisk:
    """Inodes by number. A copy shares them all: they never change, they are replaced.

    >>> disk = SimulatedDisk()
    >>> files = SimulatedFiles(disk)
    >>> descriptor = files.open("/a", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    >>> _ = files.write(descriptor, memoryview(b"data"))
    >>> files.fsync(descriptor)
    >>> sorted(after.tree() for after in disk.survivors(random.Random(0), 10))  # the data is safe, its name is not
    [(), (('/a', b'data'),)]
    """

    def __init__(self, inodes: Mapping[int, Inode] | None = None, next_inode: int = _ROOT + 1) -> None:
        self.inodes: dict[int, Inode] = dict(inodes) if inodes is not None else {_ROOT: Folder({}, {})}
        self.next_inode = next_inode

    def copy(self) -> SimulatedDisk:
        """The disk as it is now, durable or not."""
        return SimulatedDisk(self.inodes, self.next_inode)

    def inode(self, path: str) -> int:
        """The inode number of a path. FileNotFoundError, NotADirectoryError."""
        number = _ROOT
        for part in path.split("/"):
            if not part:
                continue
            folder = self.inodes[number]
            if not isinstance(folder, Folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            found = folder.names.get(part)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            number = found
        return number

    def folder(self, path: str) -> tuple[int, Folder]:
        """The number and the content of a folder."""
        number = self.inode(path)
        found = self.inodes[number]
        if not isinstance(found, Folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return number, found

    def data(self, path: str) -> bytes:
        """What a reader of the file sees."""
        found = self.inodes[self.inode(path)]
        if not isinstance(found, File):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return found.data

    def files_in(self, path: str) -> list[str]:
        """The names of the files directly in a folder, sorted; none where there is no folder."""
        try:
            _, folder = self.folder(path)
        except FileNotFoundError:
            return []
        return sorted(name for name, number in folder.names.items() if isinstance(self.inodes[number], File))

    def files_below(self, path: str) -> list[str]:
        """The paths of all files below a folder, sorted."""
        return [found for found, data in self.tree() if data is not None and found.startswith(f"{path}/")]

    def tree(self) -> tuple[tuple[str, bytes | None], ...]:
        """Every path with its data, None for a folder: equal trees look the same to every reader."""
        return tuple(self._walk(_ROOT, ""))

    def survivors(self, drawn: random.Random, at_most: int) -> Iterator[SimulatedDisk]:
        """What a loss of power may leave: every outcome, if there are at most so many; else that many drawn ones. No
        two look the same."""
        choices = self._choices()
        total = prod(len(values) for _, values in choices)
        if total <= at_most:
            outcomes: Iterator[tuple[object, ...]] = product(*(values for _, values in choices))
        else:
            outcomes = (tuple(drawn.choice(values) for _, values in choices) for _ in range(at_most))
        seen = set()
        for outcome in outcomes:
            disk = self._left({place: value for (place, _), value in zip(choices, outcome)})
            tree = disk.tree()
            if tree not in seen:
                seen.add(tree)
                yield disk

    def _choices(self) -> list[tuple[tuple[int, str | None], list[object]]]:
        """The places whose content is open, each with what it may be: data of a file (no name), or the inode of a name
        in a folder."""
        choices: list[tuple[tuple[int, str | None], list[object]]] = []
        for number, inode in self.inodes.items():
            if isinstance(inode, File):
                if not inode.is_durable:
                    choices.append(((number, None), _torn(inode)))
                continue
            versions: dict[str, list[object]] = {}
            for name, target in inode.pending:
                known = versions.setdefault(name, [inode.durable.get(name)])
                if target not in known:
                    known.append(target)
            choices += [((number, name), known) for name, known in versions.items()]
        return choices

    def _left(self, outcome: Mapping[tuple[int, str | None], object]) -> SimulatedDisk:
        names: dict[int, dict[str, int]] = {}
        for (number, name), value in outcome.items():
            if name is not None:
                folder = self.inodes[number]
                assert isinstance(folder, Folder)
                kept = names.setdefault(number, dict(folder.durable))
                kept.pop(name, None)
                if isinstance(value, int):
                    kept[name] = value
        left: dict[int, Inode] = {}
        todo = [_ROOT]
        while todo:
            number = todo.pop()
            if number in left:
                continue
            inode = self.inodes[number]
            if isinstance(inode, Folder):
                kept = names.get(number, dict(inode.durable))
                left[number] = Folder(kept, kept)
                todo += kept.values()
            else:
                data = outcome.get((number, None), inode.durable)
                assert isinstance(data, bytes)
                left[number] = File(data, data)
        return SimulatedDisk(left, self.next_inode)

    def _walk(self, number: int, path: str) -> Iterator[tuple[str, bytes | None]]:
        inode = self.inodes[number]
        if isinstance(inode, File):
            yield path, inode.data
            return
        if path:
            yield path, None
        for name in sorted(inode.names):
            yield from self._walk(inode.names[name], f"{path}/{name}")


def _torn(file: File) -> list[object]:
    """What may be left of a file that was not synced, or whose sync failed."""
    durable = file.durable or b""
    data = file.data[len(durable) :]
    kept = [b"", data, data[: len(data) // 2], bytes(len(data))]
    for start in range(0, len(data), max(SECTOR_BYTES, len(data) // 4)):
        stop = start + SECTOR_BYTES
        kept.append(data[:start] + bytes(len(data[start:stop])) + data[stop:])
    return [durable + left for left in dict.fromkeys(kept)]


Before = Callable[[str, str, bytes], None]
"""Called before an operation with its verb, path and the data written; may raise instead of it."""

CHANGES = frozenset({"open", "write", "fsync", "link", "unlink", "mkdir"})
"""The verbs that change the disk (an open, where it makes a file)."""


class SimulatedFiles:
    """The operating system, as one process sees it; ``before`` is asked at every call."""

    def __init__(self, disk: SimulatedDisk, before: Before | None = None) -> None:
        self.disk = disk
        self.before = before
        self._opened: dict[int, tuple[int, str]] = {}
        self._next = 3

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        self._asked("open" if flags & os.O_CREAT else "open-folder", path)
        disk = self.disk
        if flags & os.O_CREAT:
            number = self._make(path, File())
        else:
            number = disk.inode(path)
            if flags & os.O_DIRECTORY:
                disk.folder(path)
        descriptor, self._next = self._next, self._next + 1
        self._opened[descriptor] = number, path
        return descriptor

    def write(self, descriptor: int, data: memoryview) -> int:
        number, path = self._opened[descriptor]
        written = bytes(data)
        self._asked("write", path, written)
        self.disk.inodes[number] = append(self.disk.inodes[number], written)
        return len(written)

    def fsync(self, descriptor: int) -> None:
        number, path = self._opened[descriptor]
        try:
            self._asked("fsync", path)
        except OSError:
            self._drop(number)
            raise
        inode = self.disk.inodes[number]
        if isinstance(inode, Folder):
            self.disk.inodes[number] = Folder(inode.names, inode.names)
        elif not inode.dropped:
            self.disk.inodes[number] = File(inode.data, inode.data)

    def close(self, descriptor: int) -> None:
        del self._opened[descriptor]

    def link(self, old: str, new: str) -> None:
        self._asked("link", new)
        number = self.disk.inode(old)
        self._refuse_existing(new)
        self._name(new, number)

    def unlink(self, path: str) -> None:
        self._asked("unlink", path)
        self.disk.inode(path)
        self._name(path, None)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._asked("mkdir", path)
        self._make(path, Folder({}, {}))

    def read(self, path: str) -> pa.Buffer:
        self._asked("read", path)
        return pa.py_buffer(self.disk.data(path))

    def file_names(self, path: str) -> list[str]:
        self._asked("list", path)
        _, folder = self.disk.folder(path)
        return [name for name, number in folder.names.items() if isinstance(self.disk.inodes[number], File)]

    def is_folder(self, path: str) -> bool:
        self._asked("stat", path)
        return isinstance(self._found(path), Folder)

    def exists(self, path: str) -> bool:
        return self._looked_up(path) is not None

    def access(self, path: str, mode: int) -> bool:
        return self._looked_up(path) is not None

    def is_same(self, one: str, other: str) -> bool:
        self._asked("stat", other)
        return self.disk.inode(one) == self.disk.inode(other)

    def _looked_up(self, path: str) -> Inode | None:
        """As ``os.path`` does it: what cannot be looked up is not there."""
        try:
            self._asked("stat", path)
        except OSError:
            return None
        return self._found(path)

    def _asked(self, verb: str, path: str, data: bytes = b"") -> None:
        if self.before is not None:
            self.before(verb, path, data)

    def _found(self, path: str) -> Inode | None:
        try:
            return self.disk.inodes[self.disk.inode(path)]
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _refuse_existing(self, path: str) -> None:
        if self._found(path) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    def _make(self, path: str, inode: Inode) -> int:
        self._refuse_existing(path)
        number = self.disk.next_inode
        self._name(path, number)
        self.disk.next_inode += 1
        self.disk.inodes[number] = inode
        return number

    def _name(self, path: str, number: int | None) -> None:
        parent, _, name = path.rpartition("/")
        folder_number, folder = self.disk.folder(parent)
        self.disk.inodes[folder_number] = folder.with_name(name, number)

    def _drop(self, number: int) -> None:
        inode = self.disk.inodes[number]
        if isinstance(inode, File):
            self.disk.inodes[number] = replace(inode, dropped=True)


def append(inode: Inode, data: bytes) -> File:
    """The file with more written to it."""
    assert isinstance(inode, File)
    return replace(inode, data=inode.data + data)
