"""The options of a driver: the user's choices besides the job itself.

An observer sees what a run commits, as it commits it. Nothing waits for it, and nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from persistent.checkpoint.manifest import Manifest, Retention
from persistent.driver.evolution import Evolutions
from persistent.driver.report import Idle, StepReport
from persistent.errors import InvalidPipeline
from persistent.time.clock import Duration, duration_ms


class Observer(Protocol):
    """Called by the thread of the driver, so each call returns at once: it keeps what it is given."""

    def begin(self, manifest: Manifest, pauses: Callable[[], int]) -> None:
        """A run begins, or has taken over, at this checkpoint. ``pauses``: how often it has waited for a server so far;
        any thread can ask."""

    def step(self, report: StepReport, manifest: Manifest) -> None:
        """A step is committed and published."""


ROWS_FIRST = 1_000_000
ROWS_MAX = 4_000_000
"""The rows of the first step, and of the largest, where the size of steps adapts."""
_GUARANTEES = ("at-least-once", "exactly-once")


@dataclass(frozen=True)
class Options:
    """The options of a run.

    ``step_rows``: exactly this many rows per step; None: steps adapt. ``max_future_ms``: how far ahead of both the
    plan's time of day and the clock a timestamp can be. ``retention``: which checkpoints to keep. ``evolve``,
    ``dropped``: how to migrate existing state. ``bare``: the durations among these without a unit, from
    ``persistent.time.clock.bare``. ``quiet_after_ms``: after so long without a record the clock moves on by the time
    that passes; None: it stands. ``max_drift_ms``: how far a partition can be ahead of the slowest, and still be read;
    None: as far as it is. ``observers``: see each checkpoint of the run.
    """

    step_rows: int | None = None
    follow: bool = False
    end_of_input: bool = False
    max_future_ms: int = 86_400_000
    retention: Retention = field(default_factory=Retention)
    on_step: Callable[[StepReport], None] | None = None
    on_idle: Callable[[Idle], None] | None = None
    evolve: Evolutions = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    bare: Mapping[str, int] = field(default_factory=dict)
    quiet_after_ms: int | None = None
    max_drift_ms: int | None = None
    observers: tuple[Observer, ...] = ()


def checked_ms(value: Duration, name: str) -> int:
    """A duration in milliseconds. InvalidPipeline.

    >>> checked_ms("1 min", "max_future")
    60000
    """
    try:
        return duration_ms(value, name)
    except (TypeError, ValueError) as error:
        raise InvalidPipeline(str(error)) from error


def positive_ms(value: Duration | None, name: str) -> int | None:
    """A duration above zero in milliseconds, or None. InvalidPipeline."""
    if value is None:
        return None
    duration = checked_ms(value, name)
    if not duration:
        raise InvalidPipeline(f"{name}={value!r}: give a duration above zero, such as '10 min', or None")
    return duration


def check_choices(step_rows: Any, on_error: Any, require: Any) -> None:
    """InvalidPipeline if one of these options has a value that none of them has."""
    if step_rows is not None and (isinstance(step_rows, bool) or not isinstance(step_rows, int) or step_rows < 1):
        raise InvalidPipeline(f"step_rows={step_rows!r}: give a number of rows, at least 1, or None")
    if on_error not in ("stop", "dead-letter"):
        raise InvalidPipeline(f'on_error={on_error!r}: choose "stop" or "dead-letter"')
    if require not in (None, *_GUARANTEES):
        raise InvalidPipeline(f"require={require!r}: choose one of {', '.join(_GUARANTEES)}")
