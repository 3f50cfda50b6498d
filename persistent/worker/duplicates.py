"""A split judges each record by its (origin, epoch, sequence), or its id.

A record is judged by the records that the committed state has seen, by those of earlier splits of the step (where the
driver provides them, as it does wherever they matter), and by those before it in the split. So the fate of all records
is a function of the state and the plan, however the step is split:

 a copy          the number was seen: by a record in a live pane, or earlier in this split
 used again      the number was seen, but the record is younger than all of its origin: not a copy of any of them
 too old         the number was not seen, and its pane has expired: it cannot be judged
 new             all others; from now on they are seen, whatever their fate

An id is an origin with one record, of number 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.column import Column, Ragged, concat, take
from monoids.containers.intervals import united
from monoids.encoded import encoded_column
from monoids.groupby.cells import Integers, cell_counts, cell_ranks, fits_cells
from monoids.groupby.sorting import Mask, stable_order
from monoids.groupby.summing import GroupSums, group_by
from monoids.hashing import hash_keys, null_safe_equal
from monoids.text import Words
from persistent.state.rows import fold
from persistent.storage.protocol import Storage
from persistent.task.dedupe import Dedupe, check_type
from persistent.text.readable import readable_list
from persistent.worker.seen_items import SeenBefore, SeenSpan
from persistent.worker.seen_state import SeenCache, latest_of, numbers_of, seen_monoid

_FOLD_PARTS = 8
_NONE = -1
"""The latest timestamp of an origin without seen records."""


class Fate(IntEnum):
    """The fate of a record."""

    NEW = 0
    COPY = 1
    USED_AGAIN = 2
    NAMELESS = 3
    TOO_OLD = 4


class Duplicates:
    """The records that one split has seen, and its judgement."""

    def __init__(self, storage: Storage, dedupe: Dedupe, before: SeenBefore, cache: SeenCache) -> None:
        self._storage = storage
        self._dedupe = dedupe
        self._before = before
        self._cache = cache
        self._own: list[GroupSums] = []
        self._spans: list[SeenSpan] = []
        self._doubtful: list[SeenSpan] = []
        self.oldest_copy: int | None = None
        """The timestamp of the oldest record that a copy repeats; for numbers, of the oldest copy."""

    def judge(self, batch: pa.RecordBatch, times: Integers) -> Column:
        """The fate of each record, in the order of the split. New records are seen from now on."""
        names = _Names.of(self._dedupe, batch)
        fates = np.full(len(times), int(Fate.NAMELESS), np.int8)
        rows = np.flatnonzero(names.valid)
        if len(rows):
            codes, keys = _numbered(names.keys, rows)
            fates[rows] = self._judge(codes, keys, names.numbers[rows], times[rows])
        return fates

    def reasons(self, batch: pa.RecordBatch, rows: Integers, fates: Column) -> list[str]:
        """Why each of these rows is a dead letter."""
        names = self._dedupe.names
        values = {name: readable_list(_column(batch, name).take(pa.array(rows))) for name in names}
        return [self._reason({name: values[name][at] for name in names}, fate) for at, fate in enumerate(fates)]

    def _reason(self, values: dict[str, Any], fate: int) -> str:
        if fate == Fate.NAMELESS:
            missing = [name for name, value in values.items() if value is None]
            if missing:
                return f"no {' and no '.join(missing)}: dedupe needs them to recognise a copy"
            return f"{self._dedupe.sequence} {values[str(self._dedupe.sequence)]} is beyond 64 bits"
        named = ", ".join(f"{name} {value!r:.60}" for name, value in values.items())
        if self._dedupe.by_ids:
            return (
                f"{named} was seen before, in an older record: not a copy, unless copies have times of their own "
                "(restamped=True)"
            )
        advice = "" if self._dedupe.epoch else "; if the sender was restarted, give dedupe its epoch="
        return f"{named} was seen before, and this record is younger than all of its origin: not a copy{advice}"

    def rows(self) -> GroupSums | None:
        """The records that this split has seen; None if there are none."""
        return fold(seen_monoid(), self._own, self._before.pane_ms) if self._own else None

    def span(self) -> SeenSpan:
        """The range of numbers and times that this split has seen, by hash of the key."""
        return SeenSpan.joined(self._spans)

    def doubtful(self) -> SeenSpan:
        """The span of the records that are copies if an earlier split has seen their number, or a later timestamp of
        their origin."""
        return SeenSpan.joined(self._doubtful)

    def _judge(self, codes: Integers, keys: tuple[pa.Array, ...], numbers: Integers, times: Integers) -> Column:
        hashes, (codes, keys) = _by_hash(codes, keys)
        known, latest, committed = self._known(keys, hashes)
        packed, firsts, lasts = _packed(codes, numbers, known)
        at = np.searchsorted(firsts, packed, side="right") - 1
        seen = (at >= 0) & (packed <= lasts[at]) if len(lasts) else np.zeros(len(packed), bool)
        alive = times >= self._before.horizon
        again, originals = _repeated(packed, seen, alive, times)
        fates = np.where(alive, int(Fate.NEW), int(Fate.TOO_OLD)).astype(np.int8)
        copies = seen | again
        is_new = (fates == Fate.NEW) & ~copies
        if copies.any():
            fates[copies] = int(Fate.COPY)
            # Its original usually suffices to show that a copy is not the youngest.
            younger = copies & (times > np.maximum(latest[codes], originals))
            if not self._dedupe.restamped and younger.any():
                younger &= times > _latest_before(codes, times, is_new, latest)
                fates[younger] = int(Fate.USED_AGAIN)
            self._note_oldest(np.maximum(latest[codes], originals) if self._dedupe.by_ids else times, copies)
        self._note_doubtful(fates, codes, hashes, numbers)
        rows = np.flatnonzero(is_new)
        if len(rows):
            self._take(codes[rows], keys, hashes, numbers[rows], times[rows], committed)
        return fates

    def _known(self, keys: tuple[pa.Array, ...], hashes: Words) -> tuple[Ragged, Integers, Integers]:
        """The seen numbers of each key, and its latest timestamp: of all, and of the committed state alone."""
        count = len(hashes)
        latest = np.full(count, _NONE, np.int64)
        state_rows = [_found(part, keys, hashes, self._before.horizon) for part in self._committed(hashes)]
        for _, owners, times in state_rows:
            np.maximum.at(latest, owners, times)
        committed = latest.copy()
        split_rows = [_found(part, keys, hashes, self._before.horizon) for part in (*self._before.also, *self._own)]
        for _, owners, times in split_rows:
            np.maximum.at(latest, owners, times)
        parts = [(table, owners) for table, owners, _ in (*state_rows, *split_rows) if len(owners)]
        if not parts:
            none = np.zeros(0, np.int64)
            return Ragged.of(np.zeros(count, np.int64), (none, none)), latest, committed
        (table,) = concat([(table,) for table, _ in parts])
        return united(table, np.concatenate([owners for _, owners in parts]), count), latest, committed

    def _note_oldest(self, times: Integers, copies: Mask) -> None:
        oldest = int(times[copies].min())
        self.oldest_copy = oldest if self.oldest_copy is None else min(oldest, self.oldest_copy)

    def _note_doubtful(self, fates: Column, codes: Integers, hashes: Words, numbers: Integers) -> None:
        """Note the records whose fate may change if an earlier split has seen their origin. Any record of that split
        may show that a number used again is not the youngest of its origin: its span covers every number."""
        old, again = (np.flatnonzero(fates == fate) for fate in (Fate.TOO_OLD, Fate.USED_AGAIN))
        if not len(old) and not len(again):
            return
        doubtful_codes = codes[np.concatenate((old, again, again))]
        if self._dedupe.by_ids:
            self._doubtful.append(SeenSpan.of_ids(hashes[doubtful_codes]))
            return
        any_number = [np.full(len(again), number, np.int64) for number in (-(2**63), 2**63 - 1)]
        none = np.zeros(len(hashes), np.int64)
        reaching = np.concatenate((numbers[old], *any_number))
        self._doubtful.append(SeenSpan.of(doubtful_codes, hashes, reaching, none[doubtful_codes], none))

    def _committed(self, hashes: Words) -> list[GroupSums]:
        return list(self._cache.parts(self._storage, self._before, hashes))

    def _take(
        self, codes: Integers, keys: tuple[pa.Array, ...], hashes: Words, numbers: Integers, times: Integers, old: Any
    ) -> None:
        """Mark these records as seen. ``old``: the latest timestamp of each key in the committed state."""
        step = self._before.pane_ms
        if self._dedupe.by_ids and (hashes[1:] > hashes[:-1]).all():
            self._own.append(_singles(codes, keys, hashes, times, step))
        else:
            self._own.append(self._grouped(codes, keys, numbers, times))
        if len(self._own) > _FOLD_PARTS:
            self._own = [fold(seen_monoid(), self._own, step)]
        span = SeenSpan.of_ids(hashes[codes]) if self._dedupe.by_ids else None
        self._spans.append(span or SeenSpan.of(codes, hashes, numbers, times, old))

    def _grouped(self, codes: Integers, keys: tuple[pa.Array, ...], numbers: Integers, times: Integers) -> GroupSums:
        """The ranges of these numbers, and their latest timestamps, by key and pane."""
        step = self._before.pane_ms
        starts, panes = _distinct(times // step)
        cells, segments = _distinct(codes * len(starts) + panes)
        ranges = united(Ragged.singles((numbers, numbers)), segments, len(cells))
        latest = np.full(len(cells), _NONE, np.int64)
        np.maximum.at(latest, segments, times)
        of_key, of_pane = cells // len(starts), starts[cells % len(starts)] * step
        columns = (ranges, latest, np.broadcast_to(np.True_, len(cells)))
        return group_by(seen_monoid(), [key.take(pa.array(of_key)) for key in keys], of_pane, columns, step)


@dataclass(frozen=True)
class _Names:
    """The key columns and numbers of a batch; ``valid``: which rows have all of them."""

    keys: tuple[pa.Array, ...]
    numbers: Integers
    valid: Mask

    @staticmethod
    def of(dedupe: Dedupe, batch: pa.RecordBatch) -> _Names:
        keys = []
        valid = np.ones(len(batch), bool)
        for name in dedupe.keys:
            keys.append(_typed(dedupe, batch, name))
            valid &= np.asarray(keys[-1].is_valid())
        if dedupe.sequence is None:
            return _Names(tuple(keys), np.zeros(len(batch), np.int64), valid)
        column = _typed(dedupe, batch, dedupe.sequence)
        if pa.types.is_uint64(column.type):
            column = pc.if_else(pc.greater(column, pa.scalar(2**63 - 1, pa.uint64())), None, column)
        column = column.cast(pa.int64())
        valid &= np.asarray(column.is_valid())
        return _Names(tuple(keys), column.fill_null(0).to_numpy(zero_copy_only=False), valid)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column of the batch; nulls if it is missing."""
    return batch.column(name) if name in batch.schema.names else pa.nulls(len(batch))


