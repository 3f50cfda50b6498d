"""What tests share: a local Spark for all that are marked ``spark``, and the same examples of Hypothesis every time."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("same", deadline=None, derandomize=True, database=None)
settings.load_profile("same")

_LAST = ("spark", "crash", "slow")
_SERVED = ("tests/servers/", "tests/storage/")
_CHECKED = (
    "tests/servers/",
    "tests/benchmarks/",
    "tests/crash/",
    "tests/examples/",
    "tests/storage/test_hdfs",
    "tests/storage/test_s3",
)
"""What needs servers of its own, a machine to itself, or dies at every operation."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first: a mistake shows early. What is long, or needs a server, is for ``make check``."""
    items.sort(key=lambda item: sum(item.get_closest_marker(name) is not None for name in _LAST))
    for item in items:
        if item.nodeid.startswith(_CHECKED) or item.get_closest_marker("slow"):
            item.add_marker("check")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several processes (``-n``): what shares a Spark or a server stays in one of them, and begins first."""
    from xdist.scheduler import LoadScopeScheduling

    class ByServer(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(_SERVED):
                return "servers"
            return "spark" if "spark" in nodeid else nodeid

    return ByServer(config, log)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session on two cores that tries a task four times."""
    from persistent.engines.spark_session import local_session

    session = local_session(cores=2, app_name="tests")
    yield session
    session.stop()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; what is loaded from it is forgotten afterwards, and nothing else: who has our own modules
    loaded twice patches one of them and runs the other."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def storage() -> Iterator[Any]:
    """A storage in memory, forgotten afterwards."""
    from persistent.storage import MemoryStorage

    memory = MemoryStorage(uuid.uuid4().hex)
    yield memory
    memory.clear()
