"""A place is what a user writes to name files: a path of this machine, or the URL of a store.

- What has no scheme is a path, taken as it is: ``%``, ``#`` and ``?`` are characters of names.
- ``file:///path``, ``file://localhost/path`` and ``file:/path`` are that path, with its ``%XX`` decoded once: what
  ``Path.as_uri()`` writes is the path it was made from. A URL ends at ``#`` and ``?``; so these are written ``%23`` and
  ``%3F`` there. Another machine's files are no path of this one.
- ``scheme://...`` is a URL of a store. ``scheme:/...`` is neither, and refused; so are ``s3:name`` and the like, chains
  as ``simplecache::s3://...`` (whose listings are empty, or old) and blanks around what is no path from ``/`` on: each
  would be a folder of that name. ``./`` before it says that it is.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from urllib.parse import unquote_to_bytes

from persistent.errors import InvalidPipeline
from persistent.storage.clients import schemes

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//?)")
_CHAIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)::")
_NAMED = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?![:/])")
_USER = re.compile(r"(:(?://)?)[^/@]+@")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HERE = ("", "localhost")


class Reach(Enum):
    """Who finds the same files behind a place."""

    PROCESS = "this process"
    MACHINE = "this machine"
    NETWORK = "every machine"


def local_path(place: str, *, pattern: bool = False) -> str | None:
    """The path of this machine that ``place`` names; None where it is the URL of a store.

    ``pattern``: ``*`` and ``?`` are wildcards, in a URL too. Raises InvalidPipeline where it may mean another place
    than is meant.

    >>> local_path("events/100%.jsonl"), local_path("file:///data/a%20b"), local_path("s3://bucket/events")
    ('events/100%.jsonl', '/data/a b', None)
    """
    _require_clear(place)
    found = _SCHEME.match(place)
    if found is None:
        return place
    scheme, slashes = found[1].lower(), found[2]
    if scheme == "file":
        return _path_of(place, place[found.end() :] if slashes == "//" else "/" + place[found.end() :], pattern)
    if slashes == "/":
        raise InvalidPipeline(_no_place(place, found[1]))
    if _CONTROL.search(place):
        raise InvalidPipeline(f"{place!r} has a control character in it, which URLs lose: write it without")
    return None


def reach_of(url: str) -> Reach:
    """Who reaches what is behind a path or a URL of fsspec.

    >>> reach_of("simplecache::file:///data").value, reach_of("simplecache::s3://bucket/data").value
    ('this machine', 'every machine')
    """
    scheme, separator, _ = url.rpartition("::")[2].partition("://")
    if not separator or scheme.lower() in ("file", "local"):
        return Reach.MACHINE
    return Reach.PROCESS if scheme.lower() == "memory" else Reach.NETWORK


def refuse_earlier(place: str, path: str, earlier: str) -> None:
    """InvalidPipeline if there is something where an earlier version took ``place`` to be: to go on elsewhere without a
    word would begin anew."""
    now, before = os.path.abspath(path), os.path.abspath(earlier)
    if now != before and os.path.lexists(before):
        raise InvalidPipeline(
            f"{place} is {now}, but an earlier version took it for {before}, and that is there. To go on with it, name "
            f"it as a path: {before}. Else name the other as a path: {now}"
        )


def _require_clear(place: str) -> None:
    """Raise InvalidPipeline where a place is taken for a path, and looks like a URL."""
    if place != place.strip() and not place.startswith("/"):
        raise InvalidPipeline(
            f"{_shown(place)!r} begins or ends with a blank: write it without; or, for a folder of that name, its path "
            "from / on"
        )
    chained = _CHAIN.match(place)
    if chained is not None:
        raise InvalidPipeline(
            f"{_shown(place)}: {chained[1]}:: puts a layer of fsspec before a store, which would hide what is "
            f"there now: write the URL behind it; or, for local files of that name, ./{_shown(place)}"
        )
    named = _NAMED.match(place)
    if named is not None and named[1].lower() in schemes():
        raise InvalidPipeline(_no_place(_shown(place), named[1]))


def _shown(place: str) -> str:
    """A place without the user and password that it may name."""
    return _USER.sub(r"\1", place)


def _path_of(place: str, rest: str, pattern: bool) -> str:
    host, slash, path = rest.partition("/")
    if host.lower() not in _HERE or not slash:
        earlier = f"read {rest}" if pattern else f"put what it made into /{path}"
        raise InvalidPipeline(
            f"{place} names the host {host!r}: a file URL is of this machine. Write file:/// and the path or, without "
            f"file://, the path (an earlier version {earlier}: to go on with that, write that path)"
        )
    cut = re.search("#" if pattern else "[#?]", path)
    if cut is not None:
        code = "%23" if cut[0] == "#" else "%3F"
        earlier = path if pattern else path[: cut.start()]
        raise InvalidPipeline(
            f"{place}: a URL ends at {cut[0]!r}. Write {code} for it or, without file://, the path /{path} (an earlier "
            f"version took it for /{earlier}: to go on with that, write that path)"
        )
    if _ESCAPE.search(path):
        raise InvalidPipeline(f"{place}: '%' begins a code of two digits. Write %25 for it or, without file://, a path")
    try:
        decoded = unquote_to_bytes(path).decode()
    except UnicodeError as error:
        raise InvalidPipeline(f"{place}: its codes are no UTF-8 ({error}). Choose a name that is") from error
    coded = [code for code in re.findall("%..", path) if unquote_to_bytes(code) in (b"/", b"\0", b"*", b"?")]
    for code in coded:
        if pattern or code.lower() in ("%2f", "%00"):
            raise InvalidPipeline(
                f"{place}: {code} stands for {unquote_to_bytes(code).decode()!r}, which cannot be part of a name here. "
                "Write the path without file://, or choose other names"
            )
    return "/" + decoded.lstrip("/")


def _no_place(place: str, scheme: str) -> str:
    if scheme.lower() == "file":
        return (
            f"{place} is neither a path nor a URL. Write the path without {scheme}:, or file:/// and the path from / on"
        )
    rest = place[len("dbfs:") :]
    mounted = f" On Databricks {place} is the path /dbfs/{rest.lstrip('/')}." if scheme.lower() == "dbfs" else ""
    return (
        f"{place} is neither a path nor a URL.{mounted} Write {scheme}:// and what follows for a store that fsspec "
        f"knows; for a local folder of that name (as an earlier version made one), ./{place}"
    )
