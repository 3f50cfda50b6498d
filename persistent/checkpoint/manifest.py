"""A manifest is one checkpoint: state, clock, positions and outputs of one moment, committed by one file.

Laws, along the chain of parents: ids and epochs never decrease, nor do positions and the clock, except where a manifest
sets the state anew (``SETS``); ``base`` is the manifest's own id if it holds a state of its own, and fences,
compactions and migrations copy it; per partition ``read = processed + late + dead + duplicate``.

It holds every source, task, node and sink by name. A node is a state of a task, with a clock of its own, because it
closes its own windows. All nodes of a task have read the same records, so the accounts are the task's.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar, get_args

from msgspec import Meta

from persistent.checkpoint.output_parts import Aside, Corrections, Inheritance, SinkPart
from persistent.checkpoint.parts import (
    Accounts,
    NodeName,
    NodePart,
    SourcePart,
    TaskPart,
    check_among,
    check_closed,
    check_fit,
    check_once,
    check_same,
    check_some,
    names_text,
    partition_name,
)
from persistent.codec import documents
from persistent.codec.documents import Misfit
from persistent.codec.fields import MANY, PARTS_MAX, Name, Natural, Part, Run, Sha256, ShortText, Whole, type_of
from persistent.errors import InvalidPipeline
from persistent.names import runs_folder
from persistent.time.clock import Clock

T = TypeVar("T")

ManifestKind = Literal["fence", "checkpoint", "correction", "compaction", "migration", "rollback", "savepoint", "merge"]
KINDS: tuple[ManifestKind, ...] = get_args(ManifestKind)
SETS = ("rollback", "savepoint", "merge")
"""Kinds that set the state to a copy: clock and positions can go back."""

_Ids = Annotated[tuple[Natural, ...], Meta(max_length=MANY)]
_FENCES_KEPT = 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=@+-]{0,199}")


class Manifest(Part, frozen=True):
    """One entry of the manifest log.

    ``commits``: the kept ids that name files of their own, with the time of day of their commit (ms): the newest, those
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
    used twice.

    ``sources``, ``tasks``, ``sinks``: by name. ``nodes``: by name, which is ``task``, or ``task/state`` if the states
    of the task have names. ``aside``: late rows and dead letters that may still be unpublished, oldest first.
    """

    job: ShortText
    id: Natural
    kind: ManifestKind
    base: Natural
    oldest: Natural
    epoch: Natural
    nonce: ShortText
    sources: Annotated[Mapping[Name, SourcePart], Meta(max_length=PARTS_MAX)]
    tasks: Annotated[Mapping[Name, TaskPart], Meta(max_length=PARTS_MAX)]
    nodes: Annotated[Mapping[NodeName, NodePart], Meta(max_length=PARTS_MAX)]
    sinks: Annotated[Mapping[Name, SinkPart], Meta(max_length=PARTS_MAX)] = {}
    aside: Annotated[tuple[Aside, ...], Meta(max_length=MANY)] = ()
    parent: tuple[Natural, Sha256] | None = None
    fences: Natural = 0
    replan: Natural = 0
    pins: _Ids = ()
    commits: Annotated[tuple[tuple[Natural, Whole], ...], Meta(max_length=MANY)] = ()
    burnt: _Ids = ()
    committed_ms: Whole = 0
    target: Natural | None = None
    retract: tuple[Natural, Natural] | None = None
    left: Annotated[tuple[tuple[Natural, Natural, bool], ...], Meta(max_length=MANY)] = ()
    origin: tuple[ShortText, Natural] | None = None
    publishes: bool | None = None
    revision_base: Natural = 0
    inherits: Annotated[Mapping[Name, Inheritance], Meta(max_length=PARTS_MAX)] = {}
    not_after: Whole | None = None
    corrections: Corrections = {}

    @property
    def bases(self) -> dict[int, int]:
        """The kept ids that name files of their own, each with the time of day of its commit (ms)."""
        return dict(self.commits)

    @property
    def is_base(self) -> bool:
        """Whether it holds a state of its own, rather than the state of the previous manifest."""
        return self.base == self.id

    @property
    def revision(self) -> int:
        """The revision of the rows published under its id."""
        return self.revision_base + self.id

    def has_left(self, id: int) -> bool:
        """Whether a rollback has abandoned the checkpoint of that id."""
        return any(first <= id < stop for first, stop, _ in self.left)

    # -- its parts -------------------------------------------------------------------------------------------------

    def sinks_of(self, node: str) -> dict[str, SinkPart]:
        """The sinks of results that take a node."""
        return {name: sink for name, sink in self.sinks.items() if sink.node == node}

    @property
    def inputs(self) -> Mapping[str, Accounts]:
        """The accounts by source, of all tasks: a record counts once for each that reads its source."""
        sums: dict[str, Accounts] = {}
        for task in self.tasks.values():
            for name, accounts in task.inputs.items():
                before = sums.get(name)
                sums[name] = accounts if before is None else {one: accounts[one] + before[one] for one in accounts}
        return sums

    @property
    def accounts(self) -> Accounts:
        """The ``inputs`` by partition; with several sources, by the names that ``partition_name`` gives them."""
        return _by_partition(self.inputs)

    @property
    def clock(self) -> Clock:
        """What each node has reached, with the timestamps of all sources."""
        largest = {name: source.largest for name, source in self.sources.items()}
        clocks = [node.clock for node in self.nodes.values()]
        watermark, closed = min(clock.watermark for clock in clocks), min(clock.closed for clock in clocks)
        return Clock(watermark, closed, _by_partition(largest), all(clock.ended for clock in clocks))

    @property
    def furthest(self) -> int:
        """The clock of the node that is furthest."""
        return max(node.clock.watermark for node in self.nodes.values())

    @property
    def quiet_ms(self) -> int:
        """The longest that all partitions had been at their ends when the clock of a node last moved on by that."""
        return max(node.clock.quiet_ms for node in self.nodes.values())

    def state_runs(self) -> list[Run]:
        """The runs of all states."""
        return [run for node in self.nodes.values() for run in node.runs]

    def all_runs(self) -> list[Run]:
        """The runs of all states, of the indexes of all sources, and of their seen records."""
        runs = self.state_runs()
        for source in self.sources.values():
            runs += source.runs
        return runs

    def folders(self) -> set[str]:
        """The folders that hold the runs of its states, and what is set aside until it is published."""
        return {runs_folder(name) for name in (*self.nodes, *self.tasks)}

    def index_folders(self) -> set[str]:
        """The folders that hold the runs of its sources' indexes, and of their seen records, by kind."""
        return {runs_folder(source.kind) for source in self.sources.values()}

    def result_sinks(self) -> dict[str, SinkPart]:
        """The sinks of results: all but that of late records."""
        return {name: sink for name, sink in self.sinks.items() if not sink.late}

    def unpublished(self) -> set[str]:
        """The names of the staged files that may still be unpublished."""
        batches = (batch.staged for sink in self.sinks.values() for batch in sink.unpublished)
        aside = (staged for part in self.aside for staged in (part.late, part.dead))
        return {file.name for staged in (*batches, *aside) for file in staged}

    def keeps(self, id: int) -> bool:
        """Whether to keep manifest ``id`` and its files: all manifests with a state of their own, but only a few fences
        below other fences. However many fences a crash loop leaves, the newest contains their facts."""
        is_base = self._has_state(id)
        if id in self.burnt or id < self.oldest:
            return is_base and id not in self.burnt
        # In blocks, so that not every start deletes one.
        is_recent = id >= self.id - self.id % _FENCES_KEPT or id + 1 == self.id
        return is_recent or is_base or self._has_state(id + 1)

    def _has_state(self, id: int) -> bool:
        """Whether it is the id of a kept manifest with a state of its own."""
        place = bisect_left(self.commits, (id,))
        return place < len(self.commits) and self.commits[place][0] == id

    def files(self) -> set[str]:
        """The names of all runs this manifest needs."""
        return {run.name for run in self.all_runs()}

    def encode(self) -> bytes:
        """Its bytes. LawBroken if they could not be read back."""
        return documents.write(self, f"manifest {self.id}", _agrees)

    @staticmethod
    def decode(data: bytes, place: str) -> Manifest:
        """The manifest in these bytes. CorruptCheckpoint, naming ``place``, if they are not a manifest; NewerFormat if
        they need a newer release."""
        return documents.read(Manifest, data, place, "a manifest", _agrees)


