"""A clock reading says where the clock of a checkpoint stands, and which partition holds it back.

The furthest record is the counted record with the largest timestamp. If the clock is wrong, this record moved it.

A checkpoint names no records, only the largest timestamp of each partition. So the kept checkpoints tell in which step
the record was counted, and the plan of that step tells the span of the source that the step read: the record lies in
that span. ``find_record`` reads the span again, and names the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace

from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import NodePart, SourcePart, partition_name
from persistent.checkpoint.plan import SourceStep, StepPlan
from persistent.codec.fields import CODECS, Position
from persistent.connect.source import Budget, Source, SourceState, Span, Split
from persistent.driver.run_cache import RunCache
from persistent.errors import CorruptCheckpoint, Refused, RetentionGap, UnknownCheckpoint
from persistent.pipeline import Pipeline
from persistent.storage.protocol import Storage
from persistent.text.readable import readable_list
from persistent.time.clock import bound_of

_AHEAD_MS = 60_000
"""A clock further ahead than this was moved by a record, not by a clock that runs a little fast."""


@dataclass(frozen=True)
class PartitionReading:
    """A partition. ``largest``: its largest timestamp; None without a record. ``reached``: the event time up to which
    it lets the clock go; None if the clock does not wait for it. ``lag_ms``: the disorder that its source allows; None
    if no plan tells. ``lists``: whether files that are listed and not read yet hold it back."""

    name: str
    largest: int | None
    reached: int | None
    lag_ms: int | None = None
    lists: bool = False

    @property
    def is_idle(self) -> bool:
        return self.reached is None


@dataclass(frozen=True)
class ClockReading:
    """``watermark``, ``closed``, ``ended``, ``quiet_ms``, ``not_after``: as in the manifest ``checkpoint``; ``closed``
    is None without windows. ``states``: if the task has several states, the ``watermark`` and ``closed`` of each state,
    by its name in the checkpoint; those of the task are what all states have reached."""

    checkpoint: int
    watermark: int
    closed: int | None
    ended: bool
    quiet_ms: int
    not_after: int | None
    partitions: tuple[PartitionReading, ...]
    states: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)

    @property
    def furthest(self) -> PartitionReading | None:
        """The partition with the largest timestamp; None without a record."""
        known = [partition for partition in self.partitions if partition.largest is not None]
        return max(known, key=lambda partition: partition.largest or 0, default=None)

    def ahead_ms(self, wall_ms: int) -> int:
        """How far ahead of the time of day a record has moved the clock; 0 if none has, as after the end of the
        input."""
        ahead = self.watermark - wall_ms
        return ahead if ahead > _AHEAD_MS and not self.ended else 0

    @property
    def held_by(self) -> PartitionReading | None:
        """The partition that is furthest behind among those that the clock waits for."""
        waited = [partition for partition in self.partitions if partition.reached is not None]
        return min(waited, key=lambda partition: (partition.reached, partition.name), default=None)


def clock_reading(storage: Storage, newest: Manifest | None = None) -> ClockReading:
    """The clock of the newest checkpoint. ``newest``: its manifest, if that was read already. Raises NoCheckpoint or
    CorruptCheckpoint."""
    log = Log(storage)
    manifest = newest_of(log).manifest if newest is None else newest
    clock, plan = manifest.clock, _last_plan(log, manifest)
    states = {id: (node.clock.watermark, _closed(node)) for id, node in manifest.nodes.items()}
    closed = [end for _, end in states.values() if end is not None]
    return ClockReading(
        checkpoint=manifest.base,
        watermark=clock.watermark,
        closed=min(closed, default=None),
        ended=clock.end_of_input,
        quiet_ms=manifest.quiet_ms,
        not_after=manifest.not_after,
        partitions=tuple(_partitions(manifest, plan)),
        states=states if len(states) > 1 else {},
    )


def _closed(node: NodePart) -> int | None:
    """The clock up to which the windows of a node are closed; None without windows."""
    return node.clock.closed if node.has_windows else None


def _partitions(manifest: Manifest, plan: StepPlan | None) -> list[PartitionReading]:
    """The readings of all partitions. Without the plan of the last step, the manifest alone tells for which partitions
    the clock waits."""
    readings = []
    for name, source in sorted(manifest.sources.items()):
        step = None if plan is None else plan.sources.get(name)
        waits: Mapping[str, int | None] = dict.fromkeys(one for one in source.partitions if one not in source.idle)
        lag_ms, caps = None, waits
        if step is not None:
            lag_ms, caps = step.max_out_of_orderness_ms, step.cap
        for partition in sorted(source.partitions):
            reached = None
            lists = False
            if partition in caps:
                reached = bound_of(source.largest, {partition: caps[partition]}, lag_ms or 0)
                lists = reached != bound_of(source.largest, {partition: None}, lag_ms or 0)
            label = partition_name(name, partition, len(manifest.sources))
            readings.append(PartitionReading(label, source.largest.get(partition), reached, lag_ms, lists))
    return readings


def _last_plan(log: Log, manifest: Manifest) -> StepPlan | None:
    """The plan of the step that made the newest checkpoint; None if the checkpoint before it, or the plan, is gone."""
    with suppress(CorruptCheckpoint):
        committed = manifest if manifest.is_base else log.read(manifest.base).manifest
        if committed.kind == "checkpoint" and committed.parent is not None:
            before = log.read(committed.parent[0]).manifest
            return log.plan(before.base, before.replan)
    return None


_ROWS = 4_000_000

ReadById = Callable[[int], Manifest]


@dataclass(frozen=True)
class Furthest:
    """Where the furthest record of a job lies. ``partition``: as its ``source`` names it. ``by``: the first kept
    checkpoint that has counted the record; ``after``: the last kept checkpoint before it; None if there is none.
    ``step``: what the step from ``after`` to ``by`` read of the source; None if that was not one step, or its plan is
    gone."""

    source: str
    partition: str
    timestamp: int
    by: Manifest
    after: Manifest | None
    step: SourceStep | None

    @property
    def part(self) -> SourcePart:
        return self.by.sources[self.source]

    def splits(self) -> tuple[Split, ...] | None:
        """The splits of the step in which it lies; None if the plan is not kept."""
        if self.step is None:
            return None
        return tuple(split for split in self.step.splits if split.partition == self.partition)

    def __str__(self) -> str:
        """Where it lies.

        "in 3.jsonl, offsets 0 to 18,189, counted by checkpoint 7"
        """
        counted = f"counted by checkpoint {self.by.id:,}"
        if self.after is None:
            counted += ", or by one before it that is no longer kept"
        elif self.step is None:
            counted = f"counted after checkpoint {self.after.id:,}, by checkpoint {self.by.id:,} at the latest"
        return f"{self._place()}, {counted}"

    def _place(self) -> str:
        splits = self.splits()
        if splits is not None:
            return _spans_text([span for split in splits for span in split.spans])
        until = f"before {self._at(self.part.positions[self.partition])}"
        before = None if self.after is None else self.after.sources.get(self.source)
        start = None if before is None else before.positions.get(self.partition)
        return until if start is None else f"from {self._at(start)} on, {until}"

    def _at(self, position: Position) -> str:
        """A position. The files of a source with an index are numbered in the order in which they were listed."""
        text = CODECS[self.part.codec].text(position)
        return f"listed file {text}" if self.part.index and isinstance(position, tuple) else text


def _spans_text(spans: list[Span]) -> str:
    """The files of spans, or their offsets.

    >>> _spans_text([Span(0, 0, 90, {"path": "a.jsonl"})]), _spans_text([Span(0, 5, 8), Span(0, 8, 20)])
    ('in a.jsonl, offsets 0 to 89', 'at offsets 5 to 19')
    """
    files = list(dict.fromkeys(span.at["path"] for span in spans if "path" in span.at))
    if len(files) > 1:
        return f"in one of {len(files):,} files, from {files[0]} to {files[-1]}"
    start, stop = min(span.start for span in spans), max(span.stop for span in spans)
    offsets = f"offsets {start:,} to {stop - 1:,}"
    return f"in {files[0]}, {offsets}" if files else f"at {offsets}"


def furthest(storage: Storage, newest: Manifest, read: ReadById | None = None) -> Furthest | None:
    """The furthest record of a job; None if it has counted none. ``read``: gives a kept manifest by its id,
    as ``Log.read`` does; a few manifests are read."""
    log = Log(storage)
    read = (lambda id: log.read(id).manifest) if read is None else read
    known = [(at, name, partition) for name, part in newest.sources.items() for partition, at in part.largest.items()]
    if not known:
        return None
    timestamp, source, partition = max(known)
    after, by = _first_with(newest, read, lambda manifest: _largest(manifest, source, partition) >= timestamp)
    return Furthest(source, partition, timestamp, by, after, _step(log, read, by, after, source))


def _largest(manifest: Manifest, source: str, partition: str) -> int:
    part = manifest.sources.get(source)
    return -1 if part is None else part.largest.get(partition, -1)


def _first_with(newest: Manifest, read: ReadById, has: Callable[[Manifest], bool]) -> tuple[Manifest | None, Manifest]:
    """Two neighbours among the kept checkpoints that led to ``newest``: ``has`` is false for the first and true for the
    second. A binary search, since the largest timestamp of a partition never goes back."""
    ids = sorted(id for id in newest.bases if not newest.has_left(id) and id < newest.base)
    after, by = None, newest
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        try:
            manifest = read(ids[middle])
        except (CorruptCheckpoint, UnknownCheckpoint):
            # It is damaged, or was collected meanwhile.
            del ids[middle]
            high -= 1
            continue
        if has(manifest):
            by, high = manifest, middle
        else:
            after, low = manifest, middle + 1
    return after, by


def _step(log: Log, read: ReadById, by: Manifest, after: Manifest | None, source: str) -> SourceStep | None:
    """What the step from ``after`` to ``by`` read of a source; None if that was not one step, or its plan is gone."""
    if after is None or by.kind != "checkpoint" or by.parent is None:
        return None
    with suppress(CorruptCheckpoint, UnknownCheckpoint):
        before = read(by.parent[0])
        plan = log.plan(before.base, before.replan) if before.base == after.id else None
        if plan is not None:
            return plan.sources.get(source)
    return None


# -- the record itself -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoundRecord:
    """A record of a source. ``file``: None if the source has none."""

    partition: str
    file: str | None
    ordinal: int
    offset: int
    value: dict[str, Any]

    def __str__(self) -> str:
        """Its place.

        >>> str(FoundRecord("files", "a.jsonl", 0, 90, {})), str(FoundRecord("0", None, 0, 7, {}))
        ('a.jsonl, offset 90', 'partition 0, offset 7')
        """
        return f"{self.file or f'partition {self.partition}'}, offset {self.offset:,}"


def find_record(pipeline: Pipeline, location: Furthest) -> FoundRecord | None:
    """The furthest record: its span of the source is read again, or what is left of the span. None if the source no
    longer holds the record. Refused if the pipeline lacks the source; raises the errors of the source."""
    source = pipeline.sources.get(location.source)
    if source is None:
        raise Refused(
            f"{pipeline.storage.url}: the record is one of the source {location.source!r}, which the pipeline does not "
            "have: give that source too"
        )
    name = partition_name(location.source, location.partition, len(location.by.sources))
    for split, recorded in _to_read(pipeline.storage, source, location):
        try:
            record = _in_split(source, split, recorded, location.timestamp, name)
        except RetentionGap:
            record = _in_split(source, _rest(source, split, recorded), recorded, location.timestamp, name)
        if record is not None:
            return record
    return None


def _in_split(source: Source, split: Split, recorded: Any, timestamp: int, name: str) -> FoundRecord | None:
    """The first record of that timestamp in a split."""
    paths = {span.ordinal: span.at.get("path") for span in split.spans}
    for records in source.read(split, recorded):
        for row in np.flatnonzero(records.timestamps == timestamp)[:1].tolist():
            (value,) = readable_list(records.batch.slice(row, 1))
            offset = int(records.offsets[row])
            return FoundRecord(name, paths.get(records.ordinal), records.ordinal, offset, value)
    return None


def _rest(source: Source, split: Split, recorded: Any) -> Split:
    """The part of a split that the source still holds, after it has deleted the first offsets of the split."""
    (span,) = split.spans
    gone, there = span.start, span.stop
    while there - gone > 1:
        middle = (gone + there) // 2
        try:
            for _ in source.read(replace(split, spans=(replace(span, start=middle, stop=middle + 1),)), recorded):
                pass
            there = middle
        except RetentionGap:
            gone = middle
    return replace(split, spans=(replace(span, start=there),) if there < span.stop else ())


def _to_read(storage: Storage, source: Source, location: Furthest) -> Iterator[tuple[Split, Any]]:
    """The splits in which the record lies, each with the ``recorded`` of its plan: the splits of the step, or, if the
    plan of the step is not kept, splits of new plans for what was read between both checkpoints."""
    splits = location.splits()
    if splits is not None and location.step is not None:
        yield from ((split, location.step.recorded) for split in splits)
        return
    part, partition = location.part, location.partition
    before = None if location.after is None else location.after.sources.get(location.source)
    start = CODECS[part.codec].first if before is None else before.positions.get(partition, CODECS[part.codec].first)
    positions: dict[str, Position] = {**part.positions, partition: start}
    end: Position = part.positions[partition]
    index = RunCache(storage, None).index(location.by, location.source)
    while positions[partition] < end:
        try:
            plan = source.plan(SourceState(positions, part.recorded, index), Budget(_ROWS))
        except RetentionGap:
            # Offsets need no plan, and a plan would begin with the first offsets, which are gone.
            yield Split(partition, (Span(0, positions[partition], end),)), part.recorded
            return
        planned = [split for split in plan.splits if split.partition == partition]
        if not planned:
            return
        yield from ((split, plan.recorded) for split in planned)
        positions[partition] = plan.end[partition]
