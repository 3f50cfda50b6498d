"""A place is how a user names files: a path of this machine, or the URL of a store.

- Text without a scheme is a path, unchanged: ``%``, ``#`` and ``?`` are ordinary characters.
- ``file:///path``, ``file://localhost/path`` and ``file:/path`` are that path, with its ``%XX`` decoded once:
  ``Path.as_uri()`` writes the path it was made from. A URL ends at ``#`` and ``?``, so these are written ``%23`` and
  ``%3F`` there. A URL that names another machine is not a path.
- ``scheme://...`` is the URL of a store. ``scheme:/...`` is refused, because it is neither a path nor a URL. Also
  refused are ``s3:name`` and the like, chains such as ``simplecache::s3://...`` (whose listings are empty, or stale)
  and blanks around a path that does not begin with ``/``: as paths, they would name local folders. A leading ``./``,
  or ``/`` for blanks, says that a local folder is meant.

A short name of a checkpoint is the end of its URL, without anything that is secret.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import Enum
from urllib.parse import unquote_to_bytes

from persistent.errors import InvalidPipeline
from persistent.storage.clients import schemes
from persistent.storage.failures import without_secrets

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//?)")
_CHAIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)::")
_NAMED = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?![:/])")
_USER = re.compile(r"(:(?://)?)[^/@]+@")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HERE = ("", "localhost")
_HTTP = ("http", "https")


class Reach(Enum):
    """Which machines find the same files at a place."""

    PROCESS = "this process"
    MACHINE = "this machine"
    NETWORK = "every machine"


def local_path(place: str, *, pattern: bool = False) -> str | None:
    """The path of this machine that ``place`` names; None if it is the URL of a store.

    ``pattern``: ``*`` and ``?`` are wildcards, in a URL too. Raises InvalidPipeline for a place that can be
    misunderstood.

    >>> local_path("events/100%.jsonl"), local_path("file:///data/a%20b"), local_path("s3://bucket/events")
    ('events/100%.jsonl', '/data/a b', None)
    """
    _require_clear(place)
    match = _SCHEME.match(place)
    if match is None:
        return place
    scheme, slashes = match[1].lower(), match[2]
    if scheme == "file":
        return _path_of(place, place[match.end() :] if slashes == "//" else "/" + place[match.end() :], pattern)
    if slashes == "/":
        raise InvalidPipeline(_no_place(place, match[1]))
    if _CONTROL.search(place):
        raise InvalidPipeline(f"{place!r} contains a control character, which URLs lose: remove it")
    return None


def reach_of(url: str) -> Reach:
    """Which machines reach the files at a path or an fsspec URL.

    >>> reach_of("simplecache::file:///data").value, reach_of("simplecache::s3://bucket/data").value
    ('this machine', 'every machine')
    """
    scheme, separator, _ = url.rpartition("::")[2].partition("://")
    if not separator or scheme.lower() in ("file", "local"):
        return Reach.MACHINE
    return Reach.PROCESS if scheme.lower() == "memory" else Reach.NETWORK


def holds_secret(url: str) -> bool:
    """Whether a URL has a password, even one with an unescaped ``/`` in it, or is of HTTP and has parameters.

    >>> [holds_secret(f"ftp://me:{password}@host/a") for password in ("hunter2", "hun/ter2")]
    [True, True]
    >>> holds_secret("hdfs://me@name:8020/a@b/*.csv"), holds_secret("https://host/a.csv?token=hunter2")
    (False, True)
    """
    scheme, separator, rest = url.partition("://")
    server, _, path = rest.partition("/")
    user, at, _ = server.rpartition("@")
    port = server.rpartition(":")[2] if ":" in server else "0"
    cut = not at and not port.isdigit() and "[" not in server and "@" in path
    parameters = scheme.lower() in _HTTP and re.search(r"\?[^/]*=", rest)
    return bool(separator and (":" in user or cut or parameters))


def _require_clear(place: str) -> None:
    """Raise InvalidPipeline for a place that would be taken for a path but looks like a URL."""
    if place != place.strip() and not place.startswith("/"):
        raise InvalidPipeline(
            f"{_without_user(place)!r} begins or ends with a blank: remove it; or, for a folder of that name, give "
            "its absolute path"
        )
    chained = _CHAIN.match(place)
    if chained is not None:
        raise InvalidPipeline(
            f"{_without_user(place)}: {chained[1]}:: puts an fsspec layer before a store, which would hide its "
            f"current files: give the URL after it; or, for local files of that name, ./{_without_user(place)}"
        )
    named = _NAMED.match(place)
    if named is not None and named[1].lower() in schemes():
        raise InvalidPipeline(_no_place(_without_user(place), named[1]))


def _without_user(place: str) -> str:
    """A place without a user and password."""
    return _USER.sub(r"\1", place)


def _path_of(place: str, rest: str, pattern: bool) -> str:
    host, slash, path = rest.partition("/")
    if host.lower() not in _HERE or not slash:
        raise InvalidPipeline(
            f"{place} names the host {host!r}, but a file URL must name this machine. Give file:/// and the path or, "
            "without file://, the path"
        )
    cut = re.search("#" if pattern else "[#?]", path)
    if cut is not None:
        code = "%23" if cut[0] == "#" else "%3F"
        raise InvalidPipeline(
            f"{place}: a URL ends at {cut[0]!r}. Write {code} for it or, without file://, the path /{path}"
        )
    if _ESCAPE.search(path):
        raise InvalidPipeline(f"{place}: '%' begins a code of two digits. Write %25 for it or, without file://, a path")
    try:
        decoded = unquote_to_bytes(path).decode()
    except UnicodeError as error:
        raise InvalidPipeline(f"{place}: its codes are not UTF-8 ({error}). Choose a name that is") from error
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
        f"{place} is neither a path nor a URL.{mounted} Write {scheme}:// and the rest for a store that fsspec "
        f"knows; for a local folder of that name, ./{place}"
    )


def short_name(url: str, taken: Collection[str] = ()) -> str:
    """The short name of the checkpoint at ``url``, numbered if it is ``taken``.

    >>> short_name("s3://key:secret@bucket/jobs/visits?x=1"), short_name("/jobs/visits/", {"visits"})
    ('visits', 'visits-2')
    """
    return numbered(_joined(_parts(url)[-1:]), taken)


def numbered(base: str, taken: Collection[str]) -> str:
    """The name, with a number behind it if it is ``taken``."""
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    return name


def lasting_name(url: str) -> str:
    """The last two parts of the URL: the same in every process, whichever other jobs run there.

    >>> lasting_name("s3://key:secret@bucket/visits?x=1"), lasting_name("/jobs/visits/checkpoint")
    ('bucket-visits', 'visits-checkpoint')
    """
    return _joined(_parts(url)[-2:])


def _parts(url: str) -> list[str]:
    path = without_secrets(url).removesuffix("?...").rpartition("://")[2].rpartition("@")[2]
    return [part for part in path.split("/") if part not in ("", ".", "..")]


def _joined(parts: list[str]) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in "-".join(parts)) or "checkpoint"
