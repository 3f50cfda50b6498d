"""A half of a source made of two has partitions, positions and a record of its own, under its name in the whole.

live/0         the partition 0 of the half ``live``
(0, 17)        the position 17 of a half whose positions are offsets: one codec writes those of both
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import structs

from persistent.sources.protocol import Budget, Position, Positions, Source, SourcePlan, SourceState, Split

HISTORY: Final = "history"
LIVE: Final = "live"
SEAM: Final = "seam"
"""Each half has its own record under its name, and the facts about both are under this one."""
OFFSET: Final = "offset/1"
PAIR: Final = "ordinal-offset/1"
READING: Final = ("schema", "reader")
"""What a record says about how the columns are read, which can change."""


@dataclass(frozen=True)
class Half:
    """One half, and how its partitions are called in the whole."""

    name: str
    source: Source

    @property
    def is_offset(self) -> bool:
        return bool(getattr(self.source, "codec", PAIR) == OFFSET)

    def owns(self, partition: str) -> bool:
        return partition.startswith(f"{self.name}/")

    def outer(self, partition: str) -> str:
        return f"{self.name}/{partition}"

    def inner(self, partition: str) -> str:
        return partition.removeprefix(f"{self.name}/")

    def named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """By the names of the whole."""
        return {self.outer(partition): value for partition, value in values.items()}

    def own(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Those of this half, by its own names."""
        return {self.inner(partition): value for partition, value in values.items() if self.owns(partition)}

    def at(self, positions: Positions) -> dict[str, Position]:
        """Its own positions."""
        return {partition: at[1] if self.is_offset else tuple(at) for partition, at in self.own(positions).items()}

    def placed(self, positions: Positions) -> dict[str, Position]:
        """Its positions, as the whole writes them."""
        return {partition: (0, at) if self.is_offset else at for partition, at in self.named(positions).items()}

    def splits(self, splits: Sequence[Split]) -> list[Split]:
        """Its own splits."""
        return [structs.replace(one, partition=self.inner(one.partition)) for one in splits if self.owns(one.partition)]

    def renamed(self, splits: Sequence[Split]) -> tuple[Split, ...]:
        return tuple(structs.replace(split, partition=self.outer(split.partition)) for split in splits)

    def record(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Its own record, as its last plan gave it."""
        return dict(recorded[self.name])

    def recorded(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Its own record, with the columns that the whole says it is read by."""
        return {**recorded.get(self.name, {}), **{name: recorded[name] for name in READING if name in recorded}}

    def state(self, state: SourceState, recorded: Mapping[str, Any]) -> SourceState:
        """Its own part of the state of the whole, with this record of its own."""
        return replace(state, positions=self.at(state.positions), largest=self.own(state.largest), recorded=recorded)

    def planned(self, plan: SourcePlan) -> SourcePlan:
        """Its own part of a plan of the whole."""
        return replace(
            plan,
            splits=tuple(self.splits(plan.splits)),
            end=self.at(plan.end),
            cap=self.own(plan.cap),
            recorded=self.record(plan.recorded),
        )

    def plan(self, state: SourceState, budget: Budget, *, follow: bool) -> SourcePlan:
        """Its plan, by the names of the whole. ``state``: of the whole, with its own record."""
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
    """The kind, record and partitions of each half, from the record of a source; those of another source are its own.

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
