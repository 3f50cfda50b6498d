"""What tests share: a local Spark for all that are marked ``spark``, and the same examples of Hypothesis every time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("same", deadline=None, derandomize=True, database=None)
settings.load_profile("same")

_LAST = ("spark", "crash", "slow")
_SERVED = ("tests/servers/", "tests/storage/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first: a mistake shows early."""
    items.sort(key=lambda item: sum(item.get_closest_marker(name) is not None for name in _LAST))


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
    from persistent.spark import local_session

    session = local_session(cores=2, app_name="tests")
    yield session
    session.stop()