def _typed(dedupe: Dedupe, batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column, without a dictionary, which could hold a value twice. InvalidPipeline if its type does not fit."""
    column = _column(batch, name)
    check_type(dedupe, name, column.type)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    column = column.storage if isinstance(column.type, pa.UuidType) else column
    for is_kind, plain in ((pa.types.is_string_view, pa.string()), (pa.types.is_binary_view, pa.binary())):
        column = column.cast(plain) if is_kind(column.type) else column
    return column


def _numbered(columns: Sequence[pa.Array], rows: Integers) -> tuple[Integers, tuple[pa.Array, ...]]:
    """The key number of each of these rows, and the distinct keys, each column canonically encoded."""
    codes = np.zeros(len(rows), np.int64)
    chosen = pa.array(rows)
    encoded = []
    for column in columns:
        if len(rows) != len(column):
            column = column.take(chosen)
        column = column.dictionary_encode()
        encoded.append((encoded_column(column.dictionary).array, column.indices.to_numpy().astype(np.int64)))
    if len(encoded) == 1:
        return encoded[0][1], (encoded[0][0],)
    for dictionary, indices in encoded:
        _, codes = _distinct(codes * len(dictionary) + indices)
    firsts = np.empty(int(codes.max()) + 1, np.int64)
    firsts[codes] = np.arange(len(codes))
    return codes, tuple(dictionary.take(pa.array(indices[firsts])) for dictionary, indices in encoded)


def _singles(codes: Integers, keys: tuple[pa.Array, ...], hashes: Words, times: Integers, step: int) -> GroupSums:
    """The rows of new ids, of one record each: sorted by hash, all hashes distinct."""
    order = np.argsort(codes)
    codes, times = codes[order], times[order]
    number = np.zeros(len(codes), np.int64)
    columns = (Ragged.singles((number, number)), times, np.broadcast_to(np.True_, len(codes)))
    return GroupSums(hashes[codes], tuple(key.take(pa.array(codes)) for key in keys), times // step * step, columns)


def _distinct(values: Integers) -> tuple[Integers, Integers]:
    """The distinct values, ascending, and the place of each value among them. Dense values are not sorted."""
    low, high = int(values.min()), int(values.max())
    if fits_cells(high - low + 1, len(values)):
        _, cells = cell_counts(values - low, high - low + 1)
        return cells + low, cell_ranks(values - low, high - low + 1, cells)
    distinct, places = np.unique(values, return_inverse=True)
    return distinct, places.astype(np.int64)


def _by_hash(codes: Integers, keys: tuple[pa.Array, ...]) -> tuple[Words, tuple[Integers, tuple[pa.Array, ...]]]:
    """The keys in the order of their hashes, the hashes, and the codes of the rows accordingly."""
    hashes = hash_keys(keys, len(keys[0]))
    order = np.argsort(hashes, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return hashes[order], (place[codes], tuple(key.take(pa.array(order)) for key in keys))


def _found(
    part: GroupSums, keys: tuple[pa.Array, ...], hashes: Words, horizon: int
) -> tuple[Ragged, Integers, Integers]:
    """The live rows of a part that belong to one of the keys: their numbers, their key, and their latest timestamps."""
    lows = np.searchsorted(part.hashes, hashes, side="left")
    counts = np.searchsorted(part.hashes, hashes, side="right") - lows
    owners = np.repeat(np.arange(len(hashes)), counts)
    rows = np.arange(len(owners)) + np.repeat(lows - (np.cumsum(counts) - counts), counts)
    kept = part.panes[rows] >= horizon
    for column, part_column in zip(keys, part.keys, strict=True):
        # Different keys can have the same hash.
        kept &= null_safe_equal(column.take(pa.array(owners)), part_column.take(pa.array(rows)))
    if not kept.all():
        owners, rows = owners[kept], rows[kept]
    return numbers_of(part)[rows], owners, latest_of(part)[rows]


def _packed(codes: Integers, numbers: Integers, known: Ragged) -> tuple[Words, Words, Words]:
    """(code, number) of each row, and of both ends of each known range, as words in that order. Ranges are clipped to
    the numbers of the rows."""
    low, high = int(numbers.min()), int(numbers.max())
    firsts, lasts = known.flat()
    owners = known.spread(np.arange(len(known)))
    near = (lasts >= low) & (firsts <= high)
    if not near.all():
        owners, firsts, lasts = take((owners, firsts, lasts), np.flatnonzero(near))
    firsts, lasts = np.maximum(firsts, low), np.minimum(lasts, high)
    bits = (high - low).bit_length()
    if bits + len(known).bit_length() > 64:
        _, ranks = np.unique(np.concatenate((numbers, firsts, lasts)), return_inverse=True)
        numbers, firsts, lasts = np.split(ranks.astype(np.int64), [len(numbers), len(numbers) + len(firsts)])
        low, bits = 0, int(ranks.max()).bit_length()

    def word(owner: Integers, number: Integers) -> Words:
        packed: Words = (owner.astype(np.uint64) << np.uint64(bits)) | (
            number.astype(np.uint64) - np.uint64(low % (1 << 64))
        )
        return packed

    return word(codes, numbers), word(owners, firsts), word(owners, lasts)


def _repeated(packed: Words, seen: Mask, alive: Mask, times: Integers) -> tuple[Mask, Integers]:
    """Which unseen rows repeat an earlier new row, that is one neither seen nor too old; and the timestamp of the first
    row with their number, if that row is new."""
    again, originals = np.zeros(len(packed), bool), np.full(len(packed), _NONE, np.int64)
    if (packed[1:] > packed[:-1]).all():
        return again, originals
    order, ordered = stable_order(packed, int(packed.max()).bit_length())
    same = ordered[1:] == ordered[:-1]
    if not same.any():
        return again, originals
    counts = (alive & ~seen)[order]
    before: Integers = np.cumsum(counts) - counts
    starts = np.flatnonzero(np.concatenate(([True], ~same)))
    sizes = np.diff(starts, append=len(ordered))
    at_start: Integers = np.repeat(before[starts], sizes)
    again[order] = before > at_start
    first = order[starts]
    originals[order] = np.repeat(np.where(counts[starts], times[first], _NONE), sizes)
    return again & ~seen, originals


def _latest_before(codes: Integers, times: Integers, is_new: Mask, latest: Integers) -> Integers:
    """For each row, the latest seen timestamp of its key: before the batch, or in an earlier new row."""
    order, _ = stable_order(codes, int(codes.max()).bit_length())
    values, ranks = np.unique(np.where(is_new, times, _NONE)[order], return_inverse=True)
    reached = values[np.maximum.accumulate(codes[order] * len(values) + ranks) % len(values)]
    above = np.empty(len(codes), np.int64)
    above[order] = reached
    return np.maximum(above, latest[codes])
