"""A board holds the newest figures of one pipeline.

The driver replaces all figures at once, and a reader takes the figures that are there: neither waits for the other. A
manifest never changes, so most figures are computed from the newest manifest only when a reader asks.
"""

from __future__ import annotations

import logging
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import Account, NodeClock, NodePart, total
from persistent.connect.source import Reached
from persistent.driver.report import StepReport
from persistent.errors import InvalidPipeline
from persistent.metrics.table import BOUNDS_SECONDS, BY_NAME, Metric
from persistent.names import state_name
from persistent.storage.failures import without_secrets
from persistent.storage.places import lasting_name
from persistent.time.clock import wall_ms

PARTITIONS_MAX: Final = 200
"""How many partitions of a source, in the order in which they joined, have values of their own."""
OTHERS: Final = "(others)"
"""The label of the partition that is furthest behind among all others."""
_FATES: Final = ("processed", "late", "dead", "duplicate")

Values = Mapping[tuple[str, ...], float]


def _records(manifest: Manifest, now_ms: int) -> Values:
    wholes = _accounts(manifest)
    return {(name, fate): whole.fates[fate] for name, whole in wholes.items() for fate in _FATES}


def _accounts(manifest: Manifest) -> dict[str, Account]:
    """The account of each source. All states have read the same records, so their accounts are equal."""
    return {name: total(accounts.values()) for name, accounts in manifest.inputs.items()}


def _clocks(manifest: Manifest, now_ms: int) -> Values:
    """Without the clocks that have not begun: 0 would be fifty years behind."""
    return {_state(name): clock.watermark / 1000 for name, clock in _begun(manifest)}


def _clock_lags(manifest: Manifest, now_ms: int) -> Values:
    return {_state(name): (now_ms - clock.watermark) / 1000 for name, clock in _begun(manifest)}


def _begun(manifest: Manifest) -> Iterator[tuple[str, NodeClock]]:
    return ((name, node.clock) for name, node in manifest.nodes.items() if node.clock.watermark)


def _closed(manifest: Manifest, now_ms: int) -> Values:
    closed = ((name, node.clock.closed) for name, node in manifest.nodes.items() if node.has_windows)
    return {_state(name): time / 1000 for name, time in closed if time}


def _largest(manifest: Manifest) -> Iterator[tuple[tuple[str, ...], int]]:
    """The largest timestamp of each partition that has one. The partitions beyond ``PARTITIONS_MAX`` share one value,
    the least of their timestamps."""
    for name, source in manifest.sources.items():
        first = source.partitions[:PARTITIONS_MAX]
        yield from (((name, label), source.largest[label]) for label in first if label in source.largest)
        others = [source.largest[label] for label in source.partitions[PARTITIONS_MAX:] if label in source.largest]
        if others and OTHERS not in first:
            yield (name, OTHERS), min(others)


def _of_states(manifest: Manifest, amount: Callable[[NodePart], int]) -> Values:
    return {_state(name): amount(node) for name, node in manifest.nodes.items()}


def _rollback(manifest: Manifest, now_ms: int) -> Values:
    """The id of the newest rollback: the first id after the checkpoints that it abandoned."""
    return {(): max((stop for _, stop, _ in manifest.left), default=0)}


def _state(node: str) -> tuple[str, str]:
    return node.partition("/")[0], state_name(node)


FROM_MANIFEST: Mapping[str, Callable[[Manifest, int], Values]] = {
    "checkpoint.id": lambda manifest, _: {(): manifest.base},
    "checkpoint.epoch": lambda manifest, _: {(): manifest.epoch},
    "checkpoint.timestamp": lambda manifest, _: {(): manifest.committed_ms / 1000} if manifest.committed_ms else {},
    "rollback.id": _rollback,
    "records": _records,
    "skipped.positions": lambda manifest, _: {(name,): whole.skipped for name, whole in _accounts(manifest).items()},
    "clock.timestamp": _clocks,
    "clock.lag": _clock_lags,
    "closed.timestamp": _closed,
    "partition.timestamp": lambda manifest, _: {labels: ms / 1000 for labels, ms in _largest(manifest)},
    "partition.lag": lambda manifest, now_ms: {labels: (now_ms - ms) / 1000 for labels, ms in _largest(manifest)},
    "state.rows": lambda manifest, _: _of_states(manifest, lambda state: sum(run.rows_left for run in state.runs)),
    "state.size": lambda manifest, _: _of_states(manifest, lambda state: sum(run.bytes for run in state.runs)),
    "state.runs": lambda manifest, _: _of_states(manifest, lambda state: len(state.runs)),
    "sink.owed.batches": lambda manifest, _: {(name,): len(part.owed) for name, part in manifest.sinks.items()},
}
"""By the name of the metric: its values in a manifest, at a time of day (ms)."""


logger = logging.getLogger("persistent.metrics")

Labels = tuple[str, ...]
"""The values of the labels of a metric, in its order."""
Recorder = Callable[[str, str, float], None]
"""Called with the name of a histogram, the name of the pipeline and each value."""

