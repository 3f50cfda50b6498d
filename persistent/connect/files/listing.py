"""A file listing is what a path, folder or pattern names.

- Only this module of the sources knows fsspec; only it and the walk know local disks.
- A path without wildcards is one file, or a folder with everything below it.
- Paths in a listing are relative to the root, the part before the first wildcard. So the root may move.
- What a store's listing says about a file (time, inode, etag) is a hint: a different one only means "check again".
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

from persistent.connect import remedies
from persistent.connect.files.reader import Handle, Reader, Request, Witness, require_size
from persistent.connect.files.walk import WILD, Listed, ignored, is_text, listed_twice, local_hint, located, regex, walk
from persistent.errors import InputGone, InvalidPipeline, SourceError
from persistent.storage.clients import client_of, schemes, unknown_scheme
from persistent.storage.failures import Patience
from persistent.storage.hdfs import FAILOVER
from persistent.storage.places import local_path

T = TypeVar("T")
R = TypeVar("R")

logger = logging.getLogger("persistent.sources")

EDGE_BYTES = 64 * 1024
"""The number of bytes at the beginning and the end of a file that its fingerprint covers."""

_THREADS = 16
_HINTS: tuple[str, ...] = (
    "ETag",
    "etag",
    "md5Hash",
    "content_md5",
    "generation",
    "mtime",
    "LastModified",
    "last_modified",
)
_HINTS += ("modification_time", "modified", "updated", "created")


class Files:
    """The files that a path names. Pickles as the path alone; each process makes its own connections."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
        if not isinstance(text, str) or not text:
            raise InvalidPipeline(f"path={path!r} is not a path; give for example 'events/*.parquet'")
        self.local, self.url = located(text)
        if not is_text(self.url):
            raise InvalidPipeline(f"path={text!r}: {os.fsencode(self.url)!r} is not UTF-8: rename the folder")
        wild = WILD.search(self.url)
        whole = self.url + "**" if wild and self.url.endswith("/") else self.url
        cut = self.url.rfind("/", 0, wild.start()) + 1 if wild else 0
        self._wild_root, self._pattern = (whole[:cut], whole[cut:]) if wild else ("", "")
        self._system: tuple[int, Any] | None = None
        self._rooted: tuple[str, str] | None = None
        self._pinned: Files | None = None
        self.patience = Patience()
        self.believed: dict[str, str] = {}
        self.warnings: dict[str, None] = {}

    @property
    def before_wildcard(self) -> str:
        """The path or URL, up to the folder above the first wildcard."""
        return self._wild_root or self.url

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_system": None, "_rooted": None, "_pinned": None, "believed": {}}

    def list(self) -> list[Listed]:
        """Every file that exists now, in path order."""
        root, pattern = self._root()
        matches = regex(pattern).fullmatch
        deepest = None if "**" in pattern else pattern.count("/")
        links: dict[str, str] = {}
        try:
            listing = self._list_below(root, deepest, links)
        except FileNotFoundError:
            return []
        kept = [f for f in listing if matches(f.path) and not any(map(ignored, f.path.split("/")))]
        for file in kept:
            if not is_text(file.path):
                raise SourceError(
                    f"{root}: the name of the file {os.fsencode(file.path)!r} is not UTF-8, so no checkpoint can "
                    "record it. Rename it (a name that begins with '_' is ignored), or narrow the path"
                )
        for text in listed_twice(root, kept, links) if links else ():
            self.warn(text)
        return sorted(kept, key=lambda f: f.path)

    def require_found(self, *, has_listed: bool) -> None:
        """Raise for a listing without files: SourceError, or InputGone if it had some and the folder is missing on a
        disk. On other stores a folder without files does not exist."""
        if not has_listed:
            raise SourceError(
                f"{self.url}: no file exists (names that start with '_' or '.' or end in '.tmp' do not "
                f"count); {remedies.NO_FILE}"
            )
        root = self._root()[0]
        if self.local and not self._is_folder(root):
            raise InputGone(
                f"{root}: gone, although files in it have been read: nobody knows whether new ones are there. Bring it "
                "back (is it mounted?); or make it again, empty, to say that there are none"
            )

    def warn(self, text: str) -> None:
        """Keep a warning for the report, and log it once."""
        if text not in self.warnings:
            self.warnings[text] = None
            logger.warning("%s", text)

    def would_list(self, url: str, names: Iterable[str]) -> bool:
        """Whether files with these names in the folder ``url`` would be in a listing."""
        path = local_path(url)
        # If the stores differ, no request is made.
        if (path is not None) != self.local or (path is None and _store(url) != _store(self.url)):
            return False
        root = self.real_root
        if path is not None:
            url = os.path.realpath(path)
        below = f"{url.rstrip('/')}/"
        return any(
            where.startswith(root) and self.stands_for(where.removeprefix(root)) for where in (below + n for n in names)
        )

    @property
    def root(self) -> str:
        """The folder that paths in a listing are relative to, with a trailing slash."""
        return self._root()[0]

    @property
    def real_root(self) -> str:
        """The root, without symbolic links on the way to it."""
        return os.path.realpath(self.root).rstrip("/") + "/" if self.local else self.root

    def pinned(self) -> Files:
        """The same files, after deciding for good whether the path is a file or a folder."""
        if self._pattern:
            return self
        root = self._root()
        if self._rooted is None:
            return self._of(*root)
        if self._pinned is None:
            self._pinned = self._of(*root)
        return self._pinned

    def below(self, root: str) -> Files:
        """All files below a folder of the same store."""
        return self._of(root, "**")

    def _of(self, root: str, pattern: str) -> Files:
        if not self.local:
            self._filesystem()  # one connection for both
        files = copy(self)
        files.__dict__.update(_system=self._system, believed=self.believed, _pinned=None)
        files._wild_root, files._pattern = root, pattern
        return files

    def stands_for(self, path: str) -> bool:
        """Whether a file at that path below the root would be listed."""
        return bool(regex(self._root()[1]).fullmatch(path)) and not any(map(ignored, path.split("/")))

    def where(self, path: str) -> str:
        """The full path or URL of a listed file."""
        return (self._wild_root if self._pattern else self._root()[0]) + path

    def reader(self, path: str, size: int, witness: Witness | None = None) -> Reader:
        """A listed file for random reads, which raise InputGone if it is gone."""
        return Reader(self, path, self.where(path), size, witness)

    def edges(self, path: str, size: int) -> tuple[bytes, bytes]:
        """The first and the last ``EDGE_BYTES``. SourceChanged if its size differs, FileNotFoundError if it is
        gone."""
        return self.request("read", path)(partial(self._edges_once, path, size))

    def stat(self, path: str) -> Listed:
        """A file as it is now: its size and its hint. FileNotFoundError if it is gone."""
        return self.request("look at", path)(partial(self._stat_once, path))

    def gone(self, paths: Collection[str]) -> set[str]:
        """The paths that are certainly missing: found neither by name, in two requests, nor in a listing of the root.

        InputGone if the root is missing, or a folder on the way to them is empty, as when a disk is not mounted.
        """
        missing = {path for path, is_there in zip(paths, self.each(self._is_there, paths)) if not is_there}
        if not missing:
            return missing
        root, pattern = self._root()
        if not WILD.search(self.url) and "**" not in pattern and missing != {pattern}:
            root = self.url
        for folder in self._folders_of(root, missing):
            if not self._holds_any(folder):
                raise InputGone(
                    f"{folder}: gone or empty, but listed files in it are still to be read ({len(missing):,} are "
                    f"missing). Bring it back (is it mounted?); or put anything there, such as a file named _gone, to "
                    "say that its files are gone for good"
                )
        self.reconnect()
        try:
            listed = {file.path for file in self._list_below(root, None, {})}
        except FileNotFoundError:
            return set()
        return {path for path in missing - listed if not self._is_there(path)}

    def each(self, call: Callable[[T], R], items: Collection[T]) -> Iterable[R]:
        """``call`` of each item, in order; several at a time over a network."""
        if self.local or len(items) <= 1:
            return [call(item) for item in items]
        with ThreadPoolExecutor(min(_THREADS, len(items))) as threads:
            return [*threads.map(call, items)]

    # -- each request, tried once -------------------------------------------------------------------------------

    def request(self, operation: str, path: str) -> Request:
        """A retried request for a listed file."""
        return Request(operation, self.where(path) if path else self.url, self.patience, reconnect=self.reconnect)

    def reconnect(self) -> None:
        """Make the next request on a new connection."""
        self._system = None

    def open(self, path: str) -> Handle:
        if self.local:
            return open(self.where(path), "rb", buffering=0)
        handle: Handle = self._filesystem().open(self.where(path), "rb")
        return handle

    def size_now(self, path: str) -> int:
        self.reconnect()
        return self._stat_once(path).size

    def _stat_once(self, path: str) -> Listed:
        if self.local:
            status = os.stat(self.where(path))
            return Listed(path, status.st_size, local_hint(status))
        entry = self._filesystem().info(self.where(path))
        if entry["type"] != "file":
            raise FileNotFoundError(path)
        return Listed(path, int(entry["size"]), _hint(entry))

    def _is_there(self, path: str) -> bool:
        try:
            self.stat(path)
        except FileNotFoundError:
            return False
        return True

    def _edges_once(self, path: str, size: int) -> tuple[bytes, bytes]:
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
        if now != size or len(head) != min(size, EDGE_BYTES) or len(tail) != len(head):
            require_size(self, path, self.where(path), size)
            raise OSError(f"the store sent too few bytes of a file of {size:,}")
        return head, tail

    def _range(self, path: str, start: int, stop: int) -> bytes:
        data: bytes = self._filesystem().cat_file(self.where(path), start=start, end=stop)
        return data

    def _root(self) -> tuple[str, str]:
        """The root, with a trailing slash, and the pattern of paths below it."""
        if self._pattern:
            return self._wild_root, self._pattern
        if self._rooted is None:
            if not (self.url.endswith("/") or self._is_folder(self.url)):
                # Not cached: it may also be a folder that is unmounted, or not created yet.
                folder, slash, name = self.url.rpartition("/")
                return folder + slash, name
            self._rooted = self.url.rstrip("/") + "/", "**"
        return self._rooted

    def _folders_of(self, root: str, missing: Collection[str]) -> Sequence[str]:
        """The root and, on a disk, the deepest existing folder on the way to each missing file: any of them may be the
        mount point of another disk."""
        folders = {root}
        for folder in {path.rpartition("/")[0] for path in missing} if self.local else ():
            while folder and not self._is_folder(root + folder):
                folder = folder.rpartition("/")[0]
            folders.add(f"{root}{folder}/" if folder else root)
        return sorted(folders)

    def _holds_any(self, folder: str) -> bool:
        """Whether the folder exists; on a disk, whether it holds anything."""
        if not self.local or not self._is_folder(folder):
            return self._is_folder(folder)
        return bool(self.request("list", "")(lambda: os.listdir(folder)))

    def _is_folder(self, place: str) -> bool:
        try:
            return self.request("look at", "")(lambda: self._is_folder_once(place))
        except FileNotFoundError:
            return False

    def _is_folder_once(self, place: str) -> bool:
        if not self.local:
            return bool(self._filesystem().isdir(place))
        # Not os.path.isdir, which reports a failing disk as a missing folder.
        return stat.S_ISDIR(os.stat(place).st_mode)

    def _list_below(self, root: str, deepest: int | None, links: dict[str, str]) -> Iterable[Listed]:
        """All files below the root; links on the way are added to ``links``. FileNotFoundError if it is missing."""
        find = partial(walk, root, "", deepest, links) if self.local else partial(self._find, root)
        return self.request("list", "")(lambda: [*find()])

    def _find(self, root: str) -> Iterator[Listed]:
        system = self._filesystem()
        prefix = system._strip_protocol(root).rstrip("/") + "/"
        for path, entry in system.find(root, detail=True).items():
            if path.startswith(prefix) and entry["type"] == "file":
                yield Listed(path[len(prefix) :], int(entry["size"]), _hint(entry))

    def _filesystem(self) -> Any:
        if self._system is None or self._system[0] != os.getpid():
            self._system = os.getpid(), _connect(self.url)
        return self._system[1]


