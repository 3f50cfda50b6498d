"""A promise is what a part of a pipeline guarantees for every record or output. A pipeline guarantees the weakest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"
AT_MOST_ONCE: Final = "at-most-once"
LEVELS: Final = (AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE)
"""The levels, weakest first."""


@dataclass(frozen=True)
class Promise:
    """The promise of a part. ``level``: "exactly-once", "at-least-once" or "at-most-once"; ``reason``: why; ``while_``:
    the condition under which it holds."""

    level: str
    reason: str
    while_: str = ""

    def __str__(self) -> str:
        return f"{self.level}{f' while {self.while_}' if self.while_ else ''}: {self.reason}"


class Guarantee(str):
    """The guarantee of a pipeline as text, with the promise of each of its ``parts``: source, checkpoint, sink.

    >>> asked = Promise(AT_LEAST_ONCE, "it is asked again")
    >>> print(guarantee_of({"source": Promise(EXACTLY_ONCE, "it replays"), "sink": asked}))
    at-least-once: it is asked again
    """

    parts: Mapping[str, Promise]


def guarantee_of(parts: Mapping[str, Promise], limit: str = "") -> Guarantee:
    """The weakest of these promises; if all are exactly-once, the first with a condition. If one part can lose records
    and another can repeat them, the guarantee is neither at-least-once nor at-most-once. ``limit``: what it does not
    cover."""
    weakest = min(parts.values(), key=lambda promise: (LEVELS.index(promise.level), not promise.while_))
    reasons = "; ".join(f"{name}: {promise.reason}" for name, promise in parts.items())
    decides = weakest.level != EXACTLY_ONCE or weakest.while_
    text = str(weakest) if decides else f"{weakest.level}: {reasons}"
    if {AT_MOST_ONCE, AT_LEAST_ONCE} <= {promise.level for promise in parts.values()}:
        broken = "; ".join(f"{name}: {promise}" for name, promise in parts.items() if promise.level != EXACTLY_ONCE)
        text = f"neither at-least-once nor at-most-once: {broken}"
    guarantee = Guarantee(f"{text}; {limit}" if limit else text)
    guarantee.parts = dict(parts)
    return guarantee


def promise_of_checkpoint(storage: Any, *, proved: bool) -> Promise:
    """The promise of a checkpoint on this storage. ``proved``: whether the storage is proved to create files
    atomically."""
    if not storage.shared:
        return Promise(EXACTLY_ONCE, f"{storage.url} is in its memory", "this process lives")
    if not proved:
        return Promise(EXACTLY_ONCE, f"nothing has proved {storage.url} atomic", "never more than one driver runs")
    return Promise(EXACTLY_ONCE, "state, clock and positions are committed together, atomically")
