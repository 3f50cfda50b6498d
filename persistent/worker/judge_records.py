"""Judging the records of a batch: each is dead, duplicate, late or processed, by the first of these that it is.

After every batch ``read = processed + late + dead + duplicate``. Late records are counted by the window that they
missed: the last one that holds each. The number of windows is bounded: of many, those with most records are named, and
the others are one sum, under None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from monoids.groupby.sorting import Integers, Mask
from monoids.hashing import mix_records
from persistent.checkpoint.parts import Account
from persistent.connect.source import NO_TIMESTAMP, Records
from persistent.names import state_name
from persistent.state.time_to_live import Judge, TimeToLive
from persistent.text.figures import utc_text
from persistent.worker.duplicates import Duplicates, Fate
from persistent.worker.job import LateWindows, MapSplit
from persistent.worker.stage_aside import RowsAside

Clocks = Mapping[str, tuple[Judge | None, int]]
"""By node: its window or time to live, which judges what is late (None: nothing is), and the clock to judge by."""
RefusedRows = Mapping[str, tuple[Mask, Mask]]
"""By node: the rows that it does not take, and those of which it takes only a part."""

_TOO_OLD = "late: too old to know whether it is a copy (see within= of dedupe)"


@dataclass
class SplitTally:
    """The account of a split so far, its late and dead records, and what is not read."""

    account: Account = field(default_factory=Account)
    largest: int | None = None
    late: list[pa.RecordBatch] = field(default_factory=list)
    dead: list[pa.RecordBatch] = field(default_factory=list)
    late_windows: dict[str, LateWindows] = field(default_factory=dict)
    """By node."""
    ignored: dict[str, str] = field(default_factory=dict)
    """The fields that have no column, each with the first file that has it."""
    valued: set[str] = field(default_factory=set)
    """The columns in which a record has a value."""

    def note_columns(self, records: Records, place: str) -> None:
        """Note what these records, read at ``place``, have no column for, and which columns have a value."""
        self.ignored = dict.fromkeys(records.ignored, place) | self.ignored
        columns = zip(records.batch.schema.names, records.batch.columns)
        self.valued.update(name for name, column in columns if column.null_count < len(column))


@dataclass
class _Fates:
    """The fates of the rows of a batch so far. ``left``: the rows that have no fate yet; None: all."""

    aside: RowsAside
    tally: SplitTally
    left: Mask | None = None
    dead: int = 0
    duplicate: int = 0
    late: int = 0

    @property
    def records(self) -> Records:
        return self.aside.records

    def rows_left(self) -> Integers:
        return np.arange(len(self.records.timestamps)) if self.left is None else np.flatnonzero(self.left)

    def are_dead(self, rows: Integers, reasons: Sequence[str]) -> None:
        if len(rows):
            self.tally.dead.append(self.aside.rows(rows, reasons))
            self.dead += self._without(rows)

    def are_late(self, rows: Integers, reason: str) -> None:
        if len(rows):
            self.tally.late.append(self.aside.rows(rows, reason))
            self.late += self._without(rows)

    def are_partly_late(self, rows: Integers, reasons: str | Sequence[str], missing: Mapping[str, Mask]) -> None:
        """List these rows with the late ones; they are processed all the same. ``missing``: by state, what it lacks."""
        if len(rows):
            self.tally.late.append(self.aside.rows(rows, reasons))
            self.aside.partly.update({name: self.records.offsets[lacks] for name, lacks in missing.items()})

    def are_duplicates(self, rows: Integers) -> None:
        self.duplicate += self._without(rows)

    def _without(self, rows: Integers) -> int:
        """Take these rows out of ``left``; returns their number."""
        if not len(rows):
            return 0
        if self.left is None:
            self.left = np.ones(len(self.records.timestamps), bool)
        self.left[rows] = False
        return len(rows)


def judge(
    item: MapSplit, clocks: Clocks, aside: RowsAside, tally: SplitTally, seen: Duplicates | None
) -> Integers | None:
    """Count the records of a batch and collect the dead and late ones; returns the rows to process (None: all)."""
    records, fates = aside.records, _Fates(aside, tally)
    undecoded, decoded = len(records.dead), len(records.timestamps)
    if undecoded:
        tally.dead.append(aside.undecoded())
    if decoded:
        lowest = _judge_times(item, fates)
        lowest = _judge_elsewhere(item, fates, lowest)
        if seen is not None:
            _judge_copies(seen, fates)
        _judge_late(clocks, fates, lowest)
    processed = decoded - fates.dead - fates.duplicate - fates.late
    dead, mix = fates.dead + undecoded, _mix(item.split.partition, records)
    tally.account += Account(decoded + undecoded, processed, fates.late, dead, fates.duplicate, mix)
    return None if fates.left is None else np.flatnonzero(fates.left)


def _mix(partition: str, records: Records) -> int:
    """The sum of the hashes of all records."""
    times, offsets = records.timestamps, np.array([dead.offset for dead in records.dead], np.int64)
    mix = mix_records(partition, records.ordinal, records.offsets, np.where(times == NO_TIMESTAMP, -1, times))
    if len(offsets):
        mix += mix_records(partition, records.ordinal, offsets, np.full(len(offsets), -1))
    return mix


def _judge_times(item: MapSplit, fates: _Fates) -> int:
    """Set aside the rows that are dead by their timestamps, or that no part of the source counts. Returns a timestamp
    at or below all that are left."""
    records = fates.records
    times, nowhere = records.timestamps, records.nowhere
    lowest, highest = int(times.min()), int(times.max())
    if nowhere is None and item.limit.covers(lowest, highest):
        return lowest
    dead = item.limit.dead(times)
    if nowhere is not None:
        dead |= nowhere if item.since is None else nowhere & (times >= item.since)
    rows = np.flatnonzero(dead)
    fates.are_dead(rows, [item.limit.reason(records, row) for row in rows.tolist()])
    # The least of them may itself be dead, and in no window.
    return max(0, min(lowest, item.limit.last))


def _judge_elsewhere(item: MapSplit, fates: _Fates, lowest: int) -> int:
    """Count as duplicates the rows that were counted before a restart, or that another part of the source counts.
    Returns a timestamp at or below all that are left."""
    times, counted = fates.records.timestamps, fates.records.elsewhere
    if item.since is not None and lowest < item.since:
        before = times < item.since
        counted = before if counted is None else before | counted
    if counted is None:
        return lowest
    fates.are_duplicates(np.flatnonzero(counted if fates.left is None else counted & fates.left))
    return max(lowest, item.since or 0)


def _judge_copies(seen: Duplicates, fates: _Fates) -> None:
    """Judge the rows that are left by the seen records: a copy, dead without a number, or too old to know."""
    records, rows = fates.records, fates.rows_left()
    whole = len(rows) == len(records.timestamps)
    batch = records.batch if whole else records.batch.take(pa.array(rows))
    verdicts = seen.judge(batch, records.timestamps[rows])
    if not verdicts.any():
        return
    dead = np.flatnonzero((verdicts == Fate.NAMELESS) | (verdicts == Fate.USED_AGAIN))
    fates.are_dead(rows[dead], seen.reasons(batch, dead, verdicts[dead]) if len(dead) else ())
    fates.are_late(rows[verdicts == Fate.TOO_OLD], _TOO_OLD)
    fates.are_duplicates(rows[verdicts == Fate.COPY])


def _judge_late(clocks: Clocks, fates: _Fates, lowest: int) -> None:
    """Set aside the late rows, which no state takes. List the partly late rows, which a state refuses, or a final
    window would hold."""
    refusals = _refused(clocks, fates, lowest)
    if not refusals:
        return
    refused = np.sum([late for late, _ in refusals.values()], axis=0)
    is_late = refused == len(clocks)
    partly = (np.any([partly for _, partly in refusals.values()], axis=0) | (refused > 0)) & ~is_late
    fates.are_late(np.flatnonzero(is_late), "late")
    rows = np.flatnonzero(partly)
    missing = {state_name(id): (late | in_part) & partly for id, (late, in_part) in refusals.items()}
    fates.are_partly_late(rows, PARTLY_LATE if len(clocks) == 1 else _refusing(refusals, rows), missing)


def _refused(clocks: Clocks, fates: _Fates, lowest: int) -> RefusedRows:
    """The rows left that each state refuses, without the states that refuse none. The late ones are counted by the
    windows of the state; a single state with a time to live needs no count, because the account has it."""
    times, refusals = fates.records.timestamps, dict[str, tuple[Mask, Mask]]()
    for id, (judge, final) in clocks.items():
        if judge is None or not judge.may_be_late(lowest, final):
            continue
        late, partly = judge.late(times, final)
        refusals[id] = (late, partly) if fates.left is None else (late & fates.left, partly & fates.left)
        missed = times[refusals[id][0]]
        if len(missed) and (len(clocks) > 1 or not isinstance(judge, TimeToLive)):
            counts = fates.tally.late_windows
            counts[id] = added([counts.get(id, {}), windows_missed(judge, missed)])
    return refusals


def _refusing(refused: RefusedRows, rows: Integers) -> list[str]:
    """The reason of each of these rows, with the names of the states that refuse it, or a part of it."""
    names: list[list[str]] = [[] for _ in rows]
    for id, (late, partly) in refused.items():
        for place in np.flatnonzero((late | partly)[rows]).tolist():
            names[place].append(state_name(id))
    return [f"{PARTLY_LATE} in {', '.join(states)}" for states in names]


PARTLY_LATE = "partly-late"
"""The reason of a record that counts, but not in each window that holds its time, or not in each state of its task."""
WINDOWS_MAX = 1_000
_SHOWN_MAX = 3


def windows_missed(window: Judge, times: Integers) -> LateWindows:
    """How many of these times are in each window.

    >>> from persistent.time.window import tumbling
    >>> windows_missed(tumbling(10), np.array([3, 12, 4]))
    {0: 2, 10: 1}
    """
    if isinstance(window, TimeToLive):
        return {None: len(times)}
    starts, counts = np.unique(window.last_start(times), return_counts=True)
    return dict(zip(starts.tolist(), counts.tolist()))


def added(counted: Iterable[LateWindows], limit: int = WINDOWS_MAX) -> LateWindows:
    """The sum, with at most so many windows: those with most records, and of these the first, in the order of time.

    >>> added([{0: 2, 10: 1}, {20: 5, 0: 1}], 2), added([{0: 1, None: 4}, {10: 1}])
    ({0: 3, 20: 5, None: 1}, {0: 1, 10: 1, None: 4})
    """
    counted = [counts for counts in counted if counts]
    if not counted:
        return {}
    sums: Counter[int | None] = Counter()
    for counts in counted:
        sums.update(counts)
    others = sums.pop(None, 0)
    ranked = sorted(((start, count) for start, count in sums.items() if start is not None), key=_most_first)
    others += sum(count for _, count in ranked[limit:])
    return {**dict(sorted(ranked[:limit])), **({None: others} if others else {})}


def missed_text(missed: LateWindows) -> str:
    """The windows that most records have missed, in the order of time; without windows, how many are late.

    >>> missed_text({0: 3, 10: 1, 20: 1_200, 30: 1, None: 4})
    '3 of 1970-01-01 00:00:00Z, 1 of 1970-01-01 00:00:00.010Z, 1,200 of 1970-01-01 00:00:00.020Z, 5 of other windows'
    >>> missed_text({None: 1_200})
    '1,200'
    """
    if missed.keys() == {None}:
        return f"{missed[None]:,}"
    counts = added([missed], _SHOWN_MAX)
    return ", ".join(
        f"{count:,} of {'other windows' if start is None else utc_text(start)}" for start, count in counts.items()
    )


def _most_first(pair: tuple[int, int]) -> tuple[int, int]:
    return -pair[1], pair[0]
