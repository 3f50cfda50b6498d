"""A manifest is one checkpoint: state, clock, positions and outputs of one moment, committed by one file.

Laws, along the chain of parents: ids and epochs never decrease, nor do positions and the clock, except where a manifest
sets the state anew (``SETS``); ``base`` is the manifest's own id if it holds a state of its own, and fences,
compactions and migrations copy it; per partition ``read = processed + late + dead + duplicate``.

It holds every source, task, state and sink by name. A job of this release has one task. Each state of it is an operator
of its own, with a clock of its own, because it closes its own windows; ``of`` is the manifest of one of them, of which
``task_name``, ``operator`` and ``final`` speak. All have read the same records, so their accounts are equal.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from persistent.checkpoint.agreement import manifest_agrees
from persistent.checkpoint.corrections import Correction, Corrections
from persistent.checkpoint.features import (
    CORRECTIONS,
    CSV_DIALECT,
    DEDUPLICATION,
    EARLY_RESULTS,
    EMPTIED_SINKS,
    LATE_OUTPUTS,
    LATE_SESSIONS,
    LATENESS,
    LIMITED,
    MANY_SINKS,
    MANY_SOURCES,
    MANY_STATES,
    QUIET,
    READINGS,
    TIME_TO_LIVE,
    ZONES,
)
from persistent.checkpoint.names import runs_folder
from persistent.checkpoint.older_formats import MANIFEST, manifest_of_today
from persistent.checkpoint.output_parts import Aside, Inheritance, SinkPart
from persistent.checkpoint.parts import Account, Accounts, OperatorState, SourcePart, TaskClock, partition_name
from persistent.checkpoint.shapes import (
    FORMATS,
    check_format,
    check_known,
    is_of_several,
)
from persistent.clock import Clock
from persistent.codec import Run, decode_document, encode_document
from persistent.codec.shapes import Misfit, both, check_shape
from persistent.errors import LawBroken
from persistent.lateness import EARLY
from persistent.sources.csv_dialect import has_dialect
from persistent.task import STATE, state_name

T = TypeVar("T")

FORMAT = FORMATS[-1]
_SHAPE = both(MANIFEST[FORMAT], manifest_agrees)
_FENCES_KEPT = 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=@+-]{0,199}")


@dataclass(frozen=True)
class Manifest:
    """One entry of the manifest log.

    ``bases``: the kept ids that name files of their own, with the time of day of their commit (ms): the newest, those
    that retention keeps, and ``pins``, kept until they are unpinned. ``burnt``: ids that were lost or unreadable at a
    rollback. ``committed_ms``: the time of day of its plan, 0 if unknown. ``target``: the target of a rollback.
    ``origin``: job and id of the checkpoint that this job started from.

    ``retract``: outputs published under ids from the first up to the second are to be taken back; every driver that
    takes over repeats it, until the next checkpoint. ``left``: the ids, from the first up to the second, that a
    rollback abandoned, and whether it took back their outputs; listed while one of them is kept. ``publishes``:
    whether the driver of this state had a sink; None if not recorded. ``revision_base``: the revision from which this
    job counts, the largest of the jobs that it continues. ``inherits``: by sink, the place that this job takes over
    there. ``not_after``: later timestamps are dead letters, since the clock was set back; None: only those beyond
    ``max_future``. ``corrections``: what was put into the state or taken out of it after the fact, by name; no name is
    used twice. ``format``: the one it was read in.

    ``sources``, ``sinks``: by name. ``clocks``, ``operators``: by operator, which is ``task``, or ``task/state`` if the
    task has several states. ``ledger``: by operator, input and partition. ``aside``: late rows and dead letters that
    may still be unpublished, oldest first.
    """

    job: str
    id: int
    kind: str
    base: int
    oldest: int
    epoch: int
    nonce: str
    sources: Mapping[str, SourcePart]
    clocks: Mapping[str, TaskClock]
    operators: Mapping[str, OperatorState]
    ledger: Mapping[str, Mapping[str, Accounts]]
    sinks: Mapping[str, SinkPart] = field(default_factory=dict)
    aside: tuple[Aside, ...] = ()
    parent: tuple[int, str] | None = None
    fences: int = 0
    replan: int = 0
    pins: tuple[int, ...] = ()
    bases: Mapping[int, int] = field(default_factory=dict)
    burnt: tuple[int, ...] = ()
    committed_ms: int = 0
    target: int | None = None
    retract: tuple[int, int] | None = None
    left: tuple[tuple[int, int, bool], ...] = ()
    origin: tuple[str, int] | None = None
    publishes: bool | None = None
    revision_base: int = 0
    inherits: Mapping[str, Inheritance] = field(default_factory=dict)
    not_after: int | None = None
    corrections: Corrections = field(default_factory=dict)
    format: int = FORMAT

    @property
    def is_base(self) -> bool:
        """Whether it holds a state of its own, rather than the state of the previous manifest."""
        return self.base == self.id

    @property
    def revision(self) -> int:
        """The revision of the rows published under its id."""
        return self.revision_base + self.id

    # -- the one task that a job of this release has -------------------------------------------------------------

    @property
    def source(self) -> SourcePart:
        """The only source."""
        (source,) = self.sources.values()
        return source

    @property
    def sink(self) -> SinkPart:
        """The only sink; an empty one if there is none."""
        (sink,) = self.sinks.values() or (SinkPart(),)
        return sink

    def has_left(self, id: int) -> bool:
        """Whether a rollback has abandoned the checkpoint of that id."""
        return any(first <= id < stop for first, stop, _ in self.left)

    @property
    def task_name(self) -> str:
        """The name of the only state, which is that of the task if the state has none."""
        (name,) = self.operators
        return name

    @property
    def operator(self) -> OperatorState:
        """The only state of the task."""
        return self.operators[self.task_name]

    def of(self, operator: str) -> Manifest:
        """The manifest of this state alone, and of the sinks that take it; itself, if there are no others."""
        name = state_name(operator)
        parts: list[SinkPart | Inheritance] = [*self.sinks.values(), *self.inherits.values()]
        if self.operators.keys() == {operator} and all((part.state or STATE) == name for part in parts):
            return self
        return replace(
            self,
            operators={operator: self.operators[operator]},
            clocks={operator: self.clocks[operator]},
            ledger={operator: self.ledger[operator]},
            sinks={sink: part for sink, part in self.sinks.items() if (part.state or STATE) == name},
            inherits={sink: part for sink, part in self.inherits.items() if (part.state or STATE) == name},
        )

    @property
    def clock(self) -> Clock:
        """The clock of the task, with the timestamps of all sources: what each of its states has reached."""
        clocks = self._of_the_task(self.clocks)
        largest = {name: source.largest for name, source in self.sources.items()}
        watermark, closed = (min(getattr(one, name) for one in clocks) for name in ("watermark", "closed"))
        return Clock(watermark, closed, _by_partition(largest), all(one.ended for one in clocks))

    @property
    def furthest(self) -> int:
        """The clock of the state that is furthest."""
        return max(one.watermark for one in self.clocks.values())

    @property
    def inputs(self) -> Mapping[str, Accounts]:
        """The accounts of the task, by source."""
        return self._of_the_task(self.ledger)[0]

    def _of_the_task(self, states: Mapping[str, T]) -> list[T]:
        """What the states of the only task have."""
        (_,) = {name.partition("/")[0] for name in states}
        return list(states.values())

    @property
    def accounts(self) -> Accounts:
        """The accounts of the task, by partition; with several sources, partitions have the names that
        ``partition_name`` gives them."""
        return _by_partition(self.inputs)

    @property
    def final(self) -> int:
        """The clock up to which the windows of the only state are final: their panes are gone."""
        return self.operator.state.final_at(self.clock.closed)

    # -- all of them ---------------------------------------------------------------------------------------------

    def state_runs(self) -> list[Run]:
        """The runs of all states."""
        return [run for one in self.operators.values() for state in one.states.values() for run in state.runs]

    def all_runs(self) -> list[Run]:
        """The runs of all states, of the indexes of all sources, and of their seen records."""
        return [*self.state_runs(), *(run for source in self.sources.values() for run in source.runs)]

    def folders(self) -> set[str]:
        """The folders that hold the runs of its states, and what is set aside until it is published."""
        return {runs_folder(one) for operator in self.operators for one in (operator, operator.partition("/")[0])}

    def index_folders(self) -> set[str]:
        """The folders that hold the runs of its sources' indexes, and of their seen records, by kind."""
        return {runs_folder(source.kind) for source in self.sources.values()}

    def result_sinks(self) -> dict[str, SinkPart]:
        """The sinks of results: all but that of late records."""
        return {name: sink for name, sink in self.sinks.items() if not sink.late}

    def unpublished(self) -> set[str]:
        """The names of the staged files that may still be unpublished."""
        batches = (batch.staged for sink in self.sinks.values() for batch in sink.unpublished)
        aside = (staged for one in self.aside for staged in (one.late, one.dead))
        return {one.name for staged in (*batches, *aside) for one in staged}

    def keeps(self, id: int) -> bool:
        """Whether to keep manifest ``id`` and its files: all manifests with a state of their own, but only a few fences
        below other fences. However many fences a crash loop leaves, the newest contains their facts."""
        if id in self.burnt or id < self.oldest:
            return id in self.bases and id not in self.burnt
        # Format 1 does not record which manifests hold a state of their own. In blocks, so that not every start deletes
        # one.
        is_recent = not self.bases or id >= self.id - self.id % _FENCES_KEPT or id + 1 == self.id
        return is_recent or id in self.bases or id + 1 in self.bases

    def files(self) -> set[str]:
        """The names of all runs this manifest needs."""
        return {run.name for run in self.all_runs()}

    def encode(self) -> bytes:
        """Its bytes, in the newest format. LawBroken if no release could read them."""
        body = self._to_json()
        try:
            _SHAPE(body)
        except Misfit as misfit:
            raise LawBroken(f"manifest {self.id} could not be read back ({misfit}); nothing was committed") from misfit
        return encode_document(body)

    def _features(self) -> list[str]:
        named = {
            MANY_SOURCES: len(self.sources) > 1,
            MANY_SINKS: len(self.sinks) > 1,
            DEDUPLICATION: any(one.seen is not None for one in self.sources.values()),
            READINGS: any(one.readings for one in self.sources.values()),
            ZONES: any(state.zone is not None for one in self.operators.values() for state in one.states.values()),
            EARLY_RESULTS: any(
                state.emit == EARLY or state.passed for one in self.operators.values() for state in one.states.values()
            ),
            LATENESS: any(state.late for one in self.operators.values() for state in one.states.values()),
            LATE_SESSIONS: any(
                state.late and state.has_sessions for one in self.operators.values() for state in one.states.values()
            ),
            TIME_TO_LIVE: any(
                state.has_time_to_live for one in self.operators.values() for state in one.states.values()
            ),
            QUIET: any(one.quiet_ms for one in self.clocks.values()),
            LIMITED: self.not_after is not None,
            EMPTIED_SINKS: any(sink.emptied for sink in self.sinks.values()),
            LATE_OUTPUTS: any(sink.late for sink in self.sinks.values()),
            CSV_DIALECT: any(has_dialect(one.recorded) for one in self.sources.values()),
            CORRECTIONS: bool(self.corrections),
            MANY_STATES: is_of_several(self.operators)
            or any(part.state is not None for part in self.sinks.values())
            or any(place.state is not None for place in self.inherits.values())
            or any(state.added is not None for one in self.operators.values() for state in one.states.values()),
        }
        return [feature for feature, is_needed in named.items() if is_needed]

    def _to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            **{name: list(value) if type(value) is tuple else value for name, value in self.__dict__.items()},
            "format": FORMAT,
            "features": self._features(),
            "parent": {"id": self.parent[0], "sha256": self.parent[1]} if self.parent else None,
            "sources": {name: source.to_json() for name, source in self.sources.items()},
            "clocks": {task: clock.to_json() for task, clock in self.clocks.items()},
            "operators": {task: operator.to_json() for task, operator in self.operators.items()},
            "ledger": {
                task: {
                    name: {partition: account.to_json() for partition, account in accounts.items()}
                    for name, accounts in inputs.items()
                }
                for task, inputs in self.ledger.items()
            },
            "sinks": {name: sink.to_json() for name, sink in self.sinks.items()},
            "aside": [one.to_json() for one in self.aside],
            "inherits": {name: one.to_json() for name, one in self.inherits.items()},
            "bases": [[id, ms] for id, ms in sorted(self.bases.items())],
            "left": [list(branch) for branch in self.left],
            "corrections": {name: one.to_json() for name, one in self.corrections.items()},
        }
        for name in ("inherits", "corrections"):
            if not body[name]:
                del body[name]
        if self.not_after is None:
            del body["not_after"]
        return body

    @staticmethod
    def decode(data: bytes, place: str) -> Manifest:
        """The manifest in these bytes, of any format. CorruptCheckpoint, naming ``place``, if they are not a manifest;
        NewerFormat if they need a newer release."""
        body = decode_document(data, place)
        check_format(body, place)
        check_shape(MANIFEST[body["format"]], body, place, "a manifest")
        body = manifest_of_today(body)
        check_known(body, place)
        check_shape(manifest_agrees, body, place, "a manifest")
        return _manifest_of(body)


