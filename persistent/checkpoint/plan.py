"""A plan states what the step after a checkpoint will do, and is put before the step commits anything.

A driver that finds it runs this very plan, so a step repeated after a crash is the same step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from persistent.checkpoint.parts import (
    NodeName,
    RunList,
    SourcePart,
    check_among,
    check_closed,
    check_fit,
    check_once,
    check_same,
    check_some,
    names_text,
)
from persistent.codec import documents
from persistent.codec.documents import Misfit
from persistent.codec.fields import (
    CODECS,
    MANY,
    ORDINAL_OFFSET,
    PARTS_MAX,
    AnyPositions,
    Codec,
    FreeFacts,
    Name,
    Natural,
    Part,
    Partition,
    Partitions,
    Positions,
    ShortText,
    Whole,
)
from persistent.connect.source import Split
from persistent.names import is_of_several
from persistent.time.lateness import EARLY, Emission
from persistent.time.zone import Zone


class SourceStep(Part, frozen=True):
    """What a step reads from a source. ``start``, ``end``: positions before and after; a partition that ``joins`` with
    this step is only in ``end``. ``cap``, ``skipped``: as in ``SourcePlan``; ``idle``: the partitions that the clock
    does not wait for. ``appended``: runs that this plan adds to the source's index. ``max_out_of_orderness_ms``: how
    far the clock stays behind the largest timestamp; None: by the option of the source when the plan is run."""

    start: AnyPositions
    end: AnyPositions
    splits: Annotated[tuple[Split, ...], Meta(max_length=MANY)]
    cap: Annotated[Mapping[Partition, Whole | None], Meta(max_length=MANY)]
    recorded: FreeFacts = {}
    appended: RunList = ()
    idle: Partitions = ()
    joins: Partitions = ()
    max_out_of_orderness_ms: Natural | None = None
    codec: Codec = ORDINAL_OFFSET.name
    skipped: Annotated[Mapping[Partition, Natural], Meta(max_length=MANY)] = {}


class TaskStep(Part, frozen=True):
    """``close_at``: windows of the task that end at or before it are closed. ``ends``: its input was declared complete.
    ``zone``: the rules of the time zone of its windows from this step on; None: the rules of the checkpoint that the
    plan continues, which never change. ``final_at``: windows that end at or before it are final; None if all that are
    closed are. ``emit``: ``CHANGE`` if the step publishes what it has changed, ``EARLY`` if only where it must; None if
    it publishes what closes. ``passed``: with early results, the clock of the step."""

    close_at: Whole = 0
    ends: bool = False
    zone: Zone | None = None
    final_at: Whole | None = None
    emit: Emission | None = None
    passed: Whole | None = None

    @property
    def final(self) -> int:
        """Windows that end at or before it are final: they take nothing of this step, and leave the state."""
        return self.close_at if self.final_at is None else self.final_at


class StepPlan(Part, frozen=True):
    """``number``: 0, or the replan. ``wall_ms``: the time of day of the plan; how far ahead a timestamp is counts from
    the later of this time and the clock. ``sources``: the part of each source, by name; a source that the checkpoint
    does not know joins with this step. ``tasks``: what it does with each node. ``max_future_ms``: how far ahead of both
    a timestamp can be; None: by the present option. ``quiet_ms``: for how long every partition has been at its end, if
    the clock moves on by that. ``not_after``: later timestamps are dead letters; None without that limit."""

    job: ShortText
    base: Natural
    number: Natural
    nonce: ShortText
    wall_ms: Whole
    sources: Annotated[Mapping[Name, SourceStep], Meta(max_length=PARTS_MAX)]
    tasks: Annotated[Mapping[NodeName, TaskStep], Meta(max_length=PARTS_MAX)]
    max_future_ms: Natural | None = None
    quiet_ms: Natural = 0
    not_after: Whole | None = None

    @property
    def reads(self) -> bool:
        """Whether the step reads anything."""
        return any(source.splits for source in self.sources.values())

    def task_of(self, node: str, closed: int) -> TaskStep:
        """What the step does with a node. A plan for a single node without a state name holds for it even if its task
        was renamed. A node that was added after the plan closes nothing beyond what it has ``closed``."""
        if len(self.tasks) == 1 and not is_of_several([*self.tasks]) and not is_of_several([node]):
            (renamed,) = self.tasks.values()
            return renamed if node in self.tasks or renamed.close_at >= closed else TaskStep(closed)
        return self.tasks.get(node, TaskStep(closed))

    @property
    def starts(self) -> dict[str, Positions]:
        """The positions of each source before the step."""
        return {name: source.start for name, source in self.sources.items()}

    def starts_at(self, sources: Mapping[str, SourcePart]) -> bool:
        """Whether it starts where a checkpoint has these sources. Others join with it, from their beginning."""
        beginnings = {
            name: dict.fromkeys(step.start, CODECS[step.codec].first)
            for name, step in self.sources.items()
            if name not in sources
        }
        return self.starts == {name: source.positions for name, source in sources.items()} | beginnings

    def files(self) -> set[str]:
        """The names of the runs that it adds."""
        return {run.name for source in self.sources.values() for run in source.appended}

    def encode(self) -> bytes:
        """Its bytes. LawBroken if no driver would run it."""
        return documents.write(self, f"the plan of the step after {self.base}", _agrees)

    @staticmethod
    def decode(data: bytes, place: str) -> StepPlan:
        """The plan in these bytes."""
        return documents.read(StepPlan, data, place, "a plan", _agrees)


def _agrees(plan: StepPlan) -> None:
    """A step ends at its start or later. It reads only what lies between, from partitions that existed or join with the
    step."""
    check_some("sources", plan.sources)
    check_some("tasks", plan.tasks)
    for name, source in plan.sources.items():
        place, joins = f"sources.{name}.", source.joins
        check_once(joins, f"{place}joins")
        known = [partition for partition in joins if partition in source.start]
        if known:
            raise Misfit(f"{place}joins: {names_text(known)} joins and has a start")
        check_fit(source.codec, source.start, f"{place}start")
        check_fit(source.codec, source.end, f"{place}end")
        check_same(source.end, [*source.start, *joins], f"{place}end")
        splits = [split.partition for split in source.splits]
        for part, partitions in (("splits", splits), ("idle", source.idle), ("skipped", source.skipped)):
            check_among(partitions, source.end, f"{place}{part}")
        _check_no_way_back(source, place)
    for task, step in plan.tasks.items():
        check_closed(step.final_at, step.close_at, f"tasks.{task}.final_at")
        if step.emit == EARLY and step.passed is None:
            raise Misfit(f"tasks.{task}.emit: is early, and by no clock")


def _check_no_way_back(source: SourceStep, place: str) -> None:
    """Misfit if the step reads before its start."""
    codec = CODECS[source.codec]
    start: Positions = source.start
    read = ((split.partition, codec.of(span.ordinal, span.start)) for split in source.splits for span in split.spans)
    for part, positions in (("end", source.end.items()), ("splits", read)):
        for partition, at in positions:
            if partition in start and at < start[partition]:
                raise Misfit(f"{place}{part}: {partition:.60} at {at} is before its start {start[partition]}")
