"""An outlet is a sink with the place where its outputs wait: the sink's own, or for a batch sink the checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import pyarrow as pa

from persistent.codec.sealed import decode_table, encode_table
from persistent.connect.sink import ABILITIES, BatchSink, Claim, OutputBatch, Retreat, Sink, StagingSink
from persistent.errors import InvalidPipeline, StagedMissing
from persistent.names import Attempt, Staged, published_stem, staged_name
from persistent.storage.protocol import Storage
from persistent.text.figures import shell_word


class Outlet(Protocol):
    """The operations of drivers and workers on a sink of either kind, in the terms of ``persistent.connect.sink``."""

    def claim(self, claim: Claim) -> None:
        """Claim the sink for a job. InvalidPipeline for columns that it can never hold."""

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        """InvalidPipeline for rows, or columns, that the sink can never hold."""

    def stage(self, outputs: pa.Table, staging_id: int, attempt: str, key: tuple[str, ...]) -> Staged:
        """Make outputs durable, out of sight. InvalidPipeline for rows that the sink can never hold."""

    def read(self, staged: Staged) -> pa.Table:
        """The staged outputs, for a batch sink. StagedMissing, CorruptCheckpoint."""

    def publish(self, batches: Sequence[OutputBatch], retreat: Retreat | None) -> None:
        """Make batches visible, oldest first; after a rollback a batch sink also takes back the later ones."""

    def sweep(self, live: Collection[str], epoch: int, id: int) -> None:
        """Delete staged files that no driver will publish."""

    def staged(self, job: str) -> list[str]:
        """The names of the staged files, as far as the sink knows them."""

    def newest(self, job: str, revision_base: int) -> int | None:
        """The highest id under which something is published; None if unknown."""

    def mark(self, first: int, stop: int) -> None:
        """Mark what a rollback takes back from a sink that stages: from then on it does not count."""

    def take_back(self, first: int, stop: int) -> None:
        """Take back from a sink that stages."""

    def tidy(self) -> None:
        """Delete what was published after it had been taken back."""

    def damaged(self, staged: Sequence[Staged]) -> str | None:
        """The place of a staged file with other bytes than were staged; None if there is none."""


def outlet(sink: Sink, storage: Storage) -> Outlet:
    """The outlet of a sink. ``storage``: of the checkpoint."""
    if isinstance(sink, BatchSink):
        return _OfBatches(sink, storage)
    assert isinstance(sink, StagingSink), sink
    return _OfFiles(sink)


def abilities(sink: Sink) -> tuple[str, ...]:
    """The abilities of a sink that a checkpoint records.

    >>> from persistent.connect.memory import MemorySink
    >>> abilities(MemorySink())
    ('newest', 'retract', 'staged')
    """
    return tuple(ability for ability in ABILITIES if ability in sink.abilities)


def stage_accepted(
    place: Outlet, outputs: pa.Table, attempt: Attempt, key: tuple[str, ...], *, all_refused: bool
) -> tuple[Staged | None, list[tuple[int, InvalidPipeline]]]:
    """Stage the rows that a sink can hold. Returns what was staged, None if nothing was, and the number of each refused
    row with the reason. Without ``all_refused`` the first refused row is the only one returned, and nothing is staged.
    InvalidPipeline for columns that the sink can never hold."""
    try:
        return place.stage(outputs, attempt.id, attempt.name(), key), []
    except InvalidPipeline:
        place.check(outputs.slice(0, 0), key)
        refused = list(islice(_refused_rows(place, outputs, key, 0), None if all_refused else 1))
        if not refused:
            raise
    kept = np.setdiff1d(np.arange(outputs.num_rows), [row for row, _ in refused])
    if not all_refused or not len(kept):
        return None, refused
    return place.stage(outputs.take(pa.array(kept)), attempt.id, attempt.name(), key), refused


def _refused_rows(
    place: Outlet, outputs: pa.Table, key: tuple[str, ...], first: int
) -> Iterator[tuple[int, InvalidPipeline]]:
    """The rows that a sink refuses, by bisection, numbered from ``first``."""
    try:
        place.check(outputs, key)
    except InvalidPipeline as error:
        middle = outputs.num_rows // 2
        if not middle:
            yield first, error
            return
        yield from _refused_rows(place, outputs.slice(0, middle), key, first)
        yield from _refused_rows(place, outputs.slice(middle), key, first + middle)


def _check_columns(place: _OfFiles | _OfBatches, claim: Claim) -> None:
    """InvalidPipeline for columns that the sink can never hold."""
    try:
        place.check(claim.schema.empty_table(), claim.key)
    except pa.ArrowException as error:
        raise InvalidPipeline(f"{place.sink!r}: {error}: give the monoid another output_type") from error


@dataclass(frozen=True)
class _OfFiles:
    """A sink that stages at its own place. It knows checkpoints by their ids, not the order of batches."""

    sink: StagingSink

    def claim(self, claim: Claim) -> None:
        _check_columns(self, claim)
        self.sink.claim(claim.job)

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        self.sink.check(outputs, key)

    def stage(self, outputs: pa.Table, staging_id: int, attempt: str, key: tuple[str, ...]) -> Staged:
        self.check(outputs, key)
        return self.sink.stage(outputs, staging_id, attempt)

    def read(self, staged: Staged) -> pa.Table:
        raise TypeError(f"{self.sink!r} reads {staged.name} itself")

    def publish(self, batches: Sequence[OutputBatch], retreat: Retreat | None) -> None:
        for batch in batches:
            if batch.staged:
                self.sink.publish(batch.id, batch.staged)

    def sweep(self, live: Collection[str], epoch: int, id: int) -> None:
        self.sink.sweep(live, epoch, id)

    def staged(self, job: str) -> list[str]:
        return list(self.sink.staged(job))

    def newest(self, job: str, revision_base: int) -> int | None:
        return self.sink.newest()

    def mark(self, first: int, stop: int) -> None:
        self.sink.mark(first, stop)

    def take_back(self, first: int, stop: int) -> None:
        self.sink.retract(first, stop)

    def tidy(self) -> None:
        self.sink.tidy()

    def damaged(self, staged: Sequence[Staged]) -> str | None:
        return self.sink.damaged(staged)


@dataclass(frozen=True)
class _OfBatches:
    """A batch sink, whose outputs wait in ``staged/`` of the checkpoint. They stay until a newer checkpoint records
    that they are published, because a sink without a mark receives them again after a crash."""

    sink: BatchSink
    storage: Storage

    def claim(self, claim: Claim) -> None:
        _check_columns(self, claim)
        self.sink.claim(claim)

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        self.sink.check(outputs, key)

    def stage(self, outputs: pa.Table, staging_id: int, attempt: str, key: tuple[str, ...]) -> Staged:
        published_stem(staging_id, attempt)
        self.check(outputs, key)
        data, sha256 = encode_table(outputs)
        name = staged_name(attempt)
        self.storage.write(name, data)
        return Staged(name, outputs.num_rows, len(data), sha256)

    def read(self, staged: Staged) -> pa.Table:
        place = f"{self.storage.url}/{staged.name}"
        try:
            data = self.storage.read(staged.name)
        except FileNotFoundError as error:
            raise StagedMissing(
                f"{place}: neither staged nor published in {self.sink!r}. If the sink had another place, or this is an "
                f"older copy of it, use the right one; or go back: 'persistent rollback "
                f"{shell_word(self.storage.url)} ID --outputs=retract', to a checkpoint that it has published"
            ) from error
        return decode_table(data, staged.sha256, place)

    def publish(self, batches: Sequence[OutputBatch], retreat: Retreat | None) -> None:
        abilities = self.sink.abilities
        if retreat is None or not abilities & {"retract", "undo", "resume"}:
            for batch in batches:
                self.sink.deliver(batch)
        elif "retract" in abilities:
            self.sink.retract(retreat)
        elif "undo" in abilities:
            self.sink.undo(retreat)
        else:
            self.sink.resume(retreat)

    def sweep(self, live: Collection[str], epoch: int, id: int) -> None:
        """Do nothing: the checkpoint collects waiting outputs that will never be published."""

    def staged(self, job: str) -> list[str]:
        return []

    def newest(self, job: str, revision_base: int) -> int | None:
        newest = self.sink.newest(job)
        return None if newest is None else newest - revision_base

    def mark(self, first: int, stop: int) -> None:
        """Do nothing: the sink takes back when it publishes."""

    take_back = mark

    def tidy(self) -> None:
        """Do nothing: what is taken back is gone."""

    def damaged(self, staged: Sequence[Staged]) -> str | None:
        return None
