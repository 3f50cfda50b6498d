"""A worker is fit for a job if it has the packages of the driver, and those that the job's URLs need."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from persistent.errors import PersistentError, SourceError, StorageError
from persistent.storage.clients import imported, modules_of, why_not
from persistent.storage.failures import CREDENTIALS

_COMPARED = {"persistent-monoids": 9, "pyarrow": 1, "numpy": 1, "cloudpickle": 1, "pyspark": 2}
"""The number of version parts that must agree: the first for formats of Arrow and pickle, the second for Spark's
halves."""


@dataclass(frozen=True)
class Needs:
    """The needs of a worker: versions of packages, modules to import, paths."""

    versions: tuple[tuple[str, str], ...] = ()
    modules: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


def needs_of(urls: Iterable[str], paths: Iterable[str] = (), *, leave_out: Iterable[str] = ()) -> Needs:
    """The versions in this process, the modules that ``urls`` need, and those of ``paths`` that exist here."""
    versions = [(name, _version(name)) for name in _COMPARED if name not in leave_out]
    modules = dict.fromkeys(module for url in urls for module in modules_of(url))
    here = [path for path in paths if os.path.exists(path)]
    return Needs(tuple(pair for pair in versions if pair[1]), tuple(modules), tuple(here))


@functools.lru_cache(maxsize=16)
def unfit(needs: Needs) -> str:
    """What this process lacks, and the remedy; "" if it is fit. Cached: a process does not change."""
    for name, wanted in needs.versions:
        version = _version(name)
        if version and _compared(name, version) != _compared(name, wanted):
            return f"{name} is {version} there, but {wanted} on the driver: pip install {name}=={wanted}"
    for module in needs.modules:
        try:
            imported(module)
        except (ImportError, MemoryError, OSError) as error:
            return f"it needs {why_not(module, error)}"
    for path in needs.paths:
        if not os.path.exists(path):
            return (
                f"{path} does not exist, although the source has shared_mount=True: mount it at the same path on every "
                "machine, or put the files where all reach them (s3://, hdfs://)"
            )
    return ""


def process() -> str:
    """This host and its Python, for errors.

    >>> process().endswith(sys.executable)
    True
    """
    return f"{socket.gethostname()}, {sys.executable}"


def say_where(error: PersistentError, where: str) -> None:
    """Add to a StorageError or SourceError, once, the process where it occurred."""
    if not isinstance(error, StorageError | SourceError) or hasattr(error, "met"):
        return
    error.met = where  # type: ignore[union-attr]
    if error.args and isinstance(error.args[0], str):
        hint = " The driver and each executor have their own." if CREDENTIALS in error.args[0] else ""
        error.args = (f"{error.args[0].rstrip('.')}.{hint} (Met on {where}.)", *error.args[1:])


def _compared(name: str, version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[: _COMPARED[name]])


def _version(name: str) -> str:
    """ "" if unknown: the package runs from its source."""
    module = sys.modules.get("persistent" if name == "persistent-monoids" else name)
    if (version := getattr(module, "__version__", None)) is not None:
        return str(version)
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