def _agrees(manifest: Manifest) -> None:
    """A task reads sources that exist, and positions, clock and accounts refer to exactly the partitions of their
    source. Final windows are closed."""
    _in_order(manifest)
    _nodes_agree(manifest)
    for name, source in manifest.sources.items():
        partitions, place = source.partitions, f"sources.{name}"
        check_once(partitions, f"{place}.partitions")
        check_same(source.positions, partitions, f"{place}.positions")
        for part, among in (("largest", source.largest), ("idle", source.idle)):
            check_among(among, partitions, f"{place}.{part}")
        check_fit(source.codec, source.positions, f"{place}.positions")
        for number, reading in enumerate(source.readings):
            check_fit(source.codec, reading.until, f"{place}.readings[{number}].until")
            check_among(reading.until, partitions, f"{place}.readings[{number}].until")
    for aside in manifest.aside:
        for staged in (*aside.late, *aside.dead):
            if not staged.name.startswith("d/"):
                raise Misfit(f"aside: {staged.name!r:.60} is not a file in d/")
    for name, node in manifest.nodes.items():
        place = f"nodes.{name}"
        _check_key_types(node, f"{place}.key_types")
        check_closed(node.final_at, node.clock.closed, f"{place}.final_at")
        if node.passed is not None and node.emit is None:
            raise Misfit(f"{place}: the clock of early results, of which there are none")
    for name, task in manifest.tasks.items():
        check_some(f"inputs of {name}", task.inputs)
        check_among(task.inputs, manifest.sources, f"tasks.{name}.inputs", "sources")
        for read, accounts in task.inputs.items():
            place = f"tasks.{name}.inputs.{read}"
            check_same(accounts, manifest.sources[read].partitions, place)
            if any(account.mix >> 64 for account in accounts.values()):
                raise Misfit(f"{place}: a mix is no sum modulo 2**64")
    for name in manifest.sources:
        if not any(name in task.inputs for task in manifest.tasks.values()):
            raise Misfit(f"sources.{name}: no task reads it")


