"""The options of a driver: the user's choices besides the job itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from persistent.checkpoint.retention import Retention
from persistent.driver.evolution import Evolution
from persistent.driver.report import Idle, StepReport


@dataclass(frozen=True)
class Options:
    """The options of a run.

    ``step_rows``: exactly this many rows per step; None: steps adapt. ``max_future_ms``: how far ahead of both the
    plan's time of day and the clock a timestamp can be. ``retention``: which checkpoints to keep. ``evolve``,
    ``dropped``: how to migrate existing state. ``bare``: the durations among these without a unit, from
    ``persistent.clock.bare``.
    """

    step_rows: int | None = None
    follow: bool = False
    end_of_input: bool = False
    max_future_ms: int = 86_400_000
    retention: Retention = field(default_factory=Retention)
    on_step: Callable[[StepReport], None] | None = None
    on_idle: Callable[[Idle], None] | None = None
    evolve: Evolution | None = None
    dropped: tuple[str, ...] = ()
    bare: Mapping[str, int] = field(default_factory=dict)
