"""A pipeline of visits over a script."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
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


@pytest.fixture
def quiet() -> Iterator[None]:
    """Drivers warn of steps begun again; to the tests that ask for this, that is the point."""
    logging.getLogger("persistent").setLevel(logging.ERROR)
    yield
    logging.getLogger("persistent").setLevel(logging.NOTSET)
