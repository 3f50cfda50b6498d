"""The account of a checkpoint is proved by its source: read once more up to the positions, it must come to the same.

    read   as many records before each position as the ledger says were read
    mix    and the very same: the sum modulo 2**64 of the hashes of (partition, ordinal, offset, timestamp)
    dead   at least those that cannot be decoded, or have no time

A file that is gone may be one of the dead letters, or have been deleted once it was read: then nothing can be proved.

What was late was decided by the clock of each step, which the source alone cannot tell; that the parts of the account
add up to what was read is a law of the manifest.
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

from monoids.hashing import mix_records
from persistent.checkpoint.log import Entry
from persistent.checkpoint.manifest import Account, Manifest
from persistent.contents import Contents
from persistent.errors import InputGone, SourceChanged
from persistent.pipeline import Pipeline
from persistent.sources.protocol import NO_TIMESTAMP, Budget, Position, Positions, Records, Source, SourceState, Split
from persistent.verify.found import Verification

_ROWS = 4_000_000
_PART = "source"


@dataclass(frozen=True)
class _Count:
    """What was read of a partition."""

    read: int = 0
    undecodable: int = 0
    mix: int = 0
    lost: str = ""

    def __add__(self, other: _Count) -> _Count:
        mix = (self.mix + other.mix) % (1 << 64)
        lost = self.lost or other.lost
        return _Count(self.read + other.read, self.undecodable + other.undecodable, mix, lost)


def verify_source(
    pipeline: Pipeline, entry: Entry, *, on_progress: Callable[[int, int], None] | None = None
) -> Verification:
    """Read the source of a pipeline up to where its checkpoint ``entry`` stands; a fault names each partition whose
    account differs. SourceError where what was read is no longer there.

    ``on_progress`` is called with the records that are read, and those the account says there are.
    """
    manifest = entry.manifest
    found = Verification(pipeline.storage.url, newest=manifest.id)
    total = sum(account.read for account in manifest.ledger.values())
    index = Contents(pipeline.storage, None).index(manifest)
    counts: dict[str, _Count] = {partition: _Count() for partition in manifest.source.positions}
    try:
        for partition, count in _counts(pipeline.source, manifest, index):
            counts[partition] += count
            if on_progress is not None:
                on_progress(sum(one.read for one in counts.values()), total)
    except SourceChanged as error:
        found.fault(_PART, manifest.source.kind, str(error))
        return found
    for partition, count in counts.items():
        found.count(_PART, rows=count.read)
        position = manifest.source.positions[partition]
        for text in _differences(count, manifest.ledger.get(partition, Account()), position):
            if count.lost:
                raise InputGone(f"{count.lost}. Without it nothing can be said of what was read of it")
            found.fault(_PART, partition, text)
    return found


def _differences(count: _Count, account: Account, position: Position) -> Iterator[str]:
    if count.read != account.read:
        yield (
            f"holds {count.read:,} records before position {position}, the account says {account.read:,} were read "
            f"({account.processed:,} processed, {account.late:,} late, {account.dead:,} dead)"
        )
    elif count.mix != account.mix:
        yield (
            f"holds {count.read:,} records before position {position}, as many as the account says, but not the same "
            "ones: their places and times add up to another sum"
        )
    if count.undecodable > account.dead:
        yield f"holds {count.undecodable:,} records without a time, the account says {account.dead:,} are dead letters"


def _counts(source: Source, manifest: Manifest, index: pa.Table | None) -> Iterator[tuple[str, _Count]]:
    """What each split holds of the records before the positions of the checkpoint, from the first on."""
    ends = manifest.source.positions
    positions: Mapping[str, Position] = dict.fromkeys(ends, (0, 0))
    recorded = manifest.source.recorded
    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads, thread_name_prefix="verify") as pool:
        while any(positions[partition] < end for partition, end in ends.items()):
            state = SourceState(positions, recorded, index)
            plan = source.plan(state, Budget(_ROWS, splits=threads))
            if not plan.splits:
                return
            yield from pool.map(partial(_count, source, plan.recorded, ends), plan.splits)
            positions = {**positions, **plan.end}
            if plan.appended is not None:
                index = (
                    plan.appended
                    if index is None
                    else pa.concat_tables([index, plan.appended], promote_options="default")
                )


def _count(source: Source, recorded: Mapping[str, Any], ends: Positions, split: Split) -> tuple[str, _Count]:
    end = ends.get(split.partition, (0, 0))
    total = _Count()
    for records in source.read(split, recorded):
        total += _of_records(split.partition, records, end)
    return split.partition, total


def _of_records(partition: str, records: Records, end: Position) -> _Count:
    """What a batch adds to the account: as it was judged when it was mapped, and only of what is before ``end``."""
    times, offsets = records.timestamps, records.offsets
    dead = np.array([one.offset for one in records.dead], np.int64)
    if records.ordinal >= end[0]:
        limit = end[1] if records.ordinal == end[0] else 0
        before = offsets < limit
        times, offsets, dead = times[before], offsets[before], dead[dead < limit]
    mix = mix_records(partition, records.ordinal, offsets, np.where(times == NO_TIMESTAMP, -1, times))
    mix += mix_records(partition, records.ordinal, dead, np.full(len(dead), -1))
    lost = next((one.reason for one in records.dead if one.lost), "")
    return _Count(len(times) + len(dead), int((times < 0).sum()) + len(dead), mix, lost)
