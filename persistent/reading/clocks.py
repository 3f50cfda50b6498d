"""A clock reading says where the clock of a checkpoint stands, and which partition holds it back."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import NodePart, partition_name
from persistent.checkpoint.plan import StepPlan
from persistent.errors import CorruptCheckpoint
from persistent.storage.protocol import Storage
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
