"""A source of two halves, the whole, holds the partitions, positions and record of each half under the half's name.

live/0         partition 0 of the half ``live``
(0, 17)        offset 17 in a half whose positions are offsets: so one codec writes the positions of both halves
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import structs

from persistent.codec.fields import Position, Positions
from persistent.connect.source import Budget, Source, SourcePlan, SourceState, Split

HISTORY: Final = "history"
LIVE: Final = "live"
SEAM: Final = "seam"
"""Each half has its own record under its name, and the facts about both are under this one."""
OFFSET: Final = "offset/1"
PAIR: Final = "ordinal-offset/1"
READING: Final = ("schema", "reader")
"""The facts of a record that say how the columns are read. They can change."""


@dataclass(frozen=True)
class Half:
    """One half: its source, and its name, which precedes the names of its partitions in the whole."""

    name: str
    source: Source

    @property
    def is_offset(self) -> bool:
        return self.source.codec == OFFSET

    def owns(self, partition: str) -> bool:
        return partition.startswith(f"{self.name}/")

    def outer(self, partition: str) -> str:
        return f"{self.name}/{partition}"

    def inner(self, partition: str) -> str:
        return partition.removeprefix(f"{self.name}/")

    def named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values by the partition names of the whole. ``values``: by the partition names of this half."""
        return {self.outer(partition): value for partition, value in values.items()}

    def own(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of this half, by its own partition names. ``values``: by the partition names of the whole."""
        return {self.inner(partition): value for partition, value in values.items() if self.owns(partition)}

    def at(self, positions: Positions) -> dict[str, Position]:
        """The positions of this half, as its source writes them, from the positions of the whole."""
        return {partition: at[1] if self.is_offset else tuple(at) for partition, at in self.own(positions).items()}

    def placed(self, positions: Positions) -> dict[str, Position]:
        """Positions of this half, as the whole writes them."""
        return {partition: (0, at) if self.is_offset else at for partition, at in self.named(positions).items()}

    def splits(self, splits: Sequence[Split]) -> list[Split]:
        """The splits of this half, from splits of the whole."""
        return [structs.replace(one, partition=self.inner(one.partition)) for one in splits if self.owns(one.partition)]

    def renamed(self, splits: Sequence[Split]) -> tuple[Split, ...]:
        return tuple(structs.replace(split, partition=self.outer(split.partition)) for split in splits)

    def record(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """The record of this half, as its last plan returned it."""
        return dict(recorded[self.name])

    def recorded(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """The record of this half, with the facts in ``READING`` from the record of the whole."""
        return {**recorded.get(self.name, {}), **{name: recorded[name] for name in READING if name in recorded}}

    def state(self, state: SourceState, recorded: Mapping[str, Any]) -> SourceState:
        """The state of this half, from the state of the whole. ``recorded``: the record of this half."""
        return replace(state, positions=self.at(state.positions), largest=self.own(state.largest), recorded=recorded)

    def planned(self, plan: SourcePlan) -> SourcePlan:
        """The plan of this half, from a plan of the whole."""
        return replace(
            plan,
            splits=tuple(self.splits(plan.splits)),
            end=self.at(plan.end),
            cap=self.own(plan.cap),
            recorded=self.record(plan.recorded),
        )

    def plan(self, state: SourceState, budget: Budget, *, follow: bool) -> SourcePlan:
        """The plan of this half, by the names of the whole. ``state``: of the whole, with the record of this half."""
        share = replace(budget, ahead=frozenset(self.inner(name) for name in budget.ahead if self.owns(name)))
        plan = self.source.plan(self.state(state, state.recorded), share, follow=follow)
        end = {**state.positions, **self.placed(plan.end)}
        return replace(
            plan,
            splits=self.renamed(plan.splits),
            end=end,
            cap=self.named(plan.cap),
            idle=tuple(map(self.outer, plan.idle)),
            skipped=self.named(plan.skipped),
            more=tuple(map(self.outer, plan.more)),
            rests=None if plan.rests is None else self.outer(plan.rests),
            max_out_of_orderness=self.source.max_out_of_orderness,
        )


def halves_of(kind: str, recorded: Mapping[str, Any], partitions: Sequence[str]) -> list[tuple[str, Any, list[str]]]:
    """The kind, record and partitions of each half, from the record of a source. Any other source is its only half.

    >>> halves_of("LogSource", {"log": "7f"}, ["log"])
    [('LogSource', {'log': '7f'}, ['log'])]
    """
    if SEAM not in recorded:
        return [(kind, recorded, list(partitions))]
    halves = []
    for half, of in zip((HISTORY, LIVE), recorded[SEAM]["kinds"], strict=True):
        names = [partition.removeprefix(f"{half}/") for partition in partitions if partition.startswith(f"{half}/")]
        halves.append((of, recorded[half], names))
    return halves


def has_switched(recorded: Mapping[str, Any]) -> bool:
    """Whether a plan with this record reads the live source: the history has been read.

    >>> has_switched({}), has_switched({"seam": {"end": {"history/files": [3, 0]}}})
    (False, True)
    """
    return "end" in recorded.get(SEAM, {})
