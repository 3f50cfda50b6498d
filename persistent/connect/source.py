"""A source is a replayable sequence of records: the same positions give the same records, every time.

The driver calls ``plan``; executors call ``read``. A plan is stored before it is run, so that recovery after a crash
runs the very same splits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from msgspec import Meta

from persistent.codec.fields import MANY, FreeFacts, Natural, Part, Partition, Position, Positions
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.storage.places import Reach

NO_TIMESTAMP = -(2**63)
"""The timestamp of a record whose time cannot be read."""


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


class Source(ABC):
    """A replayable source: a subclass sets ``kind`` and writes ``partitions``, ``plan``, ``schema`` and ``read``.

    Everything else has a default, which a subclass replaces for what its system can do:

    ``kind``: names the kind of source in the checkpoint ("FileSource"). ``max_out_of_orderness``: in ms.
    ``codec``: of its positions. ``address``: equal for two sources that read the same records; None: only itself.
    ``timestamp``: the column with the event time. ``infers``: whether it infers the types of its columns, because none
    are declared. ``bare``: its durations that were given without a unit, by option. ``halves``: the sources that it is
    made of. ``url``: a folder that workers must reach, for errors. ``reach``: which machines can read it. Engines
    refuse a source that their workers cannot reach.

    Three abilities are declared, because drivers decide by them before they call anything: ``lists`` (its index lists
    files: ``listed``), ``finds_times`` (``position_at``) and ``forgets`` (it deletes its oldest records after a time,
    read or not: ``has_forgotten``). ``begins_again``: whether a restart may read it again from its beginning.
    """

    kind: str = ""
    max_out_of_orderness: int = 0
    codec: str = "ordinal-offset/1"
    address: str | None = None
    timestamp: str | None = None
    infers: bool = False
    bare: Mapping[str, int] = {}
    halves: tuple[Source, ...] = ()
    url: str = ""
    reach: Reach = Reach.NETWORK
    lists: bool = False
    finds_times: bool = False
    forgets: bool = False
    begins_again: bool = True

    # -- what every source has -----------------------------------------------------------------------------------

    @abstractmethod
    def partitions(self) -> Sequence[str]:
        """The names of the partitions that a new checkpoint begins with, whatever the source holds. Others join later,
        by a plan; none ever leaves."""

    @abstractmethod
    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        """What to read next. Driver only; reads listings and footers, changes nothing; may be called again."""

    @abstractmethod
    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        """The Arrow schema of the batches, from what a plan recorded. InvalidPipeline if the options of the source
        contradict it. Called before running a plan that another process has put."""

    @abstractmethod
    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        """The records of a split in order, in batches; repeatable on any worker."""

    # -- what a source may do ------------------------------------------------------------------------------------

    def acknowledge(self, positions: Positions) -> None:
        """A hint: nothing before these positions will be read again."""

    def reached(self, state: SourceState) -> Reached | None:
        """How far it has been read at these positions; None if unknown. Driver only; reads nothing."""
        return None

    def confirm(self, recorded: Mapping[str, Any]) -> None:
        """Raise SourceChanged unless the source is the one that was planned: another of the same name may have replaced
        it. Called between the reading of a step and its commit. Driver only."""

    def corrected(self, state: SourceState, put: SourcePlan) -> SourcePlan | None:
        """A plan of the same records as ``put``, which was never committed, with the present options. None if records
        begin elsewhere by those options: then they are planned as if ``put`` did not exist. ``state``: of the
        checkpoint, with the rows that ``put`` appends to the index. Driver only."""
        return put

    def losing(self) -> Source:
        """The same source, allowed to lose inputs that disappear before they are read."""
        return self

    def without_lost(self, splits: Sequence[Split], recorded: Mapping[str, Any]) -> tuple[Split, ...] | None:
        """The splits of a plan with each input that is certainly gone as one dead record; None if ``InputGone`` should
        be raised, because a loss is uncertain or not allowed. Driver only."""
        return None

    def from_clock(self, recorded: Mapping[str, Any], clock: int) -> SourceState | None:
        """The positions from which to continue at a clock, of all present partitions, and the part of ``recorded`` that
        still holds. RetentionGap if records since the clock may be gone. None if it can only begin again. Driver
        only."""
        return None

    def position_at(self, partition: str, clock: int) -> Position:
        """A position before which no record has a timestamp of ``clock`` (ms) or later. Records after it can be
        earlier: a reader that starts from a clock filters by timestamp. Driver only; needs ``finds_times``."""
        raise NotImplementedError

    def listed(self, index: pa.Table, recorded: Mapping[str, Any]) -> pa.ChunkedArray:
        """The full path or URL of each file of an index. Driver only; needs ``lists``."""
        raise NotImplementedError

    def has_forgotten(self, splits: Sequence[Split], recorded: Mapping[str, Any]) -> bool:
        """Whether records of a plan that was never committed are gone, and may be skipped by a new plan. False too if
        the loss of records is an error. Driver only; needs ``forgets``."""
        return False

    def declared(self) -> Mapping[str, tuple[bool, bool]]:
        """Of each ability, whether it is declared, and whether its method is written."""
        kind = type(self)
        return {
            "lists": (self.lists, kind.listed not in (None, Source.listed)),
            "finds_times": (self.finds_times, kind.position_at not in (None, Source.position_at)),
            "forgets": (self.forgets, kind.has_forgotten not in (None, Source.has_forgotten)),
        }

    # -- what drivers ask of its options -------------------------------------------------------------------------

    def check_recorded(self, recorded: Mapping[str, Any]) -> None:
        """Raise InvalidPipeline if the options contradict what a plan recorded; reads nothing. Steps call ``schema``,
        which refuses them too; ``persistent explain`` calls this."""

    def would_read(self, url: str, names: Iterable[str]) -> bool:
        """Whether a file with one of these names in the folder ``url`` would be an input: then the folder can hold
        neither the checkpoint nor results."""
        return False

    def text_columns(self, recorded: Mapping[str, Any]) -> frozenset[str]:
        """The columns that it reads from text without types, as CSV: there an inferred type can make one value of
        different texts."""
        return frozenset()

    # -- what it reports -----------------------------------------------------------------------------------------

    def guarantee(self) -> Promise:
        """What it guarantees for every record."""
        return Promise(EXACTLY_ONCE, "the same positions give the same records")

    def guarantee_deduplicated(self) -> Promise:
        """What it guarantees in a pipeline with ``dedupe``."""
        return self.guarantee()

    def warnings(self) -> Sequence[str]:
        """Warnings for the report of a run."""
        return ()

    def account_text(self, recorded: Mapping[str, Any], accounts: Mapping[str, Any]) -> str:
        """An explanation of its accounts for the report of a run; "" for none."""
        return ""

    def close(self) -> None:
        """Called when a run has ended or failed."""


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
    done, total = sum(part.done for part in known), sum(part.total for part in known)
    return Reached(
        done, total, known[0].unit, sum(part.files_done for part in known), sum(part.files for part in known)
    )


def parts_of(*sources: Source) -> tuple[Source, ...]:
    """The sources that these are made of: themselves, or their halves."""
    return tuple(part for source in sources for part in source.halves or (source,))