_COUNTED: Mapping[str, Callable[[StepReport], int]] = {
    "published.rows": lambda step: step.outputs,
    "corrected.results": lambda step: step.corrected,
    "discarded.windows": lambda step: step.discarded,
    "set.aside.results": lambda step: step.set_aside,
    "expired.keys": lambda step: step.expired,
    "checkpoint.written": lambda step: step.checkpoint_bytes,
    "compaction.written": lambda step: step.compaction_bytes,
}
"""The figure of a step that a counter sums up."""
_TIMED: Mapping[str, Callable[[StepReport], float]] = {
    "step.duration": lambda step: step.seconds,
    "commit.duration": lambda step: step.commit_seconds,
}
"""The figure of a step that a histogram counts."""


@dataclass(frozen=True)
class Durations:
    """How many values of a histogram are in each bucket, and above the last bound; and the sum of the values."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_SECONDS) + 1)
    total_seconds: float = 0.0

    def plus(self, seconds: float) -> Durations:
        """These durations and one more.

        >>> Durations().plus(0.02).plus(0.025).plus(1e6).buckets()[2:4]
        [('0.01', 0), ('0.025', 2)]
        """
        at = bisect_left(BOUNDS_SECONDS, seconds)
        counts = (count + (place == at) for place, count in enumerate(self.counts))
        return Durations(tuple(counts), self.total_seconds + seconds)

    def buckets(self) -> list[tuple[str, int]]:
        """The upper bound of each bucket, and how many values are at most that."""
        buckets, so_far = list[tuple[str, int]](), 0
        for bound, count in zip((*map(str, BOUNDS_SECONDS), "+Inf"), self.counts, strict=True):
            so_far += count
            buckets.append((bound, so_far))
        return buckets


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
    """An ``Observer`` of the runs of one pipeline in this process, one run at a time.

    ``pipeline``: the name of the pipeline. ``record``: called with each value of a histogram.
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
        readout = self.shown
        timed = {name: figure(report) for name, figure in _TIMED.items()}
        self.shown = replace(
            readout,
            manifest=manifest,
            reached=report.reached,
            counted={name: readout.counted[name] + figure(report) for name, figure in _COUNTED.items()},
            timed={name: readout.timed[name].plus(seconds) for name, seconds in timed.items()},
        )
        if self._record is not None:
            for name, seconds in timed.items():
                self._recorded(self._record, name, seconds)

    def _recorded(self, record: Recorder, name: str, seconds: float) -> None:
        """Record a figure of a step. An error is logged only: the step is committed, so it must not end the run."""
        try:
            record(name, self.pipeline, seconds)
        except Exception as error:
            logger.warning("the metric %s of %s was not recorded: %s", name, self.pipeline, error)

    def close(self) -> None:
        """The run has ended; its figures stay."""
        paused = self.shown.paused + self.shown.pauses()
        self.shown = replace(self.shown, active=False, paused=paused, pauses=int)

    def values(self, metric: Metric, readout: Readout) -> Iterator[tuple[Labels, float]]:
        """The values of a metric that is no histogram, each under its labels."""
        for labels, value in self._values(metric.name, readout).items():
            yield (self.pipeline, *labels), value

    def _values(self, name: str, readout: Readout) -> Mapping[Labels, float]:
        if name in FROM_MANIFEST:
            return {} if readout.manifest is None else FROM_MANIFEST[name](readout.manifest, wall_ms())
        if name in _COUNTED:
            return {(): readout.counted[name]}
        if name == "retries":
            return {(): readout.paused + readout.pauses()}
        if name == "run.active":
            return {(): int(readout.active)}
        if name == "run.info":
            job = "" if readout.manifest is None else readout.manifest.job
            return {(job, readout.engine, _version()): 1}
        assert name in ("unread", "unread.rows"), f"{name} is a metric without a figure"
        return _unread(readout.reached, BY_NAME[name].unit == "By")


def _unread(reached: Reached | None, of_bytes: bool) -> dict[Labels, float]:
    if reached is None or (reached.unit == "bytes") != of_bytes:
        return {}
    return {(): max(0, reached.total - reached.done)}


def _version() -> str:
    """The release of this package, which is above us."""
    return str(sys.modules["persistent"].__version__)


class Boards:
    """A pipeline that runs again goes on with its board, so that no counter goes back while the process lives."""

    def __init__(self, record: Recorder | None = None) -> None:
        self._record = record
        self._lock = Lock()
        self._boards: dict[str, Board] = {}

    def of(self, url: str, name: str | None = None) -> Board:
        """The board of the pipeline whose checkpoint is at ``url``. InvalidPipeline if another pipeline has the same
        name. A number would not tell them apart: it would depend on which runs first, so a restart could swap their
        series."""
        with self._lock:
            if url not in self._boards:
                name = name or lasting_name(url)
                for place, board in self._boards.items():
                    if board.pipeline == name:
                        raise InvalidPipeline(
                            f"metrics: the pipelines of {without_secrets(place)} and {without_secrets(url)} would both "
                            f"be shown as {name!r}: give each a name of its own, Pipeline(name=...), or metrics of "
                            "its own"
                        )
                self._boards = {**self._boards, url: Board(name, self._record)}
            return self._boards[url]

    def all(self) -> list[Board]:
        """All boards."""
        return list(self._boards.values())
