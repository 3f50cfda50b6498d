"""The engine on a local Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def engine(spark: Any) -> Iterator[Any]:
    from persistent.engines.spark import Spark

    yield Spark(spark)
