"""The clients of the stores, imported by name: without one, fsspec would fall back to a client of another store."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from persistent.errors import UnsupportedStore
from persistent.storage.failures import is_short_of_memory

_CLIENTS = {"hdfs": "hdfs_native.fsspec", "s3": "s3fs", "s3a": "s3fs"}
_PACKAGES = {"hdfs_native": "hdfs-native"}


def client_of(scheme: str) -> Any:
    """The module for ``hdfs://``, ``s3://`` or ``s3a://``; None if fsspec chooses. UnsupportedStore."""
    module = _CLIENTS.get(scheme)
    if module is None:
        return None
    try:
        return imported(module)
    except (ImportError, MemoryError, OSError) as error:
        raise UnsupportedStore(f"{scheme}:// needs {why_not(module, error)}") from error


@cache
def schemes() -> frozenset[str]:
    """The schemes that fsspec knows."""
    from fsspec.registry import known_implementations

    return frozenset(known_implementations)


def imported(module: str) -> Any:
    """A module, imported after its package: a blocked package counts as missing even if a part of it is loaded."""
    importlib.import_module(module.partition(".")[0])
    return importlib.import_module(module)


def modules_of(url: str) -> tuple[str, ...]:
    """The modules that opening ``url`` imports.

    >>> modules_of("hdfs://namenode/events"), modules_of("/events"), modules_of("nobody-knows://x")
    (('hdfs_native.fsspec',), (), ())
    """
    if "://" not in url:
        return ()
    found = []
    for part in url.split("::"):
        scheme = part.partition("://")[0].lower()
        found.append(_CLIENTS.get(scheme) or _chosen(scheme))
    return tuple(dict.fromkeys(module for module in found if module))


def why_not(module: str, error: BaseException) -> str:
    """Why a module cannot be imported: what is missing, and the remedy."""
    package = module.partition(".")[0]
    package = _PACKAGES.get(package, package)
    if is_short_of_memory(error):
        return (
            f"the package {package}, but there is too little memory to import it ({error or 'MemoryError'}). Give the "
            "process more: on executors with spark.executor.memoryOverhead and, if it is set, "
            "spark.executor.pyspark.memory, or run fewer tasks on each"
        )
    missing = error.name if isinstance(error, ModuleNotFoundError) and error.name else ""
    if missing and missing.partition(".")[0] != module.partition(".")[0]:
        return f"the package {package}, and that needs {missing}: pip install {package} {missing.partition('.')[0]}"
    if missing:
        return f"the package {package}: pip install {package}"
    return f"the package {package}, which is installed but cannot be imported ({error}): install it again"


def _chosen(scheme: str) -> str:
    import fsspec

    try:
        return str(fsspec.get_filesystem_class(scheme).__module__)
    except (ImportError, ValueError):
        # Opening the URL raises this, with its remedy.
        return ""
