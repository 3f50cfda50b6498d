"""A pattern is a path with wildcards. It names the matching files below the folder above its first wildcard.

- ``*`` matches any part of a name, ``?`` one character, ``**`` any number of folders.
- Names of files and folders that start with '_' or '.', and names that end in '.tmp', are ignored.
"""

from __future__ import annotations

import os
import re

from persistent.storage.places import local_path, refuse_earlier

WILD = re.compile(r"[*?]")


def located(place: str) -> tuple[bool, str]:
    """Whether a place is a path of this machine, and the absolute path or the URL."""
    path = local_path(place, pattern=True)
    if path is None:
        return False, place
    if path != place:
        # It decoded nothing of a file URL, and read one slash as a folder named "file:".
        refuse_earlier(place, _before_wildcard(path), _before_wildcard(place.removeprefix("file://")))
    return True, _absolute(path)


def _before_wildcard(path: str) -> str:
    wild = WILD.search(path)
    return path[: path.rfind("/", 0, wild.start()) + 1] if wild else path


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