def _in_order(manifest: Manifest) -> None:
    """No id refers to a later manifest."""
    for name, id in (("base", manifest.base), ("oldest", manifest.oldest), ("epoch", manifest.epoch)):
        if id > manifest.id:
            raise Misfit(f"{name} {id} is above its id {manifest.id}")
    if manifest.parent is not None and manifest.parent[0] >= manifest.id:
        raise Misfit(f"its parent {manifest.parent[0]} is not below its id {manifest.id}")
    ids = [id for id, _ in manifest.commits]
    if ids != sorted(set(ids)):
        raise Misfit("commits: the ids do not ascend")


def _nodes_agree(manifest: Manifest) -> None:
    """Each node belongs to a task, which has its key columns in all of them, and each task has a node."""
    for name, parts in (("sources", manifest.sources), ("tasks", manifest.tasks), ("nodes", manifest.nodes)):
        check_some(name, parts)
    keys = dict[str, tuple[str, ...]]()
    for name, node in manifest.nodes.items():
        if keys.setdefault(name.partition("/")[0], node.key_names) != node.key_names:
            raise Misfit(f"nodes.{name}.key_names: differs from another node of its task")
    if keys.keys() != manifest.tasks.keys():
        raise Misfit(f"the nodes are of the tasks {names_text(keys)}, the tasks are {names_text(manifest.tasks)}")


def _check_key_types(node: NodePart, place: str) -> None:
    """Every key column has a type, or none has until the first key is counted."""
    for name in node.key_types:
        try:
            type_of(name)
        except ValueError as error:
            raise Misfit(f"{place}: {error}") from error
    if node.key_types and len(node.key_types) != len(node.key_names):
        raise Misfit(f"{place}: needs as many key types as key names")


def _by_partition(sources: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
    """The values of the partitions of each source, in one mapping."""
    return {
        partition_name(name, partition, len(sources)): value
        for name, partitions in sources.items()
        for partition, value in partitions.items()
    }


def commits_of(bases: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """Kept ids, each with the time of day of its commit, as a manifest holds them."""
    return tuple(sorted(bases.items()))


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


_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Retention:
    """Which checkpoints to keep: the newest ``last``, and the newest of each of the last ``hourly`` hours and ``daily``
    days (UTC, by the time of day of their commit; only hours and days with a checkpoint count).

    >>> Retention(last=3, daily=30)
    Retention(last=3, hourly=0, daily=30)
    """

    last: int = 10
    hourly: int = 0
    daily: int = 0

    def __post_init__(self) -> None:
        for name, value, least in (("last", self.last, 1), ("hourly", self.hourly, 0), ("daily", self.daily, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidPipeline(f"Retention({name}={value!r}): give a whole number, at least {least}")

    def oldest(self, checkpoints: Mapping[int, int], before: int) -> int:
        """The id from which all are kept, never lower than ``before``. ``checkpoints``: id to time of commit (ms)."""
        newest = sorted(checkpoints)[-self.last :]
        return max(before, newest[0] if newest else 0)

    def thinned(self, checkpoints: Mapping[int, int], oldest: int) -> tuple[int, ...]:
        """The ids below ``oldest`` that are kept for their hour or day."""
        kept: set[int] = set()
        for count, span_ms in ((self.hourly, _HOUR_MS), (self.daily, 24 * _HOUR_MS)):
            newest = {checkpoints[id] // span_ms: id for id in sorted(checkpoints)}
            kept |= {newest[span] for span in sorted(newest)[len(newest) - min(count, len(newest)) :]}
        return tuple(sorted(id for id in kept if id < oldest))
