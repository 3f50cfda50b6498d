"""The output parts of a manifest describe what it published: the batches of each sink, and what was set aside.

Each part knows its form in a document of the newest format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from persistent.checkpoint.names import Staged

LATE_SINK: Final = "late"
"""The name of the sink of late records."""


@dataclass(frozen=True)
class SinkBatch:
    """The files that a checkpoint staged for one sink, to be published under its id. ``before``: the id of this sink's
    previous batch (a checkpoint without outputs has none); None for the first, and for a batch of an older release."""

    id: int
    before: int | None
    staged: tuple[Staged, ...]

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "before": self.before, "staged": staged_to_json(self.staged)}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> SinkBatch:
        return SinkBatch(body["id"], body["before"], staged_from_json(body["staged"]))


@dataclass(frozen=True)
class SinkPart:
    """The batches of a sink. ``does``: its optional methods. ``last``: the id of its newest batch, or of the rollback
    since. ``unpublished``: the batches that may still be unpublished, oldest first; without files if a run without a
    sink has discarded them. ``state``: the name of the state that it takes; None if that has none. ``emptied``: whether
    a rollback takes back all that it was given, so it lacks every key. ``late``: whether it receives late records,
    instead of results."""

    does: tuple[str, ...] = ()
    last: int | None = None
    unpublished: tuple[SinkBatch, ...] = ()
    state: str | None = None
    emptied: bool = False
    late: bool = False

    def to_json(self) -> dict[str, Any]:
        """Its form in a manifest; that of an older release, unless it needs more."""
        body = {"does": list(self.does), "last": self.last, "unpublished": [one.to_json() for one in self.unpublished]}
        return body | {name: True for name in ("emptied", "late") if getattr(self, name)} | _of(self.state)

    @property
    def owed(self) -> tuple[SinkBatch, ...]:
        """The batches with outputs that may still be unpublished."""
        return tuple(batch for batch in self.unpublished if batch.staged)

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> SinkPart:
        parts = {"does": tuple(body["does"]), "unpublished": tuple(map(SinkBatch.from_json, body["unpublished"]))}
        return SinkPart(**{**body, **parts})


@dataclass(frozen=True)
class Inheritance:
    """The place in a sink that a job takes over from the one whose savepoint it started from: the ``number`` of the
    newest batch there, and the ``jobs`` that may hold the place. ``state``: as of a sink."""

    jobs: tuple[str, ...]
    number: int
    state: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"jobs": list(self.jobs), "number": self.number, **_of(self.state)}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Inheritance:
        return Inheritance(tuple(body["jobs"]), body["number"], body.get("state"))


@dataclass(frozen=True)
class Aside:
    """The late rows and dead letters that a checkpoint staged, to be published under its id."""

    id: int
    late: tuple[Staged, ...] = ()
    dead: tuple[Staged, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.late or self.dead)

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "late": staged_to_json(self.late), "dead": staged_to_json(self.dead)}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Aside:
        return Aside(body["id"], staged_from_json(body["late"]), staged_from_json(body["dead"]))


def staged_to_json(staged: Sequence[Staged]) -> list[dict[str, Any]]:
    return [dict(one.__dict__) for one in staged]


def staged_from_json(entries: Sequence[Mapping[str, Any]]) -> tuple[Staged, ...]:
    return tuple(Staged(**entry) for entry in entries)


def _of(state: str | None) -> dict[str, str]:
    """The name of a state, if it has one: releases without several states can read all other documents."""
    return {} if state is None else {"state": state}
