"""The asking storage of ``persistent.testing``, and waits that make drivers meet at many places."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from persistent.testing.faults import AskingStorage, Before, Once

__all__ = ["AskingStorage", "Before", "Once", "delays"]


def delays(seed: Any, often: float, seconds: float) -> Before:
    """A small wait before some operations, drawn from ``seed``."""
    drawn, lock = random.Random(repr(seed)), threading.Lock()

    def before(verb: str, name: str) -> None:
        with lock:
            waits, wait = drawn.random() < often, drawn.uniform(0, seconds)
        if waits:
            time.sleep(wait)

    return before
