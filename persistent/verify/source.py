"""The source proves the account of a checkpoint: read again up to the positions, it must give the same counts.

    read   as many records before each position as the account says
    mix    the same records: the sum modulo 2**64 of the hashes of (partition, ordinal, offset, timestamp)
    dead   at least the records that cannot be decoded or have no time

Each record is read as it was when it was counted, whatever ``schema=`` is now. Files that were read may have been
deleted. Then only the rest can be compared, which is a warning.

Lateness was decided by the clock of each step, which the source cannot show. That the parts of the account add up is
a law of the manifest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from monoids.hashing import mix_records
from persistent.checkpoint.copies import newest_of, read_while_running
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import Account, Reading, SourcePart, partition_name, readings_of
from persistent.checkpoint.successor import Entry
from persistent.codec.fields import CODECS, Position, PositionCodec
from persistent.connect.source import NO_TIMESTAMP, Budget, Records, Source, SourceState, Span, Split
from persistent.driver.run_cache import RunCache
from persistent.errors import InputGone, Refused, RetentionGap, SourceChanged
from persistent.pipeline import Pipeline
from persistent.verify.findings import Verification

_ROWS = 4_000_000
_PART = "source"


class _Forgotten(Exception):
    """It is no longer known how some of the records were read."""


@dataclass(frozen=True)
class _RecordCount:
    """The records read of a partition. ``lost``: the files that no longer exist, each counted as one record."""

    read: int = 0
    undecodable: int = 0
    mix: int = 0
    lost: frozenset[tuple[int, str]] = frozenset()

    def __add__(self, other: _RecordCount) -> _RecordCount:
        mix = (self.mix + other.mix) % (1 << 64)
        return _RecordCount(self.read + other.read, self.undecodable + other.undecodable, mix, self.lost | other.lost)


def verify_source(
    pipeline: Pipeline, entry: Entry, *, on_progress: Callable[[int, int], None] | None = None
) -> Verification:
    """Read the source of a pipeline up to the positions of checkpoint ``entry``.

    A fault names each partition whose account differs; a warning, each partition that cannot be compared because files
    are gone. The job can run meanwhile: if ``entry`` is collected before it is read, the newest checkpoint is verified
    instead. ``on_progress`` receives the records read and the number in the account.
    """
    manifest, indexes = _indexes(Log(pipeline.storage), entry)
    verification = Verification(pipeline.storage.url, newest=manifest.id)
    total = sum(account.read for account in manifest.accounts.values())
    done = 0
    for name in manifest.sources:
        source = pipeline.sources.get(name)
        if source is None:
            raise Refused(
                f"{pipeline.storage.url}: checkpoint {manifest.id} has read a source {name!r}: give that source too"
            )
        before = done

        def progress(read: int, before: int = before) -> None:
            if on_progress is not None:
                on_progress(before + read, total)

        done += _verify_one(verification, manifest, name, source, indexes[name], progress)
    return verification


def _verify_one(
    verification: Verification,
    manifest: Manifest,
    name: str,
    source: Source,
    index: pa.Table | None,
    on_progress: Callable[[int], None],
) -> int:
    """Compare one source with its accounts; returns the number of records read."""
    part, accounts = manifest.sources[name], manifest.inputs[name]
    counts: dict[str, _RecordCount] = {partition: _RecordCount() for partition in part.positions}
    kind = part.kind if len(manifest.sources) == 1 else name
    try:
        for partition, count in _counts(source.losing(), part, index):
            counts[partition] += count
            on_progress(sum(count.read for count in counts.values()))
    except SourceChanged as error:
        verification.fault(_PART, kind, str(error))
        return 0
    except RetentionGap:
        verification.warn(
            _PART,
            kind,
            "the account cannot be compared with the source, because its retention has deleted records. A rollback "
            "to a checkpoint before the deleted records would have to read them again",
        )
        return 0
    except _Forgotten:
        verification.warn(
            _PART,
            kind,
            "the account cannot be compared with the source: schema= or reader= changed so often that the checkpoint "
            "no longer knows how its first records were read",
        )
        return 0
    except InputGone as error:
        verification.warn(_PART, kind, f"the account cannot be compared with the source: {error}")
        return 0
    for partition, count in counts.items():
        verification.count(_PART, rows=count.read)
        place = partition_name(name, partition, len(manifest.sources))
        position, account = part.positions[partition], accounts.get(partition, Account())
        differences = [*_differences(count, account, position)]
        if count.lost and differences:
            verification.warn(_PART, place, _gone_text(count, account, position))
            differences = [*_excesses(count, account, position)]
        for text in differences:
            verification.fault(_PART, place, text)
    return sum(count.read for count in counts.values())


def _indexes(log: Log, entry: Entry) -> tuple[Manifest, dict[str, pa.Table | None]]:
    """The manifest of a kept entry, and the index of each of its sources."""
    entries = [entry]

    def read(kept: Entry) -> tuple[Manifest, dict[str, pa.Table | None]]:
        cache = RunCache(log.storage, None)
        return kept.manifest, {name: cache.index(kept.manifest, name) for name in kept.manifest.sources}

    return read_while_running(log, lambda: entries.pop() if entries else newest_of(log), read)


def _differences(count: _RecordCount, account: Account, position: Position) -> Iterator[str]:
    if count.read != account.read:
        yield f"holds {count.read:,} records before position {position}, but {_read_text(account)}"
    elif count.mix != account.mix:
        yield (
            f"holds {count.read:,} records before position {position}, as many as the account says, but not the same "
            "records: their places and times add up to a different sum"
        )
    if count.undecodable > account.dead:
        yield (
            f"holds {count.undecodable:,} records without a time, but the account says {account.dead:,} are dead "
            "letters"
        )


def _excesses(count: _RecordCount, account: Account, position: Position) -> Iterator[str]:
    """The errors that remain whatever the lost files held."""
    there, undecodable = count.read - len(count.lost), count.undecodable - len(count.lost)
    if there > account.read:
        yield f"holds at least {there:,} records before position {position}, but {_read_text(account)}"
    if undecodable > account.dead:
        yield (
            f"holds at least {undecodable:,} records without a time, but the account has {account.dead:,} dead letters"
        )


def _read_text(account: Account) -> str:
    return (
        f"the account says {account.read:,} were read ({account.processed:,} processed, {account.late:,} late, "
        f"{account.dead:,} dead)"
    )


def _gone_text(count: _RecordCount, account: Account, position: Position) -> str:
    lost = sorted(count.lost)
    gone = (
        f"{lost[0][1]} was listed up to the checkpoint, but no longer exists"
        if len(lost) == 1
        else f"{len(lost):,} files that were listed up to the checkpoint no longer exist, the first {lost[0][1]}"
    )
    # Only files can be lost, and positions in files have an ordinal.
    rest = [path for ordinal, path in lost if ordinal == position[0]]
    partly = (
        f". {rest[0]} was read only up to offset {position[1]:,}: restore it so that the rest can be read"
        if rest
        else ""
    )
    return (
        f"{gone}. Files that were read can be deleted, but the {account.read:,} records read can no longer be compared "
        f"with the source, and a rollback to before them would have to read them again{partly}"
    )


def _counts(source: Source, part: SourcePart, index: pa.Table | None) -> Iterator[tuple[str, _RecordCount]]:
    """The records of each split before the positions of the checkpoint, from the first on."""
    ends = part.positions
    codec = CODECS[part.codec]
    positions: Mapping[str, Position] = dict.fromkeys(ends, codec.first)
    recorded = part.recorded
    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads, thread_name_prefix="verify") as pool:
        while any(positions[partition] < end for partition, end in ends.items()):
            state = SourceState(positions, recorded, index)
            plan = source.plan(state, Budget(_ROWS, splits=threads))
            if not plan.splits:
                return
            if plan.skipped:
                raise RetentionGap(f"{source!r} no longer has records of partition {', '.join(plan.skipped)}")
            splits = [split for split in plan.splits if split.partition in ends]
            yield from pool.map(partial(_count, source, part, plan.recorded), splits)
            positions = {**positions, **plan.end}
            if plan.appended is not None:
                index = (
                    plan.appended
                    if index is None
                    else pa.concat_tables([index, plan.appended], promote_options="default")
                )


def _count(source: Source, part: SourcePart, recorded: Mapping[str, Any], split: Split) -> tuple[str, _RecordCount]:
    """The records of a split, each as it was read when it was counted."""
    total = _RecordCount()
    for reading in readings_of(part, split.partition):
        total += _count_of(source, part, reading, recorded, split)
    return split.partition, total


def _count_of(
    source: Source, part: SourcePart, reading: Reading, recorded: Mapping[str, Any], split: Split
) -> _RecordCount:
    """The records of a split that were read in one way."""
    codec, end = CODECS[part.codec], part.positions[split.partition]
    high = end if reading.high is None else min(reading.high, end)
    spans = [
        span for span in split.spans if codec.of(span.ordinal, span.start) < high and _reaches(codec, span, reading.low)
    ]
    if not spans:
        return _RecordCount()
    if reading.recorded is None:
        raise _Forgotten(split.partition)
    within, total = replace(split, spans=tuple(spans)), _RecordCount()
    as_then = {**recorded, **reading.recorded}
    try:
        for records in source.read(within, as_then):
            start, stop = codec.stop(reading.low, records.ordinal), codec.stop(high, records.ordinal)
            total += _of_records(split.partition, records, start, stop)
    except InputGone:
        splits = source.without_lost((within,), as_then)
        if splits is None:
            raise
        return _count_of(source, part, reading, recorded, splits[0])
    return total


def _reaches(codec: PositionCodec, span: Span, low: Position) -> bool:
    """Whether a span has an offset at or after a position."""
    first = codec.stop(low, span.ordinal)
    return first is not None and first < span.stop


def _of_records(partition: str, records: Records, first: int | None, stop: int | None) -> _RecordCount:
    """The contribution of a batch to the account, judged as in a step, for its records ``first <= offset < stop``.

    ``first`` None: no records; ``stop`` None: all from ``first`` on.
    """
    if first is None:
        return _RecordCount()
    letters = [letter for letter in records.dead if first <= letter.offset and (stop is None or letter.offset < stop)]
    within = records.offsets >= first
    if stop is not None:
        within &= records.offsets < stop
    times, offsets = records.timestamps[within], records.offsets[within]
    dead = np.array([letter.offset for letter in letters], np.int64)
    mix = mix_records(partition, records.ordinal, offsets, np.where(times == NO_TIMESTAMP, -1, times))
    mix += mix_records(partition, records.ordinal, dead, np.full(len(dead), -1))
    lost = frozenset((records.ordinal, letter.lost) for letter in letters if letter.lost)
    return _RecordCount(len(times) + len(dead), int((times < 0).sum()) + len(dead), mix, lost)
