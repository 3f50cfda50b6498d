"""A file listing is what a path, folder or pattern stands for.

- Sources know fsspec here alone, and local disks here and in the walk.
- A path without wildcards is one file, or a folder with all that is below it.
- Paths in a listing are relative to the root: the part before the first wildcard. So the root may move.
- What the store says of a file for nothing (time, inode, etag) is a hint: another one only means "look again".
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

from persistent.errors import InputGone, InvalidPipeline, SourceError
from persistent.sources.patterns import WILD, ignored, is_text, located, regex
from persistent.sources.reads import Handle, Reader, Request, Witness, require_size
from persistent.sources.walk import Listed, listed_twice, local_hint, walk
from persistent.storage.clients import client_of
from persistent.storage.hdfs import FAILOVER
from persistent.storage.places import local_path
from persistent.storage.retries import Patience

T = TypeVar("T")
R = TypeVar("R")

logger = logging.getLogger("persistent.sources")

EDGE_BYTES = 64 * 1024
"""How much of the beginning and of the end of a file goes into its fingerprint."""

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
    """The files that a path stands for. Pickles as the path alone; connections are made per process."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
        if not isinstance(text, str) or not text:
            raise InvalidPipeline(f"path={path!r} is not a path; write for example 'events/*.parquet'")
        self.local, self.url = located(text)
        if not is_text(self.url):
            raise InvalidPipeline(f"path={text!r}: {os.fsencode(self.url)!r} is no UTF-8: rename the folder")
        wild = WILD.search(self.url)
        whole = self.url + "**" if wild and self.url.endswith("/") else self.url
        cut = self.url.rfind("/", 0, wild.start()) + 1 if wild else 0
        self._wild_root, self._pattern = (whole[:cut], whole[cut:]) if wild else ("", "")
        self._system: tuple[int, Any] | None = None
        self._rooted: tuple[str, str] | None = None
        self.patience = Patience()
        self.believed: dict[str, str] = {}
        self.warnings: dict[str, None] = {}

    @property
    def before_wildcard(self) -> str:
        """The path or URL, up to the folder above the first wildcard."""
        return self._wild_root or self.url

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_system": None, "_rooted": None, "believed": {}}

    def list(self) -> list[Listed]:
        """Every file there is now, in path order."""
        root, pattern = self._root()
        matches = regex(pattern).fullmatch
        deepest = None if "**" in pattern else pattern.count("/")
        links: dict[str, str] = {}
        try:
            found = self._found(root, deepest, links)
        except FileNotFoundError:
            return []
        kept = [f for f in found if matches(f.path) and not any(map(ignored, f.path.split("/")))]
        for file in kept:
            if not is_text(file.path):
                raise SourceError(
                    f"{root}: the name of the file {os.fsencode(file.path)!r} is no UTF-8, so no checkpoint can record "
                    "it. Rename it (one that begins with '_' is passed over), or narrow the path"
                )
        for text in listed_twice(root, kept, links) if links else ():
            self.warn(text)
        return sorted(kept, key=lambda f: f.path)

    def warn(self, text: str) -> None:
        """Keep a warning for the report, and log it once."""
        if text not in self.warnings:
            self.warnings[text] = None
            logger.warning("%s", text)

    def would_list(self, url: str, names: Iterable[str]) -> bool:
        """Whether files of these names in the folder ``url`` would be in a listing."""
        path = local_path(url)
        # Where the stores differ nothing is asked of this one.
        if (path is not None) != self.local or (path is None and _store(url) != _store(self.url)):
            return False
        root = self.root
        if path is not None:
            root, url = os.path.realpath(root).rstrip("/") + "/", os.path.realpath(path)
        below = f"{url.rstrip('/')}/"
        return any(
            where.startswith(root) and self.stands_for(where.removeprefix(root)) for where in (below + n for n in names)
        )

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
        other.__dict__.update(_system=self._system, believed=self.believed)
        other._wild_root, other._pattern = root, pattern
        return other

    def stands_for(self, path: str) -> bool:
        """Whether a file at that path below the root would be listed."""
        return bool(regex(self._root()[1]).fullmatch(path)) and not any(map(ignored, path.split("/")))

    def where(self, path: str) -> str:
        """The full path or URL of a listed file."""
        return self._root()[0] + path

    def reader(self, path: str, size: int, witness: Witness | None = None) -> Reader:
        """A listed file for random reads. They raise InputGone if it is gone."""
        return Reader(self, path, self.where(path), size, witness)

    def edges(self, path: str, size: int) -> tuple[bytes, bytes]:
        """The first and the last ``EDGE_BYTES``. SourceChanged if it has another size, FileNotFoundError if it is
        gone."""
        return self.request("read", path)(lambda: self._edges_once(path, size))

    def look(self, path: str) -> Listed:
        """A file as it is now: its size and its hint. FileNotFoundError if it is gone."""
        return self.request("look at", path)(lambda: self._look_once(path))

    def gone(self, paths: Collection[str]) -> set[str]:
        """Those that are certainly not there: neither by name, asked for twice, nor in a listing of the root.

        InputGone if the root is not there, or on the way to them is an empty folder, as where no disk is mounted.
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
                    f"{folder}: gone or empty, with listed files that are to be read ({len(missing):,} are not "
                    f"there). Bring it back (is it mounted?); or put anything there, such as a file named _gone, to "
                    "say that its files are gone for good"
                )
        self.reconnect()
        try:
            listed = {found.path for found in self._found(root, None, {})}
        except FileNotFoundError:
            return set()
        return {path for path in missing - listed if not self._is_there(path)}

    def each(self, call: Callable[[T], R], items: Collection[T]) -> Iterable[R]:
        """``call`` of each, in order; several at a time where a network is between."""
        if self.local or len(items) <= 1:
            return [call(item) for item in items]
        with ThreadPoolExecutor(min(_THREADS, len(items))) as threads:
            return [*threads.map(call, items)]

    # -- each request, tried once -------------------------------------------------------------------------------

    def request(self, operation: str, path: str) -> Request:
        """How a request on a listed file is made."""
        return Request(operation, self.where(path) if path else self.url, self.patience, self.reconnect)

    def reconnect(self) -> None:
        """The next request is made on a new connection."""
        self._system = None

    def open(self, path: str) -> Handle:
        if self.local:
            return open(self.where(path), "rb", buffering=0)
        handle: Handle = self._filesystem().open(self.where(path), "rb")
        return handle

    def size_now(self, path: str) -> int:
        self.reconnect()
        return self._look_once(path).size

    def _look_once(self, path: str) -> Listed:
        if self.local:
            found = os.stat(self.where(path))
            return Listed(path, found.st_size, local_hint(found))
        entry = self._filesystem().info(self.where(path))
        if entry["type"] != "file":
            raise FileNotFoundError(path)
        return Listed(path, int(entry["size"]), _hint(entry))

    def _is_there(self, path: str) -> bool:
        try:
            self.look(path)
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
        """The root, with a slash at its end, and the pattern of paths below it."""
        if self._pattern:
            return self._wild_root, self._pattern
        if self._rooted is None:
            if not (self.url.endswith("/") or self._is_folder(self.url)):
                # Not kept: it may also be a folder that is away, or not there yet.
                folder, slash, name = self.url.rpartition("/")
                return folder + slash, name
            self._rooted = self.url.rstrip("/") + "/", "**"
        return self._rooted

    def _folders_of(self, root: str, missing: Collection[str]) -> Sequence[str]:
        """The root and, on a disk, the deepest folder that is there on the way to each missing file: any may be the
        place where another disk was mounted."""
        folders = {root}
        for folder in {path.rpartition("/")[0] for path in missing} if self.local else ():
            while folder and not self._is_folder(root + folder):
                folder = folder.rpartition("/")[0]
            folders.add(f"{root}{folder}/" if folder else root)
        return sorted(folders)

    def _holds_any(self, folder: str) -> bool:
        """Whether there is a folder; on a disk, one with anything in it."""
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
        # Not os.path.isdir: to that a failing disk is a folder that is not there.
        return stat.S_ISDIR(os.stat(place).st_mode)

    def _found(self, root: str, deepest: int | None, links: dict[str, str]) -> Iterable[Listed]:
        """All files below the root, the links on the way. FileNotFoundError where it is not there."""
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
    """What tells whether a file is still the same: SHA-256 of its size, its beginning and its end."""
    digest = sha256(f"{size}\n".encode())
    digest.update(head)
    digest.update(tail)
    return digest.hexdigest()


def _store(url: str) -> str:
    """The scheme and authority of a URL."""
    return "/".join(url.split("/", 3)[:3])


def _hint(entry: dict[str, Any]) -> str:
    """The first of what stores say of a file that changes when its bytes do."""
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
        raise InvalidPipeline(f"{url}: {error}") from error


def _hdfs(client: Any, url: str) -> Any:
    """A file system of hdfs-native, whatever else is registered for ``hdfs``; its own takes a path to end at ``#``,
    ``?`` and ``;``, and so reads another file."""

    class Hdfs(client.HdfsFileSystem):  # type: ignore[misc]
        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            rest = path.partition("://")[2]
            return "/" + rest.partition("/")[2] if rest else path or "/"

    # A try ends within seconds, as those of a checkpoint do: how often is for the reads of the source to say.
    return Hdfs(host=url.partition("://")[2].partition("/")[0] or None, skip_instance_cache=True, **FAILOVER)
