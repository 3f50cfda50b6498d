"""A section for the tests of the runner: its seed says how it ends."""

from __future__ import annotations

import os
import time

from tests.proof.result import Result

PASSES, FAILS, RAISES, DIES, MISSES, HANGS = range(6)


def prove(seconds_max: float | None = None, seed: int = 0, scale: float = 1.0) -> Result:
    if seed == RAISES:
        raise ValueError("raised in a section")
    if seed == DIES:
        os._exit(7)
    if seed == HANGS:
        time.sleep(600)
    failures = ("something was lost",) if seed == FAILS else ()
    return Result("sample", round(10 * scale), failures, (1 if seed == MISSES else 2, 2), 0.5)
