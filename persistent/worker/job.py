"""A job is what a pipeline runs, step after step; an item is a piece of one step's work, a result what it came to.

    MapSplit -> Mapped      read a split, run the task over it, write its delta, its late rows and dead letters
    CloseShard -> Closed    fold the panes of windows the clock has closed, in some key groups, and stage them
    FoldRuns -> Folded      compaction: fold some key groups of neighbouring runs

All of them are values: an engine may send them anywhere, and work on one more than once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monoids.groupby.cells import Integers
from persistent.checkpoint.compaction import Merge
from persistent.checkpoint.manifest import Account
from persistent.checkpoint.names import attempt_name, run_name, runs_folder
from persistent.checkpoint.successor import new_nonce
from persistent.codec import Run
from persistent.sinks.protocol import Sink, Staged
from persistent.sources.protocol import Source, Split
from persistent.state import PersistentState
from persistent.storage import Storage
from persistent.task import PersistentTask, operator_name


@dataclass(frozen=True)
class Job:
    """What does not change from step to step. Travels to the workers once."""

    task: PersistentTask
    state: PersistentState
    source: Source
    sink: Sink | None
    storage: Storage
    dead_letters: bool
    discard_closed: bool = False

    def folder(self) -> str:
        """Where the runs of the task are."""
        return runs_folder(operator_name(self.task))


@dataclass(frozen=True)
class Attempt:
    """Who works, and for which checkpoint."""

    epoch: int
    id: int

    def name(self) -> str:
        return attempt_name(self.epoch, self.id, new_nonce())

    def run_name(self, folder: str) -> str:
        """The name of a run that it writes in that folder."""
        return run_name(folder, self.name())


@dataclass(frozen=True)
class MapSplit:
    """``watermark``: of the step before; what is late is decided by it. ``limit``: the largest timestamp allowed.
    ``since``: what is earlier has been counted before. ``key_types``: of the keys of all records before."""

    attempt: Attempt
    split: Split
    recorded: Mapping[str, Any]
    watermark: int
    limit: int
    since: int | None = None
    key_types: tuple[str, ...] = ()


@dataclass(frozen=True)
class CloseShard:
    """Close the windows with ``closed < end <= close_at`` of the key groups ``low <= group < high``. Of a state without
    windows: publish the keys that the runs after checkpoint ``published`` update."""

    attempt: Attempt
    runs: tuple[Run, ...]
    low: int
    high: int
    closed: int
    close_at: int
    published: int
    key_types: tuple[str, ...]


@dataclass(frozen=True)
class FoldRuns:
    """``closed``: panes that only closed windows need are left out."""

    attempt: Attempt
    merge: Merge
    closed: int


@dataclass(frozen=True)
class Mapped:
    """What a split came to. ``panes``: those of the run, ascending. ``largest``: timestamp processed, None if none."""

    partition: str
    run: Run | None
    panes: Integers | None
    key_types: tuple[str, ...]
    account: Account
    largest: int | None
    late: Staged | None
    dead: Staged | None
    first_dead: str = ""
    """Why the first of the dead letters is one."""


@dataclass(frozen=True)
class Closed:
    """What was staged of the windows of a shard, if any held something; ``dead``: of results that cannot be shown."""

    staged: Staged | None
    dead: Staged | None = None


@dataclass(frozen=True)
class Folded:
    """``failure``: why the runs stay as they are, where their fold raised."""

    run: Run | None
    panes: Integers | None
    failure: str = ""
