"""A walk finds the files below a folder of a local disk.

Symbolic links are followed, except into a folder that contains them. A file that links list twice causes a warning.

A pattern is a path with wildcards. It names the matching files below the folder above its first wildcard.

- ``*`` matches any part of a name, ``?`` one character, ``**`` any number of folders.
- Names of files and folders that start with '_' or '.', and names that end in '.tmp', are ignored.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from persistent.storage.places import local_path


@dataclass(frozen=True)
class Listed:
    """A file of a listing: its path relative to the root, its size in bytes, and a hint ("" if there is none)."""

    path: str
    size: int
    hint: str = field(default="", compare=False)


def walk(
    root: str, folder: str, deepest: int | None, links: dict[str, str], linked: tuple[str, ...] = ()
) -> Iterator[Listed]:
    """The files below ``root + folder``, at most ``deepest`` folders down. Symbolic links are added to ``links``;
    ``linked`` holds the targets of those on the way here."""
    try:
        entries = os.scandir(root + folder)
    except (FileNotFoundError, NotADirectoryError):
        if not folder:
            raise
        return
    with entries:
        for entry in entries:
            path = folder + entry.name
            if ignored(entry.name):
                continue
            if entry.is_symlink():
                links[path] = os.path.realpath(entry.path)
            kind = _kind_of(entry)
            if kind == "folder":
                target = links.get(path, "")
                within = f"{os.path.realpath(root + folder)}/" if target else ""
                if target and (target in linked or within.startswith(f"{target.rstrip('/')}/")):
                    continue
                if deepest is None or path.count("/") < deepest:
                    yield from walk(root, path + "/", deepest, links, (*linked, target) if target else linked)
            elif kind == "file":
                try:
                    status = entry.stat()
                    yield Listed(path, status.st_size, local_hint(status))
                except FileNotFoundError:
                    continue


def _kind_of(entry: os.DirEntry[str]) -> str:
    """ "folder", "file", or "" for neither, such as a link that leads nowhere or to itself."""
    try:
        return "folder" if entry.is_dir() else "file" if entry.is_file() else ""
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return ""


def local_hint(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}:{status.st_ino}"


def listed_twice(root: str, listing: Sequence[Listed], links: Mapping[str, str]) -> Iterator[str]:
    """A warning for each file of a listing that a symbolic link lists again."""
    by_place: dict[str, str] = {}
    for path in sorted((file.path for file in listing), key=lambda path: (_link_to(path, links) is not None, path)):
        link = _link_to(path, links)
        place = os.path.realpath(root + path) if link is not None else f"{os.path.realpath(root).rstrip('/')}/{path}"
        first = by_place.setdefault(place, path)
        if first != path:
            yield f"{root}{path} is {first} again, by a symbolic link: its records count twice. Remove the link"


def _link_to(path: str, links: Mapping[str, str]) -> str | None:
    """The link by which a path was reached, if any."""
    folders = path.split("/")
    return next((link for n in range(len(folders)) if (link := "/".join(folders[: n + 1])) in links), None)


WILD = re.compile(r"[*?]")


def located(place: str) -> tuple[bool, str]:
    """Whether a place is a path of this machine, and the absolute path or the URL."""
    path = local_path(place, pattern=True)
    return (False, place) if path is None else (True, _absolute(path))


def _absolute(path: str) -> str:
    absolute = os.path.abspath(os.path.expanduser(path))
    return absolute + "/" if path.endswith("/") and absolute != "/" else absolute


def ignored(name: str) -> bool:
    return name.startswith(("_", ".")) or name.endswith(".tmp")


def is_text(path: str) -> bool:
    """Whether a path can be recorded: a name on a disk can be bytes that are not UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def regex(pattern: str) -> re.Pattern[str]:
    pieces = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(pieces.get(part) or re.escape(part) for part in parts), re.DOTALL)
