"""A plan states what the step after a checkpoint will do, and is put before the step commits anything.

A driver that finds it runs this very plan, so a step repeated after a crash is the same step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from persistent.checkpoint.agreement import plan_agrees
from persistent.checkpoint.features import (
    CSV_DIALECT,
    EARLY_RESULTS,
    LATE_SESSIONS,
    LATENESS,
    LIMITED,
    MANY_SOURCES,
    MANY_STATES,
    QUIET,
    ZONES,
)
from persistent.checkpoint.manifest import FORMAT
from persistent.checkpoint.older_formats import PLAN, UNNAMED, plan_of_today
from persistent.checkpoint.parts import SourcePart, runs_from_json
from persistent.checkpoint.positions import CODECS, ORDINAL_OFFSET, positions_from_json, positions_to_json
from persistent.checkpoint.shapes import (
    check_format,
    check_known,
    is_of_several,
)
from persistent.codec import Run, decode_document, encode_document
from persistent.codec.shapes import Misfit, check_shape
from persistent.errors import LawBroken
from persistent.sources.csv_dialect import has_dialect
from persistent.sources.protocol import Positions, Span, Split
from persistent.zone import Zone


@dataclass(frozen=True)
class SourceStep:
    """What a step reads from a source. ``start``, ``end``: positions before and after; those of a partition that
    ``joins`` with this step are only in ``end``. ``cap``, ``skipped``: as in ``SourcePlan``; ``idle``: the partitions
    that the clock does not wait for. ``appended``: runs that this plan adds to the source's index.
    ``max_out_of_orderness_ms``: how far the clock stays behind the largest timestamp; None in a plan of an older
    release, which uses the source's present one."""

    start: Positions
    end: Positions
    splits: tuple[Split, ...]
    cap: Mapping[str, int | None]
    recorded: Mapping[str, Any] = field(default_factory=dict)
    appended: tuple[Run, ...] = ()
    idle: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    max_out_of_orderness_ms: int | None = None
    codec: str = ORDINAL_OFFSET.name
    skipped: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "codec": self.codec,
            "start": positions_to_json(self.codec, self.start),
            "end": positions_to_json(self.codec, self.end),
            "splits": [
                [split.partition, [[s.ordinal, s.start, s.stop, dict(s.at)] for s in split.spans]]
                for split in self.splits
            ],
            "cap": dict(self.cap),
            "idle": list(self.idle),
            "recorded": self.recorded,
            "appended": [run.to_json() for run in self.appended],
            "max_out_of_orderness_ms": self.max_out_of_orderness_ms,
            **({"joins": list(self.joins)} if self.joins else {}),
            **({"skipped": dict(self.skipped)} if self.skipped else {}),
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> SourceStep:
        return SourceStep(
            positions_from_json(body["codec"], body["start"]),
            positions_from_json(body["codec"], body["end"]),
            tuple(Split(partition, tuple(Span(*span) for span in spans)) for partition, spans in body["splits"]),
            body["cap"],
            body["recorded"],
            runs_from_json(body["appended"]),
            tuple(body["idle"]),
            tuple(body.get("joins", ())),
            body["max_out_of_orderness_ms"],
            body["codec"],
            dict(body.get("skipped", {})),
        )


@dataclass(frozen=True)
class TaskStep:
    """``close_at``: windows of the task that end at or before it are closed. ``ends``: its input was declared
    complete. ``zone``: the rules of the time zone of its windows from this step on; None if they are those of the
    checkpoint that the plan continues, which never change. ``final_at``: windows that end at or before it are final;
    None if all that are closed are. ``emit``: ``CHANGE`` if the step publishes what it has changed, ``EARLY`` if only
    where it must; None if it publishes what closes. ``passed``: with early results, the clock that they follow, and
    where it stands. ``of_sessions``: true if the windows of ``final_at`` are sessions."""

    close_at: int = 0
    ends: bool = False
    zone: Zone | None = None
    final_at: int | None = None
    emit: str | None = None
    passed: Mapping[str, int] | None = None
    of_sessions: bool | None = None

    @property
    def final(self) -> int:
        """Windows that end at or before it are final: they take nothing of this step, and leave the state."""
        return self.close_at if self.final_at is None else self.final_at

    def to_json(self) -> dict[str, Any]:
        """All but ``close_at`` and ``ends`` are written only if they are set, so that releases without them can read
        all other plans."""
        body = {name: value for name, value in self.__dict__.items() if value is not None}
        return body if self.zone is None else {**body, "zone": self.zone.to_json()}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> TaskStep:
        return TaskStep(**{**body, **({"zone": Zone.from_json(body["zone"])} if "zone" in body else {})})


