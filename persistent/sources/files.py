"""A file listing is what a path, folder or pattern stands for: here alone the sources know local disks and fsspec.

- ``*`` stands for any part of a name, ``?`` for one character, ``**`` for any number of folders.
- A path without them is one file, or a folder with all that is below it.
- Paths in a listing are relative to the root: the part before the first wildcard. So the root may move.
- Names that start with '_' or '.', files or folders, and names that end in '.tmp' are passed over.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pyarrow as pa

from persistent.errors import InvalidPipeline, SourceChanged, SourceError
from persistent.storage.clients import client_of
from persistent.storage.places import local_path, refuse_earlier

EDGE_BYTES = 64 * 1024
"""How much of the beginning and of the end of a file goes into its fingerprint."""

_WILD = re.compile(r"[*?]")


@dataclass(frozen=True)
class Listed:
    """A file of a listing: its path relative to the root, and its size in bytes."""

    path: str
    size: int


class Files:
    """The files that a path stands for. Pickles as the path alone; connections are made per process."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
        if not isinstance(text, str) or not text:
            raise InvalidPipeline(f"path={path!r} is not a path; write for example 'events/*.parquet'")
        self.local, self.url = _located(text)
        wild = _WILD.search(self.url)
        whole = self.url + "**" if wild and self.url.endswith("/") else self.url
        cut = self.url.rfind("/", 0, wild.start()) + 1 if wild else 0
        self._wild_root, self._pattern = (whole[:cut], whole[cut:]) if wild else ("", "")
        self._system: tuple[int, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_system": None}

    def list(self) -> list[Listed]:
        """Every file there is now, in path order."""
        root, pattern = self._root()
        matches = _regex(pattern).fullmatch
        deepest = None if "**" in pattern else pattern.count("/")
        found = _walk(root, "", deepest) if self.local else self._find(root)
        kept = [f for f in found if matches(f.path) and not any(map(_ignored, f.path.split("/")))]
        return sorted(kept, key=lambda f: f.path)

    @property
    def root(self) -> str:
        """What paths in a listing are relative to, with a slash at its end."""
        return self._root()[0]

    def pinned(self) -> Files:
        """The same; whether the path is a file or a folder is decided now, and stays so."""
        return self if self._pattern else self._of(*self._root())

    def below(self, root: str) -> Files:
        """All files below a folder of the same store."""
        return self._of(root, "**")

    def _of(self, root: str, pattern: str) -> Files:
        if not self.local:
            self._filesystem()  # One connection for both.
        other = copy(self)
        other._wild_root, other._pattern = root, pattern
        return other

    def stands_for(self, path: str) -> bool:
        """Whether a file at that path below the root would be listed."""
        return bool(_regex(self._root()[1]).fullmatch(path)) and not any(map(_ignored, path.split("/")))

    def where(self, path: str) -> str:
        """The full path or URL of a listed file."""
        return self._root()[0] + path

    def open(self, path: str) -> pa.NativeFile:
        """A listed file for random reads. FileNotFoundError if it is gone."""
        if self.local:
            return pa.OSFile(self.where(path), "rb")
        return pa.PythonFile(self._filesystem().open(self.where(path), "rb"), mode="r")

    def edges(self, path: str, size: int) -> tuple[bytes, bytes]:
        """The first and the last ``EDGE_BYTES``. Raises ``SourceChanged`` if the file is not of this size."""
        if self.local:
            with open(self.where(path), "rb", buffering=0) as file:
                now = os.fstat(file.fileno()).st_size
                head = file.read(min(size, EDGE_BYTES))
                if size <= EDGE_BYTES:
                    tail = head
                else:
                    file.seek(size - EDGE_BYTES)
                    tail = file.read(EDGE_BYTES)
        else:
            head = self._range(path, 0, min(size, EDGE_BYTES) + (size <= EDGE_BYTES))
            tail = head if size <= EDGE_BYTES else self._range(path, size - EDGE_BYTES, size + 1)
            now = max(size - EDGE_BYTES, 0) + len(tail)
        if now != size:
            raise changed(self.where(path), f"it had {size:,} bytes when it was listed, now it has {now:,}")
        return head, tail

    def _range(self, path: str, start: int, stop: int) -> bytes:
        data: bytes = self._filesystem().cat_file(self.where(path), start=start, end=stop)
        return data

    def _root(self) -> tuple[str, str]:
        """The root, with a slash at its end, and the pattern of paths below it."""
        if self._pattern:
            return self._wild_root, self._pattern
        if self.url.endswith("/") or self._is_folder():
            return self.url.rstrip("/") + "/", "**"
        folder, slash, name = self.url.rpartition("/")
        return folder + slash, name

    def _is_folder(self) -> bool:
        return os.path.isdir(self.url) if self.local else bool(self._filesystem().isdir(self.url))

    def _find(self, root: str) -> Iterator[Listed]:
        system = self._filesystem()
        prefix = system._strip_protocol(root).rstrip("/") + "/"
        try:
            found = system.find(root, detail=True)
        except FileNotFoundError:
            return
        for path, entry in found.items():
            if path.startswith(prefix) and entry["type"] == "file":
                yield Listed(path[len(prefix) :], int(entry["size"]))

    def _filesystem(self) -> Any:
        if self._system is None or self._system[0] != os.getpid():
            self._system = os.getpid(), _connect(self.url)
        return self._system[1]


def fingerprint(size: int, head: bytes, tail: bytes) -> str:
    """What tells whether a file is still the same: SHA-256 of its size, its beginning and its end."""
    digest = sha256(f"{size}\n".encode())
    digest.update(head)
    digest.update(tail)
    return digest.hexdigest()


def changed(where: str, what: str) -> SourceChanged:
    """The error for an input that is no longer the same bytes."""
    return SourceChanged(
        f"{where}: {what}. Files must not change once listed: put the old bytes back, and write new data to a new file "
        "(under a name that ends in .tmp until it is complete)"
    )


class Gone(SourceError):
    """An input was deleted before it was read."""

    def __init__(self, where: str) -> None:
        super().__init__(f"{where}: listed, but gone before it was read; put it back, or its records are lost")


def _located(place: str) -> tuple[bool, str]:
    """Whether a place is a path of this machine, and the absolute path, or the URL."""
    path = local_path(place, pattern=True)
    if path is None:
        return False, place
    if path != place:
        # Nothing of a file URL was decoded, and one slash meant a folder named "file:".
        refuse_earlier(place, _before_wildcard(path), _before_wildcard(place.removeprefix("file://")))
    return True, _absolute(path)


def _before_wildcard(path: str) -> str:
    wild = _WILD.search(path)
    return path[: path.rfind("/", 0, wild.start()) + 1] if wild else path


def _absolute(path: str) -> str:
    absolute = os.path.abspath(os.path.expanduser(path))
    return absolute + "/" if path.endswith("/") and absolute != "/" else absolute


def _ignored(name: str) -> bool:
    return name.startswith(("_", ".")) or name.endswith(".tmp")


def _walk(root: str, folder: str, deepest: int | None) -> Iterator[Listed]:
    """The files below ``root + folder``, at most ``deepest`` folders down."""
    try:
        entries = os.scandir(root + folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            path = folder + entry.name
            if _ignored(entry.name):
                continue
            if entry.is_dir():
                if deepest is None or path.count("/") < deepest:
                    yield from _walk(root, path + "/", deepest)
            elif entry.is_file():
                try:
                    yield Listed(path, entry.stat().st_size)
                except FileNotFoundError:
                    continue


def _regex(pattern: str) -> re.Pattern[str]:
    pieces = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(pieces.get(part) or re.escape(part) for part in parts), re.DOTALL)


def _connect(url: str) -> Any:
    import fsspec

    scheme = url.partition("://")[0].lower()
    client = client_of(scheme)
    if scheme == "hdfs":
        return _hdfs(client, url)
    try:
        return fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)[0]
    except TypeError:
        return fsspec.core.url_to_fs(url)[0]
    except (ImportError, ValueError) as error:
        raise InvalidPipeline(f"{url}: {error}") from error


def _hdfs(client: Any, url: str) -> Any:
    """A file system of hdfs-native, whatever else is registered for ``hdfs``; its own takes a path to end at ``#``,
    ``?`` and ``;``, and so reads another file."""

    class Hdfs(client.HdfsFileSystem):  # type: ignore[misc]
        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            rest = path.partition("://")[2]
            return "/" + rest.partition("/")[2] if rest else path or "/"

    return Hdfs(host=url.partition("://")[2].partition("/")[0] or None, skip_instance_cache=True)
