"""The inputs of a job behind a store whose every request can be made to fail, or be preceded by a change of its files.

``store://`` is a store of fsspec; the same files on a local disk answer the same requests through the calls of the
operating system that sources make.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar
from unittest import mock

import fsspec
from fsspec.spec import AbstractFileSystem

from persistent.connect.files import listing as listing_module
from persistent.connect.files import walk
from persistent.storage.failures import Patience
from persistent.testing.running import ManualClock

EVER = 1 << 30
DATA = frozenset({"range", "read"})
"""Requests that are answered with bytes."""

ERRORS: dict[str, Callable[[str], Exception]] = {
    "timeout": lambda path: TimeoutError(f"no answer for {path}"),
    "reset": lambda path: ConnectionResetError(104, "Connection reset by peer", path),
    "not there": lambda path: FileNotFoundError(2, "No such file or directory", path),
}
KINDS = (*ERRORS, "short", "slow", "wrong")
"""What may befall a request; "wrong": one of its bytes is another."""

SLOW_MS = 45_000


@dataclass(frozen=True)
class Fault:
    """``kind`` at request ``at``, and at so many from there on, of its verb only if one is named."""

    kind: str
    at: int
    times: int = 1
    verb: str = ""

    def __str__(self) -> str:
        often = {1: "once", EVER: "for ever"}.get(self.times, f"{self.times} times")
        return f"{self.kind} at request {self.at}{' and each ' + self.verb if self.verb else ''}, {often}"


Move = Callable[["Inputs"], None]


@dataclass
class Inputs:
    """Files by path, their requests counted. ``moves``: what becomes of the files before a request."""

    files: dict[str, bytes]
    faults: tuple[Fault, ...] = ()
    moves: Mapping[int, Move] = field(default_factory=dict)
    count: int = 0
    verbs: list[tuple[str, str]] = field(default_factory=list)
    left: dict[Fault, int] = field(default_factory=dict)
    clock: ManualClock | None = None
    versions: dict[str, int] = field(default_factory=dict)
    has_hints: bool = True

    def put(self, path: str, data: bytes) -> None:
        self.files[path] = data
        self.versions[path] = self.versions.get(path, 0) + 1

    def delete(self, path: str) -> None:
        self.files.pop(path, None)

    def answer(self, verb: str, path: str, request: Callable[[], Any]) -> Any:
        """What a request comes to."""
        number, self.count = self.count, self.count + 1
        self.verbs.append((verb, path))
        if number in self.moves:
            self.moves[number](self)
        fault = self._fault(number, verb)
        if fault is None:
            return request()
        if fault.kind in ERRORS:
            raise ERRORS[fault.kind](path)
        if fault.kind == "slow":
            if self.clock is not None:
                self.clock.advance(SLOW_MS)
            return request()
        data = request()
        if not isinstance(data, bytes) or not data:
            return data
        if fault.kind == "short":
            return data[: len(data) // 2]
        place = number * 7919 % len(data)
        return data[:place] + bytes([data[place] ^ 0x15]) + data[place + 1 :]

    def _fault(self, number: int, verb: str) -> Fault | None:
        for fault in self.faults:
            if number >= fault.at and fault.verb in ("", verb) and self.left.setdefault(fault, fault.times) > 0:
                self.left[fault] -= 1
                return fault
        return None


class Store(AbstractFileSystem):
    """``Inputs`` as a store of fsspec."""

    protocol = "store"
    inputs: ClassVar[Inputs]

    def find(self, path: str, maxdepth: Any = None, withdirs: bool = False, detail: bool = False, **_: Any) -> Any:
        def found() -> dict[str, Any]:
            inside = self._strip_protocol(path).rstrip("/") + "/"
            return {name: self._entry(name) for name in sorted(self.inputs.files) if name.startswith(inside)}

        return self.inputs.answer("list", path, found)

    def isdir(self, path: str) -> bool:
        inside = self._strip_protocol(path).rstrip("/") + "/"
        there = lambda: any(name.startswith(inside) for name in self.inputs.files)  # noqa: E731
        return bool(self.inputs.answer("is folder", path, there))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.inputs.answer("look", path, lambda: self._entry(self._strip_protocol(path)))
        return found

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        data: bytes = self.inputs.answer("range", path, lambda: self._bytes(path)[start:end])
        return data

    def open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        self.inputs.answer("open", path, lambda: self._bytes(path))
        return _Handle(lambda start, size: self._bytes(path)[start : start + size], self.inputs, path)

    def _bytes(self, path: str) -> bytes:
        try:
            return self.inputs.files[self._strip_protocol(path)]
        except KeyError:
            raise FileNotFoundError(path) from None

    def _entry(self, name: str) -> dict[str, Any]:
        entry = {"name": name, "type": "file", "size": len(self._bytes(name))}
        return entry | ({"ETag": str(self.inputs.versions.get(name, 0))} if self.inputs.has_hints else {})


class _Handle:
    """An open file of which every read is a request; of a local disk it goes on when the name is gone."""

    closed = False

    def __init__(self, read: Callable[[int, int], bytes], inputs: Inputs, path: str) -> None:
        self._read = read
        self._inputs = inputs
        self._path = path
        self._position = 0

    def __enter__(self) -> _Handle:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def fileno(self) -> Any:
        return self

    def seek(self, position: int, whence: int = 0) -> int:
        self._position = position
        return position

    def read(self, size: int = -1) -> bytes:
        start = self._position
        data: bytes = self._inputs.answer("read", self._path, lambda: self._read(start, size))
        self._position += len(data)
        return data

    def close(self) -> None:
        """Nothing was opened."""


class _Os:
    """The module ``os``, its looks at files being requests."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def stat(self, path: str) -> Any:
        return self._inputs.answer("look", path, lambda: os.stat(path))

    def fstat(self, handle: Any) -> Any:
        return os.fstat(handle._inner.fileno())

    def scandir(self, path: str) -> Any:
        return self._inputs.answer("list", path, lambda: os.scandir(path))


