"""A root is the folder that a source's recorded paths are relative to. This follows a root that has moved.

the same      the source continues
a folder up   from ``events/*.jsonl`` to ``*/*.jsonl``: the recorded ``a.jsonl`` is now ``events/a.jsonl``
a folder down from ``*/*.jsonl`` to ``events/*.jsonl``: paths stay relative to the recorded root
elsewhere     only ``moved_from=`` declares that the files there are those that were here

Up and down need no option if the new path matches every recorded path. Otherwise the files might be different ones,
or the same ones in another place, which would be read again. The same check applies to ``moved_from=``: it is
refused if it leads to no file that was read, but the same file is listed under another path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from persistent.connect.files.listing import Files
from persistent.connect.files.walk import Listed
from persistent.connect.formats.protocol import InputFile
from persistent.errors import InputGone, InvalidPipeline

_USER = re.compile(r"(?<=://)[^/@]*@")


@dataclass(frozen=True)
class Root:
    """``url``: with a trailing slash, without user or password. ``above``: pairs of a count and folders: the first
    paths of the index, up to that count, lack these folders, because the root has moved up since."""

    url: str
    above: tuple[tuple[int, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"root": self.url, "above": [list(pair) for pair in self.above]}

    @staticmethod
    def from_json(recorded: Mapping[str, Any]) -> Root | None:
        """None before the first plan."""
        if "root" not in recorded:
            return None
        return Root(recorded["root"], tuple((count, folders) for count, folders in recorded["above"]))

    def up(self, url: str, count: int) -> Root:
        """The root at a higher folder, for an index with ``count`` paths."""
        folders = self.url.removeprefix(url)
        if not folders:
            return self
        above = [(until, folders + old) for until, old in self.above]
        if not above or above[-1][0] < count:
            above.append((count, folders))
        return Root(url, tuple(above))

    def paths(self, index: pa.Table) -> pa.ChunkedArray:
        """The paths of the index, relative to this root."""
        column, done, pieces = index.column("path"), 0, []
        for until, folders in self.above:
            part = column.slice(done, until - done)
            pieces += pc.binary_join_element_wise(folders, part, "").chunks
            done = until
        return pa.chunked_array([*pieces, *column.slice(done).chunks], column.type) if done else column

    def rebased(self, index: pa.Table | None) -> pa.Table | None:
        """The index with paths relative to this root."""
        if index is None or not self.above:
            return index
        return index.set_column(index.schema.get_field_index("path"), index.schema.field("path"), self.paths(index))


@dataclass(frozen=True)
class FoundAt:
    """The files of a source whose path may have changed. ``files``: all files below the ``root`` that the checkpoint
    recorded; ``given``: the files of the present path; ``inside``: the folders that lead from the first to the second.
    """

    root: Root
    given: Files
    files: Files
    inside: str = ""

    def list(self) -> Sequence[Listed]:
        """Every file that the given path names, with its path relative to the recorded root."""
        listing = self.given.list()
        return [replace(file, path=self.inside + file.path) for file in listing] if self.inside else listing


def moved_folder(moved_from: str | os.PathLike[str] | None) -> str | None:
    """The option ``moved_from=`` as a root."""
    if moved_from is None:
        return None
    files = Files(moved_from)
    return _plain(files.root if re.search(r"[*?]", files.url) else files.url.rstrip("/") + "/")


def place_of(root: Root | None, given: Files, moved_from: str | None) -> FoundAt:
    """Where the files below a recorded root are now; ``InvalidPipeline`` if that needs ``moved_from=``."""
    now = _root_now(root, given)
    if root is None:
        return FoundAt(Root(now), given, given)
    if _plain(given.root) != now:
        given = given.below(given.url.rstrip("/") + "/")
    url = root.url
    if moved_from not in (None, now) and url != now and url.startswith(str(moved_from)):
        url = _below(now, url.removeprefix(str(moved_from)))
    root = root if url == root.url else replace(root, url=url)
    if url == now:
        return FoundAt(root, given, given)
    if url.startswith(now):
        return FoundAt(root, given, given.below(given.root + url.removeprefix(now)))
    if now.startswith(url):
        inside = now.removeprefix(url)
        return FoundAt(root, given, given.below(given.root.removesuffix(inside)), inside)
    raise InvalidPipeline(
        f"path={_plain(given.url)!r}: the checkpoint has read files below {url!r}. Give a path that begins with "
        f"that; or, if those files are below {now!r} now, give moved_from={url!r}; or use a fresh checkpoint and sink"
    )


def followed(place: FoundAt, index: pa.Table | None) -> FoundAt:
    """The place as the next plan records it."""
    now = _root_now(place.root, place.given)
    if place.root.url == now or place.inside:
        return place
    return FoundAt(place.root.up(now, 0 if index is None else index.num_rows), place.given, place.given)


def require_same(root: Root, place: FoundAt, index: pa.Table, moved_from: str | None) -> None:
    """Raise ``InvalidPipeline`` if files of the index, recorded below ``root``, may be different ones at the place, or
    be read again there."""
    require_listed(place, index)
    if moved_from is not None:
        require_moved(followed(place, index), index, moved_from, place.root.url != root.url)


def require_listed(place: FoundAt, index: pa.Table) -> None:
    """Raise ``InvalidPipeline`` if the root differs and the path does not match every file of the index."""
    root, given, now = place.root, place.given, _root_now(place.root, place.given)
    for path in root.paths(index).to_pylist() if root.url != now else ():
        where = root.url + path
        if not where.startswith(now) or not given.stands_for(where.removeprefix(now)):
            raise _may_be_others(given, now, f"{path!r} below {root.url!r}, which this path does not match")


def require_moved(place: FoundAt, index: pa.Table, moved_from: str, mapped: bool) -> None:
    """Raise ``InvalidPipeline`` if ``moved_from=`` misses a file that was read although it is listed: another path has
    its name, size and fingerprint. ``mapped``: the option covers all files, so one of them is proof.
    """
    listed = {file.path: file.size for file in place.list()}
    paths = place.root.paths(index).to_pylist()
    if mapped and not listed.keys().isdisjoint(paths):
        return
    read: dict[tuple[str, int], dict[str, str]] = {}
    for path, size, mark in zip(paths, index.column("size").to_pylist(), index.column("fingerprint").to_pylist()):
        if size and path not in listed:
            read.setdefault((path.rpartition("/")[2], size), {})[mark] = path
    for path in sorted(listed.keys() - set(paths)):
        marks = read.get((path.rpartition("/")[2], listed[path]), {})
        before = marks.get(_fingerprint_of(place, path, listed[path])) if marks else None
        if before is not None:
            raise InvalidPipeline(
                f"moved_from={moved_from!r}, path={_plain(place.given.url)!r}: the checkpoint has read {before!r} "
                f"below {place.root.url!r}, where it no longer is; but {path!r} is that file by name, size and "
                "fingerprint, and would count twice. moved_from= applies where a folder has moved as a whole, above "
                "all that was read: then give as path, once, that folder where it is now (from there a path that "
                "begins earlier continues). If folders below have other names, restore their names. If the files "
                "moved in an earlier run, omit moved_from="
            )


def _fingerprint_of(place: FoundAt, path: str, size: int) -> str:
    """The fingerprint of a listed file; "" if it is gone by now."""
    try:
        return InputFile(place.files, path, size).fingerprint_now()
    except InputGone:
        return ""


def _below(now: str, folders: str) -> str:
    """The current place of folders in a moved one: below the path now, unless the path ends with the first of them.

    >>> _below("/new/", "events/"), _below("/new/events/", "events/"), _below("/new/events/", "events/2024/")
    ('/new/events/', '/new/events/', '/new/events/2024/')
    """
    names = folders.split("/")[:-1]
    passed = ("/".join(names[:count]) + "/" for count in range(len(names), 0, -1))
    return now + folders.removeprefix(next((prefix for prefix in passed if now.endswith("/" + prefix)), ""))


def _root_now(root: Root | None, given: Files) -> str:
    """The root of the given path. A listed folder counts as a folder even while it is missing."""
    folder = _plain(given.url).rstrip("/") + "/"
    return folder if root is not None and root.url == folder else _plain(given.root)


def _may_be_others(given: Files, now: str, what: str) -> InvalidPipeline:
    return InvalidPipeline(
        f"path={_plain(given.url)!r}: the checkpoint has read {what}: its records may be read again. Run once "
        "with the previous path: then a folder more or less in the path does not matter. If the files have moved, give "
        f"moved_from= with the folder they were in; if everything is as intended, moved_from={now!r}"
    )


def _plain(url: str) -> str:
    return _USER.sub("", url)
