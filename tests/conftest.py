"""What tests share: one local Spark for all that are marked ``spark``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

_LAST = ("spark", "crash", "slow")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first: a mistake shows early."""
    items.sort(key=lambda item: sum(item.get_closest_marker(name) is not None for name in _LAST))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session on two cores that tries a task four times."""
    from persistent.spark import local_session

    session = local_session(cores=2, app_name="tests")
    yield session
    session.stop()
