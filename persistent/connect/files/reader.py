"""A reader serves the bytes of a source's file; each request is retried, on a new connection, until it is settled.

- A store's fault is retried according to ``Patience``, then raised: it is never a fault of the file.
- A missing file is requested twice before it is ``InputGone``.
- Fewer bytes than the listing promises are a store's fault, unless the store reports another size for the file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from persistent.errors import InputGone, PersistentError, SourceChanged
from persistent.storage.failures import Retrying, StoreFailure

T = TypeVar("T")

_RIGHTS = frozenset({"AccessDenied", "AllAccessDisabled", "AccessControlException", "PermissionError", "HTTP403"})


class Unreadable(Exception):
    """A file as a whole, or from here on, cannot be read; the text says why."""


@dataclass(frozen=True)
class Request(Retrying):
    """One request of a source on one place, retried; ``reconnect`` makes the next attempt use a new connection. It
    raises StorageError, or FileNotFoundError if two attempts report it. A source needs only the rights to list and
    read."""

    answers: tuple[type[Exception], ...] = (FileNotFoundError, PersistentError)
    reconnect: Callable[[], None] = field(kw_only=True)

    def once(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except PersistentError:
            raise
        except (FileNotFoundError, NotADirectoryError):
            self.reconnect()
            try:
                return call()
            except NotADirectoryError as error:
                raise FileNotFoundError(str(error)) from error
        except Exception:
            self.reconnect()
            raise

    def error(self, failure: StoreFailure, tries: int, seconds: float) -> Any:
        if failure.cause.split(":")[0].split(" ")[0] in _RIGHTS:
            failure = replace(failure, remedy="Give this user the rights to list and to read there.")
        return super().error(failure, tries, seconds)


class Handle(Protocol):
    """An open file, as in Python and fsspec."""

    def seek(self, offset: int) -> Any: ...
    def read(self, size: int) -> bytes: ...
    def close(self) -> None: ...


class Opener(Protocol):
    """What a reader requires of the files of a source."""

    def open(self, path: str) -> Handle:
        """The file, in one attempt."""

    def size_now(self, path: str) -> int:
        """Its size, requested on a connection of its own."""

    def request(self, operation: str, path: str) -> Request: ...


@dataclass
class Witness:
    """A digest of all bytes read, with their positions: equal sums mean equal readings."""

    _digest: Any = field(default_factory=sha256)

    def see(self, position: int, data: Any) -> None:
        self._digest.update(b"%d %d\n" % (position, len(data)))
        self._digest.update(data)

    def sum(self) -> str:
        return str(self._digest.hexdigest())


class Reader:
    """The bytes of a listed file, for Python and for Arrow. Every read is complete, or raises.

    ``fault``: why a read failed; Arrow may since have reported it as a fault of the file.
    """

    closed = False

    def __init__(self, files: Opener, path: str, where: str, size: int, witness: Witness | None = None) -> None:
        self._files = files
        self._path = path
        self._where = where
        self._size = size
        self._witness = witness
        self._position = 0
        self._handle: Handle | None = None
        self._lock = threading.Lock()
        self.fault: PersistentError | None = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def arrow(self) -> pa.NativeFile:
        """The same file as an Arrow file."""
        return pa.PythonFile(self, mode="r")

    def serve(self, known: Handle) -> None:
        """Read from bytes that are already known."""
        self._handle = known

    def require_sound(self) -> None:
        """Raise the error of a failed read: anything that followed from it says nothing about the file."""
        if self.fault is not None:
            raise self.fault

    def read(self, size: int | None = None) -> bytes:
        """That many bytes, or all that remain."""
        left = max(self._size - self._position, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        if not wanted:
            return b""
        try:
            data = self._files.request("read", self._path)(partial(self._once, wanted))
        except FileNotFoundError:
            self.fault = gone(self._where)
        except PersistentError as error:
            self.fault = error
        else:
            if self._witness is not None:
                self._witness.see(self._position, data)
            self._position += wanted
            return data
        raise self.fault

    def readinto(self, buffer: memoryview) -> int:
        """Fill ``buffer`` as far as the file goes, and return the number of bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        """Nothing is ever written."""

    def close(self) -> None:
        self.closed = True
        self._drop()

    def _once(self, wanted: int) -> bytes:
        with self._lock:
            try:
                if self._handle is None:
                    self._handle = self._files.open(self._path)
                self._handle.seek(self._position)
                pieces = [self._handle.read(wanted)]
                while (got := sum(map(len, pieces))) < wanted and pieces[-1]:
                    pieces.append(self._handle.read(wanted - got))
            except BaseException:
                self._drop()
                raise
            if got == wanted:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._drop()
        require_size(self._files, self._path, self._where, self._size)
        raise OSError(f"the store sent {got:,} of {wanted:,} bytes from byte {self._position:,} on")

    def _drop(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            try:
                handle.close()
            except Exception:
                # It was open only for reading: nothing is lost.
                return


def require_size(files: Opener, path: str, where: str, size: int) -> None:
    """Raise ``SourceChanged`` if the store reports, on a new connection, another size for the file."""
    now = files.size_now(path)
    if now != size:
        hint = ". If it has grown: what was appended belongs into a file of its own" if now > size else ""
        raise changed(where, f"it had {size:,} bytes when it was listed, now it has {now:,}", hint)


def changed(where: str, what: str, hint: str = "") -> SourceChanged:
    """The error for an input whose bytes have changed."""
    return SourceChanged(
        f"{where}: {what}. Files must not change once listed{hint}. Restore the old bytes; or move the file to a new "
        "name, where all of it is read as a new file, also what counted before: records read from the old bytes stay "
        "counted, and the rest is one dead letter, with on_bad_file='dead-letter'. To count the new bytes in place of "
        "the old ones, start a fresh checkpoint and sink"
    )


def gone(where: str) -> InputGone:
    """The error for an input that was deleted before it was read."""
    return InputGone(
        f"{where}: listed, but gone before it was read. Put it back; or count such files as one dead letter each, with "
        "on_bad_file='dead-letter'"
    )
