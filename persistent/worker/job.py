"""A job is what a pipeline runs step after step; an item is a piece of one step's work, and has a result.

 MapSplit -> Mapped      read a split, run the task over it, write its delta, its late rows and dead letters
 CloseShard -> Closed    fold and stage what is due of some key groups: windows that close, what has changed
 FoldRuns -> Folded      compaction: fold some key groups of neighbouring runs

All are values: an engine can send them anywhere, and process an item more than once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from monoids.groupby.sorting import Integers
from monoids.text import Words
from persistent.checkpoint.compaction import Merge
from persistent.checkpoint.output_parts import LATE_SINK
from persistent.checkpoint.parts import Account
from persistent.codec.fields import Run
from persistent.connect.formats.timestamps import TimeLimit
from persistent.connect.outlet import Outlet, outlet
from persistent.connect.sink import Sink
from persistent.connect.source import Source, Split
from persistent.names import STATE, Attempt, Staged, runs_folder, state_name
from persistent.state.rows import Agenda
from persistent.state.state import PersistentState
from persistent.storage.protocol import Storage
from persistent.task.dedupe import Dedupe
from persistent.task.task import PersistentTask, node_name, task_name
from persistent.time.zone import Zone
from persistent.worker.seen_items import SeenAfter, SeenBefore

LateWindows = Mapping[int | None, int]
"""Late records by the start of their window (ms); None: of all other windows, or of a state that has none."""


@dataclass(frozen=True)
class Node:
    """A state of a task, and what its work needs. ``id``: its name in the checkpoint. ``sinks``: the sinks that take
    the state, by name."""

    id: str
    task: PersistentTask
    state: PersistentState
    storage: Storage
    sinks: Mapping[str, Sink] = field(default_factory=dict)
    dead_letters: bool = False

    @property
    def name(self) -> str:
        """The name of the state among those of its task."""
        return state_name(self.id)

    @property
    def folder(self) -> str:
        """The folder of its runs."""
        return runs_folder(self.id)

    def outlets(self) -> dict[str, Outlet]:
        """Each of its sinks with the place where its outputs wait."""
        return {name: outlet(sink, self.storage) for name, sink in self.sinks.items()}

    def in_zone(self, zone: Zone | None) -> Node:
        """The node with windows by these rules of their time zone; the node itself if that changes nothing."""
        state = self.state.in_zone(zone)
        return self if state is self.state else replace(self, state=state)


@dataclass(frozen=True)
class Job:
    """The constants of all steps, sent to workers once. ``states``: by their names in the task. ``sources``, ``sinks``:
    by their names in the checkpoint. ``takes``: the name of the state that a sink takes, if that has a name. ``named``:
    whether the task updates its states by their names, also an only one."""

    task: PersistentTask
    states: Mapping[str, PersistentState]
    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]
    storage: Storage
    dead_letters: bool
    discard_closed: bool = False
    dedupe: Mapping[str, Dedupe] = field(default_factory=dict)
    """By source; without an entry, copies are not recognised."""
    late_sink: Sink | None = None
    """Where late records go, besides the checkpoint."""
    takes: Mapping[str, str] = field(default_factory=dict)
    named: bool = False

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """Its states, each with its sinks, by their names in the checkpoint."""
        nodes = {}
        for name, state in self.states.items():
            id = node_name(self.task, name)
            sinks = {sink: instance for sink, instance in self.sinks.items() if self.takes.get(sink, STATE) == name}
            nodes[id] = Node(id, self.task, state, self.storage, sinks, self.dead_letters)
        return nodes

    def node_of(self, sink: str) -> Node:
        """The node that a sink of results takes."""
        return self.nodes[node_name(self.task, self.takes.get(sink, STATE))]

    @property
    def all_sinks(self) -> dict[str, Sink]:
        """The sinks of results, and the sink of late records."""
        return {**self.sinks, **({} if self.late_sink is None else {LATE_SINK: self.late_sink})}

    def all_outlets(self) -> dict[str, Outlet]:
        """Each of ``all_sinks`` with the place where its outputs wait."""
        return {name: outlet(sink, self.storage) for name, sink in self.all_sinks.items()}

    def in_zones(self, zones: Mapping[str, Zone | None]) -> Job:
        """The job with the windows of each node by these rules of their time zone."""
        return replace(self, states={node.name: node.in_zone(zones.get(id)).state for id, node in self.nodes.items()})

    @property
    def folder(self) -> str:
        """The folder of late rows and dead letters until they are published."""
        return runs_folder(task_name(self.task))


@dataclass(frozen=True)
class SplitOfNode:
    """What a split is for one node. ``watermark``: of the previous step. ``final``: windows that end at or before it
    take nothing more; it decides what is late. ``key_types``: of all keys so far."""

    watermark: int
    final: int
    key_types: tuple[str, ...] = ()


@dataclass(frozen=True)
class MapSplit:
    """Read a split of a source and run the task over it. ``partition``: its name among those of all sources, for the
    task and for people. ``nodes``: the nodes it feeds. ``limit``: which timestamps are dead. ``since``: earlier records
    are duplicates. ``seen``: the seen records, by which copies are recognised; None without deduplication."""

    attempt: Attempt
    source: str
    partition: str
    split: Split
    recorded: Mapping[str, Any]
    nodes: Mapping[str, SplitOfNode]
    limit: TimeLimit
    since: int | None = None
    seen: SeenBefore | None = None


@dataclass(frozen=True)
class CloseShard:
    """Publish what is due of the key groups ``low <= group < high`` of a ``node``, in rows with the ``revision``.

    windows                      those with ``closed < end <= close_at`` close
    windows that take late rows  ``delta``: the runs of the step, which count in windows with ``end > final``. Closed
                                 windows that they touch are published again for the keys of the delta: the ranges
                                 ``corrected`` of window numbers, first to last (of sessions, of cells)
    what changes                 ``delta``: the runs of which nothing is published. None closes: windows, also
                                 open ones, are published again as above, and so are the keys of a state without windows
    sessions, lives              ``hashes``: of the keys with one that may close, or end, ascending; None without any
    lives                        ``shown_at``: the clock by which the keys of the ``runs`` are published; None if none
                                 is. A shard that only ``counts`` publishes none

    ``whole``: the sinks that have nothing yet. They get every key; of closing windows, those with ``end > settled``,
    which could be corrected. ``changes``: what changes are sessions. ``anew``: the sinks may have these windows, from
    another job or from before a rollback: nothing is retracted, and all sessions are published where sessions
    change."""

    attempt: Attempt
    node: str
    runs: tuple[Run, ...]
    low: int
    high: int
    closed: int
    close_at: int
    key_types: tuple[str, ...]
    revision: int
    whole: tuple[str, ...] = ()
    final: int = 0
    settled: int = 0
    delta: tuple[Run, ...] = ()
    corrected: tuple[tuple[int, int], ...] = ()
    hashes: Words | None = None
    shown_at: int | None = None
    counts: bool = False
    changes: bool = False
    anew: bool = False


@dataclass(frozen=True)
class FoldRuns:
    """Compact runs. ``final``: panes needed only by final windows are dropped. ``over``: sessions that end at or before
    it are dropped; they are closed, and no other run holds a part of one. ``shown_at``: the sinks do not know of lives
    that have ended since; None if nothing of the runs is published. ``seen_of``: the runs hold the seen records of that
    source, in panes of ``seen_ms``. ``node``: whose runs they are, if they are no seen records."""

    attempt: Attempt
    merge: Merge
    final: int
    seen_of: str | None = None
    seen_ms: int = 0
    over: int = 0
    shown_at: int | None = None
    node: str = ""


@dataclass(frozen=True)
class MappedNode:
    """What a split is to one node: the ``run`` of its delta, with its ``panes``, ascending; ``agenda``: of the run, if
    its windows are sessions, or its keys expire; the types of its keys, and the late records by window."""

    run: Run | None = None
    panes: Integers | None = None
    agenda: Agenda | None = None
    key_types: tuple[str, ...] = ()
    late_windows: LateWindows = field(default_factory=dict)


@dataclass(frozen=True)
class Mapped:
    """The result of a split. ``partition``: its name in its source. ``nodes``: what it is to each. ``largest``: the
    largest timestamp processed, None if none. ``late_output``: the late records, staged for their sink. ``ignored``:
    the fields that have no column, each with the first file that has it. ``valued``: the columns in which a record has
    a value."""

    source: str
    partition: str
    nodes: Mapping[str, MappedNode]
    account: Account
    largest: int | None = None
    late: Staged | None = None
    dead: Staged | None = None
    first_dead: str = ""
    """The reason of the first dead letter."""
    seen: SeenAfter | None = None
    late_output: Staged | None = None
    ignored: Mapping[str, str] = field(default_factory=dict)
    valued: frozenset[str] = frozenset()

    def runs(self) -> tuple[Run, ...]:
        """The runs that the split has written, one of each node."""
        return tuple(node.run for node in self.nodes.values() if node.run is not None)


@dataclass(frozen=True)
class Closed:
    """The outputs of a shard, staged for each sink, if any; ``dead``: the keys without a result. ``corrected``: how
    many results were published again, or sessions taken back. ``discarded``: how many sessions close without a sink.
    ``unpublished``: how many closed sessions hold something that is not published. ``expired``: how many lives of keys
    have ended."""

    staged: Mapping[str, Staged] = field(default_factory=dict)
    dead: Staged | None = None
    corrected: int = 0
    discarded: int = 0
    unpublished: int = 0
    expired: int = 0


@dataclass(frozen=True)
class Folded:
    """A compacted run. ``failure``: why the fold raised; then the runs stay unchanged. ``agenda``: of its
    sessions."""

    run: Run | None
    panes: Integers | None
    failure: str = ""
    agenda: Agenda | None = None
