"""The last steps of a job, as its checkpoints tell: how many rows they have read, and how long each took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from persistent.tools.serve.shown import CheckpointFacts

RATE_STEPS = 20
_PARTS_MAX = 60
_STEPS = 4
"""How many steps make a part, if there are many steps: an even number, as every second step may read nothing."""
_PAUSE_MS, _PAUSE_STEPS = 60_000, 20
"""A pause is longer than a minute, and than twenty usual steps."""
_RATED = ("processed", "late", "dead", "duplicate")


@dataclass(frozen=True)
class LastSteps:
    """The last steps, from plan to plan. The rows of a step are read between its plan and the next plan, so the rows of
    the newest checkpoint do not count yet. The rows after checkpoint ``first``, up to ``last``, were read in
    ``span_ms``."""

    first: CheckpointFacts
    last: CheckpointFacts
    span_ms: int
    step_ms: tuple[int, ...]
    """The time of each step, shortest first. A step with another checkpoint before the next plan is left out."""

    def rate(self, rows: int) -> float | None:
        """Rows a second, if these steps have read ``rows``; None if they took no time."""
        return 1000 * rows / self.span_ms if self.span_ms > 0 else None


def last_steps(recent: Sequence[CheckpointFacts]) -> LastSteps | None:
    """The last steps; None if there are fewer than two."""
    timed = [facts for facts in recent if facts["committed_ms"]][-RATE_STEPS - 1 :]
    if len(timed) < 3:
        return None
    first, last, before = timed[0], timed[-1], timed[1:]
    steps = sorted(b["committed_ms"] - a["committed_ms"] for a, b in pairwise(before) if follows(a, b))
    return LastSteps(first, timed[-2], last["committed_ms"] - before[0]["committed_ms"], tuple(steps))


def rates(recent: Sequence[CheckpointFacts]) -> list[dict[str, float]]:
    """Rows a second by their fate, in parts of the time since the last pause, oldest first.

    A part sums up several steps, so that a step that waits for input, or only moves the clock, makes no gap. The rows
    of a step are read from its plan to the next plan. The rows of a checkpoint that is no longer kept count with the
    next kept one.
    """
    steps = _since_pause([*_timed_steps([facts for facts in recent if facts["committed_ms"]])])
    if not steps:
        return []
    least = max(1, (steps[-1].stop_ms - steps[0].start_ms) // _PARTS_MAX)
    parts, many = list[_Timed](), _STEPS if len(steps) >= _STEPS * _STEPS else 2
    open_, count = steps[0], 0
    for step in steps:
        open_, count = (open_.with_next(step), count + 1) if count else (step, 1)
        if count >= many and open_.stop_ms - open_.start_ms >= least:
            parts.append(open_)
            count = 0
    if count:
        parts[-1:] = [parts[-1].with_next(open_)] if parts else [open_]
    return [{"from_ms": part.start_ms, "to_ms": part.stop_ms, **part.rates()} for part in parts]


@dataclass(frozen=True)
class _Timed:
    """What one step or several steps have read, and when: from the first plan to the plan after the last step."""

    start_ms: int
    stop_ms: int
    rows: Mapping[str, int]

    def with_next(self, step: _Timed) -> _Timed:
        return _Timed(self.start_ms, step.stop_ms, {fate: self.rows[fate] + step.rows[fate] for fate in _RATED})

    def rates(self) -> dict[str, float]:
        return {fate: 1000 * rows / (self.stop_ms - self.start_ms) for fate, rows in self.rows.items()}


def _timed_steps(timed: Sequence[CheckpointFacts]) -> Iterator[_Timed]:
    """The steps of these checkpoints. A step that took no time, as the time of day was set back, is joined with the
    next. A step over checkpoints that are no longer known is joined with the step before."""
    previous: _Timed | None = None
    for a, b, c in zip(timed, timed[1:], timed[2:], strict=False):
        rows = {fate: max(0, b[fate] - a[fate]) for fate in _RATED}
        step = _Timed((b if follows(a, b) else a)["committed_ms"], c["committed_ms"], rows)
        if previous is not None and (previous.stop_ms <= previous.start_ms or not follows(a, b)):
            step = replace(previous.with_next(step), start_ms=min(previous.start_ms, step.start_ms))
        elif previous is not None:
            yield previous
        previous = step
    if previous is not None and previous.stop_ms > previous.start_ms:
        yield previous


def _since_pause(steps: Sequence[_Timed]) -> Sequence[_Timed]:
    """The steps after the last pause that more than two steps follow: otherwise a night without a driver would fill the
    picture. If the time of day was set back, only the steps since then."""
    spans = sorted(step.stop_ms - step.start_ms for step in steps)
    pause = max(_PAUSE_MS, _PAUSE_STEPS * spans[len(spans) // 2]) if spans else 0
    cuts = [place + 1 for place, step in enumerate(steps[:-3]) if step.stop_ms - step.start_ms > pause]
    back = [place + 1 for place, (a, b) in enumerate(pairwise(steps)) if b.start_ms < a.start_ms]
    return steps[max([0, *cuts, *back]) :]


def follows(a: CheckpointFacts, b: CheckpointFacts) -> bool:
    """Whether no other checkpoint with a state of its own was between both."""
    return b.get("before") in (None, a.get("id"))
