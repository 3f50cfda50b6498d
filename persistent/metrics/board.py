"""A board holds the newest figures of one pipeline.

The driver replaces them as a whole, and readers take what is there: neither ever waits for the other. A manifest never
changes, so most figures are read from the newest one only when somebody asks.
"""

from __future__ import annotations

import logging
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from persistent.checkpoint.manifest import Manifest
from persistent.clock import wall_ms
from persistent.driver.report import StepReport
from persistent.metrics.table import BOUNDS_SECONDS, BY_NAME, Metric
from persistent.metrics.values import FROM_MANIFEST
from persistent.sources.protocol import Reached

logger = logging.getLogger("persistent.metrics")

Labels = tuple[str, ...]
"""The values of the labels of a metric, in its order."""
Recorder = Callable[[str, str, float], None]
"""Called with the name of a histogram, the name of the pipeline and each value."""

_COUNTED: Mapping[str, str] = {
    "published.rows": "outputs",
    "corrected.results": "corrected",
    "discarded.windows": "discarded",
    "set.aside.results": "set_aside",
    "expired.keys": "expired",
    "checkpoint.written": "checkpoint_bytes",
    "compaction.written": "compaction_bytes",
}
"""The field of a step's report that a counter sums up."""
_TIMED: Mapping[str, str] = {"step.duration": "seconds", "commit.duration": "commit_seconds"}
"""The field of a step's report that a histogram counts."""


@dataclass(frozen=True)
class Durations:
    """How many values of a histogram are in each bucket, and beyond the last; and their sum."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_SECONDS) + 1)
    total_seconds: float = 0.0

    def plus(self, seconds: float) -> Durations:
        """With one more.

        >>> Durations().plus(0.02).plus(0.025).plus(1e6).buckets()[2:4]
        [('0.01', 0), ('0.025', 2)]
        """
        at = bisect_left(BOUNDS_SECONDS, seconds)
        counts = (count + (place == at) for place, count in enumerate(self.counts))
        return Durations(tuple(counts), self.total_seconds + seconds)

    def buckets(self) -> list[tuple[str, int]]:
        """The upper bound of each bucket, and how many values are at most that."""
        found, so_far = list[tuple[str, int]](), 0
        for bound, count in zip((*map(str, BOUNDS_SECONDS), "+Inf"), self.counts, strict=True):
            so_far += count
            found.append((bound, so_far))
        return found


@dataclass(frozen=True)
class Readout:
    """What a board shows. ``counted``: by counter. ``timed``: by histogram. ``paused``: the pauses of earlier runs."""

    engine: str = ""
    active: bool = False
    manifest: Manifest | None = None
    reached: Reached | None = None
    counted: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))
    timed: Mapping[str, Durations] = field(default_factory=lambda: dict.fromkeys(_TIMED, Durations()))
    paused: int = 0
    pauses: Callable[[], int] = int


class Board:
    """Is an ``Observer`` of each run of one pipeline in this process, one run at a time.

    ``pipeline``: the short name of its checkpoint. ``record``: told each value of a histogram.
    """

    def __init__(self, pipeline: str, record: Recorder | None = None) -> None:
        self.pipeline = pipeline
        self.shown = Readout()
        self._record = record

    def open(self, engine: str) -> None:
        """A run on this engine is about to begin."""
        self.shown = replace(self.shown, engine=engine, active=True)

    def begin(self, manifest: Manifest, pauses: Callable[[], int]) -> None:
        """Show that checkpoint."""
        self.shown = replace(self.shown, manifest=manifest, pauses=pauses)

    def step(self, report: StepReport, manifest: Manifest) -> None:
        """Count a step."""
        shown = self.shown
        timed = {name: float(getattr(report, source)) for name, source in _TIMED.items()}
        self.shown = replace(
            shown,
            manifest=manifest,
            reached=report.reached,
            counted={name: shown.counted[name] + getattr(report, source) for name, source in _COUNTED.items()},
            timed={name: shown.timed[name].plus(seconds) for name, seconds in timed.items()},
        )
        if self._record is not None:
            for name, seconds in timed.items():
                self._recorded(self._record, name, seconds)

    def _recorded(self, record: Recorder, name: str, seconds: float) -> None:
        """The step is committed: what becomes of its figures must not end the run."""
        try:
            record(name, self.pipeline, seconds)
        except Exception as error:
            logger.warning("the metric %s of %s was not recorded: %s", name, self.pipeline, error)

    def close(self) -> None:
        """The run has ended; its figures stay."""
        paused = self.shown.paused + self.shown.pauses()
        self.shown = replace(self.shown, active=False, paused=paused, pauses=int)

    def values(self, metric: Metric, shown: Readout) -> Iterator[tuple[Labels, float]]:
        """The values of a metric that is no histogram, each under its labels."""
        for labels, value in self._values(metric.name, shown).items():
            yield (self.pipeline, *labels), value

    def _values(self, name: str, shown: Readout) -> Mapping[Labels, float]:
        if name in FROM_MANIFEST:
            return {} if shown.manifest is None else FROM_MANIFEST[name](shown.manifest, wall_ms())
        if name in _COUNTED:
            return {(): shown.counted[name]}
        if name == "retries":
            return {(): shown.paused + shown.pauses()}
        if name == "run.active":
            return {(): int(shown.active)}
        if name == "run.info":
            job = "" if shown.manifest is None else shown.manifest.job
            return {(job, shown.engine, _version()): 1}
        assert name in ("unread", "unread.rows"), f"{name} is a metric without a figure"
        return _unread(shown.reached, BY_NAME[name].unit == "By")


def _unread(reached: Reached | None, of_bytes: bool) -> dict[Labels, float]:
    if reached is None or (reached.unit == "bytes") != of_bytes:
        return {}
    return {(): max(0, reached.total - reached.done)}


def _version() -> str:
    """The release of this package, which is above us."""
    return str(getattr(sys.modules["persistent"], "__version__", ""))
