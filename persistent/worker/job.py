"""A job is what a pipeline runs step after step; an item is a piece of one step's work, and has a result.

 MapSplit -> Mapped      read a split, run the task over it, write its delta, its late rows and dead letters
 CloseShard -> Closed    fold the panes of windows the clock has closed, in some key groups, and stage them
 FoldRuns -> Folded      compaction: fold some key groups of neighbouring runs

All are values: an engine can send them anywhere, and process an item more than once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from monoids.groupby.cells import Integers
from monoids.text import Words
from persistent.agenda import Agenda
from persistent.checkpoint.compaction import Merge
from persistent.checkpoint.names import Attempt, Staged, runs_folder
from persistent.checkpoint.output_parts import LATE_SINK
from persistent.checkpoint.parts import Account
from persistent.codec import Run
from persistent.dedupe import Dedupe
from persistent.sinks.outlet import Outlet, outlet
from persistent.sinks.protocol import AnySink
from persistent.sources.protocol import Source, Split
from persistent.state import PersistentState
from persistent.storage import Storage
from persistent.task import STATE, Declared, PersistentTask, operator_name
from persistent.worker.late_windows import LateWindows
from persistent.worker.seen_items import SeenAfter, SeenBefore
from persistent.worker.time_limit import TimeLimit
from persistent.zone import Zone


@dataclass(frozen=True)
class Job:
    """The constants of all steps, sent to workers once. ``sources``, ``sinks``: by their names in the checkpoint.
    ``declared``: the only state, or several by name. ``takes``: by sink, the name of the state that it takes; empty
    if the task has one state."""

    task: PersistentTask
    declared: Declared
    sources: Mapping[str, Source]
    sinks: Mapping[str, AnySink]
    storage: Storage
    dead_letters: bool
    discard_closed: bool = False
    dedupe: Mapping[str, Dedupe] = field(default_factory=dict)
    """By source; without an entry, copies are not recognised."""
    late_sink: AnySink | None = None
    """Where late records go, besides the checkpoint."""
    name: str = STATE
    takes: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_sinks(self) -> dict[str, AnySink]:
        """The sinks of results, and that of late records."""
        return {**self.sinks, **({} if self.late_sink is None else {LATE_SINK: self.late_sink})}

    @property
    def state(self) -> PersistentState:
        """The only state. TypeError for a job with several: ``of`` has the job of each."""
        if not isinstance(self.declared, PersistentState):
            raise TypeError(f"a job with the states {', '.join(self.declared)} has not one state")
        return self.declared

    @property
    def operator(self) -> str:
        """The name of its only state in the checkpoint."""
        return operator_name(self.task, self.name)

    def of(self, name: str) -> Job:
        """The job of the state of that name alone, with the sinks that take it; itself, if it has no other."""
        if isinstance(self.declared, PersistentState):
            return self
        sinks = {sink: one for sink, one in self.sinks.items() if self.takes[sink] == name}
        return replace(self, declared=self.declared[name], name=name, sinks=sinks, takes={}, late_sink=None)

    def of_sink(self, sink: str) -> Job:
        """The job of the state that a sink takes."""
        return self.of(self.takes.get(sink, self.name))

    def each(self) -> dict[str, Job]:
        """The job of each state alone, by the name of the state in the checkpoint."""
        names = (self.name,) if isinstance(self.declared, PersistentState) else self.declared
        return {one.operator: one for one in map(self.of, names)}

    def outlets(self) -> dict[str, Outlet]:
        """Each sink of results with the place where its outputs wait."""
        return {name: outlet(sink, self.storage) for name, sink in self.sinks.items()}

    def all_outlets(self) -> dict[str, Outlet]:
        """Those, and that of late records."""
        return {name: outlet(sink, self.storage) for name, sink in self.all_sinks.items()}

    def in_zone(self, zone: Zone | None) -> Job:
        """The same job, whose windows are by these rules of their zone; itself if they have none."""
        state = self.state.in_zone(zone)
        return self if state is self.state else replace(self, declared=state)

    def in_zones(self, zones: Mapping[str, Zone | None]) -> Job:
        """The same job, the windows of each of whose states are by these rules of their zone, by its name in the
        checkpoint."""
        if isinstance(self.declared, PersistentState):
            return self.in_zone(zones.get(self.operator))
        states = {one.name: one.in_zone(zones.get(operator)).state for operator, one in self.each().items()}
        return replace(self, declared=states)

    def folder(self) -> str:
        """The folder of the runs of its only state, and of late rows and dead letters until they are published."""
        return runs_folder(self.operator)


@dataclass(frozen=True)
class SplitOfState:
    """What a split is for one of several states: fields of ``MapSplit``."""

    watermark: int
    final: int
    key_types: tuple[str, ...] = ()


@dataclass(frozen=True)
class MapSplit:
    """Read a split of a source and run the task over it. ``partition``: its name among those of all sources, for the
    task and for people. ``watermark``: of the previous step. ``final``: windows that end at or before it take nothing
    more; it decides what is late. ``limit``: which timestamps are dead. ``since``: earlier records are duplicates.
    ``key_types``: of all keys so far. ``seen``: the seen records, by which copies are recognised; None without
    deduplication. ``states``: of a task with several, what differs, by name."""

    attempt: Attempt
    source: str
    partition: str
    split: Split
    recorded: Mapping[str, Any]
    watermark: int
    final: int
    limit: TimeLimit
    since: int | None = None
    key_types: tuple[str, ...] = ()
    seen: SeenBefore | None = None
    states: Mapping[str, SplitOfState] = field(default_factory=dict)

    def of(self, name: str) -> MapSplit:
        """The same split for the state of that name alone; itself, if there is no other."""
        if not self.states:
            return self
        return replace(self, **self.states[name].__dict__, states={})


@dataclass(frozen=True)
class CloseShard:
    """Publish what is due of the key groups ``low <= group < high`` of the state with the name ``state``, in rows with
    the ``revision``.

    windows                      those with ``closed < end <= close_at`` close
    windows that take late rows  ``delta``: the runs of the step, which count in windows with ``end > final``. Closed
                                 windows that they touch are published again for the keys of the delta: the ranges
                                 ``corrected`` of window numbers, first to last (of sessions, of cells)
    what changes                 ``delta``: the runs of which nothing is published. None closes: windows, also
                                 open ones, are published again as above, and so are the keys of a state without windows
    sessions, lives              ``hashes``: of the keys with one that may close, or end, ascending; None without any
    lives                        ``shown_at``: the clock by which the keys of the ``runs`` are published; None if none
                                 is. A shard that only ``counts`` publishes none

    ``whole``: the sinks that have nothing yet, and get every key. ``changes``: what changes are sessions. ``anew``: to
    sinks that may have these windows, of another job or of before a rollback: nothing is retracted, and of sessions
    that change all are published."""

    attempt: Attempt
    runs: tuple[Run, ...]
    low: int
    high: int
    closed: int
    close_at: int
    key_types: tuple[str, ...]
    revision: int
    whole: tuple[str, ...] = ()
    final: int = 0
    delta: tuple[Run, ...] = ()
    corrected: tuple[tuple[int, int], ...] = ()
    hashes: Words | None = None
    shown_at: int | None = None
    counts: bool = False
    changes: bool = False
    anew: bool = False
    state: str = STATE


@dataclass(frozen=True)
class FoldRuns:
    """Compact runs. ``final``: panes needed only by final windows are dropped. ``over``: sessions that end at or before
    it are dropped; they are closed, and no other run holds a part of one. ``shown_at``: the sinks do not know of lives
    that have ended since; None if nothing of the runs is published. ``seen_of``: the runs hold the seen records of that
    source, in panes of ``seen_ms``. ``state``: the name of the state, if they do not."""

    attempt: Attempt
    merge: Merge
    final: int
    seen_of: str | None = None
    seen_ms: int = 0
    over: int = 0
    shown_at: int | None = None
    state: str = STATE


@dataclass(frozen=True)
class Mapped:
    """The result of a split. ``partition``: its name in its source. ``panes``: those of the run, ascending.
    ``largest``: timestamp processed, None if none. ``states``: of a task with several, the result for each alone, by
    name; the other fields that a state has are then empty. ``late_output``: the late records, staged for their sink."""

    source: str
    partition: str
    run: Run | None
    panes: Integers | None
    key_types: tuple[str, ...]
    account: Account
    largest: int | None
    late: Staged | None
    dead: Staged | None
    first_dead: str = ""
    """The reason of the first dead letter."""
    seen: SeenAfter | None = None
    agenda: Agenda | None = None
    """Of the run, if its windows are sessions."""
    late_windows: LateWindows = field(default_factory=dict)
    late_output: Staged | None = None
    states: Mapping[str, Mapped] = field(default_factory=dict)

    def of(self, name: str) -> Mapped:
        """The result for the state of that name alone; itself, if there is no other."""
        return self.states.get(name, self)

    def runs(self) -> tuple[Run, ...]:
        """The runs that the split has written, one of each state."""
        return tuple(one.run for one in (self.states or {STATE: self}).values() if one.run is not None)


@dataclass(frozen=True)
class Closed:
    """The outputs of a shard, staged for each sink, if any; ``dead``: the keys without a result. ``corrected``: how
    many results were published again, or sessions taken back. ``discarded``: how many sessions close without a sink.
    ``unpublished``: of how many that have closed something is not published. ``expired``: how many lives of keys have
    ended."""

    staged: Mapping[str, Staged] = field(default_factory=dict)
    dead: Staged | None = None
    corrected: int = 0
    discarded: int = 0
    unpublished: int = 0
    expired: int = 0


@dataclass(frozen=True)
class Folded:
    """A compacted run. ``failure``: why the fold raised; then the runs stay unchanged. ``agenda``: as of ``Mapped``."""

    run: Run | None
    panes: Integers | None
    failure: str = ""
    agenda: Agenda | None = None
