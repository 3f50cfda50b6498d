"""A read of a source is one request, made again on a new connection until it is answered in full, or for good not.

- A fault of the store is repeated as ``Patience`` says, then raised: it is never a fault of the file.
- A file that is not there is asked for twice before it is ``InputGone``.
- Fewer bytes than the listing promises are a fault of the store, unless the store says that the file has another size.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from persistent.errors import InputGone, PersistentError, SourceChanged
from persistent.storage.failures import StoreFailure
from persistent.storage.retries import Asking, Patience

T = TypeVar("T")

_RIGHTS = frozenset({"AccessDenied", "AllAccessDisabled", "AccessControlException", "PermissionError", "HTTP403"})


class Unreadable(Exception):
    """A file as a whole, or from here on, cannot be read; the text says why."""


@dataclass(frozen=True)
class Request:
    """One request on one place: repeated, each time on a connection that ``reconnect`` makes possible."""

    operation: str
    place: str
    patience: Patience
    reconnect: Callable[[], None]

    def __call__(self, call: Callable[[], T]) -> T:
        """What ``call`` returns at last; StorageError, or FileNotFoundError where that is said twice."""
        return _AskingToRead(self.operation, self.place, self.patience, (FileNotFoundError, PersistentError))(
            lambda: self._once(call)
        )

    def _once(self, call: Callable[[], T]) -> T:
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


class _AskingToRead(Asking):
    """Of a source one only wants to read."""

    def told(self, failure: StoreFailure, tries: int, seconds: float) -> Any:
        if failure.cause.split(":")[0].split(" ")[0] in _RIGHTS:
            failure = replace(failure, remedy="Give this user the rights to list and to read there.")
        return super().told(failure, tries, seconds)


class Handle(Protocol):
    """An open file, as Python and fsspec have it."""

    def seek(self, offset: int) -> Any: ...
    def read(self, size: int) -> bytes: ...
    def close(self) -> None: ...


class Opener(Protocol):
    """What a reader needs of the files of a source."""

    def open(self, path: str) -> Handle:
        """The file, tried once."""

    def size_now(self, path: str) -> int:
        """Its size, asked for on a connection of its own."""

    def request(self, operation: str, path: str) -> Request: ...


@dataclass
class Witness:
    """The sum of all bytes that were read, each with its place: equal sums mean equal readings."""

    _digest: Any = field(default_factory=sha256)

    def see(self, position: int, data: Any) -> None:
        self._digest.update(b"%d %d\n" % (position, len(data)))
        self._digest.update(data)

    def sum(self) -> str:
        return str(self._digest.hexdigest())


class Reader:
    """The bytes of a listed file, for Python and for Arrow. Every read is answered in full, or raises.

    ``fault``: why a read could not be answered; Arrow may have told it as a fault of the file since.
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
        """The same file, as Arrow wants it."""
        return pa.PythonFile(self, mode="r")

    def serve(self, known: Handle) -> None:
        """Read from bytes that are known already."""
        self._handle = known

    def require_sound(self) -> None:
        """Raise what befell a read: what followed from it says nothing of the file."""
        if self.fault is not None:
            raise self.fault

    def read(self, size: int | None = None) -> bytes:
        """So many bytes, or all that are left."""
        left = max(self._size - self._position, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        if not wanted:
            return b""
        try:
            data = self._files.request("read", self._path)(lambda: self._once(wanted))
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
        """Fill ``buffer`` as far as the file goes; how many bytes that were."""
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
        """Nothing is written."""

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
                # It was open for reading only: nothing is lost with it.
                return


def require_size(files: Opener, path: str, where: str, size: int) -> None:
    """Raise ``SourceChanged`` if the store says, on a new connection, that the file is of another size."""
    now = files.size_now(path)
    if now != size:
        raise changed(where, f"it had {size:,} bytes when it was listed, now it has {now:,}")


def changed(where: str, what: str) -> SourceChanged:
    """The error for an input that is no longer the same bytes."""
    return SourceChanged(
        f"{where}: {what}. Files must not change once listed. Put the old bytes back; or move the file to a new name, "
        "where it is read as a new file: what was read of the old bytes stays counted, and what was not is one dead "
        "letter, with on_bad_file='dead-letter'. To count the new bytes in place of the old ones, begin a fresh "
        "checkpoint"
    )


def gone(where: str) -> InputGone:
    """The error for an input that was deleted before it was read."""
    return InputGone(
        f"{where}: listed, but gone before it was read. Put it back; or count such files as one dead letter each, with "
        "on_bad_file='dead-letter'"
    )
