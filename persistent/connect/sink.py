"""A sink makes outputs visible once: they are staged out of sight, then published after a checkpoint names them.

A ``StagingSink`` stages at its own place. A ``BatchSink`` has no place out of sight: its outputs wait in the
checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from monoids.groupby.sorting import Mask
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.names import Staged
from persistent.storage import Storage

ABILITIES = ("mark", "newest", "retract", "staged", "tidy", "undo")
"""The abilities of sinks that a checkpoint records. "holder", "look" and "resume" are abilities too."""

NUMBERED = {b"persistent": b"revision"}
"""The metadata of the column ``revision`` in outputs of windows: it holds the number of their batch. A field of the
record can have the same name."""


@dataclass(frozen=True)
class Claim:
    """A job that claims its sink.

    ``shown``: the number of the newest batch of this job that is known to be published; 0 without one. ``began``:
    whether the job has claimed this sink before, as batches staged for the sink prove: then its mark must exist.
    ``heir_of``: the jobs from whose savepoint this job started. It takes over their place in the sink if the newest
    batch there has the number ``inherited``, and its own batches follow that batch. ``schema``: the columns of the
    outputs; a key column has the type null while its type is unknown. ``key``: the names of the columns, the window
    included, that identify a row of a batch. ``url``: of the checkpoint, for errors.
    """

    job: str
    shown: int = 0
    began: bool = False
    heir_of: tuple[str, ...] = ()
    inherited: int = 0
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    key: tuple[str, ...] = ()
    url: str = ""


@dataclass(frozen=True)
class OutputBatch:
    """All outputs of a checkpoint for one sink.

    ``number``: grows from batch to batch, and on into a job that starts from the savepoint of another job; ``before``:
    the number of the previous batch for this sink, 0 for the first. ``oldest``: the sink may forget how to take back
    batches up to this number. ``id``: of the checkpoint, as users see it; ``url``: of the checkpoint. ``key``: as in a
    ``Claim``. ``rows``: the number of staged rows; a sink that ``replaces`` receives fewer if rows are taken back and
    published again. ``tables`` reads the staged outputs, and raises ``StagedMissing``.
    """

    job: str
    number: int
    before: int
    oldest: int
    id: int
    url: str
    key: tuple[str, ...]
    staged: tuple[Staged, ...]
    read: Callable[[Staged], pa.Table]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.staged)

    def tables(self) -> Iterator[pa.Table]:
        """The outputs in order, a table for each staged file."""
        return map(self.read, self.staged)


@dataclass(frozen=True)
class Retreat:
    """A rollback, as a sink sees it: the sink takes back the batches from the number ``first`` on, and moves its mark
    to ``number``, which the next batch has as ``before``. ``first`` is None if the outputs stay. ``staged``: batches
    below ``first`` that may be unpublished, oldest first: they count, so the sink publishes them first. ``key``,
    ``id``, ``url``: as in a batch. ``undoing``: for a sink that can only append; ``staged`` then has the batches from
    ``first`` on too. Once all of them are published, ``undoing(mark)`` gives the batch with this ``number`` whose rows
    take back the rows from ``first`` on. None if the outputs stay, or the sink takes them back in place.
    """

    job: str
    number: int
    first: int | None
    staged: tuple[OutputBatch, ...]
    key: tuple[str, ...]
    id: int
    url: str
    undoing: Callable[[int], OutputBatch] | None = None


@dataclass(frozen=True)
class Known:
    """What a checkpoint knows of a sink. ``batches``: the staged files of each batch, by the id that a kept checkpoint
    staged it under, up to the ``newest`` checkpoint. A batch in ``owed`` may not be published yet; whether a batch in
    ``open`` is published is unknown. All other batches are published."""

    job: str
    newest: int
    batches: Mapping[int, tuple[Staged, ...]]
    owed: Collection[int] = ()
    open: Collection[int] = ()

    @property
    def published(self) -> list[int]:
        """The ids of the batches that are known to be published."""
        return sorted(self.batches.keys() - {*self.owed, *self.open})


@dataclass(frozen=True)
class Looked:
    """A file, table or entry that a sink has looked at, with its size. ``fault``: how it differs from what was
    published; ``warning``: what may be lost; ``note``: what may be in order."""

    place: str
    bytes: int = 0
    rows: int = 0
    fault: str = ""
    warning: str = ""
    note: str = ""


class Sink:
    """What both kinds of sinks share; a sink is a ``StagingSink`` or a ``BatchSink``.

    ``address``: equal for two sinks at one place; None: only itself. ``storage``: the folder that it publishes files
    to, if any. ``shared``: whether workers in other processes can use it. ``replaces``: whether it keeps only the
    newest row of a key and window. A batch then has one row for each key; for a session that is taken back, the row
    with ``retracted`` = true or, if a new session has the same borders, the new row. Other corrections that take back
    a row, or add to it, are refused. ``limits_keys``: whether there are keys that it can never hold (``refused_keys``).
    ``abilities``: the optional methods that it has; a checkpoint records those of ``ABILITIES``.
    """

    address: str | None = None
    storage: Storage | None = None
    shared: bool = True
    replaces: bool = False
    limits_keys: bool = False
    abilities: frozenset[str] = frozenset()

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        """Raise ``InvalidPipeline`` for rows that the sink can never hold; for a table without rows, for columns that
        it can never hold. The driver calls it without rows when it claims. Workers call it when they stage, and after a
        refusal with smaller and smaller parts, until each refused row is alone."""

    def check_names(self, names: Sequence[str]) -> None:
        """Raise ``InvalidPipeline`` for names of columns that the sink can never hold. Called before anything is
        opened; ``claim`` and ``check`` refuse them too."""

    def names(self) -> tuple[str, ...]:
        """Patterns of the names of the files that it publishes to ``storage``."""
        return ()

    def refused_keys(self, keys: pa.Table) -> RefusedKeys:
        """The rows of key columns (without the window) that the sink can never hold, as masks, each with the reason.
        Workers call it with the keys of records, before the records count; needs ``limits_keys``."""
        return iter(())

    def look(self, known: Known, on_progress: Callable[[int, int], None]) -> Iterator[Looked]:
        """Look at what is published, and change nothing: a ``Looked`` for each thing. Needs the ability "look"."""
        return iter(())

    def declared(self) -> Mapping[str, tuple[bool, bool]]:
        """Of each ability, whether it is declared, and whether its method is written."""
        kind = type(self)
        written = {"look": kind.look not in (None, Sink.look), **self._written()}
        return {
            "limits_keys": (self.limits_keys, kind.refused_keys not in (None, Sink.refused_keys)),
            **{ability: (ability in self.abilities, is_written) for ability, is_written in written.items()},
        }

    def _written(self) -> Mapping[str, bool]:
        return {}

    def guarantee(self) -> Promise:
        """What it guarantees for every output."""
        return Promise(EXACTLY_ONCE, "it publishes committed outputs")

    def close(self) -> None:
        """Called when a run has ended or failed."""


class StagingSink(Sink, ABC):
    """A sink that stages at its own place, and makes the staged outputs visible there, as a folder of files does."""

    @abstractmethod
    def claim(self, job: str) -> None:
        """Called by the driver of ``job`` (the id in its checkpoint) before it stages or sweeps anything: a sink
        belongs to one job for good, and raises ``SinkMismatch`` for every other, without changing anything."""

    @abstractmethod
    def stage(self, outputs: pa.Table, staging_id: int, attempt: str) -> Staged:
        """Called by workers, perhaps more than once for the same rows, each time with another ``attempt``
        (``e<epoch>-c<id>-<uuid>``, unique): when it returns, the rows are durable but invisible."""

    @abstractmethod
    def publish(self, staging_id: int, staged: Sequence[Staged]) -> None:
        """Called by the driver after the checkpoint ``staging_id`` is committed, and again after a crash: twice has the
        effect of once. A file that is neither staged nor published raises ``StagedMissing``."""

    @abstractmethod
    def sweep(self, live: Collection[str], epoch: int, id: int) -> None:
        """Delete every staged file that is not in ``live`` and whose epoch is below ``epoch``, or equal with an id at
        or below ``id``."""

    # -- abilities -----------------------------------------------------------------------------------------------

    def _written(self) -> Mapping[str, bool]:
        kind = type(self)
        return {
            "holder": kind.holder not in (None, StagingSink.holder),
            "mark": kind.mark not in (None, StagingSink.mark),
            "newest": kind.newest not in (None, StagingSink.newest),
            "retract": kind.retract not in (None, StagingSink.retract),
            "staged": kind.staged not in (None, StagingSink.staged),
            "tidy": kind.tidy not in (None, StagingSink.tidy),
        }

    def holder(self) -> str | None:
        """The job that its place belongs to; None if it belongs to none yet."""
        return None

    def retract(self, first: int, stop: int) -> None:
        """Take back what was published under the ids ``first <= id < stop``; twice has the effect of once. The effect
        must hold even if a fenced driver that stalled in ``publish`` continues afterwards."""
        raise NotImplementedError

    def mark(self, first: int, stop: int) -> None:
        """Called before ``sweep`` and ``retract``; from then on nothing under these ids counts."""

    def tidy(self) -> None:
        """Delete what was published after it had been taken back."""

    def staged(self, job: str) -> Sequence[str]:
        """The names of the staged files of this job, so that ``gc`` can list and sweep them."""
        return ()

    def newest(self) -> int | None:
        """The highest id under which anything is published, -1 if none, so that a checkpoint that has lost its newest
        manifest is detected; None if unknown."""
        return None

    def damaged(self, staged: Sequence[Staged]) -> str | None:
        """The place of a staged or published file whose bytes are not those of ``staged``; None if there is none."""
        return None


class BatchSink(Sink, ABC):
    """A sink that receives all outputs of a checkpoint at once, as a server, a database or a function does. Its outputs
    wait in the checkpoint until then. Only the driver calls it; but workers call ``check`` and ``refused_keys``, so it
    can be pickled. The functions of ``persistent.connect.marked`` decide every move of its mark.
    """

    @abstractmethod
    def claim(self, claim: Claim) -> None:
        """Called first: a sink belongs to one job, and raises ``SinkMismatch`` for every other, without changing
        anything. It does not fence."""

    @abstractmethod
    def deliver(self, batch: OutputBatch) -> None:
        """Called after the checkpoint is committed, and again after a crash: the sink moves a mark from
        ``batch.before`` to ``batch.number`` in the transaction that writes the rows. A mark at ``batch.number`` means
        that the batch is published already. Any other mark above ``batch.before`` raises ``Fenced``; a mark below it
        raises ``SinkMismatch``, because earlier batches are missing. A batch without rows moves the mark too."""

    # -- abilities -----------------------------------------------------------------------------------------------

    def _written(self) -> Mapping[str, bool]:
        kind = type(self)
        return {
            "newest": kind.newest not in (None, BatchSink.newest),
            "resume": kind.resume not in (None, BatchSink.resume),
            "retract": kind.retract not in (None, BatchSink.retract),
            "undo": kind.undo not in (None, BatchSink.undo),
        }

    def retract(self, retreat: Retreat) -> None:
        """Publish ``retreat.staged``, take back the later batches, and move the mark to ``retreat.number``, so that no
        fenced driver can publish outputs that were taken back. Marks never decrease. A second call has no effect."""
        raise NotImplementedError

    def undo(self, retreat: Retreat) -> None:
        """For a sink with a mark that can only append: publish ``retreat.staged``; then publish the batch that
        ``retreat.undoing`` gives for the mark or, if the outputs stay, only move the mark to ``retreat.number``. The
        staged rows are kept as long as a rollback can go back to before them."""
        raise NotImplementedError

    def resume(self, retreat: Retreat) -> None:
        """For a sink that cannot take back: publish ``retreat.staged`` and move the mark to ``retreat.number``; later
        outputs stay, so ``retreat.first`` is None."""
        raise NotImplementedError

    def newest(self, job: str) -> int | None:
        """The number in the mark of this job, -1 if there is none; None if unknown."""
        return None


RefusedKeys: TypeAlias = Iterator[tuple[Mask, str]]
"""Rows of key columns that a sink can never hold, each time with the reason, which names the sink."""
