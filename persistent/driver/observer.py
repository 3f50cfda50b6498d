"""An observer sees what a run commits, as it commits it. Nothing waits for it, and nothing depends on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from persistent.checkpoint.manifest import Manifest
from persistent.driver.report import StepReport


class Observer(Protocol):
    """Called by the thread of the driver, so each call returns at once: it keeps what it is given."""

    def begin(self, manifest: Manifest, pauses: Callable[[], int]) -> None:
        """A run begins, or has taken over, at this checkpoint. ``pauses``: how often it has waited for a server so far;
        any thread can ask."""

    def step(self, report: StepReport, manifest: Manifest) -> None:
        """A step is committed and published."""
