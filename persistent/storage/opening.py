"""The storage behind a URL.

A probe that passes leaves the document ``DOCTOR`` in the folder: the fsspec implementation, and its version, that has
proved there to create files atomically.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from persistent.codec.documents import decode_document, encode_document
from persistent.errors import CorruptCheckpoint, InvalidPipeline, StorageError, UnsupportedStore
from persistent.storage.failures import Patience
from persistent.storage.fsspec_storage import FsspecStorage, GenericRequests
from persistent.storage.local import LocalStorage
from persistent.storage.memory import MemoryStorage
from persistent.storage.places import local_path
from persistent.storage.protocol import Put, Storage
from persistent.time.clock import wall_ms


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
    if isinstance(url, Storage):
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


DOCTOR = "DOCTOR"
_PATIENCE = Patience(tries_max=3, seconds_max=5)


def leave_evidence(storage: FsspecStorage) -> None:
    """Record in the folder that this implementation creates atomically."""
    storage.delete(DOCTOR)
    body = {**_software(storage), "date": datetime.fromtimestamp(wall_ms() // 1000, UTC).date().isoformat()}
    if storage.put_if_absent(DOCTOR, encode_document(body)) is not Put.WON:
        raise StorageError(f"cannot create {storage.url}/{DOCTOR}: another doctor is running. Run again.")


def withdraw_evidence(storage: FsspecStorage) -> None:
    """Delete the record of an earlier probe."""
    storage.delete(DOCTOR)


def check_evidence(storage: FsspecStorage) -> None:
    """Raise UnsupportedStore unless a probe has left its record in the folder, or in one above it."""
    troubles = []
    for url in _folders(storage.url):
        try:
            body = decode_document(FsspecStorage(url, patience=_PATIENCE).read(DOCTOR).to_pybytes(), f"{url}/{DOCTOR}")
        except FileNotFoundError:
            continue
        except UnsupportedStore:
            raise
        except (StorageError, CorruptCheckpoint) as error:
            troubles.append(f" ({error})")
            continue
        used = _software(storage)
        if {name: body.get(name) for name in used} == used:
            return
        troubles.append(
            f" ({url}/{DOCTOR} is about {body.get('implementation')} {body.get('version')}, but this is "
            f"{used['implementation']} {used['version']})"
        )
    raise UnsupportedStore(
        f"{storage.url}: no probe has shown that {storage.scheme}:// creates files atomically, so two drivers might "
        f"commit the same checkpoint{''.join(troubles[:1])}. Probe it with 'persistent doctor {storage.url}'. Or use a "
        "local path, s3://bucket/folder or hdfs://namenode/folder. If only one driver ever runs at a time, "
        "unsafe_single_driver=True accepts the store unprobed."
    )


def _software(storage: FsspecStorage) -> dict[str, Any]:
    """The software to compare with the record of a probe: another implementation, or version, has proved nothing."""
    assert isinstance(storage.requests, GenericRequests)
    kind = storage._retrying("open", "")(storage.requests.software)
    return {
        "protocol": storage.scheme,
        "implementation": f"{kind.__module__}.{kind.__qualname__}",
        "version": _version(kind.__module__.partition(".")[0]),
    }


def _version(package: str) -> str:
    version = getattr(sys.modules.get(package), "__version__", None)
    if version is None:
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return "unknown"
    return str(version)


def _folders(url: str) -> Iterator[str]:
    """The folder and its parents."""
    scheme, _, rest = url.partition("://")
    parts = rest.split("/")
    for count in range(len(parts), 0, -1):
        if path := "/".join(parts[:count]):
            yield f"{scheme}://{path}"
