"""What tests share: a local Spark for all that are marked ``spark``, and the same examples of Hypothesis every time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("same", deadline=None, derandomize=True, database=None)
settings.load_profile("same")

_LAST = ("spark", "crash", "slow")
_SERVERS = ("hdfs_server", "s3_server")


# First, because pytest-xdist reads the groups in a hook of its own.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first: a mistake shows early. What shares a Spark or a server stays in one process."""
    items.sort(key=lambda item: sum(item.get_closest_marker(name) is not None for name in _LAST))
    for item in items:
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif set(_SERVERS) & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group("servers"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session on two cores that tries a task four times."""
    from persistent.spark import local_session

    session = local_session(cores=2, app_name="tests")
    yield session
    session.stop()