def _by_partition(sources: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
    """The values of the partitions of each source, in one mapping."""
    return {
        partition_name(name, partition, len(sources)): said
        for name, partitions in sources.items()
        for partition, said in partitions.items()
    }


def manifest_sha256(data: bytes) -> str:
    """The hash by which a manifest names its parent."""
    return hashlib.sha256(data).hexdigest()


def check_name(name: str, what: str) -> str:
    """A name that a checkpoint may hold, unchanged; ValueError if it leaves the alphabet."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{what} {name!r}: use letters, digits and . _ = @ + - (at most 200), starting with a letter or digit"
        )
    return name


def _manifest_of(body: Mapping[str, Any]) -> Manifest:
    plain = {name: tuple(value) if type(value) is list else value for name, value in body.items()}
    del plain["features"]
    parts: dict[str, Any] = {
        "parent": (body["parent"]["id"], body["parent"]["sha256"]) if body["parent"] else None,
        "sources": {name: SourcePart.from_json(source) for name, source in body["sources"].items()},
        "clocks": {task: TaskClock(**clock) for task, clock in body["clocks"].items()},
        "operators": {task: OperatorState.from_json(operator) for task, operator in body["operators"].items()},
        "ledger": {
            task: {
                name: {partition: Account(**account) for partition, account in accounts.items()}
                for name, accounts in inputs.items()
            }
            for task, inputs in body["ledger"].items()
        },
        "sinks": {name: SinkPart.from_json(sink) for name, sink in body["sinks"].items()},
        "aside": tuple(map(Aside.from_json, body["aside"])),
        "inherits": {name: Inheritance.from_json(one) for name, one in body.get("inherits", {}).items()},
        "corrections": {name: Correction.from_json(one) for name, one in body.get("corrections", {}).items()},
        "bases": dict(body["bases"]),
        "left": tuple(tuple(branch) for branch in body["left"]),
    }
    return Manifest(**{**plain, **parts})
