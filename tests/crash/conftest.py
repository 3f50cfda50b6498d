"""What crash tests share: a fast folder, and silence."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is one: a local storage syncs everything it writes."""
    shared_memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared_memory if shared_memory.is_dir() else None) as place:
        yield Path(place)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Drivers warn of steps begun again; here that is the point."""
    logger = logging.getLogger("persistent")
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(logging.NOTSET)
