"""Visits of each page, over all time."""

from __future__ import annotations

from typing import Any

from monoids import Count
from persistent import NonWindowState, PersistentTask


class Visits(PersistentTask):
    """Counts visits of a page."""

    key = "page"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)
