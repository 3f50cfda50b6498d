"""A pipeline of visits over a script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from persistent import PersistentTask, Pipeline
from persistent.sources import Source
from tests.testing.scripts import Visits


@pytest.fixture
def pipeline(memory_checkpoint: str) -> Callable[..., Pipeline]:
    """Makes the pipeline over a source, again and again over the same checkpoint."""

    def made(source: Source, task: PersistentTask | None = None, **options: Any) -> Pipeline:
        return Pipeline(source=source, task=task or Visits(), checkpoint=memory_checkpoint, **options)

    return made