@dataclass(frozen=True)
class StepPlan:
    """``number``: 0, or the replan. ``wall_ms``: the time of day of the plan; a timestamp is too far ahead of it, or of
    the clock if that is later. ``sources``: the part of each source, by name; a source that the checkpoint does not
    know joins with this step. ``tasks``: by the name of each state, of which ``task`` is the only one.
    ``max_future_ms``: how far ahead of both a timestamp can be; None in a plan of an older release, which uses the
    present option. ``quiet_ms``: for how long every partition has been at its end, if the clock moves on by that.
    ``not_after``: later timestamps are dead letters; None without that limit."""

    job: str
    base: int
    number: int
    nonce: str
    wall_ms: int
    sources: Mapping[str, SourceStep]
    tasks: Mapping[str, TaskStep]
    max_future_ms: int | None = None
    quiet_ms: int = 0
    not_after: int | None = None

    @property
    def source(self) -> SourceStep:
        """What the step reads from the only source."""
        (source,) = self.sources.values()
        return source

    @property
    def reads(self) -> bool:
        """Whether the step reads anything."""
        return any(source.splits for source in self.sources.values())

    @property
    def task(self) -> TaskStep:
        """What the only task does."""
        (task,) = self.tasks.values()
        return task

    def of(self, operator: str, closed: int) -> StepPlan:
        """The plan of this state alone; itself, if it is for one state, whatever the name of its task was. A state that
        was added since the plan was put closes nothing more than it has ``closed``."""
        if len(self.tasks) == 1 and (operator in self.tasks or self._is_of_renamed(operator, closed)):
            return self
        return replace(self, tasks={operator: self.tasks.get(operator, TaskStep(closed))})

    def _is_of_renamed(self, operator: str, closed: int) -> bool:
        """Whether its only task, with one state, has another name now; that one has the clock of the one before."""
        has_names = is_of_several(self.tasks) or is_of_several([operator])
        return not has_names and self.task.close_at >= closed

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

    def named(self, source: str, task: str) -> StepPlan:
        """The same plan with these names; a plan of an older format has none."""
        if UNNAMED not in self.sources:
            return self
        return replace(self, sources={source: self.source}, tasks={task: self.task})

    def _features(self) -> list[str]:
        named = {
            MANY_SOURCES: len(self.sources) > 1,
            ZONES: any(task.zone is not None for task in self.tasks.values()),
            LATE_SESSIONS: any(task.of_sessions for task in self.tasks.values()),
            LATENESS: any(task.final_at is not None or task.emit for task in self.tasks.values()),
            EARLY_RESULTS: any(task.passed is not None for task in self.tasks.values()),
            QUIET: self.quiet_ms > 0,
            LIMITED: self.not_after is not None,
            MANY_STATES: is_of_several(self.tasks),
            CSV_DIALECT: any(has_dialect(one.recorded) for one in self.sources.values()),
        }
        return [feature for feature, is_needed in named.items() if is_needed]

    def encode(self) -> bytes:
        """Its bytes, in the newest format. LawBroken if no driver would run it."""
        body = {
            "format": FORMAT,
            "features": self._features(),
            "job": self.job,
            "base": self.base,
            "number": self.number,
            "nonce": self.nonce,
            "wall_ms": self.wall_ms,
            "sources": {name: source.to_json() for name, source in self.sources.items()},
            "tasks": {name: task.to_json() for name, task in self.tasks.items()},
            "max_future_ms": self.max_future_ms,
            **({"quiet_ms": self.quiet_ms} if self.quiet_ms else {}),
            **({} if self.not_after is None else {"not_after": self.not_after}),
        }
        try:
            plan_agrees(body)
        except Misfit as misfit:
            raise LawBroken(
                f"the plan of the step after {self.base} contradicts itself ({misfit}); nothing was committed"
            ) from misfit
        return encode_document(body)

    @staticmethod
    def decode(data: bytes, place: str) -> StepPlan:
        """The plan in these bytes, of any format."""
        body = decode_document(data, place)
        check_format(body, place)
        check_shape(PLAN[body["format"]], body, place, "a plan")
        body = plan_of_today(body)
        check_known(body, place)
        check_shape(plan_agrees, body, place, "a plan")
        return StepPlan(
            job=body["job"],
            base=body["base"],
            number=body["number"],
            nonce=body["nonce"],
            wall_ms=body["wall_ms"],
            sources={name: SourceStep.from_json(source) for name, source in body["sources"].items()},
            tasks={name: TaskStep.from_json(task) for name, task in body["tasks"].items()},
            max_future_ms=body["max_future_ms"],
            quiet_ms=body.get("quiet_ms", 0),
            not_after=body.get("not_after"),
        )