class _Disk(Inputs):
    """``Inputs`` that lie on a real disk, below ``folder``."""

    folder = ""

    def put(self, path: str, data: bytes) -> None:
        super().put(path, data)
        target = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with builtins.open(f"{target}.tmp", "wb") as file:
            file.write(data)
        os.replace(f"{target}.tmp", target)
        stamp = 1_700_000_000_000_000_000 + self.versions[path]
        os.utime(target, ns=(stamp, stamp))

    def delete(self, path: str) -> None:
        super().delete(path)
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self.folder, path))


class _LocalHandle(_Handle):
    def __init__(self, inner: Any, inputs: Inputs, path: str) -> None:
        self._inner = inner

        def read(start: int, size: int) -> bytes:
            inner.seek(start)
            data: bytes = inner.read(size)
            return data

        super().__init__(read, inputs, path)

    def close(self) -> None:
        self._inner.close()


def on_disk(folder: str, files: Mapping[str, bytes], **options: Any) -> Inputs:
    """The files, written below a folder."""
    inputs = _Disk({}, **options)
    inputs.folder = folder
    for path, data in files.items():
        inputs.put(path, data)
    return inputs


@contextmanager
def served(inputs: Inputs) -> Iterator[ManualClock]:
    """While inside, sources read these; time passes only while they wait."""
    with ManualClock() as clock:
        inputs.clock = clock
        if isinstance(inputs, _Disk):

            def opened(path: str, mode: str, buffering: int = 0) -> _LocalHandle:
                inner = inputs.answer("open", path, lambda: builtins.open(path, mode, buffering=buffering))  # noqa: SIM115
                return _LocalHandle(inner, inputs, path)

            with (
                mock.patch.object(listing_module, "os", _Os(inputs)),
                mock.patch.object(walk, "os", _Os(inputs)),
                mock.patch.object(listing_module, "open", opened, create=True),
            ):
                yield clock
        else:
            fsspec.register_implementation("store", Store, clobber=True)
            Store.inputs = inputs
            yield clock


def patience(clock: ManualClock) -> Patience:
    """The patience of sources; its pauses take no time of this world."""
    from persistent.time.clock import monotonic_s

    return Patience(sleep=lambda seconds: clock.advance(int(seconds * 1000) + 1), clock=monotonic_s)