def fingerprint(size: int, head: bytes, tail: bytes) -> str:
    """The fingerprint that shows whether a file is still the same: SHA-256 of its size, beginning and end."""
    digest = sha256(f"{size}\n".encode())
    digest.update(head)
    digest.update(tail)
    return digest.hexdigest()


def _store(url: str) -> str:
    """The scheme and authority of a URL."""
    return "/".join(url.split("/", 3)[:3])


def _hint(entry: dict[str, Any]) -> str:
    """The first attribute, of those that stores list, that changes when the file's bytes do."""
    return next((str(entry[name]) for name in _HINTS if entry.get(name) is not None), "")


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
        raise InvalidPipeline(f"{url}: {error}" if scheme in schemes() else unknown_scheme(url)) from error


def _hdfs(client: Any, url: str) -> Any:
    """An hdfs-native file system, whatever else is registered for ``hdfs``. Its own ``_strip_protocol`` ends a path at
    ``#``, ``?`` and ``;``, and so reads another file."""

    class Hdfs(client.HdfsFileSystem):  # type: ignore[misc]
        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            rest = path.partition("://")[2]
            return "/" + rest.partition("/")[2] if rest else path or "/"

    # An attempt ends within seconds, as for a checkpoint: the source decides how often to retry.
    return Hdfs(host=url.partition("://")[2].partition("/")[0] or None, skip_instance_cache=True, **FAILOVER)
