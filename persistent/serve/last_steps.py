"""The last steps of a job, as its checkpoints tell: how many rows they have read, and how long each took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from persistent.serve.shown import CheckpointFacts

RATE_STEPS = 20


@dataclass(frozen=True)
class LastSteps:
    """The last steps, from plan to plan. A step's rows are read between its plan and the next one, so those of the
    newest checkpoint do not count yet: the rows read after ``first``, up to ``last``, were read in ``span_ms``."""

    first: CheckpointFacts
    last: CheckpointFacts
    span_ms: int
    step_ms: tuple[int, ...]
    """The time of each step, of which no other was between its plan and the next, shortest first."""

    def rate(self, rows: int) -> float | None:
        """So many rows of these steps, a second."""
        return 1000 * rows / self.span_ms if self.span_ms > 0 else None


def last_steps(recent: Sequence[CheckpointFacts]) -> LastSteps | None:
    """The last steps; None if there are fewer than two."""
    timed = [facts for facts in recent if facts["committed_ms"]][-RATE_STEPS - 1 :]
    if len(timed) < 3:
        return None
    first, last, before = timed[0], timed[-1], timed[1:]
    steps = sorted(b["committed_ms"] - a["committed_ms"] for a, b in pairwise(before) if follows(a, b))
    return LastSteps(first, timed[-2], last["committed_ms"] - before[0]["committed_ms"], tuple(steps))


def follows(a: CheckpointFacts, b: CheckpointFacts) -> bool:
    """Whether no other checkpoint with a state of its own was between both."""
    return b.get("before") in (None, a.get("id"))
