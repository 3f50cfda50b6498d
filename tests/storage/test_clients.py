"""The client of a store is imported by name; what is missing is told with what to install."""

from __future__ import annotations

import re
import sys

import pytest

from persistent.errors import UnsupportedStore
from persistent.storage.clients import client_of, modules_of, schemes, why_not


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            ModuleNotFoundError("No module named 'hdfs_native'", name="hdfs_native"),
            r"hdfs-native: pip install hdfs-native",
        ),
        (
            ModuleNotFoundError("No module named 'x'", name="x.y"),
            r"hdfs-native, and that needs x\.y: pip install .* x$",
        ),
        (
            ImportError("a.so: failed to map segment from shared object"),
            r"too little memory to import it.*memoryOverhead",
        ),
        (MemoryError(), r"too little memory"),
        (OSError(12, "Cannot allocate memory"), r"too little memory"),
        (
            ImportError("undefined symbol: x"),
            r"is installed but cannot be imported \(undefined symbol: x\): install it again",
        ),
    ],
)
def test_an_import_that_fails_says_why(error: Exception, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is there was to be installed, when memory was what lacked."""
    assert re.search(told, why_not("hdfs_native.fsspec", error))

    def refuse(module: str) -> None:
        raise error

    monkeypatch.setattr("importlib.import_module", refuse)
    with pytest.raises(UnsupportedStore, match=told):
        client_of("hdfs")


def test_each_store_has_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fsspec falls back to is another client, without atomic create."""
    assert client_of("hdfs").__name__ == "hdfs_native.fsspec"
    assert client_of("s3") is client_of("s3a") is not None
    assert client_of("file") is None and "s3" in schemes() and "hdfs" in schemes()
    assert modules_of("simplecache::s3://bucket/x") == ("fsspec.implementations.cached", "s3fs")
    assert modules_of("s3://a::hdfs://b") == ("s3fs", "hdfs_native.fsspec")
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(UnsupportedStore, match="hdfs:// needs the package hdfs-native: pip install hdfs-native"):
        client_of("hdfs")


def test_a_scheme_that_nobody_knows_is_left_to_whoever_opens_it() -> None:
    """Asking which modules to ship would end the run, without the sentence that names the schemes there are."""
    assert modules_of("nowhere://bucket/x") == () == modules_of("/events")
    assert modules_of("memory://x") == ("fsspec.implementations.memory",)
