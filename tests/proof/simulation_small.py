"""A small world is one in which names and times come from a seed, and steps, folds and sweeps are of a few rows."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from persistent import names
from persistent.checkpoint import compaction
from persistent.driver import open_job
from persistent.testing.running import ManualClock


class _Names:
    """What draws names, as the module ``uuid`` does."""

    def __init__(self, seed: int) -> None:
        self._drawn = random.Random(f"names {seed}")

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self._drawn.getrandbits(128), version=4)


@contextmanager
def small(seed: int) -> Iterator[ManualClock]:
    """Names and times come from the seed; steps and folds are small. The clock stands until it is moved."""
    small_ones: dict[Any, dict[str, Any]] = {
        open_job: {"ROWS_FIRST": 6, "_ROWS_MIN": 2, "ROWS_MAX": 9, "_SWEEP_STEPS": 3},
        compaction: {"FAN_IN": 2, "_TIER_0_ROWS": 4, "_ROWS_MIN": 8},
        names: {"uuid": _Names(seed)},
    }
    with ExitStack() as stack:
        for module, values in small_ones.items():
            for name, value in values.items():
                assert hasattr(module, name), f"{module.__name__} has no {name} any more"
                stack.enter_context(mock.patch.object(module, name, value))
        yield stack.enter_context(ManualClock())
