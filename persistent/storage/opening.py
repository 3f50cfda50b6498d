"""The storage behind a URL."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from persistent.errors import InvalidPipeline, UnsupportedStore
from persistent.storage.evidence import check_evidence
from persistent.storage.fsspec_storage import FsspecStorage
from persistent.storage.local import LocalStorage
from persistent.storage.memory import MemoryStorage
from persistent.storage.places import local_path, refuse_earlier
from persistent.storage.protocol import Storage


def open_storage(
    url: str | os.PathLike[str] | Storage,
    *,
    private: bool = True,
    unsafe_single_driver: bool = False,
    option: str = "url",
) -> Storage:
    """The storage at a place (``persistent.storage.places``): a path, ``file://``, ``memory://name``, ``s3://``,
    ``hdfs://``, or any other that fsspec knows and ``persistent doctor`` has probed.

    ``private``: local files are readable only by their owner. ``unsafe_single_driver``: accept a store without a probe;
    two drivers at a time might then both commit. A storage is returned unchanged. ``option``: the option that named the
    place, for errors. Raises ``UnsupportedStore``, and ``InvalidPipeline`` for text that names no place.

    >>> open_storage("memory://doctest").url
    'memory://doctest'
    """
    # Not by type: a storage may delegate to another.
    if not isinstance(url, str | os.PathLike) and hasattr(url, "put_if_absent"):
        return url
    text = os.fspath(url) if isinstance(url, str | os.PathLike) else None
    if not text:
        here = "; write '.' for the current folder" if text == "" else ""
        raise InvalidPipeline(
            f"{option}={url!r} names no place: give the path of a folder, or a URL such as 's3://bucket/jobs/visits'"
            f"{here}"
        )
    path = local_path(text)
    if path is not None:
        _refuse_earlier(text, path)
        return LocalStorage(path, private=private)
    scheme, _, rest = text.partition("://")
    if scheme.lower() == "memory":
        return MemoryStorage(rest)
    storage = FsspecStorage(f"{scheme.lower()}://{rest}")
    if not (storage.is_known or unsafe_single_driver):
        check_evidence(storage)
    return storage


def is_proved(storage: Storage) -> bool:
    """Whether ``storage`` is known, by its kind or a probe, to create files atomically."""
    if not isinstance(storage, FsspecStorage) or storage.is_known:
        return True
    try:
        check_evidence(storage)
    except UnsupportedStore:
        return False
    return True


def _refuse_earlier(place: str, path: str) -> None:
    """Refuse a place that an earlier version read differently: without decoding, and one slash as a folder "file:"."""
    if path != place:
        refuse_earlier(place, path, urlsplit(place).path if "://" in place else place)
