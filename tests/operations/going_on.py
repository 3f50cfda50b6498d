"""How a job goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.crash.worlds import LONG, World

MORE = replace(LONG, rows=LONG.rows + tuple({"ts": 60 + i, "page": "ab"[i % 2], "n": i} for i in range(15)))


def go_on(world: World, job: Any = MORE) -> None:
    """The same job, with more to read."""
    world.job = job
    world.run()
