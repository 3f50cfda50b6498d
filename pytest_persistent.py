"""The pytest fixtures and the option of ``persistent.testing``, in a module that is quick to import: the rest is loaded
when it is used."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from persistent.testing import ManualClock


def pytest_addoption(parser: Any) -> None:
    """Add ``--persistent-seeds=N``."""
    parser.getgroup("persistent", "tests of persistent tasks").addoption(
        "--persistent-seeds",
        type=_seeds,
        metavar="N",
        help="How many seeds simulate() tries by default [default: 100].",
    )


def _seeds(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"a number of seeds is at least 1, not {number}")
    return number


def pytest_configure(config: Any) -> None:
    """Set the number of seeds, if given."""
    number = config.getoption("persistent_seeds")
    if number is not None:
        from persistent.testing.simulating import SEEDS

        before = SEEDS.set(number)
        config.add_cleanup(lambda: SEEDS.reset(before))


@pytest.fixture
def manual_clock() -> Iterator[ManualClock]:
    """A stopped clock for ``persistent``: ``manual_clock.advance("1 min")`` moves it."""
    from persistent.testing import ManualClock

    with ManualClock() as clock:
        yield clock


@pytest.fixture
def memory_checkpoint() -> Iterator[str]:
    """The URL of a fresh checkpoint in memory, deleted after the test."""
    from uuid import uuid4

    from persistent.storage import MemoryStorage

    storage = MemoryStorage(f"test-{uuid4().hex}")
    yield storage.url
    storage.clear()
