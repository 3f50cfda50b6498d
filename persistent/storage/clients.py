"""The clients of the stores, imported by name: without one, fsspec would fall back to a client of another store."""

from __future__ import annotations

import difflib
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


def unknown_scheme(url: str) -> str:
    """What is wrong with a URL whose scheme nobody knows, and what may be meant.

    >>> unknown_scheme("s4://bucket/visits")
    's4://bucket/visits: s4:// is not a store that fsspec knows. Did you mean s3://? Give a path, s3:// or hdfs://'
    """
    scheme = url.partition("://")[0]
    # The stores that people use come first; fsspec knows some thirty more.
    near = difflib.get_close_matches(scheme, ["s3", "hdfs", "file", "memory", "gs", "abfs", "s3a"], 1, 0.5)
    near = near or difflib.get_close_matches(scheme, sorted(schemes()), 1)
    meant = f" Did you mean {near[0]}://?" if near else ""
    return f"{url}: {scheme}:// is not a store that fsspec knows.{meant} Give a path, s3:// or hdfs://"


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
    modules = []
    for part in url.split("::"):
        scheme = part.partition("://")[0].lower()
        modules.append(_CLIENTS.get(scheme) or _chosen(scheme))
    return tuple(dict.fromkeys(module for module in modules if module))


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
