"""The storage behind a URL."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from persistent.errors import UnsupportedStore
from persistent.storage.evidence import check_evidence
from persistent.storage.fsspec_storage import FsspecStorage
from persistent.storage.local import LocalStorage
from persistent.storage.memory import MemoryStorage
from persistent.storage.protocol import Storage


def open_storage(
    url: str | os.PathLike[str] | Storage, *, private: bool = True, unsafe_single_driver: bool = False
) -> Storage:
    """The storage behind a URL: a local path, ``file://``, ``memory://name``, ``s3://``, ``hdfs://``, or any other
    that fsspec knows and ``persistent doctor`` has probed.

    ``private``: local files are for their owner only. ``unsafe_single_driver``: take a store that nothing has
    probed; two drivers at a time might then both commit. A storage is returned as it is. Raises ``UnsupportedStore``.

    >>> open_storage("memory://doctest").url
    'memory://doctest'
    """
    if not isinstance(url, str | os.PathLike):
        return url
    text = os.fspath(url)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return LocalStorage(text, private=private)
    if scheme == "file":
        return LocalStorage(urlsplit(text).path, private=private)
    if scheme == "memory":
        return MemoryStorage(rest)
    storage = FsspecStorage(text)
    if not (storage.is_known or unsafe_single_driver):
        check_evidence(storage)
    return storage


def is_proved(storage: Storage) -> bool:
    """Whether it is known, by its kind or by a probe, that ``storage`` creates files atomically."""
    if not isinstance(storage, FsspecStorage) or storage.is_known:
        return True
    try:
        check_evidence(storage)
    except UnsupportedStore:
        return False
    return True
