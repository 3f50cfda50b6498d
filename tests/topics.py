"""A topic in this process: partitions that grow, join and forget, read by the plans of a broker's source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from persistent.codec.fields import Positions
from persistent.connect.offsets import Kept, OffsetPlans
from persistent.connect.source import Budget, Records, Source, SourcePlan, SourceState, Split
from persistent.errors import RetentionGap

_SCHEMA = pa.schema([("ts", pa.int64()), ("page", pa.string())])


class Topic:
    """``partitions``: the timestamps of each, by offset; None is an offset without a record, as a marker takes one.
    ``first``: the first offset that is kept. ``held``: how many offsets at the end an open transaction holds back."""

    def __init__(self, **partitions: list[int | None]) -> None:
        self.partitions = partitions
        self.first = dict.fromkeys(partitions, 0)
        self.held: dict[str, int] = {}

    def add(self, partition: str, *timestamps: int | None) -> None:
        self.partitions.setdefault(partition, []).extend(timestamps)
        self.first.setdefault(partition, 0)

    def kept(self) -> dict[str, Kept]:
        return {
            name: Kept(self.first[name], len(rows) - self.held.get(name, 0), len(rows))
            for name, rows in self.partitions.items()
        }


class TopicSource(Source):
    """Reads a topic in this process."""

    finds_times = True
    forgets = True

    kind = "TopicSource"
    codec = "offset/1"
    max_out_of_orderness = 0

    def __init__(
        self, topic: Topic, *, on_gap: str = "fail", idle_timeout_ms: int | None = None, start: str = "earliest"
    ) -> None:
        self.topic = topic
        self.start = start
        self.plans = OffsetPlans("topic t", on_gap=on_gap, idle_timeout_ms=idle_timeout_ms)

    def partitions(self) -> Sequence[str]:
        return ()

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        return self.plans.plan(state, budget, self.topic.kept(), self._begin)

    def _begin(self, partitions: Sequence[str]) -> Mapping[str, int]:
        kept = self.topic.kept()
        return {name: kept[name].first if self.start == "earliest" else kept[name].stop for name in partitions}

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        return _SCHEMA

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        rows = self.topic.partitions[split.partition]
        for span in split.spans:
            if span.start < self.topic.first[split.partition]:
                raise RetentionGap(f"topic t, partition {split.partition}: offset {span.start} is gone")
            there = [(offset, rows[offset]) for offset in range(span.start, span.stop) if rows[offset] is not None]
            offsets = np.array([offset for offset, _ in there], np.int64)
            times = np.array([time for _, time in there], np.int64)
            pages = pa.array([split.partition] * len(there), pa.string())
            yield Records(0, pa.record_batch([pa.array(times), pages], schema=_SCHEMA), times, offsets)

    def position_at(self, partition: str, clock: int) -> int:
        rows = self.topic.partitions[partition]
        return next((at for at, time in enumerate(rows) if time is not None and time >= clock), len(rows))

    def from_clock(self, recorded: Mapping[str, Any], clock: int) -> SourceState:
        at = {partition: self.position_at(partition, clock) for partition in self.topic.partitions}
        at = {partition: max(offset, self.topic.first[partition]) for partition, offset in at.items()}
        return SourceState(at, self.plans.from_clock(self.topic.kept(), at, str(clock)))

    def has_forgotten(self, splits: Sequence[Split], recorded: Mapping[str, Any]) -> bool:
        return self.plans.has_forgotten(splits, self.topic.kept())

    def acknowledge(self, positions: Positions) -> None:
        """Nothing to do."""
