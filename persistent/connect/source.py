"""A source is a replayable sequence of records: the same positions give the same records, every time.

The driver calls ``plan``; executors call ``read``. A plan is stored before it is run, so that recovery after a crash
runs the very same splits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from msgspec import Meta

from persistent.codec.fields import MANY, FreeFacts, Natural, Part, Partition

NO_TIMESTAMP = -(2**63)
"""The timestamp of a record whose time cannot be read."""

Position = Any
"""Where in a partition to read next: an ordered value of the source, as its codec defines ("ordinal-offset/1": the
ordinal of a file and an offset in it; "offset/1": an offset)."""

Positions = Mapping[str, Position]


class Span(Part, frozen=True):
    """A piece of one file: offsets ``start <= offset < stop``; ``at`` holds what the source needs to find it (JSON),
    such as its ``path`` below the root of the source."""

    ordinal: Natural
    start: Natural
    stop: Natural
    at: FreeFacts = {}

    def __post_init__(self) -> None:
        path = self.at.get("path", "")
        if type(path) is not str or path.startswith("/") or "\0" in path or ".." in path.split("/"):
            raise ValueError(f"path {path!r:.60} leaves the source")


class Split(Part, frozen=True):
    """What one worker reads in one step: spans of one partition, in order."""

    partition: Partition
    spans: Annotated[tuple[Span, ...], Meta(max_length=MANY)]


@dataclass(frozen=True)
class Budget:
    """The limits of what a step reads.

    ``rows`` is exact if ``exact`` (as far as the listing goes), otherwise an approximate limit. ``splits`` is the
    number of workers that can read at once: a plan has about that many splits of about equal size; fewer, if there are
    no ``split_rows`` records for each. ``ends``: the run declares that the input is complete. ``ahead``: partitions of
    which a plan reads nothing, because other partitions are far behind; it still lists new inputs. A source that
    ignores ``ahead`` is read all the same.

    >>> budget = Budget(1_000, splits=4, split_rows=100)
    >>> budget.splits_of(1_000), budget.splits_of(250), budget.splits_of(1)
    (4, 2, 1)
    """

    rows: int
    exact: bool = False
    splits: int = 1
    ends: bool = False
    ahead: frozenset[str] = frozenset()
    split_rows: int = 1

    def splits_of(self, rows: int) -> int:
        """The number of splits for this number of records."""
        return max(1, min(self.splits, rows // self.split_rows))


@dataclass(frozen=True)
class SourceState:
    """What a checkpoint stores about its source.

    ``positions``: partition to position. ``recorded``: small JSON facts fixed by the first plan (the schema).
    ``index``: every input ever listed, in order of ordinal, as the source's own Arrow table, or None. ``largest``: the
    largest timestamp processed of each partition that had one. ``job``: the id of the job that plans its next step; ""
    for a look at what was read, as by ``verify``: then a source takes nothing from a broker.
    """

    positions: Positions
    recorded: Mapping[str, Any] = field(default_factory=dict)
    index: pa.Table | None = None
    largest: Mapping[str, int] = field(default_factory=dict)
    job: str = ""


@dataclass(frozen=True)
class SourcePlan:
    """What a step will read. Without splits there is nothing to read now.

    ``end``: the positions after the step. ``cap``: for each partition that the watermark waits for, the smallest
    timestamp that listed but unread data can still hold, at ``end``; None: no bound is needed; -1: unknown, so the
    watermark waits. ``appended``: rows to append to the index. ``recorded`` replaces the previous record. ``joins``:
    the partitions that are new with this step. ``idle``: those that the watermark does not wait for, none of which has
    a cap. ``rests``: an idle partition that has a cap, because all partitions of the source are idle; while another
    source is not idle, the watermark does not wait for ``rests`` either. ``skipped``: for each partition, how many
    positions are skipped because the source no longer has them. ``held``: whether records exist, or may exist, that
    cannot be read yet, as behind an open transaction: the input has not ended. ``more``: partitions that have something
    to read although no split reads them. ``max_out_of_orderness``: in a source with halves, the value of the half that
    is read; None: the value of the source.
    """

    splits: tuple[Split, ...]
    end: Positions
    cap: Mapping[str, int | None]
    recorded: Mapping[str, Any] = field(default_factory=dict)
    appended: pa.Table | None = None
    joins: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    held: bool = False
    rests: str | None = None
    more: tuple[str, ...] = ()
    max_out_of_orderness: int | None = None

    @property
    def unread(self) -> frozenset[str]:
        """The partitions that have something to read."""
        return frozenset((*self.more, *(split.partition for split in self.splits)))

    @property
    def is_idle(self) -> bool:
        """Whether the watermark need not wait for any of its partitions."""
        return self.cap.keys() <= {self.rests}


@dataclass(frozen=True)
class DeadRecord:
    """A record that cannot be read: where it is, why, and its bytes.

    ``lost``: the missing file whose unread records it represents.
    """

    ordinal: int
    offset: int
    reason: str
    data: bytes = b""
    lost: str = ""


@dataclass(frozen=True)
class Records:
    """Consecutive records of one file: ``batch`` row i has ``timestamps[i]`` (int64 ms, NO_TIMESTAMP if unreadable)
    and ``offsets[i]`` (int64). ``dead`` are the records between them that cannot be decoded. ``unreadable`` says why
    row i has no timestamp. In a source with halves, ``elsewhere`` marks the rows that count in the other half, and
    ``nowhere`` the rows that count in neither, for which ``unreadable`` says why; None: no row. ``ignored``: the fields
    that inferred columns lack, of all records of the file so far."""

    ordinal: int
    batch: pa.RecordBatch
    timestamps: np.ndarray[Any, np.dtype[np.int64]]
    offsets: np.ndarray[Any, np.dtype[np.int64]]
    dead: Sequence[DeadRecord] = ()
    unreadable: Callable[[int], str] = field(default=lambda row: "timestamp missing or unreadable")
    elsewhere: np.ndarray[Any, np.dtype[np.bool_]] | None = None
    nowhere: np.ndarray[Any, np.dtype[np.bool_]] | None = None
    ignored: frozenset[str] = frozenset()


@runtime_checkable
class Source(Protocol):
    """A replayable source. ``kind`` names the kind of source in the checkpoint ("FileSource").

    ``guarantee()``, if it has one, returns its ``persistent.connect.promises.Promise``; without one, exactly-once.
    ``guarantee_deduplicated()``, if it has one, returns the promise of a pipeline with ``dedupe``.
    ``warnings()``, if it has one, returns warnings for the report of a run. ``close()``, if it has one, is called when
    a run has ended or failed.
    ``codec``, if it has one, names the codec of its positions; without one it is "ordinal-offset/1".
    ``address``, if it has one, is equal for two sources that read the same records.
    ``infers``, if it has one, says whether it infers the types of its columns, because none are given.
    ``timestamp``, if it has one, is the column with the event time.
    ``halves``, if it has them, are the sources that it is made of.
    ``account_text(recorded, accounts)``, if it has one, explains its accounts in the report of a run.

    A source that not every machine can read also has a ``reach`` (``persistent.storage.places.Reach``): ``PROCESS`` if
    its records are in the memory of this process and not pickled with it, ``MACHINE`` if they are on the disks of this
    machine. Without one it is ``NETWORK``. Engines refuse a source that their workers cannot reach.
    """

    kind: str
    max_out_of_orderness: int

    def partitions(self) -> Sequence[str]:
        """The names of the partitions that a new checkpoint begins with, whatever the source holds. Others join later,
        by a plan; none ever leaves."""

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        """What to read next. Driver only; reads listings and footers, changes nothing; may be called again."""

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        """The Arrow schema of the batches, from what a plan recorded. InvalidPipeline if the options of the source
        contradict it. Called before running a plan that another process has put."""

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        """The records of a split in order, in batches; repeatable on any worker."""

    def acknowledge(self, positions: Positions) -> None:
        """A hint: nothing before these positions will be read again."""


@dataclass(frozen=True)
class Reached:
    """How far a source has been read: ``done`` of a ``total`` of listed "bytes" or "rows" (``unit``) and, if it has
    files, ``files_done`` of ``files``."""

    done: int
    total: int
    unit: str
    files_done: int = 0
    files: int = 0

    @property
    def is_all(self) -> bool:
        return self.done >= self.total and self.files_done >= self.files


def together(reached: Sequence[Reached | None]) -> Reached | None:
    """How far several sources have been read; None if one is unknown, or their units differ.

    >>> together([Reached(3, 4, "rows"), Reached(1, 5, "rows")])
    Reached(done=4, total=9, unit='rows', files_done=0, files=0)
    """
    known = [part for part in reached if part is not None]
    if len(known) < len(reached) or len({part.unit for part in known}) != 1:
        return None
    sums = (sum(getattr(part, name) for part in known) for name in ("done", "total", "files_done", "files"))
    done, total, files_done, files = sums
    return Reached(done, total, known[0].unit, files_done, files)


def parts_of(*sources: Source) -> tuple[Source, ...]:
    """The sources that these are made of: themselves, or their halves."""
    return tuple(part for source in sources for part in getattr(source, "halves", (source,)))


@runtime_checkable
class MeasuredSource(Source, Protocol):
    """A source that can report how far it has been read."""

    def reached(self, state: SourceState) -> Reached:
        """How far it has been read at these positions. Driver only; reads nothing."""


@runtime_checkable
class ListingSource(Source, Protocol):
    """A source whose index lists files."""

    def listed(self, index: pa.Table, recorded: Mapping[str, Any]) -> pa.ChunkedArray:
        """The full path or URL of each file of an index. Driver only."""


@runtime_checkable
class LosingSource(Source, Protocol):
    """A source whose inputs can disappear before they are read."""

    def losing(self) -> LosingSource:
        """The same source, allowed to lose inputs."""

    def without_lost(self, splits: Sequence[Split], recorded: Mapping[str, Any]) -> tuple[Split, ...] | None:
        """The splits of a plan with each input that is certainly gone as one dead record. Driver only.

        None if ``InputGone`` should be raised, because a loss is uncertain or not allowed.
        """


@runtime_checkable
class TimedSource(Source, Protocol):
    """A source that finds the position of a time."""

    def position_at(self, partition: str, clock: int) -> Position:
        """A position before which no record has a timestamp of ``clock`` (ms) or later. Records after it can be
        earlier: a reader that starts from a clock filters by timestamp. Driver only."""


@runtime_checkable
class ContinuingSource(Source, Protocol):
    """A source that knows where to continue at a clock."""

    def from_clock(self, recorded: Mapping[str, Any], clock: int) -> SourceState:
        """The positions from which to continue at a clock, of all present partitions, and the part of ``recorded`` that
        still holds. RetentionGap if records since the clock may be gone. Driver only."""


@runtime_checkable
class TimeReplayableSource(TimedSource, ContinuingSource, Protocol):
    """A source that can be read from a point in time on, not only from a position."""


@runtime_checkable
class ForgettingSource(Source, Protocol):
    """A source that deletes its oldest records after a time, read or not."""

    def has_forgotten(self, splits: Sequence[Split], recorded: Mapping[str, Any]) -> bool:
        """Whether records of a plan that was never committed are gone, and may be skipped by a new plan. False too if
        the loss of records is an error. Driver only."""


@runtime_checkable
class CorrectedSource(Source, Protocol):
    """A source that plans records again after its options have changed."""

    def corrected(self, state: SourceState, put: SourcePlan) -> SourcePlan | None:
        """A plan of the same records as ``put``, which was never committed, with the present options. None if records
        begin elsewhere by those options: then they are planned as if ``put`` did not exist. ``state``: of the
        checkpoint, with the rows that ``put`` appends to the index. Driver only."""


@runtime_checkable
class ConfirmingSource(Source, Protocol):
    """A source that can be replaced by another one of the same name while a step reads it."""

    def confirm(self, recorded: Mapping[str, Any]) -> None:
        """Raise SourceChanged unless the source is the one that was planned. Called between the reading of a step and
        its commit. Driver only."""
