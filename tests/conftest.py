"""What tests share: a local Spark for all that are marked ``spark``, and the same examples of Hypothesis every time."""

from __future__ import annotations

import os
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from persistent.driver import workbench
from tests.few import examples, has_turn

# How many splits a step has would follow from how fast the machine is.
workbench.SPLIT_SECONDS = 0.0

settings.register_profile("same", deadline=None, derandomize=True, database=None, max_examples=examples(100))
settings.load_profile("same")

_LONG = ("spark", "crash", "slow")
_CHECKED = (
    "tests/servers/",
    "tests/integration/",
    "tests/benchmarks/",
    "tests/crash/",
    "tests/proof/",
    "tests/examples/",
    "tests/driver/test_effects",
    "tests/storage/test_hdfs.",
    "tests/storage/test_s3.",
)
"""What needs servers of its own, a machine to itself, or dies at every operation."""
_SERVERS = frozenset({"hdfs_server", "s3_server", "s3_bucket"})
"""Fixtures that start one."""
_SERVED = ("tests/servers/", "tests/storage/", "tests/integration/test_suites", "tests/integration/test_pages")
_INTEGRATION = "tests/integration/"
_LONGER = "tests/integration/test_marathon"
_INTEGRATION_SECONDS = 60
"""That a test on real servers may take, without the start of the servers."""
_SERVED_APART = {"rabbit": ("rabbit",), "cluster": ("test_cluster", "test_visits", "test_connect")}
"""What needs one server that others do not need can run beside them, by words in the names of the files."""
_GROUPS = ("spark", "servers", "integration", *_SERVED_APART)
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A Java that lives for minutes is done before optimising its code has paid: half of its processor time."""
SECONDS_MAX = 20.0
"""Of processor time, for a test of ``make test``: three times what the longest takes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In one process fast tests come first, so that a mistake shows early; in several the long ones do, so that all end
    at once. What is long, or needs a server, is for ``make check``; what has its turn in another run is left out."""
    waiting = [item for item in items if (mark := item.get_closest_marker("turn")) and not has_turn(*mark.args)]
    if waiting:
        waiting[0].config.hook.pytest_deselected(items=waiting)
        items[:] = [item for item in items if item not in waiting]
    for item in items:
        is_served = not _SERVERS.isdisjoint(getattr(item, "fixturenames", ()))
        if is_served or item.nodeid.startswith(_CHECKED) or item.get_closest_marker("slow"):
            item.add_marker("check")
        group = ""
        if item.nodeid.startswith(_INTEGRATION):
            group = "integration"
            if not item.nodeid.startswith(_LONGER):
                item.add_marker("integration")
                item.add_marker(pytest.mark.timeout(_INTEGRATION_SECONDS, func_only=True))
        if item.nodeid.startswith(_SERVED) and item.get_closest_marker("check"):
            apart = (name for name, words in _SERVED_APART.items() if any(word in item.nodeid for word in words))
            group = next(apart, "servers")
        elif item.get_closest_marker("spark"):
            group = "spark"
        if group and hasattr(item.config, "workerinput"):
            # All that the scheduler in the other process hears of a test is its name.
            rename(item, f"{item.nodeid}@{group}")
    is_one_of_several = bool(items) and hasattr(items[0].config, "workerinput")
    cases = Counter(scope_of(item.nodeid) for item in items)
    items.sort(key=lambda item: _first(item, cases) if is_one_of_several else _length(item))


def rename(item: pytest.Item, name: str) -> None:
    """Give a test another name, of which pytest knows by one attribute or the other, as its version is."""
    if hasattr(item, "_id"):
        item._id = type(item._id).parse(name)
    else:
        item._nodeid = name
    assert item.nodeid == name, "each process would start a Spark and servers of its own"


def _length(item: pytest.Item) -> int:
    """How long a test may take, as its marks say."""
    return sum(item.get_closest_marker(name) is not None for name in _LONG)


def _first(item: pytest.Item, cases: Counter[str]) -> tuple[bool, bool, int]:
    """What comes first where several processes share the work: what one of them has to do alone, then single tests that
    take long, then tests of many cases."""
    scope = scope_of(item.nodeid)
    is_long = bool(_length(item)) or item.nodeid.startswith("tests/proof/")
    return scope not in _GROUPS, not is_long, -cases[scope]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A session that a test of Spark has left active is no engine of the next test, which asked for none."""
    pyspark = sys.modules.get("pyspark")
    context = pyspark.SparkContext._active_spark_context if pyspark else None
    if context is not None and not item.get_closest_marker("spark"):
        context._jvm.SparkSession.clearActiveSession()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that takes long is for ``make check``: elsewhere it fails, and says so."""
    began = sum(os.times()[:4])
    result = yield
    spent = sum(os.times()[:4]) - began
    if spent > SECONDS_MAX and not item.get_closest_marker("check"):
        pytest.fail(
            f"{item.nodeid} took {spent:.0f} s of processor time, and {SECONDS_MAX:.0f} is the most for make test: try "
            "fewer cases (tests/few.py), or mark it check",
            pytrace=False,
        )
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several processes (``-n``): what shares a Spark, a server, or the examples of a monoid stays in one."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            super().mark_test_complete(node, item_index, duration)
            # Otherwise all that is done is counted once more after each test.
            scope = scope_of(self.registered_collections[node][item_index])
            if all(self.assigned_work[node][scope].values()):
                del self.assigned_work[node][scope]

    # Ours is the order of the items.
    config.option.loadscopereorder = False
    return Together(config, log)


def scope_of(nodeid: str) -> str:
    """What runs in one process with the test: all of Spark, all of a server, the cases of a function, the laws of a
    monoid."""
    group = nodeid.rpartition("@")[2]
    if group in _GROUPS:
        return group
    return nodeid.partition("[")[0] if ".py::" in nodeid else nodeid.rpartition("::")[0]


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session on two cores that tries a task four times."""
    from persistent.engines.spark_session import local_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", _QUICK_JAVA)
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
