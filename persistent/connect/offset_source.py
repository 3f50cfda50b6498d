"""A source of messages at offsets: all that does not depend on which system has the messages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from persistent.codec.fields import Positions
from persistent.connect import options
from persistent.connect.formats.message_columns import MessageColumns
from persistent.connect.formats.values import MessageValue
from persistent.connect.offsets import Kept, OffsetPlans, reached, require_skew
from persistent.connect.source import Budget, Reached, Source, SourcePlan, SourceState, Split
from persistent.errors import RetentionGap
from persistent.text.figures import utc_text
from persistent.time.clock import bare


class OffsetSource(Source):
    """A source of messages at offsets. A subclass writes how its system is asked: ``kept``, ``identity``, ``confirm``,
    ``sample`` and ``read``; ``at_time``, if it ``finds_times``; and ``is_of``, if its options name other places."""

    codec: str = "offset/1"
    forgets = True

    def __init__(self, columns: MessageColumns, *, place: str = "", **shared: Any) -> None:
        """``place``: names the source in errors of plans. ``shared``: shared options, as the user gives them."""
        checked = options.checked(shared)
        if self.finds_times:
            self.timestamp = checked["timestamp"]
        self.max_out_of_orderness: int = checked["max_out_of_orderness"]
        self.bare = bare(max_out_of_orderness=shared["max_out_of_orderness"])
        self._columns = columns
        self._start: str | int = checked["start"]
        self._skew_ms: int = 0 if self.timestamp == "_timestamp" else checked["max_skew"]
        idle_ms = checked["idle_timeout"]
        self._plans = OffsetPlans(place or repr(self), on_gap=checked["on_gap"], idle_timeout_ms=idle_ms)
        self._last_kept: Mapping[str, Kept] = {}

    def __getstate__(self) -> dict[str, Any]:
        """All but the connection of this process."""
        return {name: value for name, value in self.__dict__.items() if name != "_client"}

    # -- what a system is asked -----------------------------------------------------------------------------------

    @abstractmethod
    def kept(self, recorded: Mapping[str, Any], read: Positions) -> Mapping[str, Kept]:
        """The kept offsets of each partition, of which the offsets before ``read`` are read. SourceChanged if a plan
        with this record is of another place."""

    @abstractmethod
    def identity(self, recorded: Mapping[str, Any], end: Positions) -> dict[str, Any]:
        """What a plan up to ``end`` records about the place, after one that recorded ``recorded``."""

    @abstractmethod
    def sample(self, partition: str, start: int) -> Sequence[MessageValue]:
        """The first values from an offset on, from which columns are inferred."""

    def at_time(self, partitions: Sequence[str], ms: int) -> Mapping[str, int]:
        """The first offsets whose records arrived at ``ms`` or later."""
        raise NotImplementedError

    def is_of(self, recorded: Mapping[str, Any], partitions: Iterable[str]) -> bool:
        """Whether a plan with this record and these partitions reads what the present options name."""
        return True

    def facts(self) -> dict[str, Any]:
        """The options that a plan records."""
        return self._columns.times()

    def require_recorded(self, recorded: Mapping[str, Any]) -> None:
        """InvalidPipeline for options that a job must not change."""
        options.require_recorded(recorded, self.facts())

    def gone(self, what: str, offset: int, first: int | None = None) -> RetentionGap:
        """The error of a read that finds its offset deleted. ``what``: the partition, in words."""
        begins = "" if first is None else f", the first is {first:,}"
        return RetentionGap(
            f"{self!r}, {what}: offset {offset:,} no longer exists{begins}: the broker has deleted it since the step "
            "was planned. The next run plans the step again, according to on_gap="
        )

    # -- plans ---------------------------------------------------------------------------------------------------

    def declared(self) -> Mapping[str, tuple[bool, bool]]:
        is_written = type(self).at_time is not OffsetSource.at_time
        return {**super().declared(), "finds_times": (self.finds_times, is_written)}

    def partitions(self) -> Sequence[str]:
        """Empty: all partitions join with a plan, so a checkpoint can be read without the broker."""
        return ()

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        """What to read next of each partition, in shares as equal as the remaining offsets allow."""
        self.require_recorded(state.recorded)
        kept = self._last_kept = self.kept(state.recorded, state.positions)
        plan = self._plans.plan(state, budget, kept, self._begins)
        plan = replace(plan, recorded={**plan.recorded, **self.identity(state.recorded, plan.end)})
        return self._described(state, plan)

    def corrected(self, state: SourceState, put: SourcePlan) -> SourcePlan | None:
        """The same messages, decoded by the present options. None if they are of another place."""
        self.require_recorded(state.recorded)
        if not self.is_of(put.recorded, put.end):
            return None
        self._last_kept = self.kept(put.recorded, {})
        return self._described(state, put)

    def has_forgotten(self, splits: Sequence[Split], recorded: Mapping[str, Any]) -> bool:
        """Whether records of a plan are gone, and may be skipped. False if they are of another place."""
        is_ours = self.is_of(recorded, [split.partition for split in splits])
        return is_ours and self._plans.has_forgotten(splits, self.kept(recorded, {}))

    def position_at(self, partition: str, clock: int) -> int:
        """An offset before which no record has an event time of ``clock`` or later, provided ``max_skew`` is right."""
        return self.at_time([partition], clock - self._skew_ms)[partition]

    def from_clock(self, recorded: Mapping[str, Any], clock: int) -> SourceState | None:
        """The positions of a clock in the present place, which can be another one; fields and times stay."""
        if not self.finds_times:
            return None
        partitions, identity = [*self.kept({}, {})], self.identity({}, {})
        at = self.at_time(partitions, clock - self._skew_ms)
        # The kept offsets come last: a record that is deleted in between is a gap, and a place that is replaced in
        # between is SourceChanged.
        kept = self.kept(identity, {})
        same = ("writers",) if identity.items() <= recorded.items() else ()
        carried = {name: recorded[name] for name in (*self.facts(), "schema", "reader", *same) if name in recorded}
        if "schema" in recorded:
            here = {**recorded, **identity}
            require_skew(repr(self), at, kept, (clock, self._skew_ms), lambda split: self.read(split, here))
        begins = self._plans.from_clock(kept, at, utc_text(clock - self._skew_ms))
        return SourceState(at, {**carried, **begins, **identity})

    def reached(self, state: SourceState) -> Reached:
        """How many of the offsets found by the last plan have been read."""
        return reached(state, self._last_kept)

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        self.require_recorded(recorded)
        return self._columns.schema(recorded)

    def _begins(self, partitions: Sequence[str]) -> Mapping[str, int]:
        kept = self._last_kept
        if isinstance(self._start, int):
            at = self.at_time(partitions, self._start)
            return {name: max(at[name], kept[name].first) for name in partitions}
        return {name: kept[name].first if self._start == "earliest" else kept[name].stop for name in partitions}

    def _described(self, state: SourceState, plan: SourcePlan) -> SourcePlan:
        """The plan, with what it records about the values."""
        at = {**plan.end, **{split.partition: split.spans[0].start for split in reversed(plan.splits)}}
        samples = (self.sample(partition, at[partition]) for partition in sorted(at if plan.splits else ()))
        described = self._columns.described(state.recorded, bool(plan.splits), lambda: samples)
        return replace(plan, recorded={**plan.recorded, **self.facts(), **described})
